"""Plans over a trie that branches: VineLM's contingent plan, the best static plan and the best single model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from vinelm.controller import Decision, Planner
from vinelm.controller.planning.contingent.decision import ContingentDecision
from vinelm.errors import InfeasibleError
from vinelm.evaluation.plans.policy_plans import NAMES, PlannedPolicy, Plans
from vinelm.evaluation.plans.roles import Role
from vinelm.evaluation.plans.stage_plans import StagePlan, StagePlans
from vinelm.objective import Objective
from vinelm.trie.annotated_trie import AnnotatedTrie


class ContingentPlans:
    """Plans over one trie that branches. A static plan is a model per stage, by the same criterion from the same trie."""

    def __init__(self, annotated: AnnotatedTrie) -> None:
        self.annotated = annotated
        self.trie = annotated.trie
        self.planner = Planner(annotated)
        self.static = StagePlans(self.planner)

    def decision(self, objective: Objective) -> ContingentDecision:
        """Plan for a request that has just arrived.

        Raises:
            InfeasibleError: No plan meets the bounds, and the objective asks to raise then.
        """
        found = self.planner.plan(objective, elapsed_s=float(self.annotated.latency_s[0]))
        assert isinstance(found, ContingentDecision)
        return found

    def fixed(self, objective: Objective, role: Role) -> StagePlan | None:
        """Return the best static plan, or the best single model (``single``); None if none meets the bounds."""
        return self.static.best(objective, single=role == "single")

    def single_models(self) -> Iterator[tuple[str, StagePlan]]:
        """Yield (model, plan) for each model that every stage allows."""
        return self.static.single_models()

    def model_of(self, plan: StagePlan) -> str:
        """Return the model of the plan's last stage."""
        return next(reversed(plan.models.values()))

    def plan_text(self, decision: Decision) -> str:
        """Return VineLM's plan in one line: the models of each stage, the most frequent first."""
        assert isinstance(decision, ContingentDecision)
        return plan_words(decision)

    def steps(self, decision: ContingentDecision | StagePlan) -> dict[str, Any]:
        """Return the steps of a plan for JSON: the tree of its arms."""
        return {"contingent_plan": decision.plan.to_dict()}

    def compare(self, objective: Objective) -> list[PlannedPolicy]:
        """Plan for VineLM, the best static plan and the best single model, in this order.

        Raises:
            InfeasibleError: No plan meets the bounds, and the objective asks to raise then.
        """
        best = self.decision(objective)
        found = [PlannedPolicy(NAMES["vinelm"], "vinelm", best, self.plan_text(best))]
        for role in ("static", "single"):
            plan = self.fixed(objective, role)
            found.append(PlannedPolicy(NAMES[role], role, plan, "none meets the bounds" if plan is None else plan.text))
        return found

    @property
    def best_single_accuracy(self) -> float:
        """The highest estimated accuracy of a plan that runs on one model."""
        found = self.fixed(Objective(maximize="accuracy"), "single")
        if found is None:
            raise InfeasibleError("no model can run every stage: give the stages a common model")
        return found.accuracy


def plans_over(annotated: AnnotatedTrie) -> Plans | ContingentPlans:
    """Return the plans over a trie: :class:`Plans` of paths, or :class:`ContingentPlans` where it branches."""
    return Plans(annotated) if not annotated.is_contingent else ContingentPlans(annotated)


def plan_words(decision: ContingentDecision) -> str:
    """Describe a contingent plan in one line: for each stage its models, the most frequently used first.

    ``router a, search b, reply c or d`` says that the reply runs on c in most requests and on d in others;
    a plan on one model is that model.
    """
    annotated, trie, plan = decision.metrics.annotated, decision.metrics.trie, decision.plan
    reach = annotated.reach if plan.graph.is_tree else np.ones(len(trie))
    stages: Sequence[str] = trie.stages
    if annotated.outcomes is not None:  # a stage of such a trie is one of the workflow after one outcome
        stages = [annotated.template.stages[stage].name for stage in annotated.outcomes.stages]
    shares: dict[str, dict[str, float]] = {stage: {} for stage in stages}
    for node in np.flatnonzero(plan.runs).tolist():
        chance = float(reach[node])
        of_stage, model = shares[stages[trie.stage[node]]], trie.models[trie.model[node]]
        of_stage[model] = of_stage.get(model, 0.0) + chance
    models = {model for of_stage in shares.values() for model in of_stage}
    if len(models) == 1:
        return models.pop()
    ordered = ((stage, sorted(found, key=lambda name: -found[name])) for stage, found in shares.items() if found)
    return ", ".join(f"{stage} {' or '.join(names)}" for stage, names in ordered) or "no invocation"
