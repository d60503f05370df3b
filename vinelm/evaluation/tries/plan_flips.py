"""The plans that change from one annotated trie to another: for each cap on the dollars of a request, the most accurate one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from vinelm.controller import Decision
from vinelm.controller.planning.contingent.decision import ContingentDecision
from vinelm.controller.planning.contingent.plan import ContingentPlan
from vinelm.evaluation.plans.plans import Plans
from vinelm.evaluation.plans.plans_over import plans_over
from vinelm.evaluation.plans.sweep import spaced_caps
from vinelm.objective import Objective
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.decision_graph import END, NOTHING, DecisionGraph

N_CAPS = 24
_EXTREMES = Objective(minimize="cost"), Objective(maximize="accuracy")
"""The objectives between whose plans caps are tried."""
_TWO_SIDED_95 = 1.96
_EXACT = 1e-9
"""Relative difference below which two figures count as equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFlip:
    """Another plan for the highest accuracy within a range of mean dollars per request.

    Attributes:
        min_cap_usd: The smallest of the caps that were tried at which the plans differ so.
        max_cap_usd: The largest of them.
        before: The first trie's plan: models from the root; where plans have a model for each arm, one item with its words.
        after: The second trie's plan.
        gain: Accuracy of the new plan less that of the old one, both by the second trie; None if it does not have the old one.
        standard_error: Of the gain, as if both were estimated from different requests; None if it is not known.
        old_cost_usd: Dollars of the old plan by the second trie; None if it does not have it.
    """

    min_cap_usd: float
    max_cap_usd: float
    before: tuple[str, ...]
    after: tuple[str, ...]
    gain: float | None
    standard_error: float | None
    old_cost_usd: float | None

    @property
    def why(self) -> Literal["gone", "over the cap", "beyond noise", "within noise"]:
        """Why the old plan is not chosen any more: a model of it is gone, it costs too much, or another is more accurate."""
        if self.gain is None or self.old_cost_usd is None:
            return "gone"
        if self.old_cost_usd > self.min_cap_usd * (1 + _EXACT):
            return "over the cap"
        known = self.standard_error is not None and self.gain > _TWO_SIDED_95 * self.standard_error
        return "beyond noise" if known else "within noise"


class _Figures(NamedTuple):
    """A plan's figures by one trie."""

    accuracy: float
    cost_usd: float
    standard_error: float | None


def plan_flips(before: AnnotatedTrie, after: AnnotatedTrie) -> tuple[PlanFlip, ...]:
    """Return where the plans under a cap on mean dollars differ, neighbouring caps with the same two plans as one."""
    both = plans_over(before), plans_over(after)
    ends = [plans.decision(goal).path_cost_usd for plans in both for goal in _EXTREMES]
    found: list[PlanFlip] = []
    was_there = False
    for cap in spaced_caps(min(ends), max(ends), "max_cost_usd", N_CAPS):
        flip = _flip(both, cap)
        if flip is not None and was_there and (found[-1].before, found[-1].after, found[-1].why) == (
            flip.before, flip.after, flip.why
        ):  # fmt: skip
            flip = replace(found.pop(), max_cap_usd=cap)
        was_there = flip is not None
        if flip is not None:
            found.append(flip)
    return tuple(found)


def _flip(both: tuple[Plans[Any], Plans[Any]], cap: float) -> PlanFlip | None:
    old, new = (plans.decision(Objective(maximize="accuracy", max_cost_usd=cap)) for plans in both)
    if not (old.is_feasible and new.is_feasible):
        return None
    annotated, now = new.metrics.annotated, _plan_of(new)
    there: int | ContingentPlan | None
    if isinstance(old, ContingentDecision) and isinstance(now, ContingentPlan):
        there = _plan_on(now.graph, old.plan)
        is_same = there is not None and there.is_same_as(now)
    else:
        there = _node_of(annotated, old.path)
        is_same = there == now
    if is_same:
        return None
    figures, newest = None if there is None else _figures(annotated, there), _figures(annotated, now)
    errors = [one.standard_error for one in (figures, newest) if one is not None and one.standard_error is not None]
    return PlanFlip(
        min_cap_usd=cap,
        max_cap_usd=cap,
        before=old.shown,
        after=new.shown,
        gain=None if figures is None else newest.accuracy - figures.accuracy,
        standard_error=math.hypot(*errors) if len(errors) == 2 else None,
        old_cost_usd=None if figures is None else figures.cost_usd,
    )


def _plan_of(decision: Decision) -> int | ContingentPlan:
    """The node that a path ends at, or the plan of a graph."""
    return decision.plan if isinstance(decision, ContingentDecision) else decision.target


def _figures(annotated: AnnotatedTrie, plan: int | ContingentPlan) -> _Figures:
    if not isinstance(plan, int):
        return _Figures(plan.accuracy, plan.cost_usd, plan.standard_error)
    error = None if annotated.accuracy_se is None else float(annotated.accuracy_se[plan])
    return _Figures(float(annotated.accuracy[plan]), float(annotated.path_cost_usd[plan]), error)


def matched(before: DecisionGraph, after: DecisionGraph) -> dict[int, int]:
    """Return the position of ``before`` with the same stages and models before it, for each of ``after`` that has one."""
    found, waiting = {0: 0}, [0]
    for at in waiting:
        for group in after.groups_at(at):
            known = before.groups_at(found[at], (_stage(after, group),))
            names = {_model(before, edge): edge for edge in before.edges_of(known[0])} if known else {}
            for edge in after.edges_of(group):
                target, same = int(after.target[edge]), names.get(_model(after, edge))
                if same is not None and target not in found:
                    found[target] = int(before.target[same])
                    waiting.append(target)
    return found


def _plan_on(graph: DecisionGraph, plan: ContingentPlan) -> ContingentPlan | None:
    """The plan over another graph of the workflow; None where that lacks a model which the plan runs."""
    there, before = matched(plan.graph, graph), plan.graph
    choice = np.where(graph.source_may_end, END, NOTHING)
    first: dict[int, int] = {}
    waiting = [0]
    for at in waiting:
        for group in graph.groups_at(at):
            known = before.groups_at(there[at], (_stage(graph, group),))
            edge = plan.chosen(known[0]) if known else NOTHING
            if edge >= 0:
                edge = next((e for e in graph.edges_of(group) if _model(graph, e) == _model(before, edge)), NOTHING)
                if edge == NOTHING:
                    return None
                if int(graph.target[edge]) not in waiting:
                    waiting.append(int(graph.target[edge]))
            elif graph.may_end[at]:
                edge = END
            choice[group] = edge
            if at == 0:
                first[group] = edge
    return ContingentPlan(graph, 0, first, choice)


def _stage(graph: DecisionGraph, group: int) -> str:
    return graph.annotated.trie.stages[int(graph.stage[group])]


def _model(graph: DecisionGraph, edge: int) -> str:
    return graph.annotated.trie.models[int(graph.model[edge])]


def _node_of(annotated: AnnotatedTrie, path: Sequence[str]) -> int | None:
    """The node of a path of models; None if the trie has none."""
    trie, node = annotated.trie, 0
    for name in path:
        below = [child for child in trie.children(node) if trie.models[int(trie.model[child])] == name]
        if not below:
            return None
        node = below[0]
    return node
