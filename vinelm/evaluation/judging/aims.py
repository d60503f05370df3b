"""What a plan is to achieve against the one that runs today: as accurate for less, or more accurate for as much."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vinelm.evaluation.plans.plans import Plans
from vinelm.objective import Objective


def aims(accuracy: float, cost_usd: float) -> tuple[Objective, Objective]:
    """Return both aims against a plan with these figures, dollars first.

    Rounded to the loose side, so that the plan itself meets both.
    """
    return (
        Objective(minimize="cost", min_accuracy=max(accuracy - 1e-9, 0.0)),
        Objective(maximize="accuracy", max_cost_usd=cost_usd * (1.0 + 1e-9)),
    )


def today_settings(models: Mapping[str, str], plans: Plans[Any]) -> dict[str, Any]:
    """Return what names today's configuration among these plans: see :meth:`Plans.having`."""
    stages = plans.annotated.template.listed
    if stages is None:
        return {"models": dict(models), "length": None}
    return {"path": tuple(models[stage.name] for stage in stages)}


def aims_over(plans: Plans[Any]) -> tuple[Objective, ...]:
    """Return both aims against today's configuration by the figures of these plans; none where it is not among them."""
    today = plans.annotated.template.today
    found = None if today is None else plans.having(today_settings(today, plans))
    return () if found is None else aims(found.accuracy, found.path_cost_usd)
