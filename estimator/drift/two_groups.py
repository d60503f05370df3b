"""Two ways of serving, drawn at random for each request: is the mean of one above that of the other?"""

from __future__ import annotations

import numpy as np

from vinelm.estimator.drift.e_process import EProcess, MeanAbove
from vinelm.trie.arrays import FloatArray


class GroupComparison:
    """Bets against "the mean of the new group is at most ``ratio`` times that of the old one, plus ``margin``".

    Each value counts with 1 / (chance of its group), so that the mean of a request's score is the difference of the groups: no
    distribution is assumed, and the mix of requests may change. A value is taken relative to the mean of the old group so far,
    which changes no mean and makes scores vary less. May hold many comparisons at once, one for each element of what is added.
    Not thread-safe.

    Args:
        share: the chance of the new group, in (0, 1), the same for all requests.
        margin: a difference that is tolerated, in units of ``most``; above -1.

    Attributes:
        log_wealth: log of the money that the bets have made of 1: log(1/alpha) is ever reached with probability alpha at most.
    """

    def __init__(self, share: float, *, margin: float = 0.0) -> None:
        self.share, self.margin = share, margin
        self.log_wealth: FloatArray = np.zeros(())
        self._process = EProcess(MeanAbove(1.0))
        self._sum: FloatArray = np.zeros(())
        self._count: FloatArray = np.zeros(())

    def add(self, is_new: FloatArray | bool, value: FloatArray | float, *, ratio: float = 1.0, most: float = 1.0) -> FloatArray:
        """Add the value of one request and return the log of the wealth.

        Args:
            is_new: whether the request was served by the new group.
            value: >= 0; of what is above ``most`` only ``most`` counts, in both groups.
            ratio: > 0; by how much the new group may be above the old one. Decided before the value was seen.
            most: > 0, in units of the value. Decided before the value was seen.
        """
        value, is_new = np.minimum(np.asarray(value, np.float64) / most, 1.0), np.asarray(is_new, np.bool_)
        # Every shift leaves the mean as it is, if it is decided before the value is seen: this one lessens the variance.
        old = np.clip(np.where(self._count > 0, self._sum / np.maximum(self._count, 1.0) / most, 0.5), 0.0, 1.0)
        kept = 1.0 - self.share
        score = np.where(is_new, (value - ratio * old) / self.share, -ratio * (value - old) / kept)
        least = -ratio * np.maximum(old / self.share, (1.0 - old) / kept)
        self.log_wealth = self._process.add((score - least) / (self.margin - least))
        self._sum = self._sum + np.where(is_new, 0.0, value * most)
        self._count = self._count + np.where(is_new, 0.0, 1.0)
        return self.log_wealth
