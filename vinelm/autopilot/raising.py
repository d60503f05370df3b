"""A proven plan on its way from a few requests to nearly all of them, and the alarms that send it back. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from vinelm.estimator.drift.e_process import EProcess, GroupComparison, ShareAbove

HOLDOUT = 0.05
"""Share of the requests that run as today for good: only they show how today's model and the plan differ now."""
LEVELS = (0.05, 0.25, 1.0 - HOLDOUT)
"""Shares of the requests that the plan serves, one after the other."""
HELD = 300
"""Requests of a level, the plan's and today's, before the next one."""
ALPHA = 0.01
"""Chance that a watch whose share has not changed ever raises an alarm."""
REFERENCE_Z = 1.5
"""Standard errors around the share of the reference within which it is not held to have changed."""
LAG = 1000
"""So many values later a value counts as the reference, too: what has changed by then has long raised an alarm."""

Alarm = Literal["it escalates more or less often", "its answers differ more or less often", "fewer of its answers are right"]


class ShareWatch:
    """Whether the share of ones in a stream has changed: bets both ways, against an interval of what it was.

    The bets (:class:`~vinelm.estimator.drift.e_process.EProcess`) may begin at any value, so that a late change is found as
    fast as an early one. While the share is in the interval, an alarm is ever raised with a probability of at most ``alpha``.

    Args:
        ones, seen: Of the reference: how many of its values were ones.
        alpha: See above.
    """

    def __init__(self, ones: int, seen: int, *, alpha: float = ALPHA) -> None:
        self.ones, self.seen = ones, seen
        self._threshold = math.log(1.0 / alpha)
        self._waiting: list[bool] = []
        self._process = self._fresh()

    def add(self, value: bool) -> bool:
        """Count one value; returns whether the share has changed."""
        log_wealth = self._process.add(np.array([value, not value], np.float64))
        self._waiting.append(value)
        if len(self._waiting) >= 2 * LAG:
            self.ones, self.seen = self.ones + sum(self._waiting[:LAG]), self.seen + LAG
            del self._waiting[:LAG]
            # The interval is narrower from the next value on, decided by values that are past.
            self._process.bets = self._bets()
        return bool(np.logaddexp(*log_wealth) - math.log(2.0) >= self._threshold)

    def _fresh(self) -> EProcess:
        empty = np.zeros((2, 1))
        return EProcess(
            self._bets(), log_wealth=np.zeros(2), _start=empty, _later=empty - np.inf, _low=empty.copy(), _low_at=empty.copy()
        )

    def _bets(self) -> ShareAbove:
        low, high = interval(self.ones, self.seen)
        return ShareAbove(np.array([high, 1.0 - low]))


def interval(ones: int, seen: int, z: float = REFERENCE_Z) -> tuple[float, float]:
    """Return Wilson's interval of a share, which no count makes empty."""
    share, more = ones / max(seen, 1), z * z / max(seen, 1)
    middle = (share + more / 2.0) / (1.0 + more)
    reach = z * math.sqrt(share * (1.0 - share) / max(seen, 1) + more / max(seen, 1) / 4.0) / (1.0 + more)
    return max(middle - reach, 0.0), min(middle + reach, 1.0)


@dataclass
class Raising:
    """How large a share of the requests a proven plan serves.

    Args:
        max_loss: Fraction of the answers that the plan may lose, for feedback.
        escalated: Of how many requests of its proof the plan has asked today's model, and of how many (ones, seen); None for a
            plan that never asks it.
        differing: Likewise: answers that differ from today's.

    Attributes:
        level: Number of its level in :data:`LEVELS`.
        requests: Requests since the level began.
        alarm: Why it serves no request any more; None while it does.
    """

    max_loss: float
    escalated: tuple[int, int] | None
    differing: tuple[int, int]
    level: int = 0
    requests: int = 0
    alarm: Alarm | None = None
    _escalations: ShareWatch | None = field(init=False)
    _differences: ShareWatch = field(init=False)
    _worse: GroupComparison = field(init=False)

    def __post_init__(self) -> None:
        self._escalations = None if self.escalated is None else ShareWatch(*self.escalated)
        self._differences = ShareWatch(*self.differing)
        self._begin(self.level)

    @property
    def share(self) -> float:
        """Share of new requests that the plan serves; 0 after an alarm."""
        return LEVELS[self.level] if self.alarm is None else 0.0

    def ran_as_today(self) -> None:
        """Count a request that the plan was not drawn for."""
        self._count()

    def served(self, *, has_escalated: bool) -> None:
        """Count a request that the plan has served; ``has_escalated``: today's model has answered it in the end."""
        self._count()
        if self._escalations is not None and self.alarm is None and self._escalations.add(has_escalated):
            self.alarm = "it escalates more or less often"

    def compared(self, *, is_same: bool) -> None:
        """Count a request that has run as today, and whose recorded prompt the plan was asked, too."""
        if self.alarm is None and self._differences.add(not is_same):
            self.alarm = "its answers differ more or less often"

    def feedback(self, *, is_plan: bool, score: float) -> None:
        """Count what somebody says of an answer of a request at the present level, in [0, 1]."""
        if self.alarm is None and float(self._worse.add(is_plan, 1.0 - score)) >= math.log(1.0 / ALPHA):
            self.alarm = "fewer of its answers are right"

    def _count(self) -> None:
        self.requests += 1
        if self.requests >= HELD and self.level + 1 < len(LEVELS) and self.alarm is None:
            self._begin(self.level + 1)

    def _begin(self, level: int) -> None:
        self.level, self.requests = level, 0
        self._worse = GroupComparison(LEVELS[level], margin=self.max_loss)
