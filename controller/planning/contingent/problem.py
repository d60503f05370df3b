"""One planning problem: where the request is, which arms may come next, and what may be chosen below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from vinelm.controller.planning.contingent.limits import Admissible, Cap, least_of_the_longest
from vinelm.controller.planning.contingent.values import Induction, PlanGoal, Worth
from vinelm.plans.decision_graph import END, NOTHING, DecisionGraph, Integers, Span
from vinelm.trie.arrays import BoolArray, FloatArray


@dataclass(frozen=True)
class Solution:
    """A contingent plan from a start on, and what it is worth to a request that goes on from there.

    Args:
        first: The choice for each arm of the start: an edge, :data:`END` or :data:`NOTHING`, by group.
        choice: The choice of every group below, by group.
        accuracy: Expected accuracy.
        cost_usd: Expected dollars from the start on; from the root those before the first invocation included.
        lost: Chance of running into :data:`NOTHING`.
        goal: What the plan was chosen by; None for a fixed plan.
    """

    first: Mapping[int, int]
    choice: Integers
    accuracy: float
    cost_usd: float
    lost: float
    goal: PlanGoal | None = None

    @property
    def ends(self) -> bool:
        """Whether the request ends at the start, whatever arm comes."""
        return all(choice == END for choice in self.first.values())


@dataclass(frozen=True)
class Problem:
    """What may be chosen below a position.

    Args:
        graph: The graph.
        start: The position that the request is at.
        groups: The arms that may come next; at least one.
        admission: Which edges may be chosen.
        may_stop: Whether the request may end at the start.
        is_joint: Whether the request ends in all of the arms or in none, because the arm is seen only afterwards.
    """

    graph: DecisionGraph
    start: int
    groups: Sequence[int]
    admission: Admissible
    may_stop: bool = True
    is_joint: bool = False

    @cached_property
    def spans(self) -> list[Span]:
        """What lies below the start, level by level."""
        return list(self.graph.spans(self.start, self.groups))

    @cached_property
    def weights(self) -> FloatArray:
        """The probability of each arm given that one of them comes next."""
        return self.graph.weights(self.groups)

    @property
    def can_end(self) -> bool:
        """Whether the request may end at the start."""
        return self.may_stop and bool(self.graph.may_end[self.start])

    def best(self, goal: PlanGoal, admission: Admissible | None = None) -> Solution:
        """The best plan by the goal."""
        graph = self.graph
        spans, masks = (self.admission if admission is None else admission).admitted(self.spans)
        found = Induction(graph, spans, goal, masks)
        at = np.array(self.groups) - self.spans[0].groups[0]
        edge, on = found.start.edge[at], found.start.worth.take(at)
        nothing = edge == NOTHING
        ends = self._ends(found, nothing, on)
        lost = np.zeros(len(edge)) if on.lost is None else on.lost
        is_root = self.start == 0
        root = (float(graph.ended_right[0]), float(graph.annotated.cost_usd[0])) if is_root else (0.0, 0.0)
        going_on = np.where(nothing, 0.0, self.weights * on.accuracy)
        return Solution(
            first=dict(zip(self.groups, np.where(ends, END, edge).tolist(), strict=True)),
            choice=found.choice,
            accuracy=root[0] + float(np.where(ends, graph.rights(self.groups), going_on).sum()),
            cost_usd=root[1] + float(np.where(ends | nothing, 0.0, self.weights * on.cost_usd).sum()),
            lost=float((self.weights * np.where(ends, 0.0, np.where(nothing, 1.0, lost))).sum()),
            goal=goal,
        )

    def _ends(self, found: Induction, nothing: BoolArray, on: Worth) -> BoolArray:
        """In which of the arms the request ends now, given what going on is worth."""
        if not self.can_end:
            return np.zeros(len(nothing), np.bool_)
        if not self.is_joint:
            return nothing | found.prefers_to_end(self.graph.chance_right[list(self.groups)], on)
        accuracy, cost = (np.where(nothing, 0.0, self.weights * of).sum() for of in (on.accuracy, on.cost_usd))
        lost = (self.weights * np.where(nothing, 1.0, 0.0 if on.lost is None else on.lost)).sum()
        total = Worth(np.array([accuracy]), np.array([cost]), np.array([lost]), None)
        right = np.array([self.graph.rights(self.groups).sum()])
        is_better = bool(found.prefers_to_end(right, total)[0])
        return np.full(len(nothing), is_better or bool(nothing.all()))

    def beginning_with(self, group: int, edge: int, goal: PlanGoal) -> Solution:
        """The best plan by the goal for a request that goes on to an arm with that edge."""
        models = self.graph.annotated.trie.models
        others = {models[self.graph.model[e]] for e in self.graph.edges_of(group) if e != edge}
        admission = replace(self.admission, barred=others | set(self.admission.barred))
        return replace(self, groups=[group], admission=admission, may_stop=False, is_joint=False).best(goal)

    def least_of_the_longest(self, measure: Cap, admission: Admissible | None = None) -> float:
        """What a plan uses in its longest history from the start on, least over all plans that answer every request.

        Infinite where there is none; 0 where the request may end now.
        """
        if self.can_end:
            return 0.0
        given = self.admission if admission is None else admission
        of_groups = least_of_the_longest(self.graph, self.spans, given, measure)
        likely = np.array(self.groups)[self.weights > 0.0]
        return float(of_groups[likely - self.spans[0].groups[0]].max())
