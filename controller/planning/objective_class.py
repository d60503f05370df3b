"""Objectives by kind: those that differ in nothing but the values of their bounds share what is built for looking plans up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vinelm.controller.planning.path_metrics import PathMetrics
from vinelm.controller.planning.subtree import DEFAULT_Z
from vinelm.objective import Objective
from vinelm.trie import FloatArray

IntArray = npt.NDArray[np.integer[Any]]

_TARGET = {"accuracy": "A", "cost": "C", "latency": "T"}


class Bound(NamedTuple):
    """A bounded quantity of DESIGN §4, "T", "C", "K" or "A", and the standard deviations of what is to come that are added."""

    quantity: str
    z: float = 0.0


@dataclass(frozen=True, slots=True)
class ObjectiveClass:
    """What two objectives must share to share frontiers. ``bounds``: time, money, accuracy, as far as they are bounded;
    ``has_load`` keeps ends apart by the engines that they visit.
    """

    target: str
    confidence: float | None
    bounds: tuple[Bound, ...]
    has_load: bool

    def parts(self, known: PathMetrics, ends: IntArray) -> list[FloatArray]:
        """Path metrics of the ends, the less the better: an end that comes first by the target and has no more of each than
        another meets every bound that the other meets, from whatever node. Variances count apart: they add up along a path,
        standard deviations do not. The target's own metric is left out, as the order sees to it.
        """
        names = [name for bound in self.bounds for name in (bound.quantity, f"var {bound.quantity}")[: 2 if bound.z else 1]]
        return [self._path(known, name, ends) for name in names if name != _TARGET[self.target]]

    def ahead(self, known: PathMetrics, bound: Bound, ends: IntArray, node: int) -> FloatArray:
        """What is compared with that bound, as seen from ``node``, the less the better."""
        values: FloatArray = self._path(known, bound.quantity, ends)
        if bound.quantity not in "TK":
            return values
        values = values - self._path(known, bound.quantity, node)
        if bound.z:
            name = f"var {bound.quantity}"
            variance = self._path(known, name, ends) - self._path(known, name, node)
            values = values + bound.z * np.sqrt(np.maximum(variance, 0.0))
        return values

    def _path(self, known: PathMetrics, name: str, at: IntArray | int) -> Any:
        match name:
            case "T":
                return known.latency_s[at]
            case "var T":
                return known.latency_var[at]
            case "C":
                return known.cost_usd[at]
            case "K":
                return known.full_cost_usd[at]
            case "var K":
                return known.full_cost_var[at]
            case _:
                return -known.accuracy(self.confidence)[at]


def kind_of(objective: Objective, *, has_load: bool) -> ObjectiveClass | None:
    """The kind whose frontiers hold the plan; None for the stochastic program, which needs the whole subtree.

    Under load the latency of paths has no order of its own: the fastest is then one of those kept for the highest accuracy.
    """
    if objective.risk == "dp":
        return None
    is_live = has_load and objective.target == "latency"
    bounds = []
    if objective.max_latency_s is not None or is_live:
        z = DEFAULT_Z if objective.z is None else objective.z
        bounds.append(Bound("T", z if objective.risk == "mean+sd" else 0.0))
    if objective.max_cost_usd is not None:
        is_each = objective.cost_budget == "per_request"
        bounds.append(Bound("K", objective.z or 0.0) if is_each else Bound("C"))
    if objective.min_accuracy is not None:
        bounds.append(Bound("A"))
    target = "accuracy" if is_live else objective.target
    has_time = bool(bounds) and bounds[0].quantity == "T"
    return ObjectiveClass(target, objective.confidence, tuple(bounds), has_load and has_time)
