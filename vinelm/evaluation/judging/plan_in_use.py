"""What an application runs today: one model, or a fixed plan, to compare VineLM's plans with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vinelm.errors import ConfigError
from vinelm.evaluation.plans.contingent_plans import ContingentPlans
from vinelm.evaluation.plans.policy_plans import PathPlan, Plans
from vinelm.evaluation.plans.stage_plans import StagePlan
from vinelm.io.reading import read_text
from vinelm.trie.annotated_trie import AnnotatedTrie


@dataclass(frozen=True, kw_only=True)
class PlanInUse:
    """A plan that is the same for every request.

    Attributes:
        name: In a sentence: the model, or "today's plan".
        path: The model of each invocation; empty where ``stages`` says it.
        stages: The model of each stage of an application that branches; empty where ``path`` says it.
        most_invocations: The end of a plan by stages; None: only the application ends requests.
    """

    name: str
    path: tuple[str, ...] = ()
    stages: Mapping[str, str] | None = None
    most_invocations: int | None = None

    @classmethod
    def of(cls, given: str | Path, annotated: AnnotatedTrie) -> PlanInUse:
        """Read what is in use.

        Args:
            given: A model, which then runs every invocation; or the path of a JSON file as ``vinelm plan --json`` writes it,
                whose first plan is meant, or one plan of it.
            annotated: A trie of the application.

        Raises:
            ConfigError: It is neither, or not a fixed plan of this trie.
        """
        if str(given) in annotated.catalog:
            return cls._of_model(str(given), annotated)
        found = _first_plan(Path(given), annotated)
        if found.get("stages"):
            plan = cls(name="today's plan", path=tuple(str(model) for _, model in found["stages"]))
        elif found.get("models"):
            plan = cls(name="today's plan", stages=dict(found["models"]), most_invocations=found.get("most_invocations"))
        else:
            raise ConfigError(
                f"{given}: this plan depends on what a request shows; what is in use must be a model or a plan that is the same"
                " for every request"
            )
        plan.under(_plans(annotated))
        return plan

    @classmethod
    def _of_model(cls, model: str, annotated: AnnotatedTrie) -> PlanInUse:
        plans: dict[str, PathPlan | StagePlan] = dict(_plans(annotated).single_models())
        if model not in plans:
            raise ConfigError(f"{model} cannot run every stage: write a plan with `vinelm plan --json` and give that file")
        plan = plans[model]
        if isinstance(plan, PathPlan):
            return cls(name=model, path=annotated.trie.prefix(plan.node))
        return cls(name=model, stages=plan.models, most_invocations=plan.most_invocations)

    def under(self, plans: Plans | ContingentPlans) -> PathPlan | StagePlan:
        """Return the same plan over the trie of these plans, with that trie's figures.

        Raises:
            ConfigError: The trie has no such plan.
        """
        if isinstance(plans, ContingentPlans):
            found = None if self.stages is None else plans.static.with_models(self.stages, self.most_invocations)
            if found is None:
                raise ConfigError(f"{self.name} is no fixed plan of this trie: the workflow or its models have changed")
            return found
        try:
            return PathPlan(plans.annotated, plans.trie.node(self.path))
        except KeyError as error:
            raise ConfigError(f"{self.name} is no path of this trie: the workflow or its models have changed") from error


def _plans(annotated: AnnotatedTrie) -> Plans | ContingentPlans:
    from vinelm.evaluation.plans.contingent_plans import plans_over

    return plans_over(annotated)


def _first_plan(path: Path, annotated: AnnotatedTrie) -> dict[str, Any]:
    try:
        found = json.loads(read_text(path))
    except OSError as error:
        models = ", ".join(annotated.catalog)
        raise ConfigError(f"{path} is neither a model of this trie ({models}) nor a file of `vinelm plan --json`") from error
    except ValueError as error:
        raise ConfigError(f"{path} is no JSON: write it with `vinelm plan --json`") from error
    plans = found.get("plans", [found]) if isinstance(found, dict) else None
    if not plans or not isinstance(plans, list) or not isinstance(plans[0], dict):
        raise ConfigError(f"{path} holds no plan: write it with `vinelm plan --json`")
    return plans[0]
