"""One planning problem: the request's position, the branches that may come next, and the choices after them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

import numpy as np

from vinelm.controller.planning.contingent.limits import Admissible, Cap, least_of_the_longest, within_all
from vinelm.controller.planning.contingent.values import Best, Induction, PlanGoal, Worth
from vinelm.controller.planning.metric import UNITS
from vinelm.plans.plan import Plan
from vinelm.plans.static_plans import StaticPlans
from vinelm.trie.arrays import BoolArray, FloatArray, Integers
from vinelm.trie.decision_graph import END, NOTHING, DecisionGraph, Span

WITHIN = "planned time"
"""Name of the cap that limits the time of histories in the search for the fastest plan within bounds on averages."""
_FASTEST = "least time"
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Solution:
    """A contingent plan from a start, and its value to a request that continues from there.

    A group is a branch of the graph: the edges from one position to one stage. A choice is an edge (the call to make),
    :data:`END` or :data:`NOTHING`.

    Args:
        first: The choice on each branch of the start, keyed by the index of its group.
        below: Returns the choices of all groups below the start, shape (groups,); called when these choices are first needed.
        accuracy: Expected accuracy.
        cost_usd: Expected cost from the start on, in dollars; at the root, including the cost before the first call.
        lost: Probability of reaching a branch on which no model is admitted (:data:`NOTHING`).
        goal: The goal by which the plan was chosen; None for a fixed plan.
    """

    first: Mapping[int, int]
    below: Callable[[], Integers]
    accuracy: float
    cost_usd: float
    lost: float
    goal: PlanGoal | None = None

    @cached_property
    def choice(self) -> Integers:
        """The plan's choice on every branch (group) below the start, shape (groups,).

        Each choice is an edge, :data:`END` or :data:`NOTHING`. The array covers all groups of the graph; elements for groups
        that are not below the start are meaningless.
        """
        return self.below()

    def plan(self, graph: DecisionGraph, start: int) -> Plan:
        """Return this solution as a :class:`Plan`, an object that computes accuracy, cost and latency from the choices."""
        return Plan(graph, start, self.first, lambda: self.choice)


@dataclass(frozen=True)
class Problem:
    """One planning problem on a decision graph that is a tree. Per-request caps hold for every sequence of calls of a plan.

    Args:
        start: The position that the request is at.
        groups: The branches that may come next; at least one.
        admission: Which edges may be chosen.
        may_stop: Whether the request may end at the start.
        is_joint: Whether the request must end on all branches or on none, because it decides before the branch is known.
        seconds: The time of each sequence of calls, if the goal is to minimize the longest time.
    """

    graph: DecisionGraph
    start: int
    groups: Sequence[int]
    admission: Admissible
    may_stop: bool = True
    is_joint: bool = False
    seconds: Cap | None = None

    @cached_property
    def spans(self) -> list[Span]:
        """The part of each level of the decision graph that the request can reach, from its position on."""
        return list(self.graph.spans(self.start, self.groups))

    @cached_property
    def weights(self) -> FloatArray:
        """The probability of each branch, given that the request continues on one of the branches."""
        return self.graph.weights(self.groups)

    @property
    def can_end(self) -> bool:
        """Whether the request may end at its present position, without another call."""
        return self.may_stop and bool(self.graph.may_end[self.start])

    @property
    def caps(self) -> Mapping[str, Cap]:
        """The caps that each sequence of calls has to meet, by name."""
        return self.admission.caps

    def static_plans(self) -> StaticPlans:
        """Return the fixed plans (one model per stage), and which of them keep a whole request within the caps."""
        if not self.caps:
            return StaticPlans.unbounded(self.graph, self.admission.servable)
        return StaticPlans(self.graph, self.admission.servable, within_all(self.caps.values(), len(self.graph.nodes)))

    def admits(self, plan: Plan) -> bool:
        """Return whether every sequence of calls under the plan stays within the caps."""
        return all(cap.holds(plan) for cap in self.caps.values())

    def uncapped(self) -> Problem | None:
        """Return None. A subclass returns this problem without its caps."""
        return None

    # -- the best plan -------------------------------------------------------------------------------------------

    def solved(self, goal: PlanGoal) -> Solution:
        """Return the best plan according to the goal. If time is minimized, only the fastest plans are compared."""
        return self._quickest(goal, self.admission)

    def best(self, goal: PlanGoal, admission: Admissible | None = None) -> Solution:
        """Return the best plan according to the goal.

        ``admission`` says which edges may be chosen; None means those that this problem admits.

        If the trie has separate rates for easier and harder requests, a plan from the root without caps is valued by the
        difficulty of the requests that reach each node under this plan.
        """
        found = self._by_rates(goal, admission)
        if self.start or self.caps or len(self.graph.mixture) == 1:
            return found
        return self._for_own_requests(found, goal, admission)

    def _by_rates(self, goal: PlanGoal, admission: Admissible | None = None) -> Solution:
        graph = self.graph
        found, start, below = self._induced(goal, self.admission if admission is None else admission)
        at = np.array(self.groups) - self.spans[0].groups[0]
        edge, on = start.edge[at], start.worth.take(at)
        nothing = edge == NOTHING
        ends = self._ends(found, nothing, on)
        lost = np.zeros(len(edge)) if on.lost is None else on.lost
        is_root = self.start == 0
        root = (float(graph.ended_right[0]), float(graph.annotated.cost_usd[0])) if is_root else (0.0, 0.0)
        going_on = np.where(nothing, 0.0, self.weights * on.accuracy)
        first = dict(zip(self.groups, np.where(ends, END, edge).tolist(), strict=True))
        return Solution(
            first=first,
            below=lambda: below(first),
            accuracy=root[0] + float(np.where(ends, graph.rights(self.groups), going_on).sum()),
            cost_usd=root[1] + float(np.where(ends | nothing, 0.0, self.weights * on.cost_usd).sum()),
            lost=float((self.weights * np.where(ends, 0.0, np.where(nothing, 1.0, lost))).sum()),
            goal=goal,
        )

    def _induced(
        self, goal: PlanGoal, admission: Admissible
    ) -> tuple[Induction, Best, Callable[[Mapping[int, int]], Integers]]:
        """Return the solved backward induction, the best edge of each branch that may come next, and a function for later
        choices.

        The function takes the edge chosen on each branch that may come next, keyed by the branch's index. It returns the
        choices on all later branches, which in a tree do not depend on these edges.
        """
        spans, masks = admission.admitted(self.spans)
        found = Induction(self.graph, spans, goal, masks)
        return found, found.start, lambda first: found.choice

    def _for_own_requests(self, found: Solution, goal: PlanGoal, admission: Admissible | None) -> Solution:
        """Return the better of two plans: ``found``, and a plan made with the rates of requests that follow ``found``.

        If the trie has rates by difficulty, the rates at a node depend on which requests a plan sends there. ``found`` was made
        with the rates of the profiled requests. Each of the two plans is valued with the rates of the requests that follow it.
        """
        plan = found.plan(self.graph, 0)
        again = replace(self, graph=self.graph.for_mass(plan.mass))._by_rates(goal, admission)
        both = [
            replace(each, accuracy=followed.accuracy, cost_usd=followed.cost_usd)
            for each, followed in ((found, plan), (again, again.plan(self.graph, 0)))
        ]
        weight, price = (0.0, 1.0) if goal.target == "cost" else (1.0, goal.price)
        return max(both, key=lambda each: weight * each.accuracy - price * each.cost_usd)

    def _ends(self, found: Induction, nothing: BoolArray, on: Worth) -> BoolArray:
        """Return, for each branch that leaves the start, whether the request should end now.

        Args:
            found: Compares ending with continuing.
            nothing: A mask of the branches on which no model is admitted.
            on: The value of continuing on each branch.
        """
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
        """Return the best plan according to the goal among the plans that choose ``edge`` on the branch ``group``."""
        models = self.graph.annotated.trie.models
        others = {models[self.graph.model[e]] for e in self.graph.edges_of(group) if e != edge}
        admission = replace(self.admission, barred=others | set(self.admission.barred))
        return replace(self, groups=[group], admission=admission, may_stop=False, is_joint=False).best(goal)

    # -- if no plan meets the caps -------------------------------------------------------------------------------

    def answers(self, found: Solution) -> bool:
        """Return whether every request gets an answer under this plan."""
        return found.lost == 0.0

    def is_stuck(self, found: Solution) -> bool:
        """Return whether under this plan the request certainly ends without an answer, because no model is admitted."""
        return found.lost > 1.0 - _ROUNDING

    def missed(self, goal: PlanGoal) -> tuple[str, ...]:
        """Return the names of the fewest caps to drop so that every request gets an answer. Latency is dropped before cost."""
        names = [name for name in self.caps if name in UNITS]
        for count in range(1, len(names) + 1):
            for dropped in combinations(names, count):
                if self.best(goal._replace(answers_first=True), self.admission.without(*dropped)).lost == 0.0:
                    return dropped
        return tuple(names)

    def best_effort(self, missed: Sequence[str], goal: PlanGoal) -> Solution:
        """Return the plan that exceeds the ``missed`` caps least in the worst case; earlier caps take precedence."""
        admission = self.admission.without(WITHIN)
        for name in missed:
            cap = self.caps[name].at(np.inf)
            admission = admission.without(*missed[missed.index(name) :])
            least = self.least_of_the_longest(cap, admission)
            admission = admission.and_within(name, cap.at(least))
        return self._quickest(goal._replace(answers_first=True), admission)

    def _quickest(self, goal: PlanGoal, admission: Admissible) -> Solution:
        """Return the best plan; if time is minimized, only among plans with the shortest worst-case time.

        This shortest time is taken over the plans that answer every request. Without such a plan, all plans are compared.
        """
        if self.seconds is None:
            return self.best(goal, admission)
        least_s = self.least_of_the_longest(self.seconds, admission)
        if least_s == np.inf:
            return self.best(goal, admission)
        return self.best(goal._replace(answers_first=True), admission.and_within(_FASTEST, self.seconds.at(least_s)))

    def least_beyond(self, missed: Sequence[str]) -> float:
        """Return the lowest worst case of any plan, in the unit of the first of the ``missed`` caps (seconds or dollars).

        A plan's worst case is its longest (or most expensive) sequence of calls. All caps named in ``missed`` are ignored.
        """
        return self.least_of_the_longest(self.caps[missed[0]], self.admission.without(*missed))

    def least_of_the_longest(self, measure: Cap, admission: Admissible) -> float:
        """Return the lowest worst case of any plan that answers every request, from the start on, in seconds or dollars.

        A plan's worst case is its longest (or most expensive) sequence of calls. ``measure`` is a cap that says whether seconds
        or dollars are added up; its limit is ignored. The result is infinite if no plan answers every request, and 0 if the
        request may end now.
        """
        if self.can_end:
            return 0.0
        of_groups = least_of_the_longest(self.graph, self.spans, admission, measure)
        likely = np.array(self.groups)[self.weights > 0.0]
        return float(of_groups[likely - self.spans[0].groups[0]].max())
