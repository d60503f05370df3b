"""What a plan is to achieve against the one that runs today: as accurate for less, or more accurate for as much."""

from __future__ import annotations

from collections.abc import Sequence

from vinelm.evaluation.plans.plans import FixedPlan
from vinelm.objective import Objective

SAVED = 0.7
"""Of today's dollars: the most accurate plan within them is worth proving, too. One that costs hardly less than today's saves
too little, and one that is exactly as accurate by its estimate is rarely proven."""
SURE = 0.8
"""Plans are chosen by the lower end of their accuracy with this confidence: of those that look alike, that with more rows."""


def aims(accuracy: float, cost_usd: float) -> tuple[Objective, Objective]:
    """Return both aims against a plan with these figures, dollars first.

    Rounded to the loose side, so that the plan itself meets both. No mixture may just reach the floor of the first: what a
    plan is more accurate by than it has to be shows that nothing is lost.
    """
    return (
        Objective(minimize="cost", min_accuracy=max(accuracy - 1e-9, 0.0), mix=False),
        within(cost_usd),
    )


def worth_proving(today: Sequence[FixedPlan]) -> tuple[Objective, ...]:
    """Return what the plans are chosen for that a profile runs: the most accurate within today's dollars, and within 70 %.

    Args:
        today: What runs today, over each part of the requests that plans.
    """
    cost_usd = sum(plan.path_cost_usd for plan in today) / len(today)
    return tuple(within(share * cost_usd, SURE) for share in (1.0, SAVED))


def within(cost_usd: float, confidence: float | None = None) -> Objective:
    """Return the objective of the most accurate plan within these dollars, rounded to the loose side."""
    return Objective(maximize="accuracy", max_cost_usd=cost_usd * (1.0 + 1e-9), confidence=confidence)
