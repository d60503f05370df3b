"""The estimated frontier of contingent plans: corners of the hull, and static plans that lie between them."""

from __future__ import annotations

import numpy as np

from vinelm.controller.planning.contingent.decision import ContingentDecision
from vinelm.evaluation.plans.contingent_plans import ContingentPlans
from vinelm.objective import Objective

N_BUDGETS = 24


def contingent_frontier(plans: ContingentPlans, n_budgets: int = N_BUDGETS) -> list[ContingentDecision]:
    """Return VineLM's plans over a range of budgets, each once, the cheapest first: each is more accurate than the one before.

    A budget is a bound on the average: the plan is the best of the hull's corners and the static plans within it.
    """
    cheapest, best = plans.decision(Objective(minimize="cost")), plans.decision(Objective(maximize="accuracy"))
    low, high = cheapest.path_cost_usd, best.path_cost_usd
    budgets = np.geomspace(low, high, n_budgets)[1:-1] * (1 + 1e-9) if 0.0 < low < high else ()
    found = [cheapest]
    for budget in budgets:
        found.append(plans.decision(Objective(maximize="accuracy", max_cost_usd=float(budget))))
    found.append(best)
    kept: list[ContingentDecision] = []
    for decision in sorted(found, key=lambda each: (each.path_cost_usd, -each.accuracy)):
        if not kept or decision.accuracy > kept[-1].accuracy:
            kept.append(decision)
    return kept
