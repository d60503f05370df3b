"""Estimated calls of other processes to the replicas of a group since their last report."""

from __future__ import annotations

import random
from collections.abc import Mapping

KEPT = 0.7
"""Part of the mean of calls in a round that stays with the next round."""
MOST_SUPPOSED = 40.0
"""More calls than this are not supposed: the replicas are level long before."""


class SupposedCalls:
    """The estimated number of calls of the processes before this one since their last report.

    A process hears of the others' calls once a round. In between all know the same replica as the emptiest, and if all sent
    their calls there, they would do worse than without knowing. So each process supposes that those before it, in an order that
    all know, have sent as many calls by now as it sends itself in a round, each to the best replica, and takes the next best.
    """

    def __init__(self) -> None:
        self._heard: Mapping[str, int] = {}
        self._started, self._per_round = 0, 0.0

    def by_now(self, heard: Mapping[str, int], rank: int) -> int:
        """Return the number of calls, rounded at random.

        Args:
            heard: the others' calls; another mapping after each round.
            rank: processes before this one; without any there is nothing to suppose.
        """
        if heard is not self._heard:
            self._heard = heard
            self._per_round = KEPT * self._per_round + (1 - KEPT) * self._started
            self._started = 0
        expected = min(rank * self._per_round, MOST_SUPPOSED)
        return int(expected + random.random()) if expected else 0

    def started(self) -> None:
        """Count a call of this process."""
        self._started += 1
