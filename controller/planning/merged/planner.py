"""Plans over a trie whose histories are merged: one plan per objective from the root on, one decision per request."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from vinelm.controller.planning.contingent.limits import Admissible
from vinelm.controller.planning.contingent.planners import check_plannable
from vinelm.controller.planning.contingent.problem import Problem
from vinelm.controller.planning.contingent.values import PlanGoal
from vinelm.controller.planning.infeasibility import no_end, unmet
from vinelm.controller.planning.merged.candidates import Candidate, choose, near_the_bounds
from vinelm.controller.planning.merged.decision import MergedDecision, MergedPlan
from vinelm.controller.planning.merged.evaluation import evaluate
from vinelm.controller.planning.merged.graph import MergedGraph
from vinelm.controller.planning.merged.next_step import StepOptions, follow, next_step
from vinelm.controller.planning.merged.policies import assessed, fixed_choice, fixed_plans, policy_at
from vinelm.controller.planning.merged.values import NOTHING, Resource, Values, at_left, induce
from vinelm.controller.planning.metric import COST_CAP, DEFAULT_Z, LATENCY_CAP, bounds_averages
from vinelm.controller.planning.path_metrics import PathMetrics
from vinelm.controller.planning.plan_request import PlanRequest
from vinelm.errors import ConfigError, InfeasibleError
from vinelm.objective import Objective
from vinelm.plans.decision_graph import DecisionGraph
from vinelm.trie.arrays import BoolArray, FloatArray

KEPT = 256
"""Most objectives whose plans from the root are kept."""
VALUES_KEPT = 16
"""Most inductions that are kept: one for each objective and load."""
LATENCY_TURNS = 8
MOST_WITH_CAPS = 200_000
"""Most nodes of a trie that is planned over with bounds for each request, since their values depend on what is left."""
LOAD_STEPS = 256
"""Load is rounded up to this fraction of the latency bound, so that values are kept while it changes little."""


@dataclass(frozen=True, eq=False)
class Found:
    """How requests of one objective are planned.

    Args:
        candidate: the plan from the root on at zero load.
        relaxed: bounds on averages that no plan meets; ``best``: the best value of the first of these.
        within_s: seconds from the root within which plans stay, where latency is minimized; None without.
    """

    candidate: Candidate
    relaxed: tuple[str, ...]
    best: float
    within_s: float | None = None


class MergedPlanner:
    """Plans over one merged trie.

    Args:
        metrics: The trie, and the models that cannot be served.
        ends: Nodes that plans may end at, shape (n + 1,); None for every answerable one.
    """

    def __init__(self, metrics: PathMetrics, ends: BoolArray | None = None) -> None:
        self.metrics = metrics
        self.graph = MergedGraph.of(metrics.annotated, unavailable=metrics.missing, ends=ends)
        self.decisions = DecisionGraph.of(metrics.annotated, ends)
        self._found: dict[Objective, Found] = {}
        self._values: dict[tuple[object, ...], tuple[Values, tuple[Resource, ...]]] = {}
        self._fixed: list[Candidate] | None = None

    def plan(self, request: PlanRequest, stage: str | Collection[str] | None, without: Collection[str]) -> MergedDecision:
        """Return the best plan for a request; the arguments are those of :meth:`Planner.plan`."""
        arms = (stage,) if isinstance(stage, str) else stage
        graph, objective = self.graph, request.objective
        here = [arm for arm in graph.arms_of(request.node) if arms is None or graph.stage_of(arm) in arms]
        if not here:
            raise no_end(self.metrics, request)
        found = self.found(objective)
        if found.relaxed and objective.on_infeasible == "raise":
            raise unmet(objective, found.relaxed[0], found.best)
        values, resources = self._values_for(objective, found, request.load_s)
        left = self._left(request, resources)
        best = found.candidate
        fastest = None
        if objective.target == "latency" and not bounds_averages(objective):
            fastest = Resource.of(graph, LATENCY_CAP, 0.0, self._seconds(objective, request.load_s))
        step = StepOptions(graph, values, resources, best.price, best.weight, fastest, without, request.may_stop)
        policy = None if fastest is not None else best.policy
        first, missed = next_step(step, here, left, policy, is_joint=arms is not None and len(here) > 1)
        if all(edge == NOTHING for edge in first.values()):
            raise no_end(self.metrics, request)
        if missed and objective.on_infeasible == "raise":
            raise self._unreachable(request, missed[0], resources)
        is_followed = policy is not None and not resources
        choice = policy.choice if policy is not None and is_followed else follow(step, request.node, first, left, policy)
        plan = MergedPlan(self.decisions, request.node, first, choice, graph)
        problem = Problem(self.decisions, request.node, here, Admissible(self.decisions, {}, None), request.may_stop)
        goal = PlanGoal("accuracy" if found.candidate.weight else "cost", found.candidate.price)
        return MergedDecision(
            request.node, request.node, self._next_model(first, here), (*missed, *found.relaxed), self.metrics, request, None,
            plan, problem, goal, left={resource.name: amount for resource, amount in zip(resources, left, strict=True)},
            worths={arm: step.options(arm, left) for arm in here},
        )  # fmt: skip

    def prepare(self, objective: Objective) -> None:
        """Find the plan from the root on for an objective, so that no request waits for it."""
        self.found(objective)

    def found(self, objective: Objective) -> Found:
        """Return how requests of this objective are planned, found once."""
        known = self._found.get(objective)
        if known is None:
            self._check(objective)
            known = self._search(objective)
            if len(self._found) >= KEPT:
                self._found = dict(list(self._found.items())[KEPT // 2 :])
            self._found[objective] = known
        return known

    # -- from the root on, at zero load --------------------------------------------------------------------------

    def _search(self, objective: Objective) -> Found:
        if objective.target == "latency":
            return self._fastest(objective)
        chosen = choose(self._candidates(objective, None), objective)
        return Found(chosen.candidate, chosen.relaxed, chosen.best)

    def _candidates(self, objective: Objective, within_s: float | None) -> list[Candidate]:
        root = PlanRequest(objective, 0, float(self.metrics.annotated.latency_s[0]), self._root_usd, None, None, False)
        resources = self._resources(objective, within_s, None)

        def uncapped(price: float, weight: float = 1.0) -> Candidate:
            policy = policy_at(self.graph, price, weight=weight)
            return Candidate(policy.outlook.accuracy, policy.outlook.cost_usd + self._root_usd, price, weight, policy)

        def capped(price: float, weight: float = 1.0) -> Candidate:
            values = induce(self.graph, price, resources, weight=weight)
            amounts = [np.array([amount]) for amount in self._left(root, resources)]
            cost = float(at_left(values.cost_usd[:1], resources, amounts)[0])
            value = float(at_left(values.value[:1], resources, amounts)[0])
            return Candidate(value + price * cost if weight else 0.0, cost + self._root_usd, price, weight)

        at, scale = capped if resources else uncapped, 1.0 / max(self._typical_usd, 1e-9)
        if objective.target == "cost" and objective.min_accuracy is None:
            return [at(1.0, 0.0)]
        found = near_the_bounds(at, objective, scale)
        if not bounds_averages(objective):
            return found
        others = [uncapped(1.0, 0.0), *self._fixed_plans()]
        if resources:
            others = [*near_the_bounds(uncapped, objective, scale), *others]
        return [*found, *(plan for plan in others if self._fits(plan, resources, self._left(root, resources)))]

    def _fits(self, candidate: Candidate, resources: Sequence[Resource], left: Sequence[float]) -> bool:
        """Whether the longest history of a plan that does not look at what is left stays within it."""
        policy = candidate.policy
        return policy is not None and all(
            evaluate(self.graph, policy.choice, latency_s=resource.use).latency_s <= amount
            for resource, amount in zip(resources, left, strict=True)
        )

    def _fastest(self, objective: Objective) -> Found:
        """The plan within the least time in which some plan meets the bounds on averages, if there are any."""
        if not bounds_averages(objective):
            return Found(Candidate(0.0, 0.0, 0.0, 1.0), (), float("nan"))
        seconds = self._seconds(objective, None)
        root_s = float(self.metrics.annotated.latency_s[0])
        high = root_s + sum(float(seconds[edges].max(initial=0.0)) for edges in self.graph.trie.edge_levels)
        high = high if objective.max_latency_s is None else min(high, objective.max_latency_s)
        chosen = choose(self._candidates(objective, high), objective)
        if chosen.relaxed:
            return Found(chosen.candidate, chosen.relaxed, chosen.best, high)
        low = root_s + float(Resource.of(self.graph, LATENCY_CAP, high, seconds).need[0])
        for _ in range(LATENCY_TURNS):
            middle = 0.5 * (low + high)
            tried = choose(self._candidates(objective, middle), objective)
            if tried.relaxed:
                low = middle
            else:
                chosen, high = tried, middle
        return Found(chosen.candidate, (), float("nan"), high)

    def _fixed_plans(self) -> list[Candidate]:
        """Those for which no other fixed plan is cheaper and at least as accurate."""
        if self._fixed is None:
            served = [plan for plan in fixed_plans(self.graph) if not set(plan.models) & set(self.metrics.missing)]
            best, self._fixed = -1.0, []
            for plan in sorted(served, key=lambda plan: (plan.run.cost_usd, -plan.run.accuracy)):
                if plan.run.accuracy > best:
                    best = plan.run.accuracy
                    policy = assessed(self.graph, fixed_choice(self.graph, plan), "fixed")
                    self._fixed.append(Candidate(best, plan.run.cost_usd + self._root_usd, 0.0, 1.0, policy))
        return self._fixed

    # -- what one request may use --------------------------------------------------------------------------------

    def _resources(self, objective: Objective, within_s: float | None, load_s: FloatArray | None) -> tuple[Resource, ...]:
        annotated, target = self.metrics.annotated, self.graph.trie.target
        caps = [cap for cap in (objective.max_latency_s, within_s) if cap is not None]
        found = []
        if caps:
            found.append(Resource.of(self.graph, LATENCY_CAP, min(caps), self._seconds(objective, load_s)))
        if objective.cost_budget == "per_request" and objective.max_cost_usd is not None:
            usd = annotated.cost_usd + (objective.z or 0.0) * np.sqrt(annotated.cost_var)
            found.append(Resource.of(self.graph, COST_CAP, objective.max_cost_usd, usd[target]))
        return tuple(found)

    def _seconds(self, objective: Objective, load_s: FloatArray | None) -> FloatArray:
        """Seconds of each edge. Deviations of single invocations are added up, which is more than that of their sum."""
        annotated = self.metrics.annotated
        seconds = annotated.latency_s.copy()
        if objective.risk == "mean+sd":
            seconds += (DEFAULT_Z if objective.z is None else objective.z) * np.sqrt(annotated.latency_var)
        if load_s is not None:
            seconds += np.where(annotated.engine >= 0, load_s[annotated.engine], 0.0)
        return np.asarray(seconds[self.graph.trie.target])

    def _left(self, request: PlanRequest, resources: Sequence[Resource]) -> list[float]:
        used = {LATENCY_CAP: request.elapsed_s, COST_CAP: request.spent_usd}
        return [resource.left - used[resource.name] for resource in resources]

    def _values_for(self, objective: Objective, found: Found, load_s: FloatArray | None) -> tuple[Values, tuple[Resource, ...]]:
        caps = [cap for cap in (objective.max_latency_s, found.within_s) if cap is not None]
        if load_s is not None and caps:
            step = max(min(caps) / LOAD_STEPS, 1e-9)
            load_s = np.ceil(load_s / step) * step
        key = (objective, None if load_s is None or not caps else load_s.tobytes())
        known = self._values.get(key)
        if known is None:
            resources = self._resources(objective, found.within_s, load_s)
            known = induce(self.graph, found.candidate.price, resources, weight=found.candidate.weight), resources
            if len(self._values) >= VALUES_KEPT:
                self._values = dict(list(self._values.items())[VALUES_KEPT // 2 :])
            self._values[key] = known
        return known

    # -- small parts ---------------------------------------------------------------------------------------------

    def _next_model(self, first: dict[int, int], arms: Sequence[int]) -> str | None:
        """The model of the most probable arm that goes on; None where the request ends whatever arm comes."""
        going_on = [(float(self.graph.going[arm]), -arm) for arm in arms if first[arm] >= 0]
        if not going_on:
            return None
        return self.graph.model_of(first[-max(going_on)[1]])

    @property
    def _root_usd(self) -> float:
        return float(self.metrics.annotated.cost_usd[0])

    @property
    def _typical_usd(self) -> float:
        return float(self.metrics.annotated.cost_usd[1:].mean())

    def _check(self, objective: Objective) -> None:
        check_plannable(objective, self.metrics)
        annotated = self.metrics.annotated
        wants_s = objective.max_latency_s is not None or objective.target == "latency"
        has_caps = wants_s or objective.cost_budget == "per_request"
        if has_caps and len(annotated.trie) > MOST_WITH_CAPS:
            raise ConfigError(
                f"bounds on each request's time or dollars are planned over at most {MOST_WITH_CAPS:,} merged nodes, this trie"
                f" has {annotated.trie.n_nodes:,}: give the loop a smaller memory"
            )
        if has_caps and objective.confidence is not None:
            raise ConfigError(
                "confidence is not planned with on merged tries where each request's time or dollars are bounded: leave one out"
            )

    def _unreachable(self, request: PlanRequest, bound: str, resources: Sequence[Resource]) -> InfeasibleError:
        resource = next(resource for resource in resources if resource.name == bound)
        edges = np.concatenate([np.array(self.graph.edges_of(arm)) for arm in self.graph.arms_of(request.node)])
        used = {LATENCY_CAP: request.elapsed_s, COST_CAP: request.spent_usd}[bound]
        least = used + float((resource.use[edges] + resource.need[self.graph.trie.target[edges]]).min())
        return unmet(request.objective, bound, least)
