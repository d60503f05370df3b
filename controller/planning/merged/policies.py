"""Candidates for a bound on the mean of a population: plans at a price of accuracy, and plans with one model per stage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from vinelm.controller.planning.merged.evaluation import Outlook, evaluate
from vinelm.controller.planning.merged.graph import Ints, MergedGraph
from vinelm.controller.planning.merged.values import END, induce
from vinelm.merged_paths import StageRun, stage_runs
from vinelm.template.assignments import every_assignment

MOST_FIXED = 4096
"""The most combinations of a model per stage that are all tried."""


@dataclass(frozen=True, eq=False)
class MergedPolicy:
    """A plan: what each arm does.

    Args:
        choice: of each arm the edge to take, or a code of :mod:`~vinelm.controller.planning.merged.values`.
        outlook: of the requests that follow it.
        promised: the same if the requests at every node were those of the profile.
        name: for reports.
    """

    choice: Ints
    outlook: Outlook
    promised: Outlook
    name: str

    @property
    def point(self) -> tuple[float, float]:
        """(dollars, accuracy)."""
        return self.outlook.cost_usd, self.outlook.accuracy


def policy_at(graph: MergedGraph, price: float, *, weight: float = 1.0) -> MergedPolicy:
    """Return the best plan at a price, with the rates of the profile or, if that is better, of the plan's own requests.

    The rates of a merged node depend on the plan that leads there. The first plan uses those of the profile; the second one
    those of the requests that follow the first. Both are judged by their own requests.
    """
    first = assessed(graph, induce(graph, price, weight=weight).choice, f"price {price:.4g}")
    if graph.annotated.difficulty is None:
        return first
    again = induce(graph.for_mass(first.outlook.mass), price, weight=weight).choice
    if np.array_equal(again, first.choice):
        return first
    second = assessed(graph, again, first.name)
    return max(first, second, key=lambda each: weight * each.outlook.accuracy - price * each.outlook.cost_usd)


def assessed(graph: MergedGraph, choice: Ints, name: str) -> MergedPolicy:
    """Return the plan with its outlooks."""
    known = graph.annotated.difficulty
    promised = evaluate(graph, choice)
    return MergedPolicy(choice, promised if known is None else evaluate(graph, choice, mix=known.weight), promised, name)


class FixedMergedPlan(NamedTuple):
    """A model per stage, run until the request has made so many invocations, and what that gives."""

    models: tuple[str, ...]
    run: StageRun

    @property
    def turns(self) -> int:
        """Invocations after which the request ends."""
        return self.run.turns


def fixed_plans(graph: MergedGraph) -> Iterator[FixedMergedPlan]:
    """Return every model per stage, cut after each depth where it may end, judged by its own requests.

    With more than :data:`MOST_FIXED` combinations: the same model at all stages that allow it, the first allowed one elsewhere.
    """
    trie, template = graph.trie, graph.annotated.template
    allowed = [stage.models or () for stage in template.stages]
    plans = every_assignment(allowed, most=MOST_FIXED)
    if plans is None:
        plans = [tuple(name if name in models else models[0] for models in allowed) for name in trie.models]
    for models in plans:
        yield from (FixedMergedPlan(tuple(models), run) for run in stage_runs(graph.annotated, models) if run.may_end)


def fixed_choice(graph: MergedGraph, plan: FixedMergedPlan) -> Ints:
    """Return what each arm does under the plan."""
    trie = graph.trie
    wanted = np.array([trie.models.index(name) for name in plan.models])
    is_wanted = trie.model[trie.target] == wanted[trie.stage[trie.target]]
    choice = np.full(graph.n_arms, END, np.int64)
    choice[trie.edge_arm[is_wanted]] = np.flatnonzero(is_wanted)
    done = (trie.depth[graph.arm_source] >= plan.turns) & graph.ends[graph.arm_source]
    choice[done] = END
    return choice
