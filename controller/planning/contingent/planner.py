"""Plans over a decision graph: chooses a model for each branch, given the time and money that a request has left there."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import cached_property
from typing import Any, Self

from vinelm.controller.planning.contingent.decision import ContingentDecision
from vinelm.controller.planning.contingent.grid_problem import ChanceProblems, GridProblems
from vinelm.controller.planning.contingent.hull import Curve
from vinelm.controller.planning.contingent.population import Population, RootPlan
from vinelm.controller.planning.contingent.problem import Problem, Solution
from vinelm.controller.planning.contingent.problems import Problems
from vinelm.controller.planning.contingent.values import PlanGoal
from vinelm.controller.planning.infeasibility import no_end, unmet
from vinelm.controller.planning.metric import LATENCY_CAP, UNITS, bounds_averages
from vinelm.controller.planning.mixture import Hull
from vinelm.controller.planning.path_metrics import PathMetrics
from vinelm.controller.planning.plan_request import PlanRequest
from vinelm.errors import ConfigError, InfeasibleError
from vinelm.objective import Objective
from vinelm.plans.plan import Plan
from vinelm.plans.static_plans import StaticPlans
from vinelm.trie.arrays import BoolArray
from vinelm.trie.decision_graph import END, NOTHING, DecisionGraph

KEPT = 256
"""How many objectives' plans from the root are kept."""
LOOKED_UP = 20_000
"""How many nodes' plans are kept for one objective."""
OTHERS = 4
"""How many planners are kept for other sets of end nodes."""
CURVES = 16
"""How many problems' hulls are kept: one for all objectives that differ only in their bounds on averages."""


class ContingentPlanner:
    """Plans over one trie that branches, or that merges different sequences of calls into one node.

    Plans with per-request bounds are exact over a tree, and approximate over merged nodes (see :mod:`.grid`).
    For bounds on averages, see :mod:`.hull`.

    Args:
        metrics: The trie, and the models that cannot be served.
        ends: A mask of the nodes at which plans may end, shape (nodes,); None for every answerable node.
    """

    def __init__(self, metrics: PathMetrics, ends: BoolArray | None = None) -> None:
        self.metrics = metrics
        self._ends = ends
        self._policies: dict[Objective, RootPlan] = {}
        self._curves: dict[tuple[object, ...], tuple[Curve, StaticPlans, Curve | None, dict[int, tuple[object, Any]]]] = {}
        self._others: list[tuple[BoolArray, ContingentPlanner]] = []

    @classmethod
    def of(cls, metrics: PathMetrics) -> Self | None:
        """Return a planner for a trie that needs contingent plans, otherwise None.

        Without branches and merged nodes, every plan ends at a single node, and a search for this node is faster.
        """
        return cls(metrics) if metrics.annotated.is_contingent else None

    def plan(self, request: PlanRequest, stage: str | Collection[str] | None, without: Collection[str]) -> ContingentDecision:
        """Return the best plan for a request; the arguments are those of :meth:`Planner.plan`."""
        planner = self if request.candidates is None else self._ending_at(request.candidates)
        by_means = request.objective.by_means
        if by_means is request.objective:
            return planner._plan(request, stage, without)
        self.chances.require_plannable(request.objective)
        return planner._in_time(request, planner._plan(request._replace(objective=by_means), stage, without))

    def _ending_at(self, candidates: BoolArray) -> ContingentPlanner:
        """Return a planner whose plans end only at nodes for which the mask ``candidates``, shape (nodes,), is true."""
        if candidates.shape != (len(self.metrics.trie),):
            raise ConfigError(f"candidates has shape {candidates.shape}: this trie needs ({len(self.metrics.trie)},)")
        for known, planner in self._others:
            if known is candidates:
                return planner
        planner = ContingentPlanner(self.metrics, candidates.copy())
        self._others = [*self._others[1 - OTHERS :], (candidates, planner)]
        return planner

    def _plan(self, request: PlanRequest, stage: str | Collection[str] | None, without: Collection[str]) -> ContingentDecision:
        arms = (stage,) if isinstance(stage, str) else None if stage is None else frozenset(stage)
        objective, key = request.objective, (request.node, arms, request.may_stop)
        # The fast path: without caps or failed models a node's plan is the same for every request, and was found before.
        policy = self._policies.get(objective)
        if policy is not None and policy.looked_up and not without and type(arms) is not frozenset:
            found = policy.looked_up.get(key)
            if found is not None:
                return self._decision(request, policy, policy.relaxed, found)
        start = int(self.graph.position[request.node])
        groups = self.graph.groups_at(start, arms)
        if not groups:
            raise no_end(self.metrics, request)
        policy = self.policy(objective)
        if policy.relaxed and objective.on_infeasible == "raise":
            raise self._infeasible(objective, policy.relaxed[0], policy.best)
        is_joint = type(arms) is frozenset and len(groups) > 1
        problem = self.problems.below(request, start, groups, within_s=policy.within_s, without=without, is_joint=is_joint)
        # The plan from the root is also followed below it if it fits: then all requests together meet bounds on averages, which
        # a new plan from here could not guarantee.
        outcome = self._looked_up(problem, policy)
        is_known, relaxed = outcome is not None and not problem.caps and not without, policy.relaxed
        if outcome is None:
            outcome, caps = self._best(problem, request, policy)
            relaxed = (*caps, *policy.relaxed)
        plan = outcome.plan(self.graph, start)
        found = self._next_model(problem, outcome), plan, problem
        if is_known:
            if len(policy.looked_up) >= LOOKED_UP:
                policy.looked_up.clear()
            policy.looked_up[key] = found
        return self._decision(request, policy, relaxed, found)

    def _in_time(self, request: PlanRequest, found: ContingentDecision) -> ContingentDecision:
        """Return a plan that takes the probability of a late answer into account.

        ``found`` is the plan by mean times. It is returned if no time is left, if it violates another bound, or if no model can
        be run within the time left.
        """
        objective, known = request.objective, found.problem
        assert objective.max_latency_s is not None
        # If another bound had to be given up, or no time is left, chances of being late decide nothing.
        if set(found.relaxed) - {LATENCY_CAP} or objective.max_latency_s <= request.elapsed_s:
            return replace(found, request=request)
        policy = self.policy(objective)
        if policy.relaxed and objective.on_infeasible == "raise":
            raise self._infeasible(objective, policy.relaxed[0], policy.best)
        barred, start = known.admission.barred, known.start
        problem = self.chances.below(request, start, known.groups, without=barred, is_joint=known.is_joint)
        outcome = problem.solved(policy.goal)
        if problem.is_stuck(outcome):
            return replace(found, request=request)
        solved = self._next_model(problem, outcome), outcome.plan(self.graph, start), problem
        return self._decision(request, policy, (*found.relaxed, *policy.relaxed), solved)

    def _decision(
        self,
        request: PlanRequest,
        policy: RootPlan,
        relaxed: tuple[str, ...],
        found: tuple[str | None, Plan, Problem],
    ) -> ContingentDecision:
        return ContingentDecision(
            request.node, request.node, found[0], relaxed, self.metrics, request, found[1], found[2], policy.goal
        )

    def prepare(self, objective: Objective) -> None:
        """Compute the plan from the root for an objective in advance, so that no request waits for it."""
        goal = self.policy(objective).goal
        # This also refuses tries that are too large, and keeps what the first request needs.
        self._problems(objective).prepare(self._from_root(objective), goal)

    def policy(self, objective: Objective) -> RootPlan:
        """Return the plan from the root for this objective. Results are cached."""
        found = self._policies.get(objective)
        if found is None:
            self._problems(objective).require_plannable(objective)
            found = self._policy(objective)
            if len(self._policies) >= KEPT:
                self._policies = dict(list(self._policies.items())[KEPT // 2 :])
            self._policies[objective] = found
        return found

    def hull(self, objective: Objective) -> Hull:
        """Return the upper convex hull of the plans between which the objective's requests may be divided.

        The hull is in the plane of cost and accuracy.
        """
        self._problems(objective).require_plannable(objective)
        return self._population(objective, self._from_root(objective)).hull()

    @cached_property
    def graph(self) -> DecisionGraph:
        """The decision graph of the trie."""
        return DecisionGraph.of(self.metrics.annotated, self._ends)

    @cached_property
    def problems(self) -> Problems:
        """An object that makes planning problems in which the time of a call is its mean, not a distribution."""
        return (GridProblems if self.metrics.trie.is_merged else Problems)(self.graph, self.metrics)

    @cached_property
    def chances(self) -> ChanceProblems:
        """An object that makes planning problems for ``risk="dp"``, in which the times of calls are random."""
        return ChanceProblems(self.graph, self.metrics)

    def _problems(self, objective: Objective) -> Problems:
        return self.chances if objective.risk == "dp" else self.problems

    # -- from the root on, at zero load --------------------------------------------------------------------------

    def _policy(self, objective: Objective) -> RootPlan:
        if (same := self._problems(objective).goal(objective)) is not None:
            return RootPlan(None, same)
        if bounds_averages(objective) and objective.target == "latency":
            return self._fastest_on_average(objective)
        if bounds_averages(objective) or objective.confidence is not None:
            return self._population(objective, self._from_root(objective)).policy()
        goal = PlanGoal("cost" if objective.target == "cost" else "accuracy", 0.0, objective.on_infeasible == "raise")
        # Every other bound applies to each request, whose plan is found when its remaining amounts are known.
        if objective.max_latency_s is not None or objective.max_cost_usd is not None or objective.target == "latency":
            return RootPlan(None, goal)
        return RootPlan(self._from_root(objective).best(goal), goal)

    def _from_root(self, objective: Objective, within_s: float | None = None) -> Problem:
        annotated = self.metrics.annotated
        root = PlanRequest(objective, 0, float(annotated.latency_s[0]), float(annotated.cost_usd[0]), None, None, False)
        return self._problems(objective).below(root, 0, self.graph.groups_at(0), within_s=within_s)

    def _population(self, objective: Objective, problem: Problem) -> Population:
        """Return the plans from the root, of which one is chosen by the objective's bounds on averages.

        The plans are computed once for all objectives that differ only in these bounds. ``problem`` is the objective's
        planning problem from the root on.
        """
        answers_first = objective.on_infeasible == "raise"
        kinds = sorted((name, cap.kind) for name, cap in problem.caps.items())
        key = (answers_first, objective.risk, objective.late_weight, *kinds)
        found = self._curves.get(key)
        if found is None:
            if len(self._curves) >= CURVES:
                self._curves = {}
            found = self._curves[key] = self._competing(problem, answers_first=answers_first)
        return Population(problem, objective, *found)

    def _competing(
        self, problem: Problem, *, answers_first: bool
    ) -> tuple[Curve, StaticPlans, Curve | None, dict[int, tuple[object, Any]]]:
        uncapped = problem.uncapped()
        free = None if uncapped is None else Curve(uncapped, answers_first=answers_first)
        return Curve(problem, answers_first=answers_first), problem.static_plans(), free, {}

    def _fastest_on_average(self, objective: Objective) -> RootPlan:
        """Return the plan of lowest worst-case latency that meets the bounds on averages, found by bisection."""
        times = self.problems.times(objective)
        floor = objective.min_accuracy
        budget = objective.max_cost_usd if objective.cost_budget == "population" else None

        def within(index: int) -> Population:
            problem = self._from_root(objective, float(times[index]))
            return Population(problem, objective, *self._competing(problem, answers_first=True))

        low, high = -1, len(times) - 1
        while high - low > 1:
            middle = (low + high) // 2
            if within(middle).reaches(floor, budget):
                high = middle
            else:
                low = middle
        return replace(within(high).policy(), within_s=float(times[high]))

    # -- for one request -----------------------------------------------------------------------------------------

    def _looked_up(self, problem: Problem, policy: RootPlan) -> Solution | None:
        """Return the root plan's choices from the request's position on; None if they cannot be followed there.

        Without caps, the root's plan applies at every position. Under caps, it applies only if it is a fixed plan that meets
        the caps.
        """
        caps, outcome = [*problem.caps.values()], policy.outcome
        if outcome is None or problem.admission.barred or problem.is_joint or (caps and not policy.is_fixed):
            return None
        first = {g: outcome.first[g] if g in outcome.first else int(outcome.choice[g]) for g in problem.groups}
        choices = set(first.values())
        if NOTHING in choices or (END in choices and not problem.can_end):
            return None
        if caps:
            plan = Plan(self.graph, problem.start, first, outcome.choice)
            if plan.lost or not problem.admits(plan):
                return None
        return replace(outcome, first=first, goal=policy.goal)

    def _best(self, problem: Problem, request: PlanRequest, policy: RootPlan) -> tuple[Solution, tuple[str, ...]]:
        """Return the best plan for the request's remaining time and money, and the names of the caps that cannot be met."""
        objective, goal = request.objective, policy.goal
        missed = tuple(bound for bound, cap in problem.caps.items() if cap.limit < 0.0 and bound in UNITS)
        outcome = problem.solved(goal)
        is_stuck = problem.is_stuck(outcome)
        if outcome.lost > 0.0 and (is_stuck or problem.caps):
            missed = problem.missed(goal) or missed
            if missed and objective.on_infeasible == "raise":
                raise self._unreachable(problem, objective, missed)
            if is_stuck:
                outcome = problem.best_effort(missed, goal)
                if all(choice == NOTHING for choice in outcome.first.values()):
                    raise no_end(self.metrics, request)
        elif missed and objective.on_infeasible == "raise":
            raise self._unreachable(problem, objective, missed)
        return outcome, missed

    def _next_model(self, problem: Problem, outcome: Solution) -> str | None:
        """Return the model that runs on the most probable branch that continues; None if the request ends on every branch."""
        if len(outcome.first) == 1:
            edge = outcome.first[problem.groups[0]]
        else:
            chances = zip(problem.weights.tolist(), outcome.first.values(), strict=True)
            going_on = [(weight, edge) for weight, edge in chances if edge >= 0]
            edge = max(going_on, key=lambda item: item[0])[1] if going_on else END
        return None if edge < 0 else self.metrics.trie.models[self.graph.model[edge]]

    def _unreachable(self, problem: Problem, objective: Objective, missed: tuple[str, ...]) -> InfeasibleError:
        used = getattr(objective, missed[0]) - problem.caps[missed[0]].limit
        return self._infeasible(objective, missed[0], used + problem.least_beyond(missed))

    def _infeasible(self, objective: Objective, bound: str, best: float) -> InfeasibleError:
        others = [name for name in UNITS if name != bound and getattr(objective, name) is not None]
        return unmet(objective, bound, best, others)
