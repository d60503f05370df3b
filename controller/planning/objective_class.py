"""Classes of objectives: objectives that differ only in the values of their bounds share the planner's lookup tables."""

from __future__ import annotations

from dataclasses import dataclass

from vinelm.controller.planning.metric import Metric, Quantity, bounded_quantities, metric_of, remaining_latency, z_of
from vinelm.controller.planning.path_metrics import IntArray, PathMetrics
from vinelm.objective import Objective
from vinelm.trie.arrays import FloatArray


@dataclass(frozen=True, slots=True)
class ObjectiveClass:
    """The properties that two objectives must have in common to use the same Pareto frontiers.

    ``bounds`` are the bounded quantities in the order latency, cost, accuracy. With ``has_load``, a frontier only compares
    nodes whose paths use the same engines equally often.
    """

    target: Metric
    confidence: float | None
    bounds: tuple[Quantity, ...]
    has_load: bool

    @classmethod
    def of(cls, objective: Objective, *, has_load: bool) -> ObjectiveClass | None:
        """Return the class of an objective; None for ``risk="dp"``, whose dynamic program needs the whole subtree.

        An objective that minimizes latency under load belongs to the class that maximizes accuracy and bounds latency. A stored
        frontier cannot be sorted by latency in this case, because the order changes with the load.
        """
        if objective.risk == "dp":
            return None
        bounded = bounded_quantities(objective).values()
        bounds = [quantity for quantity in bounded if quantity is not Metric.ACCURACY]
        target = Metric.of_target(objective)
        if has_load and target is Metric.LATENCY:
            target = Metric.ACCURACY
            if objective.max_latency_s is None:
                bounds.insert(0, remaining_latency(objective))
        has_time = bool(bounds) and metric_of(bounds[0]) is Metric.LATENCY
        floor = [quantity for quantity in bounded if quantity is Metric.ACCURACY]
        return cls(target, objective.confidence, (*bounds, *floor), has_load and has_time)

    def dominance_keys(self, metrics: PathMetrics, ends: IntArray) -> list[FloatArray]:
        """Return the arrays by which the planner finds dominated ends; each has a value for every end.

        An end is a node at which a request may end; ``ends`` is sorted by the target. An end dominates a later end if no array
        has a larger value for it. It then meets every bound that the later end meets. Variances are included because they,
        unlike standard deviations, add up along a path.
        """
        keys = []
        for quantity in self.bounds:
            metric = metric_of(quantity)
            if metric is not self.target:
                keys.append(_smaller_is_better(metric, metrics.mean(metric, self.confidence)[ends]))
            if z_of(quantity):
                keys.append(metrics.variance(metric)[ends])
        return keys

    def bounded(self, metrics: PathMetrics, ends: IntArray, node: int) -> list[FloatArray]:
        """Return, for each bounded quantity, its values at the nodes ``ends``, at which a request from ``node`` may end.

        Load is ignored. Signs are chosen so that smaller is better.
        """
        return [
            _smaller_is_better(quantity, metrics.quantity(quantity, ends, node, self.confidence)) for quantity in self.bounds
        ]


def limits_of(objective: Objective, elapsed_s: float, spent_usd: float) -> list[float]:
    """Return what each bound still allows, in the order of :meth:`ObjectiveClass.bounded`.

    These are the remaining seconds, the remaining dollars (or the whole limit on a mean cost), and the required accuracy as a
    negative fraction. Bounds that the objective does not set are left out.
    """
    limits = []
    if objective.max_latency_s is not None:
        limits.append(objective.max_latency_s - elapsed_s)
    if objective.max_cost_usd is not None:
        is_each = objective.cost_budget == "per_request"
        limits.append(objective.max_cost_usd - spent_usd if is_each else objective.max_cost_usd)
    if objective.min_accuracy is not None:
        limits.append(-objective.min_accuracy)
    return limits


def _smaller_is_better(quantity: Quantity, values: FloatArray) -> FloatArray:
    return -values if quantity is Metric.ACCURACY else values
