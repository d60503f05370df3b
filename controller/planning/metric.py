"""The quantities of a path that objectives compare and bound."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from vinelm.objective import Objective

FLOOR = "min_accuracy"
LATENCY_CAP = "max_latency_s"
COST_CAP = "max_cost_usd"
UNITS = {FLOOR: "", LATENCY_CAP: " s", COST_CAP: " USD"}
"""The fields of an objective that are bounds, and the suffix of their values in messages."""
DEFAULT_Z = 1.0
"""Standard deviations that ``risk="mean+sd"`` adds if the objective sets no ``z``."""
LATE_WEIGHT = 0.75
"""Default of ``late_weight``. With 0, a request without a correct answer tries again until it is late; with 1, it gives up
attempts that are slightly more likely to be late than correct in time."""


class Metric(StrEnum):
    """A metric of the path from the root to a node: latency, accuracy or one of three costs (docs/mathematics.md)."""

    LATENCY = "T"
    """Expected seconds of the whole path at zero load."""
    COST = "C"
    """Expected dollars, each invocation weighted by the probability that the request reaches it."""
    FULL_COST = "K"
    """Expected dollars of a request that runs the whole path: no discount for early stops."""
    MOST_COST = "M"
    """The most dollars of a request that runs the whole path: the sum of each call's upper end."""
    ACCURACY = "A"
    """Expected accuracy of ending at the node."""

    @classmethod
    def of_target(cls, objective: Objective) -> Metric:
        """Return the metric that the objective maximizes or minimizes."""
        return _TARGETS[objective.target]


_TARGETS = {"accuracy": Metric.ACCURACY, "cost": Metric.COST, "latency": Metric.LATENCY}


class Remaining(NamedTuple):
    """What a path still adds to a metric (latency, full cost or maximum cost) after the request's current node.

    ``z`` standard deviations of this amount are added as a safety margin. Latency includes the present load.
    """

    metric: Metric
    z: float = 0.0


Quantity = Metric | Remaining
"""A number that each end has: a metric from the root, or what remains of one below the request's node."""


def metric_of(quantity: Quantity) -> Metric:
    """Return ``quantity`` if it is a metric; if it is the remaining part of a metric, return that metric."""
    return quantity.metric if isinstance(quantity, Remaining) else quantity


def z_of(quantity: Quantity) -> float:
    """Return the number of standard deviations that the quantity adds to its mean."""
    return quantity.z if isinstance(quantity, Remaining) else 0.0


def bounded_quantities(objective: Objective) -> dict[str, Quantity]:
    """Return the quantity that each bound of the objective limits, by the name of the bound's field.

    The bounds are in the order in which they are relaxed: the accuracy floor, the latency cap, the cost cap.
    """
    found: dict[str, Quantity] = {}
    if objective.min_accuracy is not None:
        found[FLOOR] = Metric.ACCURACY
    if objective.max_latency_s is not None:
        found[LATENCY_CAP] = remaining_latency(objective)
    if objective.max_cost_usd is not None:
        is_each = objective.cost_budget == "per_request"
        found[COST_CAP] = each_cost(objective) if is_each else Metric.COST
    return found


def each_cost(objective: Objective) -> Remaining:
    """Return the cost that a per-request cap limits.

    This is the maximum cost or, if the objective sets ``z``, the mean plus ``z`` standard deviations.
    """
    return Remaining(Metric.MOST_COST) if objective.z is None else Remaining(Metric.FULL_COST, objective.z)


def bounds_averages(objective: Objective) -> bool:
    """Return whether the objective bounds an average over requests: accuracy, or cost with ``cost_budget="population"``."""
    has_budget = objective.max_cost_usd is not None and objective.cost_budget == "population"
    return objective.min_accuracy is not None or has_budget


def remaining_latency(objective: Objective) -> Remaining:
    """Return the quantity that an objective's latency cap limits: the latency of a path after the request's current node.

    With ``risk="mean+sd"``, ``z`` standard deviations are added; see :class:`Remaining`.
    """
    if objective.risk != "mean+sd":
        return Remaining(Metric.LATENCY)
    return Remaining(Metric.LATENCY, DEFAULT_Z if objective.z is None else objective.z)
