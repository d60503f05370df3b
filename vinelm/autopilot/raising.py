"""Raises the share of requests that a proven plan serves, from a few to nearly all, with alarms that roll the plan back. No
I/O.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from vinelm.estimator.drift.e_process import EProcess, GroupComparison, ShareAbove
from vinelm.trie.arrays import FloatArray

HOLDOUT = 0.05
"""Share of requests that always run as today: only they show how today's model and the plan differ now."""
LEVELS = (0.05, 0.25, 1.0 - HOLDOUT)
"""Shares of the requests that the plan serves, one after another."""
HELD = 300
"""How many requests a level needs, of the plan and of today's model, before the next level."""
ALPHA = 0.01
"""Probability that a watch ever raises an alarm although the watched share has not changed."""
REFERENCE_Z = 1.5
"""Half-width, in standard errors, of the interval around the reference share in which it counts as unchanged."""
LAG = 1000
"""A value joins the reference after this many later values: any change by then has long raised an alarm."""

MOST = 3.0
"""Dollars and seconds of a call are cut off at this multiple of today's mean."""

Alarm = Literal[
    "it escalates more or less often",
    "its model fails more often",
    "its answers differ more or less often",
    "fewer of its answers are right",
    "it saves less than half of what its proof saw",
    "its calls take longer than is allowed",
]


class Took(NamedTuple):
    """The cost in dollars and the seconds of a request's first call of a step, summed over all models called."""

    usd: float
    seconds: float


class ShareWatch:
    """Tests whether the share of ones in a stream of zeros and ones has left an interval around its earlier value.

    The test (:class:`~vinelm.estimator.drift.e_process.EProcess`) allows for a change that begins at any value of the stream,
    so it finds late changes as fast as early ones. While the share stays in the interval, the probability of any alarm is at
    most ``alpha``.

    Args:
        ones: The number of ones in the reference data.
        seen: The number of all values in the reference data.
        alpha: The maximum probability of a false alarm.
    """

    def __init__(self, ones: int, seen: int, *, alpha: float = ALPHA) -> None:
        self.ones, self.seen = ones, seen
        self._threshold = math.log(1.0 / alpha)
        self._waiting: list[bool] = []
        self._process = self._fresh()

    def add(self, value: bool) -> bool:
        """Add one value of the stream of zeros and ones.

        Return whether the test now proves that the share of ones has left the interval around its earlier value.
        """
        log_wealth = self._process.add(np.array([value, not value], np.float64))
        self._waiting.append(value)
        if len(self._waiting) >= 2 * LAG:
            self.ones, self.seen = self.ones + sum(self._waiting[:LAG]), self.seen + LAG
            del self._waiting[:LAG]
            # The interval is narrower from the next value on; it depends on past values only.
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


def interval(ones: int, seen: int) -> tuple[float, float]:
    """Return Wilson's confidence interval (lower end, upper end) for a share, given that ``ones`` of ``seen`` values are ones.

    The interval is never empty; its half-width is about :data:`REFERENCE_Z` standard errors.
    """
    z = REFERENCE_Z
    share, more = ones / max(seen, 1), z * z / max(seen, 1)
    middle = (share + more / 2.0) / (1.0 + more)
    reach = z * math.sqrt(share * (1.0 - share) / max(seen, 1) + more / max(seen, 1) / 4.0) / (1.0 + more)
    return max(middle - reach, 0.0), min(middle + reach, 1.0)


@dataclass
class Raising:
    """Decides what share of the requests a proven plan serves.

    Args:
        max_loss: The accuracy that the plan may lose, a fraction of the answers; feedback is compared with it.
        escalated: In the plan's proof: (number of requests that the current model had to answer, number of all requests).
        differing: In the plan's proof: (number of answers that differ from the current model's, number of all answers).
        saved: The fraction of the step's cost that the plan saves, according to its proof.
        today: The mean cost in dollars and the mean seconds of the recorded calls of the current model.
        max_slowdown: The maximum for the mean seconds of the plan's calls, in multiples of the current model's; None sets no
            limit.
        is_alone: Whether the plan is one model, which escalates only if it fails.
        has_below: Whether an earlier proven plan serves the other requests until this plan reaches the last level.

    Attributes:
        level: The index of the current level in :data:`LEVELS`.
        requests: The number of calls counted since the level began.
        alarm: Why the plan no longer serves requests; None while the plan serves.
    """

    max_loss: float
    escalated: tuple[int, int]
    differing: tuple[int, int]
    saved: float
    today: Took
    max_slowdown: float | None = None
    is_alone: bool = False
    has_below: bool = False
    level: int = 0
    requests: int = 0
    alarm: Alarm | None = None
    _escalations: ShareWatch = field(init=False)
    _differences: ShareWatch = field(init=False)
    _worse: GroupComparison = field(init=False)
    _costlier: GroupComparison = field(init=False)
    _slower: GroupComparison = field(init=False)

    def __post_init__(self) -> None:
        self._escalations = ShareWatch(*self.escalated)
        self._differences = ShareWatch(*self.differing)
        self._begin(self.level)

    @property
    def share(self) -> float:
        """The share of new requests that the plan serves now; 0 after an alarm."""
        return LEVELS[self.level] if self.alarm is None else 0.0

    def ran_as_today(self, took: Took | None = None) -> None:
        """Count a call that ran the current model.

        ``took`` has the cost and the seconds if this was the request's first call of the step; None for later calls.
        """
        self._compare(False, took)
        self._count()

    def served(self, *, has_escalated: bool, took: Took | None = None) -> None:
        """Count a call that the plan has served; ``has_escalated`` is whether the current model had to answer it.

        ``took`` has the cost and the seconds if this was the request's first call of the step; None for later calls.
        """
        self._compare(True, took)
        self._count()
        if self.alarm is None and self._escalations.add(has_escalated):
            self.alarm = "its model fails more often" if self.is_alone else "it escalates more or less often"

    def compared(self, *, is_same: bool) -> None:
        """Count a comparison: whether the plan and the current model gave the same answer to a recorded prompt."""
        if self.alarm is None and self._differences.add(not is_same):
            self.alarm = "its answers differ more or less often"

    def feedback(self, *, is_plan: bool, score: float) -> None:
        """Count feedback on an answer; set the alarm if the plan's answers are proven to be right too rarely.

        ``score``, in [0, 1], rates an answer of the plan, or of the current model if ``is_plan`` is False.
        """
        if self.alarm is None and _is_sure(self._worse.add(is_plan, 1.0 - score)):
            self.alarm = "fewer of its answers are right"

    def _compare(self, is_plan: bool, took: Took | None) -> None:
        """Count a call's cost and seconds; set the alarm if the plan saves too little or is slower than allowed.

        Does nothing after an alarm, or while an earlier plan serves the requests that this plan does not serve yet.

        Args:
            is_plan: whether the plan served the call; otherwise the current model ran.
            took: the cost and the seconds of the call; None if the call is ignored.
        """
        if took is None or self.alarm is not None or (self.has_below and self.level + 1 < len(LEVELS)):
            return
        usd, seconds = self.today
        if usd > 0.0 and _is_sure(self._costlier.add(is_plan, took.usd, ratio=1.0 - self.saved / 2.0, most=MOST * usd)):
            self.alarm = "it saves less than half of what its proof saw"
        ratio, most = self.max_slowdown, MOST * seconds * (self.max_slowdown or 0.0)
        if ratio and most and _is_sure(self._slower.add(is_plan, took.seconds, ratio=ratio, most=most)):
            self.alarm = "its calls take longer than is allowed"

    def _count(self) -> None:
        self.requests += 1
        if self.requests >= HELD and self.level + 1 < len(LEVELS) and self.alarm is None:
            self._begin(self.level + 1)

    def _begin(self, level: int) -> None:
        self.level, self.requests = level, 0
        self._worse = GroupComparison(LEVELS[level], margin=self.max_loss)
        self._costlier, self._slower = GroupComparison(LEVELS[level]), GroupComparison(LEVELS[level])


def _is_sure(log_wealth: FloatArray) -> bool:
    return float(log_wealth) >= math.log(1.0 / ALPHA)
