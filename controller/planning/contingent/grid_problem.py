"""Planning problems in which the node alone does not determine a request's remaining money and time.

They arise if different sequences of calls lead to the same node, or if times are random.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from vinelm.controller.planning.contingent.grid import GridCap, LeftGrid, least_need
from vinelm.controller.planning.contingent.limits import Admissible
from vinelm.controller.planning.contingent.problem import Problem, Solution
from vinelm.controller.planning.contingent.problems import Problems, minimizes_time
from vinelm.controller.planning.contingent.values import Best, Induction, PlanGoal, Worth, over_times
from vinelm.controller.planning.metric import COST_CAP, DEFAULT_Z, LATE_WEIGHT, LATENCY_CAP, bounds_averages
from vinelm.controller.planning.plan_request import PlanRequest
from vinelm.errors import ConfigError
from vinelm.objective import Objective
from vinelm.plans.static_plans import StaticPlans
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.arrays import FloatArray, Integers
from vinelm.trie.decision_graph import END, NOTHING, DecisionGraph

FASTEST = (
    'risk="dp" does not minimize latency within a bound on an average (min_accuracy, or max_cost_usd of a population)'
    ' where the application branches or histories are merged: use risk="mean+sd"'
)
INDUCTIONS = 16
"""How many inductions over a grid are kept, one for each goal, caps and load."""
MOST_WITH_CAPS = 200_000
"""The largest trie that can be planned over with per-request bounds, since values depend on what is left."""
MOST_IN_TIME = 40_000
"""The same if times are random."""
LOAD_STEPS = 256
"""Load is rounded up to this fraction of the latency bound, so that inductions are reused while it changes little."""
LATENCY_STEPS = 256
"""Number of steps, between a plan's least and most seconds, in the search for the fastest plan within bounds on averages."""


@dataclass(frozen=True)
class GridProblem(Problem):
    """A planning problem that is solved on a grid of remaining time and money (:mod:`.grid`); plans under caps are approximate.

    If times are random, a solution's accuracy counts only answers in time and subtracts a penalty for late answers.

    Args:
        limits: The request's caps by the name of the bound, including the amounts used so far.
        induced: Returns, for a goal, the grid and the backward induction over the whole graph on this grid; None without caps.
        quick: The time of each call, if plans should give answers as early as possible; otherwise None.
        late: The penalty for a late answer; None if times are not random.
    """

    limits: Mapping[str, GridCap] = field(default_factory=dict)
    induced: Callable[[PlanGoal], tuple[LeftGrid, Induction]] | None = None
    quick: GridCap | None = None
    late: float | None = None

    @property
    def caps(self) -> Mapping[str, Any]:
        """The request's caps, keyed by the name of the bound."""
        return self.limits

    def static_plans(self) -> StaticPlans:
        """Return the fixed plans (one model per stage), and which of them keep a whole request within the caps."""
        if self.late is None and not self.limits:
            return StaticPlans.unbounded(self.graph, self.admission.servable)
        none = None if self.late is None else np.zeros(len(self.graph.nodes), np.bool_)  # their figures know no chances
        limits = [(cap.use, cap.limit) for cap in self.limits.values()]
        return StaticPlans(self.graph, self.admission.servable, none, limits)

    def uncapped(self) -> Problem | None:
        """Return this problem without caps; None if it has no caps or if times are random."""
        return replace(self, limits={}, induced=None) if self.limits and self.late is None else None

    def solved(self, goal: PlanGoal) -> Solution:
        """Return the best plan according to the goal.

        If time is minimized, this plan always takes the quickest way to an answer.
        """
        if self.quick is None:
            return self.best(goal)
        first = {group: END if self.can_end else self._quickest_edge(self.quick, group) for group in self.groups}
        return self._going(first, goal)

    def _induced(
        self, goal: PlanGoal, admission: Admissible
    ) -> tuple[Induction, Best, Callable[[Mapping[int, int]], Integers]]:
        if self.induced is None:
            return super()._induced(goal, admission)
        grid, found = self.induced(goal if self.late is None else self._in_time(goal))
        span, graph = self.spans[0], self.graph
        edges = np.arange(*span.edges)
        target = graph.target[edges]
        level = graph.level_of(target[0]) - graph.level_of(found.spans[0].nodes[0])
        at = target - found.spans[level].nodes[0]
        taken = [np.zeros(len(edges)) if cap.sigma is not None else cap.use[edges] for cap in self.limits.values()]
        left = [np.asarray(cap.limit - use) for cap, use in zip(self.limits.values(), taken, strict=True)]
        after = found.below[-level].each(lambda values: values[..., at])
        below = over_times(after, grid, edges).each(lambda values: grid.at(values, left))
        worth = Worth(below.accuracy, below.cost_usd + graph.cost_usd[edges], below.lost, None)
        admitted = np.isin(edges, self._allowed(edges))
        return found, found.best_of(span, worth, admitted), lambda first: self._followed(first, goal)

    def _in_time(self, goal: PlanGoal) -> PlanGoal:
        """Return a copy of the goal with the penalty for a late answer (``late``) set."""
        if goal.target == "cost":
            return goal._replace(late=1.0 if goal.price else 0.0)
        return goal._replace(late=self.late)

    def _by_rates(self, goal: PlanGoal, admission: Admissible | None = None) -> Solution:
        found = super()._by_rates(goal, admission)
        return found if self.late is None else replace(found, accuracy=found.accuracy - self.late * found.lost)

    # -- if no plan meets the caps -------------------------------------------------------------------------------

    def answers(self, found: Solution) -> bool:
        """Return whether, on every branch that may come next, the request has an answer or can run a model within the caps.

        Only the next call is checked: a model within the caps leaves enough time and money for an answer. A small probability
        that later calls exceed the caps is ignored, because it comes from the resolution of the grid.
        """
        return not self.is_stuck(found)

    def is_stuck(self, found: Solution) -> bool:
        """Return whether on some branch the request has neither an answer nor a model within the caps."""
        return NOTHING in found.first.values()

    def missed(self, goal: PlanGoal) -> tuple[str, ...]:
        """Return the names of the fewest caps to drop so that every branch has a model within the other caps.

        If there are several such sets, latency is dropped before cost. Empty if no cap has to be dropped; all names if no such
        set exists.
        """
        stuck = [group for group, choice in self.solved(goal).first.items() if choice == NOTHING]
        for count in range(1, len(self.limits) + 1):
            for dropped in combinations(self.limits, count):
                if stuck and all(len(self._allowed(np.array(self.graph.edges_of(group)), dropped)) for group in stuck):
                    return dropped
        return tuple(self.limits) if stuck else ()

    def best_effort(self, missed: Sequence[str], goal: PlanGoal) -> Solution:
        """Return the best plan; on branches where no model is within all caps, the plan ignores the ``missed`` caps.

        On such a branch the plan runs the model that leads to an answer in the least time, or at the least cost. The first of
        the ``missed`` caps decides between the two.
        """
        found = self.solved(goal)
        if not missed:
            return found
        cap = self.limits[missed[0]]
        first = {
            group: self._quickest_edge(cap, group, missed) if choice == NOTHING else choice
            for group, choice in found.first.items()
        }
        return self._going(first, goal)

    def least_beyond(self, missed: Sequence[str]) -> float:
        """Return the least amount that suffices for an answer if all the ``missed`` caps are ignored.

        The amount suffices whichever branch comes. It is in seconds or dollars: the unit of the first of the ``missed`` caps.
        """
        cap, least = self.limits[missed[0]], []
        for group in self.groups:
            edges = self._allowed(np.array(self.graph.edges_of(group)), missed)
            least.append(float((cap.use[edges] + cap.need[self.graph.target[edges]]).min(initial=np.inf)))
        return max(least)

    def _quickest_edge(self, cap: GridCap, group: int, dropped: Sequence[str] = ()) -> int:
        """Return the edge of the branch ``group`` that leads to an answer with the least of what ``cap`` limits: time or money.

        Returns :data:`NOTHING` if no edge is allowed. The caps named in ``dropped`` are ignored. If time is minimized, ties go
        to the cheapest edge.
        """
        edges = self._allowed(np.array(self.graph.edges_of(group)), dropped)
        if not len(edges):
            return NOTHING
        through = cap.use[edges] + cap.need[self.graph.target[edges]]
        dollars = self.graph.cost_usd[edges] if cap is self.quick else np.zeros(len(edges))
        return int(edges[np.lexsort((dollars, through))[0]])

    def _allowed(self, edges: Integers, dropped: Sequence[str] = ()) -> Integers:
        """Return the edges that the request can follow with its remaining time and money, ignoring the ``dropped`` caps."""
        names, admission = self.graph.annotated.trie.models, self.admission
        allowed = np.array([names[model] not in admission.barred for model in self.graph.model[edges]], np.bool_)
        if admission.servable is not None:
            allowed &= admission.servable[edges]
        for name, cap in self.limits.items():
            if name not in dropped:
                allowed &= cap.leaves(np.asarray(cap.limit), edges, self.graph.target[edges])
        return np.asarray(edges[allowed])

    # -- a request whose invocations use their average -------------------------------------------------------------

    def _going(self, first: Mapping[int, int], goal: PlanGoal) -> Solution:
        chosen = zip(self.weights.tolist(), first.values(), strict=True)
        lost = sum(weight for weight, choice in chosen if choice == NOTHING)
        return Solution(first, lambda: self._followed(first, goal), float("nan"), float("nan"), lost, goal)

    def _followed(self, first: Mapping[int, int], goal: PlanGoal) -> Integers:
        """Return the plan's choice on each branch, assuming that every call uses its average time and money; shape (groups,).

        A choice is an edge, END (the request ends) or NOTHING (no edge is allowed). ``first`` holds the choices on the branches
        at the start. Branches that a request does not reach under this assumption get END. If a position can be reached with
        different amounts left, the smallest amount counts.
        """
        choice = np.full(len(self.graph.source), END, np.int64)
        here = {self.start: [cap.limit for cap in self.limits.values()]}
        while here:
            reached: dict[int, list[float]] = {}
            for at in sorted(here):
                found = first if at == self.start else self._step_at(at, here[at], goal)
                for group, edge in found.items():
                    choice[group] = edge
                    if edge >= 0:
                        rest = [left - float(cap.use[edge]) for left, cap in zip(here[at], self.limits.values(), strict=True)]
                        target = int(self.graph.target[edge])
                        reached[target] = [min(pair) for pair in zip(rest, reached.get(target, rest), strict=True)]
            here = reached
        return choice

    def _step_at(self, position: int, left: Sequence[float], goal: PlanGoal) -> Mapping[int, int]:
        groups = self.graph.groups_at(position)
        if not groups:
            return {}
        limits = {name: cap.with_left(amount) for (name, cap), amount in zip(self.limits.items(), left, strict=True)}
        there = replace(
            self, start=position, groups=groups, admission=replace(self.admission, barred=()), may_stop=True, is_joint=False,
            limits=limits,
        )  # fmt: skip
        found = there.solved(goal)
        return there.best_effort(there.missed(goal), goal).first if there.is_stuck(found) else found.first


class GridProblems(Problems):
    """Makes the planning problems of a graph in which several sequences of calls may lead to the same node."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._inductions: dict[tuple[object, ...], tuple[LeftGrid, Induction]] = {}
        self._needs: dict[tuple[object, ...], GridCap] = {}

    def below(
        self,
        request: PlanRequest,
        start: int,
        groups: Sequence[int],
        *,
        within_s: float | None = None,
        without: Collection[str] = (),
        is_joint: bool = False,
    ) -> GridProblem:
        """Return the planning problem of a request at its node, ``start``; see :meth:`Problems.below`."""
        objective = request.objective
        caps = [cap for cap in (objective.max_latency_s, within_s) if cap is not None]
        load_s = request.load_s
        if load_s is not None and caps:
            step = max(min(caps) / LOAD_STEPS, 1e-9)
            load_s = np.ceil(load_s / step) * step
        limits: dict[str, GridCap] = {}
        if caps:
            limits[LATENCY_CAP] = self._seconds(objective, min(caps), load_s, request.elapsed_s)
        if objective.cost_budget == "per_request" and objective.max_cost_usd is not None:
            limits[COST_CAP] = self._dollars(objective, objective.max_cost_usd, request.spent_usd)
        self._check(limits, objective)
        admission = Admissible(self.graph, {}, self.metrics.servable, without)
        loaded = None if load_s is None or not caps else load_s.tobytes()
        graph = self._paying(objective, limits)
        return GridProblem(
            graph, start, groups, admission, request.may_stop, is_joint, limits=limits,
            induced=(lambda goal: self._induced(graph, goal, limits, loaded)) if limits else None,
            **self._times_of(objective, load_s),
        )  # fmt: skip

    def _paying(self, objective: Objective, limits: Mapping[str, GridCap]) -> DecisionGraph:
        """Return the decision graph in which ``cost_usd`` is the cost of each edge's call in dollars.

        A subclass puts seconds there instead if the objective minimizes latency.
        """
        return self.graph

    def _times_of(self, objective: Objective, load_s: FloatArray | None) -> dict[str, Any]:
        """Return the keyword arguments that tell a :class:`GridProblem` how its plans treat time; empty if time does not
        matter.

        If latency is minimized, ``quick`` is the time of each call. If times are random, ``late`` is the penalty for a late
        answer.
        """
        return {"quick": self._seconds(objective, 0.0, load_s, 0.0)} if minimizes_time(objective) else {}

    def times(self, objective: Objective) -> FloatArray:
        """Return limits on a request's time in seconds, ascending, to be tried when latency is minimized.

        The search looks for the lowest limit under which a plan meets the bounds on averages over requests. The last limit
        allows all plans.
        """
        seconds = self._seconds(objective, 0.0, None, 0.0)
        root_s = float(self.metrics.annotated.latency_s[0])
        first = [int(self.graph.first_edge[self.graph.first_group[at]]) for at in self.graph.levels]
        most = root_s + sum(float(seconds.use[low:high].max(initial=0.0)) for low, high in pairwise(first))
        most = most if objective.max_latency_s is None else min(most, objective.max_latency_s)
        least = root_s + float(seconds.need[0])
        return least + (most - least) * np.arange(1, LATENCY_STEPS + 1) / LATENCY_STEPS

    def _induced(
        self, graph: DecisionGraph, goal: PlanGoal, limits: Mapping[str, GridCap], loaded: bytes | None
    ) -> tuple[LeftGrid, Induction]:
        key = (goal, loaded, *((name, cap.whole, cap.z, cap.sigma is None) for name, cap in limits.items()))
        found = self._inductions.get(key)
        if found is None:
            grid = LeftGrid(graph, limits, self.metrics.servable)
            spans = list(graph.spans(0))
            found = grid, Induction(graph, spans, goal, [grid.admitted(slice(*span.edges)) for span in spans], grid)
            if len(self._inductions) >= INDUCTIONS:
                self._inductions = dict(list(self._inductions.items())[INDUCTIONS // 2 :])
            self._inductions[key] = found
        return found

    def _seconds(self, objective: Objective, whole: float, load_s: FloatArray | None, used: float) -> GridCap:
        """Return the cap on a request's time.

        With ``risk="mean+sd"``, each call reserves its mean time plus ``z`` standard deviations. The sum of these margins is
        larger than ``z`` standard deviations of the total time.
        """
        annotated, graph, z = self.metrics.annotated, self.graph, 0.0
        if objective.risk == "mean+sd":
            z = DEFAULT_Z if objective.z is None else objective.z
        seconds = annotated.latency_s + z * np.sqrt(annotated.latency_var)
        if load_s is not None:
            seconds = seconds + np.where(annotated.engine >= 0, load_s[annotated.engine], 0.0)
        found = self._cap(seconds, graph.latency_s, z, None if load_s is None else load_s.tobytes())
        return replace(found, whole=whole, used=used)

    def _dollars(self, objective: Objective, whole: float, used: float) -> GridCap:
        annotated, z = self.metrics.annotated, objective.z
        dollars = annotated.most_usd if z is None else annotated.cost_usd + z * np.sqrt(annotated.cost_var)
        found = self._cap(dollars, self.graph.cost_usd, z, "usd")
        return replace(found, whole=whole, used=used)

    def _cap(self, of_nodes: FloatArray, mean: FloatArray, z: float | None, key: object) -> GridCap:
        found = self._needs.get((key, z))
        if found is None:
            use = of_nodes[self.graph.nodes[self.graph.target]]
            found = GridCap(0.0, use, least_need(self.graph, use, self.metrics.servable), mean, z)
            if len(self._needs) >= INDUCTIONS:
                self._needs = {}
            self._needs[key, z] = found
        return found

    def _check(self, limits: Mapping[str, GridCap], objective: Objective) -> None:
        trie = self.metrics.trie
        if (limits or objective.target == "latency") and len(trie) > MOST_WITH_CAPS:
            raise ConfigError(
                f"bounds on each request's time or dollars are planned over at most {MOST_WITH_CAPS:,} merged nodes, this trie"
                f" has {trie.n_nodes:,}: give the loop a smaller memory"
            )


class ChanceProblems(GridProblems):
    """Makes the planning problems of any graph for ``risk="dp"``: times are random, and late answers reduce a plan's value."""

    def goal(self, objective: Objective) -> PlanGoal | None:
        """Return the goal of plans if it is the same for all requests; None if it depends on bounds on averages.

        A minimized quantity is scaled, so that it can be added to the probability of a late answer. Latency is divided by the
        deadline; cost is divided by the cost of the most expensive path.
        """
        if objective.target == "accuracy" or objective.min_accuracy is not None:
            return None
        if objective.target == "latency":
            return PlanGoal("cost", 1.0 / (objective.max_latency_s or 1.0))
        graph, most = self.graph, np.zeros(len(self.graph.nodes))
        for low, high in reversed(list(pairwise(graph.first_edge[graph.first_group[at]] for at in graph.levels))):
            through = graph.cost_usd[low:high] + most[graph.target[low:high]]
            np.maximum.at(most, graph.source[graph.group_of_edge[low:high]], through)
        return PlanGoal("cost", 1.0 / (float(most[0]) or 1.0))

    def require_plannable(self, objective: Objective) -> None:
        """Raise :class:`ConfigError` if no contingent plan can be made for the objective over this trie."""
        if objective.target == "latency" and bounds_averages(objective):
            raise ConfigError(FASTEST)
        super().require_plannable(objective)

    def prepare(self, problem: Problem, goal: PlanGoal) -> None:
        """Solve the problem from the root in advance. The result is kept, so that no request has to wait for it."""
        problem.solved(goal)

    def _paying(self, objective: Objective, limits: Mapping[str, GridCap]) -> DecisionGraph:
        if objective.target != "latency":
            return self.graph
        return replace(self.graph, cost_usd=limits[LATENCY_CAP].use)  # what is paid for is seconds

    def _times_of(self, objective: Objective, load_s: FloatArray | None) -> dict[str, Any]:
        return {"late": late_weight(objective)}

    def _seconds(self, objective: Objective, whole: float, load_s: FloatArray | None, used: float) -> GridCap:
        return replace(super()._seconds(objective, whole, load_s, used), sigma=self._sigma)

    @cached_property
    def _sigma(self) -> FloatArray:
        """The standard deviation of the logarithm of the time of each edge's call, shape (edges,).

        It is the same under load, because load scales a time's mean and standard deviation alike.
        """
        return log_sigma(self.metrics.annotated)[self.graph.nodes[self.graph.target]]

    def _check(self, limits: Mapping[str, GridCap], objective: Objective) -> None:
        require_small(len(self.metrics.trie))
        super()._check(limits, objective)


def late_weight(objective: Objective) -> float:
    """Return the penalty for a late answer: the number of correct answers that outweighs one late answer."""
    return LATE_WEIGHT if objective.late_weight is None else objective.late_weight


def log_sigma(annotated: AnnotatedTrie) -> FloatArray:
    """Return the standard deviation of the logarithm of each node's seconds, shape (nodes,), assuming log-normal times."""
    relative = annotated.latency_var / np.maximum(annotated.latency_s, 1e-12) ** 2
    return np.asarray(np.sqrt(np.log1p(np.maximum(relative, 0.0))))


def require_small(size: int) -> None:
    """Raise :class:`ConfigError` if a trie with ``size`` nodes is too large for ``risk="dp"``."""
    why = too_large(size)
    if why is not None:
        raise ConfigError(why, code="dp-too-large")


def too_large(size: int) -> str | None:
    """Return one line that says why a trie with ``size`` nodes is too large for ``risk="dp"``; None if it is not."""
    if size <= MOST_IN_TIME:
        return None
    return f'risk="dp" plans over at most {MOST_IN_TIME:,} paths, this trie has {size:,}: use risk="mean+sd"'
