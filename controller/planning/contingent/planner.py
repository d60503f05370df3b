"""Plans over a trie that branches: a model for each arm, with the time and money that each arm has left."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import cached_property

import numpy as np

from vinelm.controller.planning.contingent.decision import ContingentDecision
from vinelm.controller.planning.contingent.hull import Curve
from vinelm.controller.planning.contingent.limits import Admissible, Cap, PathTotals, caps_of, within_all
from vinelm.controller.planning.contingent.plan import ContingentPlan
from vinelm.controller.planning.contingent.planners import check_plannable
from vinelm.controller.planning.contingent.population import Population, RootPlan
from vinelm.controller.planning.contingent.problem import Problem, Solution
from vinelm.controller.planning.contingent.values import PlanGoal
from vinelm.controller.planning.infeasibility import no_end, unmet
from vinelm.controller.planning.metric import UNITS, Metric, Remaining, bounds_averages
from vinelm.controller.planning.path_metrics import PathMetrics
from vinelm.controller.planning.plan_request import PlanRequest
from vinelm.errors import InfeasibleError
from vinelm.objective import Objective
from vinelm.plans.decision_graph import END, NOTHING, DecisionGraph
from vinelm.plans.static_plans import StaticPlans
from vinelm.trie.arrays import BoolArray

KEPT = 256
"""Most objectives whose plans from the root are kept."""
LOOKED_UP = 20_000
"""Most nodes whose plans are kept for one objective."""
CURVES = 16
"""Most problems whose hulls are kept: one for all objectives that differ only in their bounds on averages."""
_FASTEST = "least time"
_WITHIN = "planned time"
_ROUNDING = 1e-9


class ContingentPlanner:
    """Plans over one trie that branches. Exact where bounds hold for each request; see :mod:`.hull` for bounds on averages.

    Args:
        metrics: The trie, and the models that cannot be served.
        ends: Nodes that plans may end at, shape (n + 1,); None for every answerable one.
    """

    def __init__(self, metrics: PathMetrics, ends: BoolArray | None = None) -> None:
        self.metrics = metrics
        self._ends = ends
        self._policies: dict[Objective, RootPlan] = {}
        self._curves: dict[tuple[object, ...], tuple[Curve, StaticPlans]] = {}

    def plan(self, request: PlanRequest, stage: str | Collection[str] | None, without: Collection[str]) -> ContingentDecision:
        """Return the best plan for a request; the arguments are those of :meth:`Planner.plan`."""
        arms = (stage,) if isinstance(stage, str) else None if stage is None else frozenset(stage)
        objective, key = request.objective, (request.node, arms, request.may_stop)
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
        admission = self._admission(request, start, policy, without)
        problem = Problem(self.graph, start, groups, admission, request.may_stop, type(arms) is frozenset and len(groups) > 1)
        outcome = self._looked_up(problem, policy)
        is_known, relaxed = outcome is not None and not admission.caps, policy.relaxed
        if outcome is None:
            outcome, caps = self._best(problem, request, policy)
            relaxed = (*caps, *policy.relaxed)
        plan = ContingentPlan(self.graph, start, outcome.first, outcome.choice)
        found = self._next_model(problem, outcome), plan, problem
        if is_known:
            if len(policy.looked_up) >= LOOKED_UP:
                policy.looked_up.clear()
            policy.looked_up[key] = found
        return self._decision(request, policy, relaxed, found)

    def _decision(
        self,
        request: PlanRequest,
        policy: RootPlan,
        relaxed: tuple[str, ...],
        found: tuple[str | None, ContingentPlan, Problem],
    ) -> ContingentDecision:
        return ContingentDecision(
            request.node, request.node, found[0], relaxed, self.metrics, request, None, found[1], found[2], policy.goal
        )

    def prepare(self, objective: Objective) -> None:
        """Find the plan from the root on for an objective, so that no request waits for it."""
        self.policy(objective)

    def policy(self, objective: Objective) -> RootPlan:
        """Return how requests of this objective are planned, found once."""
        found = self._policies.get(objective)
        if found is None:
            check_plannable(objective, self.metrics)
            found = self._policy(objective)
            if len(self._policies) >= KEPT:
                self._policies = dict(list(self._policies.items())[KEPT // 2 :])
            self._policies[objective] = found
        return found

    @cached_property
    def graph(self) -> DecisionGraph:
        """The decision graph of the trie."""
        return DecisionGraph.of(self.metrics.annotated, self._ends)

    # -- from the root on, at zero load --------------------------------------------------------------------------

    def _policy(self, objective: Objective) -> RootPlan:
        annotated = self.metrics.annotated
        root = PlanRequest(objective, 0, float(annotated.latency_s[0]), float(annotated.cost_usd[0]), None, None, False)
        admission = Admissible(self.graph, caps_of(self._totals, root, 0), self._servable)
        if bounds_averages(objective) and objective.target == "latency":
            return self._fastest_on_average(objective, admission)
        if bounds_averages(objective) or objective.confidence is not None:
            return self._population(objective, admission).policy()
        goal = PlanGoal("cost" if objective.target == "cost" else "accuracy", 0.0, objective.on_infeasible == "raise")
        if admission.caps or objective.target == "latency":
            return RootPlan(None, goal)
        return RootPlan(Problem(self.graph, 0, self.graph.groups_at(0), admission, may_stop=False).best(goal), goal)

    def _population(self, objective: Objective, admission: Admissible) -> Population:
        """The plans that compete; objectives that differ in bounds on averages only share them."""
        answers_first = objective.on_infeasible == "raise"
        key = (answers_first, *sorted((name, cap.quantity, cap.limit) for name, cap in admission.caps.items()))
        problem = Problem(self.graph, 0, self.graph.groups_at(0), admission, may_stop=False)
        found = self._curves.get(key)
        if found is None:
            if len(self._curves) >= CURVES:
                self._curves = {}
            found = Curve(problem, answers_first=answers_first), self._static_plans(admission)
            self._curves[key] = found
        return Population(problem, objective, *found)

    def _fastest_on_average(self, objective: Objective, admission: Admissible) -> RootPlan:
        """The policy whose longest history is the shortest of all that meet the bounds on averages, by bisection."""
        measure = Cap(self._totals, 0, Remaining(Metric.LATENCY), np.inf)
        times = np.unique(measure.used(1, len(self.graph.nodes)))
        floor = objective.min_accuracy
        budget = objective.max_cost_usd if objective.cost_budget == "population" else None

        def within(index: int) -> Population:
            narrowed = admission.and_within(_WITHIN, measure.at(float(times[index])))
            problem = Problem(self.graph, 0, self.graph.groups_at(0), narrowed, may_stop=False)
            return Population(problem, objective, Curve(problem, answers_first=True), self._static_plans(narrowed))

        low, high = -1, len(times) - 1
        while high - low > 1:
            middle = (low + high) // 2
            found = within(middle)
            if found.curve.most_accurate.lost == 0.0 and found.reaches(floor, budget):
                high = middle
            else:
                low = middle
        return replace(within(high).policy(), within_s=float(times[high]))

    def _static_plans(self, admission: Admissible) -> StaticPlans:
        within = within_all(admission.caps.values(), len(self.graph.nodes)) if admission.caps else None
        return StaticPlans(self.graph, self._servable, within)

    # -- for one request -----------------------------------------------------------------------------------------

    def _admission(self, request: PlanRequest, start: int, policy: RootPlan, without: Collection[str]) -> Admissible:
        caps = caps_of(self._totals, request, start)
        if policy.within_s is not None:
            caps[_WITHIN] = Cap(self._totals, 0, Remaining(Metric.LATENCY), policy.within_s)
        return Admissible(self.graph, caps, self._servable, without)

    def _looked_up(self, problem: Problem, policy: RootPlan) -> Solution | None:
        """The plan from the root on, as far as it lies below the start; None where it does not fit there.

        Without caps it is followed wherever the request is. A fixed plan is followed under caps, too, where it meets them.
        """
        caps, outcome = [*problem.admission.caps.values()], policy.outcome
        if outcome is None or problem.admission.barred or problem.is_joint or (caps and not policy.is_fixed):
            return None
        first = {g: outcome.first[g] if g in outcome.first else int(outcome.choice[g]) for g in problem.groups}
        choices = set(first.values())
        if NOTHING in choices or (END in choices and not problem.can_end):
            return None
        if caps:
            plan = ContingentPlan(self.graph, problem.start, first, outcome.choice)
            at = self.graph.position[np.flatnonzero(plan.runs)]
            if plan.lost or not all(bool(cap.admits(0, len(self.graph.nodes))[at].all()) for cap in caps):
                return None
        return Solution(first, outcome.choice, outcome.accuracy, outcome.cost_usd, outcome.lost, policy.goal)

    def _best(self, problem: Problem, request: PlanRequest, policy: RootPlan) -> tuple[Solution, tuple[str, ...]]:
        """The best plan for the time, money and load that the request has, and the caps that it does not meet."""
        objective, admission, goal = request.objective, problem.admission, policy.goal
        missed = tuple(bound for bound, cap in admission.caps.items() if cap.limit < 0.0 and bound in UNITS)
        fastest = self._fastest(problem, request, admission)
        outcome = problem.best(goal if fastest is admission else goal._replace(answers_first=True), fastest)
        is_stuck = outcome.lost > 1.0 - _ROUNDING
        if outcome.lost > 0.0 and (is_stuck or problem.admission.caps):
            missed = self._missed(problem, goal) or missed
            if missed and objective.on_infeasible == "raise":
                raise self._unreachable(problem, request, missed)
            if is_stuck:
                outcome = self._best_effort(problem, request, missed, goal)
                if all(choice == NOTHING for choice in outcome.first.values()):
                    raise no_end(self.metrics, request)
        elif missed and objective.on_infeasible == "raise":
            raise self._unreachable(problem, request, missed)
        return outcome, missed

    def _missed(self, problem: Problem, goal: PlanGoal) -> tuple[str, ...]:
        """The caps without which every request is answered; as few as possible, latency before cost."""
        names = [name for name in problem.admission.caps if name in UNITS]
        for dropped in (*((name,) for name in names), tuple(names)):
            if dropped and problem.best(goal._replace(answers_first=True), problem.admission.without(*dropped)).lost == 0.0:
                return dropped
        return tuple(names)

    def _best_effort(self, problem: Problem, request: PlanRequest, missed: tuple[str, ...], goal: PlanGoal) -> Solution:
        """The plan that goes least beyond the caps, in its longest history."""
        admission = problem.admission.without(_WITHIN)
        for name in missed:
            cap = problem.admission.caps[name].at(np.inf)
            admission = admission.without(*missed[missed.index(name) :])
            least = problem.least_of_the_longest(cap, admission)
            admission = admission.and_within(name, cap.at(least))
        return problem.best(goal._replace(answers_first=True), self._fastest(problem, request, admission))

    def _fastest(self, problem: Problem, request: PlanRequest, admission: Admissible) -> Admissible:
        """The same, within the least time that answers every request, if that is the target."""
        if request.objective.target != "latency" or bounds_averages(request.objective):
            return admission
        measure = Cap(self._totals, problem.start, Remaining(Metric.LATENCY), np.inf, request.load_s)
        least_s = problem.least_of_the_longest(measure, admission)
        return admission if least_s == np.inf else admission.and_within(_FASTEST, measure.at(least_s))

    def _next_model(self, problem: Problem, outcome: Solution) -> str | None:
        """The model of the most probable arm that goes on; None where the request ends whatever arm comes."""
        if len(outcome.first) == 1:
            edge = outcome.first[problem.groups[0]]
        else:
            chances = zip(problem.weights.tolist(), outcome.first.values(), strict=True)
            going_on = [(weight, edge) for weight, edge in chances if edge >= 0]
            edge = max(going_on, key=lambda item: item[0])[1] if going_on else END
        return None if edge < 0 else self.metrics.trie.models[self.graph.model[edge]]

    def _unreachable(self, problem: Problem, request: PlanRequest, missed: tuple[str, ...]) -> InfeasibleError:
        cap = problem.admission.caps[missed[0]]
        least = problem.least_of_the_longest(cap, problem.admission.without(*missed))
        return self._infeasible(request.objective, missed[0], getattr(request.objective, missed[0]) - cap.limit + least)

    def _infeasible(self, objective: Objective, bound: str, best: float) -> InfeasibleError:
        others = [name for name in UNITS if name != bound and getattr(objective, name) is not None]
        return unmet(objective, bound, best, others)

    @cached_property
    def _totals(self) -> PathTotals:
        return PathTotals(self.graph, self.metrics)

    @cached_property
    def _servable(self) -> BoolArray | None:
        """Whether each edge's model can be served; None if all can."""
        if not self.metrics.missing:
            return None
        gone = np.array([name in self.metrics.missing for name in self.metrics.trie.models])
        return np.asarray(~gone[self.graph.model])
