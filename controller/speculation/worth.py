"""Computes what one second of a request is worth to its objective, in dollars."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from vinelm.objective import Objective

STEP = 0.05
"""The relative change of a bound with which its worth is measured."""
BestValue = Callable[[Objective], float | None]
"""Returns the best remaining plan's value of the objective's target (accuracy or dollars); None if no plan fits."""


class SecondWorth(NamedTuple):
    """The worth of a second in dollars, with the reason.

    If it is infinite, only ``waste_usd`` limits prefetching; if it is 0, nothing is prefetched.
    """

    usd_per_s: float
    why: str


def worth_of_second(objective: Objective, best: BestValue) -> SecondWorth:
    """Return the worth of a second in dollars: the best plan's gain per second if the deadline were slightly later.

    Args:
        objective: the request's objective.
        best: returns the value of the best plan from the request's position; called with the objective and with slightly
            changed bounds.
    """
    if objective.target == "latency":
        return SecondWorth(math.inf, "seconds are the target: waste_usd alone limits")
    if objective.max_latency_s is None:
        if objective.target == "cost":
            return SecondWorth(0.0, "dollars are the target and there is no deadline: a second is worth nothing")
        return SecondWorth(math.inf, "nothing says what a second is worth: waste_usd alone limits")
    now = best(objective)
    step_s = STEP * objective.max_latency_s or 1.0
    later = best(replace(objective, max_latency_s=objective.max_latency_s + step_s))
    if now is None:
        return SecondWorth(math.inf, "no plan is within the deadline: waste_usd alone limits")
    if later is None or later == now:
        return SecondWorth(0.0, "the deadline costs nothing: the best plan has time to spare")
    if objective.target == "cost":
        return SecondWorth(max(0.0, now - later) / step_s, "the deadline makes the plan dearer")
    return _in_dollars(objective, best, now, max(0.0, later - now) / step_s)


def _in_dollars(objective: Objective, best: BestValue, now: float, accuracy_per_s: float) -> SecondWorth:
    if objective.max_cost_usd is None:
        return SecondWorth(math.inf, "the deadline costs accuracy, and dollars are not bounded: waste_usd alone limits")
    step_usd = STEP * objective.max_cost_usd or 1e-6
    dearer = best(replace(objective, max_cost_usd=objective.max_cost_usd + step_usd))
    accuracy_per_usd = max(0.0, (now if dearer is None else dearer) - now) / step_usd
    if not accuracy_per_usd:
        return SecondWorth(math.inf, "the deadline costs accuracy, and dollars do not: waste_usd alone limits")
    return SecondWorth(accuracy_per_s / accuracy_per_usd, "the deadline costs accuracy that dollars would buy, too")
