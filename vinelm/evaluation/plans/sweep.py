"""Ranges of bounds: what a trie's estimate says of each policy over a grid of caps, and which bounds are shown."""

from __future__ import annotations

from math import ceil, floor, log10
from typing import Any, Literal

import numpy as np

from vinelm.evaluation.plans.plans import Plans
from vinelm.objective import Objective

Bound = Literal["max_cost_usd", "max_latency_s"]


def spaced_caps(low: float, high: float, bound: Bound, n_caps: int = 12) -> list[float]:
    """Return caps between two amounts, dollars spaced geometrically and seconds evenly; ``high`` alone if it is not above."""
    if not 0 < low < high:
        return [high]
    caps = np.geomspace(low, high, n_caps) if bound == "max_cost_usd" else np.linspace(low, high, n_caps)
    # A cap that equals a path's own cost or latency admits that path: rounding must not exclude it.
    return [float(cap) * (1 + 1e-9) for cap in caps]


def showcase(plans: Plans[Any]) -> tuple[Objective, ...]:
    """Choose a report's objectives: accuracy within a cost budget, cost above an accuracy floor, accuracy within a latency cap.

    The bounds follow from fixed rules over the estimates, so that every policy has a feasible plan:

    - The budget is the geometric mean of the cheapest and the most expensive frontier path, rounded up to two digits.
    - The floor lies two thirds of the way from the cheapest path's accuracy to the best single model's, at most 95 %.
    - The latency cap is the mean of the fastest and the most accurate frontier path, rounded up to half a second. It is left
      out if the trie has no latencies.
    """
    found = plans.frontier_range()
    budget = float(np.sqrt(found.cheapest_usd * found.dearest_usd))
    lowest, highest = found.lowest_accuracy, plans.best_single_accuracy
    cap = (found.fastest_s + found.slowest_s) / 2.0
    shown = (
        Objective(maximize="accuracy", max_cost_usd=_two_figures_up(budget)),
        Objective(minimize="cost", min_accuracy=min(floor(100 * (lowest + 2 * (highest - lowest) / 3)) / 100, 0.95)),
        Objective(maximize="accuracy", max_latency_s=max(ceil(2 * cap) / 2, 0.5)),
    )
    return shown if plans.annotated.knows_latency else shown[:2]


def _two_figures_up(value: float) -> float:
    """Round up to two significant digits: 0.001234 becomes 0.0013."""
    if value <= 0:
        return 0.0
    places = 1 - floor(log10(value))
    return float(f"{ceil(value * 10**places - 1e-9) / 10**places:.12g}")
