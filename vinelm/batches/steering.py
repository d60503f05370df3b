"""Chooses the plan of each request of a batch so that all requests together stay within a budget and a deadline."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Literal

import numpy as np

from vinelm.batches.plan_shares import DrawnPlan, PlanShares, Share
from vinelm.controller import Planner
from vinelm.errors import ConfigError
from vinelm.objective import Objective
from vinelm.plans.assignment import Assignment
from vinelm.trie.arrays import BoolArray, FloatArray

Finish = Literal["all", "good"]

BLOCKS = 100
"""Number of blocks of a batch; plans are chosen again for each block."""
MEMORY = 0.1
"""Share of the requests over which the ratio of actual to predicted figures is averaged."""
LEAST_MEMORY = 50.0
"""The least number of requests over which the ratio of actual to predicted figures is averaged."""
BELIEF = 5.0
"""How many finished requests the trie's figures count for."""
KEPT_BACK = 2.5
"""Dollars are kept back for unknown results: this many standard deviations above their expected cost."""
TAIL = 6.0
"""Under a deadline, the last requests begin early enough to take this many standard deviations longer than the mean."""
LATEST = 4.0
"""Under a deadline, no request begins that would miss the deadline by taking this many standard deviations longer than the
mean.
"""
KEPT_FREE = (0.03, 0.1, 0.25, 0.5)
"""Shares of the reserved dollars that may be kept free under a deadline. Upper bounds of calls exceed their prices, so that
near the end of the budget ever fewer calls fit, and workers wait. Dollars kept free are not spent, but no time is lost. The
best plans decide which share."""
_ROUNDING = 1.0 + 1e-6


@dataclass(frozen=True)
class DatasetForecast:
    """The expected outcome of a batch.

    Args:
        requests: The number of requests that can be answered within the budget and the deadline.
        usd: The total cost of these requests in dollars.
        seconds: Seconds from the first request to the last answer, at zero load.
        accuracy: The mean accuracy of the answered requests.
        shares: The plans at the start, each with its share of the requests.
    """

    requests: int
    usd: float
    seconds: float
    accuracy: float
    shares: tuple[Share, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types, with the figures of each plan."""
        names = ("usd", "seconds", "accuracy")
        shares = [{"share": share, **{name: getattr(plan, name) for name in names}} for share, plan in self.shares]
        return {**vars(self), "shares": shares}


class Steering:
    """Chooses the plan of each request from the money and time left for all remaining requests. Not thread-safe.

    Requests are planned in blocks. The limits on a block's mean cost and mean seconds are the remaining money and time, divided
    by the number of remaining requests. They are corrected by the ratio of what ended requests actually used to what was
    predicted. If a block has several plans, each with a share of the requests, a hash of the request's key selects one.

    Without a deadline, the plans of a block depend only on results of earlier blocks, except the block directly before it. So
    an interrupted batch continues with the same plans. But some requests must wait for the results on which their plan depends
    (:meth:`waits`). With a deadline, plans also depend on the clock.

    Prompts with a common beginning are best served by one model, whose cache is warm. If a block's requests are divided between
    two plans, it does not matter which request gets which plan, but a switch between them causes a cache miss. So neighbours of
    one group follow the same plan, for at most as many requests as a block has.

    Args:
        planner: The planner over the trie.
        objective: The objective, without a budget.
        budget_usd: The maximum cost of all requests together, in dollars > 0; None sets no limit.
        deadline_s: The maximum seconds from the start of the batch to the last answer; None sets no limit.
        keys: The keys of the requests, in the order in which they begin.
        groups: The group of each request; prompts of a group have a common beginning. None makes each request a separate group.
        workers: The number of requests in progress at a time, >= 1.
        finish: What to do if money or time does not suffice for the initial plans. ``"all"`` switches to cheaper plans, to
            answer all requests if possible; ``"good"`` keeps the initial plans, and the last requests stay unanswered.

    Raises:
        ConfigError: The objective is not valid for a batch, or a deadline is given and the trie has no latencies.
    """

    def __init__(
        self,
        planner: Planner,
        objective: Objective,
        *,
        budget_usd: float | None,
        deadline_s: float | None,
        keys: Sequence[str],
        workers: int,
        finish: Finish = "all",
        groups: Sequence[int] | None = None,
    ) -> None:
        if groups is not None and len(groups) != len(keys):
            raise ConfigError(f"{len(groups)} groups are given for {len(keys)} requests: give one for each")
        self._plans = PlanShares(planner, objective)
        self._budget_usd, self._deadline_s, self._workers, self._finish = budget_usd, deadline_s, workers, finish
        self._keys, self._groups = keys, groups
        self._place = {key: place for place, key in enumerate(keys)}
        self._starts = _starts(len(keys), workers)
        self._usd, self._seconds = (np.full(len(keys), np.nan) for _ in range(2))  # for requests that have ended
        self._promised_usd, self._promised_s = (np.full(len(keys), np.nan) for _ in range(2))
        self._lost_usd = np.zeros(len(keys))
        self._known = 0  # all requests before this place have ended
        self._block = -1
        self._drawn: list[DrawnPlan | None] = []
        self._first = self._plans.within(self._each(budget_usd), self._each_s(deadline_s)) if keys else ()
        self._of_group: tuple[int | None, DrawnPlan | None, int] = (None, None, 0)
        self._ratio_s, self._deviation_s = 1.0, 0.0
        self._under_way_usd, self._bound = 0.0, 0.0
        self._quickest: DrawnPlan | None = None
        if keys and deadline_s is not None and finish == "all":
            self._quickest = self._plans.within(None, 0.0)[0].plan

    def waits(self, key: str) -> bool:
        """Return whether a request must wait, because its plan depends on results of requests in progress; always False with a
        deadline.
        """
        block = self._block_of(key)
        return self._deadline_s is None and block > max(self._block, 1) and self._known < self._starts[block - 1]

    def next(self, key: str, *, elapsed_s: float, reserved_usd: float = 0.0) -> DrawnPlan | None:
        """Return the plan of the next request; None if no money or time is left for the request.

        Requests begin in the order of the keys. :meth:`ended` must be called for each request that got a plan, even if it
        failed.

        Args:
            key: The key of a request that has not ended.
            elapsed_s: Seconds since the batch was started.
            reserved_usd: The maximum cost, in dollars, of the calls of requests in progress. Only used with a deadline.

        Raises:
            InfeasibleError: ``on_infeasible="raise"``, and no plan meets the objective.
        """
        block, place = self._block_of(key), self._place[key]
        if self._under_way_usd > 0.0:  # reserved dollars per predicted dollar
            self._bound = max(self._bound, reserved_usd / self._under_way_usd)
        if block > self._block:
            # Block by block, as far as plans follow from results alone, so that the draws of earlier runs are repeated.
            for one in [block] if self._deadline_s is not None else range(self._block + 1, block + 1):
                self._begin(one, elapsed_s)
        plan = self._drawn[place - self._starts[self._block]]
        # Drawn when the block began. If time has passed since, a quicker plan may still answer in time.
        if plan is not None and self._is_late(plan, elapsed_s):
            plan = None if self._quickest is None or self._is_late(self._quickest, elapsed_s) else self._quickest
            if plan is not None:
                self._promised_usd[place], self._promised_s[place] = plan.usd, plan.seconds
        if plan is None:
            self._promised_usd[place] = self._promised_s[place] = 0.0
            self.ended(key, cost_usd=0.0, seconds=0.0)
            return None
        self._under_way_usd += plan.usd
        return plan

    def ended(self, key: str, *, cost_usd: float, seconds: float, lost_usd: float = 0.0) -> None:
        """Count a request that has ended, or was answered by an earlier run.

        Args:
            key: The request's key.
            cost_usd: The total cost of the request in dollars.
            seconds: The seconds for which the request kept a worker busy.
            lost_usd: Additional dollars recorded for the request's calls with unknown outcome.
        """
        place = self._place[key]
        self._lost_usd[place] = lost_usd
        self._usd[place], self._seconds[place] = cost_usd, seconds
        if not math.isnan(self._promised_usd[place]):  # from this run
            self._under_way_usd = max(self._under_way_usd - float(self._promised_usd[place]), 0.0)
        while self._known < len(self._keys) and not math.isnan(self._usd[self._known]):
            self._known += 1

    def forecast(self) -> DatasetForecast:
        """Return the expected outcome of the batch if all estimates of the trie are right."""
        requests = len(self._keys)
        usd, seconds, accuracy = (_mean(self._first, name) for name in ("usd", "seconds", "accuracy"))
        if self._budget_usd is not None and usd * requests > self._budget_usd * (1.0 + 1e-9):
            requests = int(self._budget_usd / usd * (1.0 + 1e-9))
        if self._deadline_s is not None and seconds * requests > self._deadline_s * self._workers * (1.0 + 1e-9):
            requests = int(self._deadline_s * self._workers / seconds * (1.0 + 1e-9))
        length_s = max(requests / self._workers, min(requests, 1)) * seconds
        return DatasetForecast(requests, usd * requests, length_s, accuracy, self._first)

    # -- a block -------------------------------------------------------------------------------------------------

    def _begin(self, block: int, elapsed_s: float) -> None:
        """Choose the plans of a block (consecutive requests), and assign one of them to each of its requests.

        A request gets None if the money does not suffice. ``block`` is the index of the block, ``elapsed_s`` the seconds since
        the start of the batch.
        """
        self._block = block
        start, stop = self._starts[block], self._starts[block + 1]
        usd, seconds, room_usd, ratio = self._bounds(block, elapsed_s)
        shares = self._first if block == 0 and usd is None and seconds is None else self._within(usd, seconds, block, ratio)
        self._drawn = []
        for place in range(start, stop):
            plan = self._draw(place, shares, stop - start)
            # By what plans have really cost recently, not by their predictions.
            room_usd -= ratio * plan.usd
            self._drawn.append(plan if room_usd >= 0.0 else None)
            self._promised_usd[place], self._promised_s[place] = plan.usd, plan.seconds

    def _within(self, usd: float | None, seconds: float | None, block: int, ratio: float) -> tuple[Share, ...]:
        """Return the plans for a block (consecutive requests), each with its share of the block's requests.

        Under both limits, near the end of the budget, part of the money may be kept free, so that workers need not wait for
        reservations.

        Args:
            usd: The limit on the block's mean cost in dollars; None for no limit.
            seconds: The limit on the block's mean seconds; None for no limit.
            block: The index of the block.
            ratio: The ratio of actual to predicted cost.
        """
        left, bound = len(self._keys) - self._starts[block], self._bound / ratio
        if usd is None or seconds is None or bound <= 1.0 or self._finish == "good":
            return self._plans.within(usd, seconds)
        # Of the last bound * workers requests, n have room for n / bound at a time, and more if some dollars are kept free.
        found = []
        for part in KEPT_FREE:
            usd_left = usd * left / (left + part * bound * self._workers)
            waiting = (bound - 1.0) * self._workers * (part - 1.0 - math.log(part))
            seconds_left = seconds * left / (left + waiting)
            shares = self._plans.within(usd_left, seconds_left)
            over = max(_mean(shares, name) / max(most, 1e-300) for name, most in (("usd", usd_left), ("seconds", seconds_left)))
            target = _mean(shares, "usd") if self._plans.objective.target == "cost" else -_mean(shares, "accuracy")
            found.append((max(over, _ROUNDING), target, shares))
        return min(found, key=itemgetter(0, 1))[-1]

    def _draw(self, place: int, shares: tuple[Share, ...], most: int) -> DrawnPlan:
        group, (before, plan, times) = None if self._groups is None else self._groups[place], self._of_group
        if group is None or group != before or times >= most or not any(one is plan for _, one in shares):
            plan, times = Assignment(shares[::-1]).of(self._keys[place]), 0
        assert plan is not None
        self._of_group = (group, plan, times + 1)
        return plan

    def _bounds(self, block: int, elapsed_s: float) -> tuple[float | None, float | None, float, float]:
        """Return the limits on a block's mean cost and mean seconds, the money left in dollars, and the ratio of actual to
        predicted cost.

        Both limits apply to the cost and seconds that the trie predicts, not to the actual ones. They are None if there is no
        budget or no deadline.
        """
        start, size = self._starts[block], self._starts[block + 1] - self._starts[block]
        has_ended, left = ~np.isnan(self._usd[:start]), len(self._keys) - start
        if self._deadline_s is None:
            has_ended[self._starts[max(block - 1, 0)] :] = False  # some have ended by chance, and plans must not depend on it
        pending = np.flatnonzero(~has_ended)
        ratio, deviation = self._ratio(self._usd, self._promised_usd, has_ended, "usd")
        usd, room_usd = None, math.inf
        if self._budget_usd is not None:
            room_usd = self._budget_usd - float((self._usd + self._lost_usd)[:start][has_ended].sum())
            room_usd -= ratio * float(np.nansum(self._promised_usd[pending]))
            # What requests in progress may cost beyond their mean: errors of single requests add up by the square root.
            kept_usd = KEPT_BACK * deviation * math.sqrt(len(pending) + size) if block else 0.0
            usd = max(room_usd - kept_usd, 0.0) / left / ratio
            if self._finish == "good":
                usd = max(usd, _mean(self._first, "usd"))
        return usd, self._mean_seconds(elapsed_s, has_ended, pending, left), room_usd, ratio

    def _mean_seconds(
        self, elapsed_s: float, has_ended: BoolArray, pending: np.ndarray[tuple[int], np.dtype[np.intp]], left: int
    ) -> float | None:
        """Return the limit on the mean seconds of the requests in the current and all later blocks; None without a deadline.

        The limit applies to the seconds that the trie predicts. A block is a part of the batch for which plans are chosen at
        the same time.

        Args:
            elapsed_s: Seconds since the start of the batch.
            has_ended: For each request of the earlier blocks, in starting order, whether it has ended.
            pending: The indices of the earlier requests that are in progress.
            left: The number of requests in the current and all later blocks.
        """
        if self._deadline_s is None:
            return None
        self._ratio_s, self._deviation_s = self._ratio(self._seconds, self._promised_s, has_ended, "seconds")
        tail_s = _mean(self._first, "seconds") * self._ratio_s + TAIL * self._deviation_s
        under_way_s = self._ratio_s * float(np.nansum(self._promised_s[pending])) / 2  # each is about half done
        left_s = (self._deadline_s - elapsed_s - tail_s) * self._workers - under_way_s
        seconds = max(left_s, 0.0) / left / self._ratio_s
        return max(seconds, _mean(self._first, "seconds")) if self._finish == "good" else seconds

    def _ratio(self, real: FloatArray, promised: FloatArray, has_ended: BoolArray, name: str) -> tuple[float, float]:
        """Return the recent ratio of actual to predicted use, and the standard deviation of single requests around it.

        Args:
            real: The actual dollars or seconds of each request, in starting order.
            promised: The predicted dollars or seconds of each request; NaN if it had no plan.
            has_ended: Whether each request has ended, for the requests before the current block. The requests of a block are
                planned together. Only ended requests count.
            name: The field of the plans with the predicted figure: ``"usd"`` or ``"seconds"``.
        """
        expected = max(_mean(self._first, name), 1e-300)
        places = np.flatnonzero(has_ended & ~np.isnan(promised[: len(has_ended)]))
        # Towards the end, past requests matter less and those in progress more.
        memory = max(min(MEMORY * len(self._keys), len(self._keys) - len(has_ended)), LEAST_MEMORY)
        age = (len(has_ended) - places) / memory
        weight = np.exp(-age)
        total, planned = float(weight @ real[places]), float(weight @ promised[places])
        ratio = (total + BELIEF * expected) / (planned + BELIEF * expected)
        squares = float(weight @ (real[places] - ratio * promised[places]) ** 2)
        deviation = math.sqrt((squares + BELIEF * expected**2) / (float(weight.sum()) + BELIEF))
        return max(ratio, 1e-9), deviation

    def _is_late(self, plan: DrawnPlan, elapsed_s: float) -> bool:
        if self._deadline_s is None:
            return False
        of_plan = plan.seconds / max(_mean(self._first, "seconds"), 1e-300)  # a request of a quicker plan varies by less
        return elapsed_s + plan.seconds * self._ratio_s + LATEST * of_plan * self._deviation_s > self._deadline_s

    def _block_of(self, key: str) -> int:
        return bisect_right(self._starts, self._place[key]) - 1

    def _each(self, total: float | None) -> float | None:
        return None if total is None else total / len(self._keys)

    def _each_s(self, deadline_s: float | None) -> float | None:
        return None if deadline_s is None else deadline_s * self._workers / len(self._keys)


def _starts(requests: int, workers: int) -> list[int]:
    """Divide the requests into blocks; return the position of each block's first request, and finally the number of requests.

    Blocks shrink towards the end, so that the last plans can meet the budget closely. Each block except the last has at least
    one request for each worker.
    """
    starts = [0]
    while starts[-1] < requests:
        left = requests - starts[-1]
        starts.append(starts[-1] + min(max(min(math.ceil(requests / BLOCKS), math.ceil(left / 10)), workers), left))
    return starts


def _mean(shares: tuple[Share, ...], name: str) -> float:
    return float(sum(share * getattr(plan, name) for share, plan in shares))
