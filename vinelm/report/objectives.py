"""Objectives worth showing for a trie: bounds read off its estimated frontier, rounded to figures a person would say."""

from __future__ import annotations

from math import ceil, floor, log10

import numpy as np

from vinelm.evaluation.policy_plans import Plans
from vinelm.evaluation.sweep import frontier_nodes
from vinelm.objective import Objective


def showcase(plans: Plans) -> tuple[Objective, ...]:
    """Most accurate within a budget; cheapest above a floor; where latencies are known, most accurate within a latency cap.

    Fixed rules, no search, and every policy has a plan that meets them by the same estimates:

    - the budget is the geometric mean of the frontier's cheapest and dearest path, rounded up to two figures;
    - the floor lies two thirds of the way from the cheapest path's accuracy to the best single model's, at most 95 %;
    - the latency cap is the mean of the fastest frontier path and the most accurate one, rounded up to half a second.
    """
    annotated = plans.annotated
    by_cost, by_latency = frontier_nodes(annotated, "cost"), frontier_nodes(annotated, "latency")
    cost, accuracy, latency = annotated.path_cost_usd, annotated.accuracy, annotated.path_latency_s
    budget = float(np.sqrt(cost[by_cost[0]] * cost[by_cost[-1]]))
    lowest, highest = float(accuracy[by_cost[0]]), plans.best_single_accuracy
    cap = float(latency[by_latency[0]] + latency[by_latency[-1]]) / 2.0
    shown = (
        Objective(maximize="accuracy", max_cost_usd=_two_figures_up(budget)),
        Objective(minimize="cost", min_accuracy=min(floor(100 * (lowest + 2 * (highest - lowest) / 3)) / 100, 0.95)),
        Objective(maximize="accuracy", max_latency_s=max(ceil(2 * cap) / 2, 0.5)),
    )
    return shown if annotated.knows_latency else shown[:2]


def _two_figures_up(value: float) -> float:
    """The next number with two significant figures: 0.001234 becomes 0.0013."""
    if value <= 0:
        return 0.0
    places = 1 - floor(log10(value))
    return float(f"{ceil(value * 10**places - 1e-9) / 10**places:.12g}")
