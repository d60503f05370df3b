"""The contingent planner's specification: every contingent plan of a small trie, written out and measured history by history.

Slow, and deliberately shares no code with the planner. Figures are masses: chances from the node of the question on, not
divided by the chance that the request goes on there, so that they are exact for values on a dyadic grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from kit.oracles.brute_force import upper_usd
from vinelm.objective import Objective
from vinelm.trie.annotated_trie import AnnotatedTrie


class Measured(NamedTuple):
    """The value of a plan: mass of correct answers, expected dollars, mass of histories without an answer, and the longest
    history by zero-load seconds, by seconds under load with a margin, and by dollars with a margin.
    """

    accuracy: float
    cost_usd: float
    lost: float
    longest_s: float
    loaded_s: float
    bounded_s: float
    bounded_usd: float


@dataclass(frozen=True)
class _History:
    """A node that a plan has reached, with what was used since the question's node."""

    node: int
    mass: float
    latency_s: float = 0.0
    latency_var: float = 0.0
    cost_usd: float = 0.0
    cost_var: float = 0.0
    extra_s: float = 0.0
    most_usd: float = 0.0


@dataclass(frozen=True)
class ContingentQuestion:
    """A question: the arguments of :meth:`Planner.plan`, with ``load`` by engine and ``stages`` as given or None."""

    annotated: AnnotatedTrie
    objective: Objective
    node: int = 0
    stages: Sequence[str] | None = None
    is_joint: bool = False
    elapsed_s: float = 0.0
    spent_usd: float = 0.0
    load: Mapping[str, float] | None = None
    may_stop: bool = True

    # -- one history --------------------------------------------------------------------------------------------

    def bounded_s(self, history: _History) -> float:
        """Seconds used since the question's node, as the latency bound reads them."""
        z = 0.0
        if self.objective.risk == "mean+sd":
            z = 1.0 if self.objective.z is None else self.objective.z
        return history.latency_s + history.extra_s + (z * math.sqrt(history.latency_var) if z else 0.0)

    def bounded_usd(self, history: _History) -> float:
        """Dollars used since the question's node, as a bound per request reads them."""
        z = self.objective.z
        return history.most_usd if z is None else history.cost_usd + (z * math.sqrt(history.cost_var) if z else 0.0)

    def fits(self, history: _History, dropped: Sequence[str]) -> bool:
        """Whether the history meets the bounds for each request."""
        asked = self.objective
        has_deadline = asked.max_latency_s is not None and "max_latency_s" not in dropped
        if has_deadline and self.bounded_s(history) > (asked.max_latency_s or 0.0) - self.elapsed_s:
            return False
        if asked.cost_budget == "per_request" and asked.max_cost_usd is not None and "max_cost_usd" not in dropped:
            return self.bounded_usd(history) <= asked.max_cost_usd - self.spent_usd
        return True

    def after(self, history: _History, child: int) -> _History:
        """The history that goes on with a child."""
        annotated, trie = self.annotated, self.annotated.trie
        engine = annotated.catalog[trie.models[trie.model[child]]].engine
        return _History(
            child,
            history.mass * float(annotated.arm[child]) if annotated.arm is not None else 0.0,
            history.latency_s + float(annotated.latency_s[child]),
            history.latency_var + float(annotated.latency_var[child]),
            history.cost_usd + float(annotated.cost_usd[child]),
            history.cost_var + float(annotated.cost_var[child]),
            history.extra_s + (self.load or {}).get(engine, 0.0),
            history.most_usd + upper_usd(annotated, child),
        )

    # -- all plans ------------------------------------------------------------------------------------------------

    def plans(self, dropped: Sequence[str] = ()) -> list[Measured]:
        """Measure every contingent plan whose histories meet the bounds that are not dropped."""
        start = _History(self.node, 1.0)
        arms = [
            below for stage, below in self.annotated.trie.arms(self.node).items() if self.stages is None or stage in self.stages
        ]
        can_end = self.may_stop and bool(self.annotated.trie.answerable[self.node])
        root = _measured(cost_usd=float(self.annotated.cost_usd[0])) if self.node == 0 else _measured()
        on = [self._after_arm(start, below, can_end and not self.is_joint, dropped) for below in arms]
        if can_end and self.is_joint:
            ending = _sum(_measured(accuracy=self._right(below)) for below in arms)
            if all(plans == [_measured(lost=self._chance(below))] for plans, below in zip(on, arms, strict=True)):
                return [_sum((root, ending))]
            return [_sum((root, ending)), *(_sum((root, *parts)) for parts in product(*on))]
        return [_sum((root, *parts)) for parts in product(*on)]

    def _after_arm(self, history: _History, below: list[int], can_end: bool, dropped: Sequence[str]) -> list[Measured]:
        """Every plan for one arm after a history: to end, or a child that fits with every plan below it; else no answer."""
        found = [_measured(accuracy=history.mass * self._right(below))] if can_end else []
        for child in below:
            longer = self.after(history, child)
            if self.fits(longer, dropped):
                found += self._at_node(longer, dropped)
        return found or [_measured(lost=history.mass * self._chance(below))]

    def _at_node(self, history: _History, dropped: Sequence[str]) -> list[Measured]:
        annotated, node = self.annotated, history.node
        can_end = bool(annotated.trie.answerable[node])
        own = self._own(history)
        arms = list(annotated.trie.arms(node).values())
        if not arms:
            rest = history.mass * float(1.0 - annotated.stop[node])
            right = history.mass * float(annotated.success[node] - annotated.stop_success[node])
            return [_sum((own, _measured(accuracy=right) if can_end else _measured(lost=rest)))]
        parts = [self._after_arm(history, below, can_end, dropped) for below in arms]
        return [_sum((own, *combined)) for combined in product(*parts)]

    def _chance(self, below: list[int]) -> float:
        assert self.annotated.arm is not None
        return float(self.annotated.arm[below[0]])

    def _right(self, below: list[int]) -> float:
        assert self.annotated.arm_success is not None
        return float(self.annotated.arm_success[below[0]])

    # -- one plan ---------------------------------------------------------------------------------------------------

    def measure(self, next_model: Callable[[int, str], str | None]) -> Measured:
        """Measure the plan that a function from node and stage to the next model describes; None ends, or has no answer."""
        root = _measured(cost_usd=float(self.annotated.cost_usd[0])) if self.node == 0 else _measured()
        return _sum((root, *self._followed(_History(self.node, 1.0), next_model, self.stages)))

    def _followed(
        self, history: _History, next_model: Callable[[int, str], str | None], stages: Sequence[str] | None
    ) -> Iterator[Measured]:
        trie = self.annotated.trie
        for stage, below in trie.arms(history.node).items():
            if stages is not None and stage not in stages:
                continue
            model = next_model(history.node, stage)
            if model is None:
                can_end = bool(trie.answerable[history.node])
                if history.node == self.node:  # where arms are decided jointly, one without a model is no end
                    asked = trie.arms(self.node) if self.stages is None else self.stages
                    ends_all = all(next_model(self.node, arm) is None for arm in asked)
                    can_end = can_end and self.may_stop and (ends_all or not self.is_joint)
                ended = history.mass * self._right(below)
                yield _measured(accuracy=ended) if can_end else _measured(lost=history.mass * self._chance(below))
                continue
            longer = self.after(history, trie.child(history.node, model, stage))
            if trie.children(longer.node):
                yield _sum((self._own(longer), *self._followed(longer, next_model, None)))
            else:
                yield self._at_node(longer, ())[0]

    def _own(self, history: _History) -> Measured:
        happens = history.mass > 0.0
        return Measured(
            history.mass * float(self.annotated.stop_success[history.node]),
            history.mass * float(self.annotated.cost_usd[history.node]),
            0.0,
            history.latency_s if happens else 0.0,
            history.latency_s + history.extra_s if happens else 0.0,
            self.bounded_s(history) if happens else 0.0,
            self.bounded_usd(history) if happens else 0.0,
        )

    # -- the best plan ----------------------------------------------------------------------------------------------

    def best(self, price: float = 0.0) -> tuple[Measured, tuple[str, ...]] | None:
        """The best plan for bounds per request, and the bounds that were relaxed; None where no plan leads on.

        Bounds on averages are not read. ``price`` is the accuracy that a dollar is worth with target accuracy.
        """
        asked = self.objective
        caps = [b for b in ("max_latency_s", "max_cost_usd") if getattr(asked, b) is not None]
        caps = [b for b in caps if b != "max_cost_usd" or asked.cost_budget == "per_request"]
        plans = self.plans()
        if asked.target == "latency":
            answered = [plan for plan in plans if plan.lost == 0.0]
            if answered:
                return min(answered, key=lambda plan: rank_of(asked, plan, price)), ()
        best = min(plans, key=lambda plan: rank_of(asked, plan, price))
        if best.lost < self._all():
            return best, ()
        for dropped in (*((bound,) for bound in caps), tuple(caps)):
            answered = [plan for plan in self.plans(dropped) if plan.lost == 0.0]
            if dropped and answered:
                keys = {"max_latency_s": lambda plan: plan.bounded_s, "max_cost_usd": lambda plan: plan.bounded_usd}
                return min(
                    answered, key=lambda plan: (*(keys[bound](plan) for bound in dropped), *rank_of(asked, plan, price))
                ), dropped
        return None

    def _all(self) -> float:
        """The mass of a plan that has no choice for any arm of the question."""
        arms = [
            below for stage, below in self.annotated.trie.arms(self.node).items() if self.stages is None or stage in self.stages
        ]
        return math.fsum(self._chance(below) for below in arms)


def rank_of(objective: Objective, plan: Measured, price: float = 0.0) -> tuple[float, ...]:
    """The key that plans are compared by, smaller is better; bounds are not read."""
    if objective.target == "cost":
        return (plan.lost, plan.cost_usd, -plan.accuracy, plan.longest_s)
    first = (plan.lost,) if objective.on_infeasible == "raise" else ()
    if objective.target == "latency" and plan.lost == 0.0:
        first = (plan.loaded_s,)
    return (*first, price * plan.cost_usd - plan.accuracy, -plan.accuracy, plan.cost_usd, plan.longest_s)


def _measured(*, accuracy: float = 0.0, cost_usd: float = 0.0, lost: float = 0.0) -> Measured:
    return Measured(accuracy, cost_usd, lost, 0.0, 0.0, 0.0, 0.0)


def _sum(parts: Iterator[Measured] | Sequence[Measured]) -> Measured:
    columns = list(zip(*parts, strict=True))
    return Measured(*map(sum, columns[:3]), *map(max, columns[3:]))
