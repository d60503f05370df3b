"""E-processes: bets against a hypothesis, whose expected wealth cannot grow while it holds. Also compares two groups.

If a hypothesis holds, the wealth of an e-process, which begins at 1, ever reaches 1/alpha with probability at most alpha
(Ville's inequality), whenever and however often one looks. See Ramdas, Grünwald, Vovk and Shafer, *Game-theoretic statistics
and safe anytime-valid inference* (2023).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import log, log2
from typing import Protocol

import numpy as np

from vinelm.trie.arrays import BoolArray, FloatArray


class GroupComparison:
    """Bets against "the new group's mean is at most ``ratio`` times the old group's mean, plus ``margin``".

    Each value is weighted by 1 / (chance of its group). A request's expected score is then the new group's mean minus
    ``ratio`` times the old group's mean. No distribution is assumed, and the mix of requests may change. The old group's mean
    so far is subtracted from each value, which reduces the variance of scores and changes no mean. An object may hold many
    comparisons, one for each element of the added arrays. Not thread-safe.

    Args:
        share: the probability, in (0, 1), with which each request is served by the new group.
        margin: a tolerated difference, as a fraction of the argument ``most`` of :meth:`add`; above -1.

    Attributes:
        log_wealth: log of the bets' wealth, which began at 1; under the hypothesis, it ever reaches log(1/alpha) with
            probability at most alpha.
    """

    def __init__(self, share: float, *, margin: float = 0.0) -> None:
        self.share, self.margin = share, margin
        self.log_wealth: FloatArray = np.zeros(())
        self._process = EProcess(MeanAbove(1.0))
        self._sum: FloatArray = np.zeros(())
        self._count: FloatArray = np.zeros(())

    def add(
        self,
        is_new: FloatArray | bool,
        value: FloatArray | float,
        *,
        ratio: float = 1.0,
        most: float = 1.0,
        counts: BoolArray | bool = True,
    ) -> FloatArray:
        """Add one request's value, and return the logarithm of the bets' capital (wealth): the evidence against the hypothesis.

        Args:
            is_new: whether the request was served by the new group.
            value: >= 0; values above ``most`` count as ``most``, in both groups.
            ratio: > 0; the factor by which the new group's mean may exceed the old group's. Chosen before the value was seen.
            most: > 0; the value above which values are cut off, in their unit. Chosen before the value was seen.
            counts: the comparisons in which the request counts. Chosen before the value was seen.
        """
        value, is_new = np.minimum(np.asarray(value, np.float64) / most, 1.0), np.asarray(is_new, np.bool_)
        # A shift decided before the value is seen leaves the mean unchanged: this one reduces the variance.
        old = np.clip(np.where(self._count > 0, self._sum / np.maximum(self._count, 1.0) / most, 0.5), 0.0, 1.0)
        # A request is in only one group, so its value counts with 1 / (chance of that group): the expectation over the draw is
        # then the difference of the groups, whatever the mix of requests.
        kept = 1.0 - self.share
        score = np.where(is_new, (value - ratio * old) / self.share, -ratio * (value - old) / kept)
        # Scores may be negative, but bets of MeanAbove need values >= 0, so scores are shifted by the least possible one, known
        # beforehand.
        least = -ratio * np.maximum(old / self.share, (1.0 - old) / kept)
        self.log_wealth = self._process.add((score - least) / (self.margin - least), counts)
        self._sum = self._sum + np.where(is_new | ~np.asarray(counts), 0.0, value * most)
        self._count = self._count + np.where(is_new | ~np.asarray(counts), 0.0, 1.0)
        return self.log_wealth


_SHARES = np.array((0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8))
"""Positions of a share's alternatives between the hypothesis and certainty."""
_STAKES_UP = np.array((0.02, 0.05, 0.1, 0.2, 0.35, 0.6))
_STAKES_DOWN = np.array((0.1, 0.25, 0.5, 1.0, 2.0))


class Bets(Protocol):
    """Several bets against one hypothesis. For each new value, every bet multiplies its wealth by a factor.

    The parameters of an implementation, such as ``most`` of :class:`ShareAbove`, may be arrays. Each element then states a
    separate hypothesis.
    """

    def log_factors(self, value: FloatArray) -> FloatArray:
        """Return the logarithm of each bet's factor for each value.

        ``value`` may have any shape; the result has this shape plus a last axis for the bets.
        """


@dataclass(frozen=True)
class ShareAbove:
    """Bets against "the chance of a 1 is at most ``most``", for values 0 and 1.

    Each bet assumes one higher chance, and multiplies its wealth by the likelihood ratio of the two chances.

    Args:
        most: the largest chance under the hypothesis, in [0, 1). If it is 0, a single value of 1 refutes the hypothesis.
    """

    most: float | FloatArray

    def log_factors(self, value: FloatArray) -> FloatArray:
        """Return the log of the factor by which each value multiplies each bet's wealth (its capital); see
        :meth:`Bets.log_factors`.
        """
        most = np.clip(np.asarray(self.most), 1e-9, 1.0 - 1e-9)[..., None]
        other = most + (1.0 - most) * _SHARES
        won, lost = np.log(other / most), np.log((1.0 - other) / (1.0 - most))
        factors: FloatArray = np.where(value[..., None] > 0.5, won, lost)
        return factors


@dataclass(frozen=True)
class ShareBelow:
    """An e-process against the hypothesis that values, each 0 or 1, are 1 with a probability of at least ``least``."""

    least: float | FloatArray

    def log_factors(self, value: FloatArray) -> FloatArray:
        """Return the log of the factor by which each value multiplies each bet's wealth (its capital); see
        :meth:`Bets.log_factors`.
        """
        return ShareAbove(1.0 - self.least).log_factors(1.0 - value)


@dataclass(frozen=True)
class MeanAbove:
    """Bets against "the mean is at most ``most``", for values >= 0, without other assumptions.

    A bet that risks the fraction s of its capital (wealth) multiplies it by 1 + s·(x/most − 1) for the value x. This factor is
    never negative, and its mean is at most 1 under the hypothesis.
    """

    most: float | FloatArray

    def log_factors(self, value: FloatArray) -> FloatArray:
        """Return the log of the factor by which each value multiplies each bet's wealth (its capital); see
        :meth:`Bets.log_factors`.
        """
        return np.asarray(np.log1p(_STAKES_UP * ((value / self.most)[..., None] - 1.0)))


@dataclass(frozen=True)
class MeanBelow:
    """Bets against "the mean is at least ``least``", given that the mean square distance to ``least`` is at most ``square``.

    Let s be the stake of a bet, x a value, and y = s·(least − x). The value multiplies the wealth by (1 + y + y²/2) / (1 +
    s²·square/2). This factor's mean is at most 1 under the hypothesis (Catoni's influence function). The values need no bound.
    """

    least: float | FloatArray
    square: float | FloatArray

    def log_factors(self, value: FloatArray) -> FloatArray:
        """Return the log of the factor by which each value multiplies each bet's wealth (its capital); see
        :meth:`Bets.log_factors`.
        """
        y = _STAKES_DOWN * (1.0 - value / self.least)[..., None]
        square = np.asarray(self.square / np.square(self.least))[..., None]
        return np.asarray(np.log1p(y + 0.5 * y * y) - np.log1p(0.5 * _STAKES_DOWN**2 * square))


@dataclass
class EProcess:
    """The wealth of a sequential test by betting, or of many independent tests of the same hypothesis.

    Half of the wealth is bet from the first value on. The other half is divided among bets that begin at each later value.

    A bet that begins with the j-th value, j >= 2, weighs 1/log2(j) - 1/log2(j + 1); these weights sum to 1. So to
    detect a change after n values, the log wealth has to grow only about log(n) + 2 log(log(n)) more than for a change at the
    first value. With many tests, all arrays begin with the shape of the tests.

    Attributes:
        bets: the bets, which define the hypothesis.
        count: the number of values added so far.
        log_wealth: log of the current wealth: a number for a single test, or an array over the tests.
    """

    bets: Bets
    count: int = 0
    log_wealth: FloatArray = field(default_factory=lambda: np.zeros(()))
    _start: FloatArray = field(default_factory=lambda: np.zeros(1))
    _later: FloatArray = field(default_factory=lambda: np.full(1, -np.inf))
    _low: FloatArray = field(default_factory=lambda: np.zeros(1))
    _low_at: FloatArray = field(default_factory=lambda: np.zeros(1))

    def add(self, value: FloatArray | float, counts: BoolArray | bool = True) -> FloatArray:
        """Add one value to each test for which ``counts`` is True; return the log of every test's wealth, its evidence."""
        factors = self.bets.log_factors(np.asarray(value, np.float64))
        if counts is not True:
            factors = np.where(np.asarray(counts)[..., None], factors, 0.0)
        self.count += 1
        n = self.count
        # `waiting` is the weight of all bets that have not begun: 1/log2(j) - 1/log2(j + 1) telescopes, so that the infinitely
        # many later starts need one number in total.
        waiting = 1.0 / log2(n + 1)
        if n >= 2:
            self._later = np.logaddexp(self._later, log(1.0 / log2(n) - waiting)) + factors
        self._start = self._start + factors
        # The lowest point of a bet's wealth dates the change: before it the bet lost, and since then it only gained.
        lower = self._start < self._low
        self._low = np.where(lower, self._start, self._low)
        self._low_at = np.where(lower, n, self._low_at)
        # The wealth of the first start, of the later starts, and of those still waiting (each still has its 1). Means of fair
        # bets are fair, so the mixture over stakes and starts is fair too, and Ville's bound holds for it.
        both = np.logaddexp(self._start, np.logaddexp(self._later, log(waiting)))
        top = both.max(-1)
        self.log_wealth = np.asarray(top + np.log(np.exp(both - top[..., None]).mean(-1)) - log(2.0))
        return self.log_wealth

    @property
    def before_change(self) -> int:
        """Return the estimated number of values that came before a change of their distribution. The object must hold a single
        test.

        Among the bets, the one is chosen that has gained most since its lowest wealth. The estimate is the number of values
        after which this lowest wealth was reached.
        """
        return int(self._low_at[int((self._start - self._low).argmax())]) if self.count else 0
