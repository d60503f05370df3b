"""The current setup: one model, or a fixed plan, to compare VineLM's plans with."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vinelm.errors import ConfigError
from vinelm.evaluation.plans.plans import Plans
from vinelm.evaluation.plans.plans_over import plans_over
from vinelm.io.reading import read_text
from vinelm.trie.annotated_trie import AnnotatedTrie


@dataclass(frozen=True, kw_only=True)
class TodaysPlan:
    """The current setup, as a plan that is the same for every request.

    Attributes:
        name: The setup's name in sentences: the model, "today's plan" or "what runs today".
        settings: The arguments with which a :class:`~vinelm.policies.StaticPolicy` follows the plan.
    """

    name: str
    settings: dict[str, Any]

    @classmethod
    def of(cls, given: str | Path, annotated: AnnotatedTrie) -> TodaysPlan:
        """Read the current setup.

        Args:
            given: The name of a model that runs every call; or the path of a JSON file with one fixed plan, or with
                several as ``vinelm plan --json`` writes them. Of several plans, the first is used.
            annotated: A trie of the application.

        Raises:
            ConfigError: ``given`` names no model and no readable plan, or the plan depends on the request or is not in
                this trie.
        """
        if str(given) in annotated.catalog:
            return cls._of_model(str(given), annotated)
        found = _first_plan(Path(given), annotated)
        if not found.get("stages") and not found.get("models"):
            raise ConfigError(
                f"{given}: this plan depends on what a request shows; what is in use must be a model or a plan that is the same"
                " for every request"
            )
        if found.get("stages"):
            plan = cls(name="today's plan", settings={"path": tuple(str(model) for _, model in found["stages"])})
        else:
            of_stages = {"models": dict(found["models"]), "length": found.get("most_invocations")}
            plan = cls(name="today's plan", settings=of_stages)
        plan.under(plans_over(annotated))
        return plan

    @classmethod
    def declared(cls, annotated: AnnotatedTrie) -> TodaysPlan | None:
        """Return the current setup as the application's stages declare it; None if they do not, or if the trie has no
        such plan.
        """
        plans = plans_over(annotated)
        settings = plans.today_settings()
        return None if settings is None or plans.having(settings) is None else cls(name="what runs today", settings=settings)

    @classmethod
    def _of_model(cls, model: str, annotated: AnnotatedTrie) -> TodaysPlan:
        plans = plans_over(annotated)
        alone = dict(plans.single_models())
        if model not in alone:
            raise ConfigError(f"{model} cannot run every stage: write a plan with `vinelm plan --json` and give that file")
        return cls(name=model, settings=plans.settings(alone[model]))

    def under(self, plans: Plans[Any]) -> Any:
        """Return this plan with the accuracy, cost and latency that the trie of ``plans`` predicts for it.

        Raises:
            ConfigError: That trie has no such plan.
        """
        found = plans.having(self.settings)
        if found is None:
            raise ConfigError(f"{self.name} is no fixed plan of this trie: the workflow or its models have changed")
        return found


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
