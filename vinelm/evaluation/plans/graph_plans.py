"""Plans over a graph of decisions: VineLM's plan depends on a request's history, a static plan has one model for each stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any, cast

import numpy as np

from vinelm.controller import Decision
from vinelm.controller.planning.contingent.decision import ContingentDecision
from vinelm.controller.planning.mixture import Hull
from vinelm.controller.planning.path_metrics import no_standard_errors
from vinelm.evaluation.off_policy.planned_steps import ContingentSteps, Locate
from vinelm.evaluation.plans.plans import CarriedPlan, FrontierRange, PlanFrontier, Plans, Role, thinned
from vinelm.objective import Objective
from vinelm.plans.expected import Errors, Expected, Figures
from vinelm.plans.plan import Plan
from vinelm.plans.promise import Z90
from vinelm.plans.static_plans import NEVER, StaticPlans
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.arrays import FloatArray
from vinelm.trie.decision_graph import END, NOTHING, DecisionGraph

N_BUDGETS = 24
"""Number of budgets of :meth:`GraphPlans.along_budgets`."""


@dataclass(frozen=True)
class StagePlan(Expected):
    """A fixed plan: one model for each stage, with the trie's predictions of accuracy, cost and latency. Plans are
    equal if their models and ``most_invocations`` are equal.

    Attributes:
        models: The model of each stage, keyed by the stage's name, in template order.
        most_invocations: The plan ends a request after this many calls, or at the next point at which the application
            allows a request to end; None if only the application ends requests.
        plan: The same plan in the form of a contingent plan.
    """

    models: dict[str, str]
    most_invocations: int | None
    plan: Plan = field(compare=False)

    def __hash__(self) -> int:
        return hash((*self.models.items(), self.most_invocations))

    @property
    def parts(self) -> tuple[tuple[float, StagePlan], ...]:
        """This plan as a mixture of one: the only pair is (1, this plan)."""
        return ((1.0, self),)

    @property
    def figures(self) -> Figures:
        """The expected accuracy, cost and latency; see :attr:`Plan.figures`."""
        return self.plan.figures

    @property
    def errors(self) -> Errors:
        """The standard error of the plan's accuracy."""
        return Errors(self.plan.standard_error, None)

    @property
    def words(self) -> str:
        """The plan in words: ``router a, search b``, or ``a`` for one model."""
        names = set(self.models.values())
        words = names.pop() if len(names) == 1 else ", ".join(f"{stage} {model}" for stage, model in self.models.items())
        return words if self.most_invocations is None else f"{words}, up to {self.most_invocations} invocations"

    @property
    def annotated(self) -> AnnotatedTrie:
        """The annotated trie that the plan was computed from."""
        return self.plan.graph.annotated

    @property
    def reached(self) -> FloatArray:
        """The probability that a request runs each node's call; see :attr:`Plan.reached`."""
        return self.plan.reached

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The plan as nested steps; see :attr:`Plan.steps`."""
        return self.plan.steps

    def to_dict(self) -> dict[str, Any]:
        """Return the plan and its figures as plain JSON types."""
        return {
            "models": dict(self.models),
            "most_invocations": self.most_invocations,
            "is_feasible": self.is_feasible,
            "accuracy": self.accuracy,
            "path_cost_usd": self.path_cost_usd,
            "path_latency_s": self.path_latency_s if self.annotated.knows_latency else None,
            "contingent_plan": self.plan.to_dict(),
        }


class GraphPlans(Plans[StagePlan]):
    """Plans over a trie in which the application chooses between stages.

    If many stages and models give more static plans than :data:`vinelm.plans.static_plans.MOST`, some of them are left
    out.
    """

    def __init__(self, annotated: AnnotatedTrie) -> None:
        super().__init__(annotated)
        self._known: dict[Objective, StaticPlans] = {}

    def _alone(self, objective: Objective) -> ContingentDecision:
        """Return VineLM's plan for an objective that does not mix plans."""
        return cast("ContingentDecision", self.decision(objective))

    def fixed(self, objective: Objective, role: Role) -> StagePlan | None:
        """Return the best static plan for the role ``static``, or the best single model for ``single``; see
        :meth:`Plans.fixed`.

        Limits on averages apply to the plan's expected accuracy and cost. Limits for each request apply to every sequence
        of calls that a request may make under the plan.
        """
        fixed = self._fixed(objective)
        allowed = fixed.is_allowed.copy()
        if role == "single":
            allowed &= fixed.runs_one_model
        accuracy = self._lower(fixed, objective)
        if objective.min_accuracy is not None:
            allowed &= accuracy >= objective.min_accuracy
        if objective.max_cost_usd is not None and objective.cost_budget == "population":
            allowed &= fixed.cost_usd <= objective.max_cost_usd
        plans = np.flatnonzero(allowed)
        if not len(plans):
            return None
        values = {"accuracy": -accuracy, "cost": fixed.cost_usd, "latency": fixed.longest_s}
        order = [values[objective.target], *values.values()]
        winner = plans[np.lexsort((plans, *(key[plans] for key in reversed(order))))[0]]
        return self._plan(fixed, int(winner))

    def fixed_hull(self, objective: Objective, role: Role) -> Hull | None:
        """Return the convex hull of (cost, accuracy) over the fixed plans; see :meth:`Plans.fixed_hull`."""
        fixed = self._fixed(objective)
        allowed = fixed.is_allowed & fixed.runs_one_model if role == "single" else fixed.is_allowed
        return Hull.of(fixed.cost_usd[allowed], self._lower(fixed, objective)[allowed]) if allowed.any() else None

    def single_models(self) -> Iterator[tuple[str, StagePlan]]:
        """Yield the plan of each single model; see :meth:`Plans.single_models`. Plans continue until the application
        ends the request.
        """
        fixed = self._fixed(Objective(maximize="accuracy"))
        found: dict[int, int] = {}  # for plans that differ only in skipped stages, the first of them
        for index in np.flatnonzero(fixed.runs_one_model & fixed.is_whole & fixed.is_allowed).tolist():
            found.setdefault(int(fixed.paid_models[index // fixed.depth].max()), index)
        for model, index in found.items():
            yield self.annotated.trie.models[model], self._plan(fixed, index)

    def settings(self, plan: StagePlan) -> dict[str, Any]:
        """Return the arguments with which a :class:`~vinelm.policies.StaticPolicy` follows a plan; see
        :meth:`Plans.settings`.
        """
        return self.annotated.template.base.settings_of(plan.models, plan.most_invocations)

    def having(self, settings: dict[str, Any]) -> StagePlan | None:
        """Return the plan with these settings; see :meth:`Plans.having`.

        The result is also None if a request may not end after the number of calls in the settings.
        """
        trie, fixed = self.annotated.trie, self._fixed(Objective(maximize="accuracy"))
        models, most = settings.get("models", {}), settings.get("length")
        if "path" in settings:
            models, most = self._of_path(settings["path"]), len(settings["path"])
        runs = [stage for stage, model in zip(self._stages, fixed.models[0], strict=False) if model != NEVER]
        if set(models) != set(runs) or not set(models.values()) <= set(trie.models):
            return None
        wanted = [trie.models.index(models[stage]) if stage in models else NEVER for stage in self._stages]
        rows = np.flatnonzero((fixed.models == wanted).all(axis=1))
        cut = fixed.depth if most is None else most
        if not len(rows) or not 1 <= cut <= fixed.depth:
            return None
        index = int(rows[0]) * fixed.depth + cut - 1
        return self._plan(fixed, index) if fixed.is_allowed[index] else None

    @cached_property
    def _stages(self) -> tuple[str, ...]:
        """The names of the stages for which a fixed plan names a model: those of the application, without request types."""
        return tuple(stage.name for stage in self.annotated.template.base.stages)

    def _of_path(self, path: Sequence[str]) -> dict[str, str]:
        """Return the model of each stage, by the stage's name, for a path through stages in a fixed order.

        Stages after the path's end get the path's last model. The result is empty if a stage has two models on the
        path.
        """
        found: dict[str, str] = {}
        stages = [stage.name for stage in self.annotated.template.base.listed]
        for stage, model in zip(stages, path, strict=False):
            if found.setdefault(stage, model) != model:
                return {}
        return dict.fromkeys(stages, path[-1]) | found if path else {}

    @staticmethod
    def steps(plan: StagePlan | ContingentDecision, locate: Locate) -> ContingentSteps:
        """Return the policy that follows a plan; see :meth:`Plans.steps`."""
        return ContingentSteps(plan.plan, locate)

    def frontier_range(self) -> FrontierRange:
        """Return the ends of the frontiers of accuracy over cost and of accuracy over latency; see
        :meth:`Plans.frontier_range`.

        The range of costs begins at VineLM's cheapest plan or at the cheapest single model, whichever costs more. The range
        of latencies begins at VineLM's fastest plan or at the fastest single model, whichever is slower.
        """
        best, cheapest = self.decision(Objective(maximize="accuracy")), self.decision(Objective(minimize="cost"))
        fastest = self.decision(Objective(minimize="latency")).path_latency_s if self.annotated.knows_latency else 0.0
        alone = [plan for _, plan in self.single_models()]
        return FrontierRange(
            max(cheapest.path_cost_usd, min(plan.path_cost_usd for plan in alone)), best.path_cost_usd, cheapest.accuracy,
            max(fastest, min(plan.path_latency_s for plan in alone)), best.path_latency_s,
        )  # fmt: skip

    def frontier(self, most: int) -> PlanFrontier:
        """Return at most ``most`` plans, evenly spaced along the frontier of accuracy over cost; see
        :meth:`Plans.frontier`.
        """
        found = self.along_budgets()
        return PlanFrontier([self._row(decision) for decision in thinned(found, most)], len(found), found[-1])

    def _row(self, decision: ContingentDecision) -> dict[str, Any]:
        error, knows_latency = decision.standard_error, self.annotated.knows_latency
        return {
            "plan": decision.words,
            "accuracy": decision.accuracy,
            "accuracy_half_width90": None if error is None else Z90 * error,
            "cost_usd": decision.path_cost_usd,
            "latency_s": decision.path_latency_s if knows_latency else None,
            "expected_latency_s": decision.expected_latency_s if knows_latency else None,
            **decision.facts(),
        }

    def carried(self, old: Decision, now: Decision) -> CarriedPlan | None:
        """Return this trie's predictions for ``old``, a plan made on another trie, and whether ``old`` equals ``now``.

        See :meth:`Plans.carried`.
        """
        plan, own = (cast("ContingentDecision", decision).plan for decision in (old, now))
        there = _plan_on(own.graph, plan)
        if there is None:
            return None
        return CarriedPlan(there.accuracy, there.cost_usd, there.standard_error, there.is_same_as(own))

    def along_budgets(self, n_budgets: int = N_BUDGETS) -> list[ContingentDecision]:
        """Return VineLM's plans over a range of ``n_budgets`` budgets, without duplicates, by rising cost and accuracy.

        The budgets limit the mean cost per request. They run from the cheapest plan's cost to that of the most accurate
        plan.
        """
        cheapest, best = self._alone(Objective(minimize="cost")), self._alone(Objective(maximize="accuracy"))
        low, high = cheapest.path_cost_usd, best.path_cost_usd
        budgets = np.geomspace(low, high, n_budgets)[1:-1] * (1 + 1e-9) if 0.0 < low < high else ()
        found = [cheapest]
        for budget in budgets:
            found.append(self._alone(Objective(maximize="accuracy", max_cost_usd=float(budget), mix=False)))
        found.append(best)
        kept: list[ContingentDecision] = []
        for decision in sorted(found, key=lambda each: (each.path_cost_usd, -each.accuracy)):
            if not kept or decision.accuracy > kept[-1].accuracy:
                kept.append(decision)
        return kept

    def _fixed(self, objective: Objective) -> StaticPlans:
        """Return the static plans, restricted to those that meet the objective's limits for every single request."""
        per_request = replace(objective, mix=True, min_accuracy=None, confidence=None, on_infeasible="best_effort")
        if objective.cost_budget == "population":
            per_request = replace(per_request, max_cost_usd=None)
        per_request = per_request.by_means  # a static plan ignores the time left
        found = self._known.get(per_request)
        if found is None:
            decision = self._alone(per_request)
            found = self._known[per_request] = decision.problem.static_plans()
        return found

    def _lower(self, fixed: StaticPlans, objective: Objective) -> FloatArray:
        if objective.confidence is None:
            return fixed.accuracy
        if self.annotated.accuracy_se is None:
            raise no_standard_errors(self.annotated)
        return np.maximum(fixed.accuracy - NormalDist().inv_cdf(objective.confidence) * fixed.error, 0.0)

    def _plan(self, fixed: StaticPlans, index: int) -> StagePlan:
        trie, graph = self.annotated.trie, fixed.graph
        row, cut = divmod(index, fixed.depth)
        choice = fixed.choice(index)
        plan = Plan(graph, 0, {group: int(choice[group]) for group in graph.groups_at(0)}, choice)
        can_end = bool((graph.may_end & (np.diff(graph.first_group) > 0)).any())
        return StagePlan(
            models={
                stage: trie.models[int(model)]
                for stage, model in zip(self._stages, fixed.models[row], strict=True)
                if model != NEVER
            },
            most_invocations=cut + 1 if can_end and cut + 1 < fixed.depth else None,
            plan=plan,
        )


def matched(before: DecisionGraph, after: DecisionGraph) -> dict[int, int]:
    """Return a mapping from the index of each node of ``after`` to that of the node of ``before`` which is reached by
    the same stages and models.

    Nodes without such a counterpart are left out.
    """
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


def _plan_on(graph: DecisionGraph, plan: Plan) -> Plan | None:
    """Return the plan, with the same models at the same branches, on another trie's graph; None if that graph lacks a
    model of the plan.
    """
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
    return Plan(graph, 0, first, choice)


def _stage(graph: DecisionGraph, group: int) -> str:
    return graph.annotated.trie.stages[int(graph.stage[group])]


def _model(graph: DecisionGraph, edge: int) -> str:
    return graph.annotated.trie.models[int(graph.model[edge])]
