"""Static plans over a trie that branches: a model for each stage, whatever happens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np

from vinelm.controller import Planner
from vinelm.controller.planning.contingent.decision import ContingentDecision
from vinelm.controller.planning.contingent.plan import ContingentPlan
from vinelm.controller.planning.path_metrics import no_standard_errors
from vinelm.objective import Objective
from vinelm.plans.promise import Promise
from vinelm.plans.static_plans import StaticPlans
from vinelm.policies import StaticPolicy
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.arrays import FloatArray


@dataclass(frozen=True, eq=False)
class StagePlan:
    """A model for each stage, and what the trie expects of it. Compares equal to the same models and the same end.

    Attributes:
        models: The model of each stage, in template order.
        most_invocations: The plan ends after so many invocations where the application lets it; None if only the application
            ends requests.
        plan: The same as a contingent plan.
    """

    models: dict[str, str]
    most_invocations: int | None
    plan: ContingentPlan

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StagePlan) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[object, ...]:
        return (*self.models.items(), self.most_invocations)

    @property
    def text(self) -> str:
        """The plan in words: ``router a, search b``, or ``a`` for one model."""
        names = set(self.models.values())
        words = names.pop() if len(names) == 1 else ", ".join(f"{stage} {model}" for stage, model in self.models.items())
        return words if self.most_invocations is None else f"{words}, up to {self.most_invocations} invocations"

    @property
    def accuracy(self) -> float:
        """Expected accuracy."""
        return self.plan.accuracy

    @property
    def path_cost_usd(self) -> float:
        """Expected dollars per request."""
        return self.plan.cost_usd

    @property
    def path_latency_s(self) -> float:
        """Seconds of the longest history, at zero load."""
        return self.plan.latency_s

    def policy(self, **settings: Any) -> StaticPolicy:
        """See :meth:`~vinelm.evaluation.plans.policy_plans.FixedPlan.policy`."""
        template = self.plan.graph.annotated.template
        return StaticPolicy(template, models=self.models, length=self.most_invocations, **settings)

    @cached_property
    def promise(self) -> Promise:
        """The accuracy to expect from serving it; no correction for having chosen it among the static plans."""
        return Promise(
            estimate=self.accuracy, standard_error=self.plan.standard_error, optimism=None, advantage=0.0,
            advantage_optimism=None, reference=None,
        )  # fmt: skip

    @property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """The 90 % interval of ``accuracy``; empty without standard errors."""
        found = self.promise.interval
        return {} if found is None else {"accuracy": found}

    def to_dict(self) -> dict[str, Any]:
        """Return the plan and its figures as plain JSON types."""
        knows_latency = self.plan.graph.annotated.knows_latency
        return {
            "models": dict(self.models),
            "most_invocations": self.most_invocations,
            "is_feasible": True,
            "accuracy": self.accuracy,
            "path_cost_usd": self.path_cost_usd,
            "path_latency_s": self.path_latency_s if knows_latency else None,
        }


class StagePlans:
    """The static plans over one trie. With many stages and models some are left out (see :data:`.fixed_plans.MOST`)."""

    def __init__(self, planner: Planner) -> None:
        self._planner = planner
        self.annotated: AnnotatedTrie = planner.annotated
        self._known: dict[Objective, StaticPlans] = {}

    def best(self, objective: Objective, *, single: bool = False) -> StagePlan | None:
        """Return the best static plan by the objective, or the best one that runs on one model; None if none meets the bounds.

        Bounds on averages compare the plan's accuracy and dollars; bounds for each request its longest history.
        """
        fixed = self._fixed(objective)
        allowed = fixed.is_allowed.copy()
        if single:
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

    def single_models(self) -> Iterator[tuple[str, StagePlan]]:
        """Yield (model, plan) for each model that every stage allows; the plan goes on until the application ends."""
        fixed = self._fixed(Objective(maximize="accuracy"))
        for index in np.flatnonzero(fixed.runs_one_model & fixed.is_whole & fixed.is_allowed).tolist():
            yield self.annotated.trie.models[int(fixed.models[index // fixed.depth][0])], self._plan(fixed, index)

    def with_models(self, models: Mapping[str, str], most_invocations: int | None) -> StagePlan | None:
        """Return the plan with these models; None if it is not among the static plans, or not allowed to end there.

        Args:
            models: The model of each stage.
            most_invocations: The plan ends after so many, where that is allowed; None: only the application ends requests.
        """
        trie, fixed = self.annotated.trie, self._fixed(Objective(maximize="accuracy"))
        if set(models) != set(trie.stages) or not set(models.values()) <= set(trie.models):
            return None
        wanted = [trie.models.index(models[stage]) for stage in trie.stages]
        rows = np.flatnonzero((fixed.models == wanted).all(axis=1))
        cut = fixed.depth if most_invocations is None else most_invocations
        if not len(rows) or not 1 <= cut <= fixed.depth:
            return None
        index = int(rows[0]) * fixed.depth + cut - 1
        return self._plan(fixed, index) if fixed.is_allowed[index] else None

    def frontier(self) -> list[StagePlan]:
        """Return the static plans that are more accurate than every one of the same or a lower cost, the cheapest first."""
        fixed = self._fixed(Objective(maximize="accuracy"))
        plans = np.flatnonzero(fixed.is_allowed)
        order = plans[np.lexsort((-fixed.accuracy[plans], fixed.cost_usd[plans]))]
        best = np.maximum.accumulate(fixed.accuracy[order])
        is_better = np.concatenate(([True], best[1:] > best[:-1]))[: len(order)]
        return [self._plan(fixed, int(index)) for index in order[is_better]]

    def _fixed(self, objective: Objective) -> StaticPlans:
        """The static plans, and which of them answer every request within the objective's bounds for each request."""
        per_request = replace(objective, min_accuracy=None, confidence=None, on_infeasible="best_effort")
        if objective.cost_budget == "population":
            per_request = replace(per_request, max_cost_usd=None)
        if objective.risk == "dp":  # a static plan does not look at the time left
            per_request = replace(per_request, risk="mean", late_weight=None)
        found = self._known.get(per_request)
        if found is None:
            decision = self._planner.plan(per_request, elapsed_s=float(self.annotated.latency_s[0]))
            assert isinstance(decision, ContingentDecision)
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
        plan = ContingentPlan(graph, 0, {group: int(choice[group]) for group in graph.groups_at(0)}, choice)
        can_end = bool((graph.may_end & (np.diff(graph.first_group) > 0)).any())
        return StagePlan(
            models={stage: trie.models[int(fixed.models[row][at])] for at, stage in enumerate(trie.stages)},
            most_invocations=cut + 1 if can_end and cut + 1 < fixed.depth else None,
            plan=plan,
        )
