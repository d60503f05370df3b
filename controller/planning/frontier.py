"""The Pareto frontier of the ends below one node, and the search for the best end within the present limits.

The frontier holds every end that can be the best for some values of the bounds and some load, sorted best first by the
objective's target. So the first end that meets all bounds is the plan, and nothing is rebuilt when bounds or load change.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import le

import numpy as np

from vinelm.controller.planning.block_index import BlockIndex, within
from vinelm.controller.planning.metric import Metric, Quantity, metric_of, z_of
from vinelm.controller.planning.objective_class import ObjectiveClass
from vinelm.controller.planning.path_metrics import IntArray, PathMetrics
from vinelm.controller.planning.plan_request import PlanRequest
from vinelm.controller.planning.subtree import SubtreeView
from vinelm.trie.arrays import FloatArray

SCAN = 12_000
"""Longest frontier that is scanned as a whole; a longer one gets a :class:`BlockIndex`."""


class Frontier:
    """The Pareto frontier strictly below ``node``, and how ending at the node itself compares with it.

    Args:
        metrics: The trie's path metrics.
        objective_class: What is compared and bounded.
        node: The request's node.
        ends: The ends of the frontier, sorted by the objective's target, best first.
    """

    __slots__ = (
        "_blocks", "_bounded", "_bounds", "_children", "_group", "_models",
        "_node", "_node_values", "_position_of_node", "_rising", "_visits", "ends",
    )  # fmt: skip

    def __init__(self, metrics: PathMetrics, objective_class: ObjectiveClass, node: int, ends: IntArray) -> None:
        self.ends = ends.astype(np.int32)
        self._node = node
        self._children = metrics.trie.children(node)
        self._models = [metrics.trie.models[int(metrics.trie.model[child])] for child in self._children]
        rank = metrics.rank(objective_class.target, objective_class.confidence)
        self._position_of_node = int(rank[ends].searchsorted(rank[node])) if metrics.endings[node] else -1
        self._bounds = objective_class.bounds
        with_node = objective_class.bounded(metrics, np.append(ends, node), node)
        self._bounded = [values[:-1] for values in with_node]
        self._node_values = [float(values[-1]) for values in with_node]
        # Three ways to the first end within the limits, by what may differ between requests: bisection where one bound without
        # load or standard deviations is all (ends of a frontier get cheaper as they get worse), blocks for long lists, else a
        # scan.
        self._group = self._visits = self._rising = self._blocks = None
        if objective_class.has_load:
            vectors, self._group = np.unique(metrics.visit_group[ends], return_inverse=True)
            self._visits = metrics.visits[vectors] - metrics.visits[metrics.visit_group[node]]
        elif len(self._bounds) == 1 and not z_of(self._bounds[0]):
            self._rising = (-self._bounded[0]).tolist()
        if len(ends) > SCAN and self._rising is None:
            self._blocks = BlockIndex(self._bounded, self._group, self._visits)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        arrays = [self.ends, *self._bounded, *(values for values in (self._group, self._visits) if values is not None)]
        blocks = self._blocks.nbytes if self._blocks else 0
        return sum(values.nbytes for values in arrays) + blocks + 40 * len(self._rising or ())

    def best(self, limits: Sequence[float], load_s: FloatArray | None, may_stop: bool) -> tuple[int, str | None] | None:
        """The best end within ``limits`` and the next model on its path; None if no end is within them.

        The next model is None for ending at the node itself, which ``may_stop`` allows.
        """
        at = self._first(limits, load_s)
        here = self._position_of_node
        # Ends are sorted best first. Ending here wins if it is within the limits and no end before its own place is.
        if here >= 0 and may_stop and not 0 <= at < here and all(map(le, self._node_values, limits)):
            return self._node, None
        if at < 0:
            return None
        end = int(self.ends[at])
        # Nodes are numbered in preorder: the end lies below the last child whose number is not above its own.
        return end, self._models[bisect_right(self._children, end) - 1]

    def view(self, metrics: PathMetrics, request: PlanRequest) -> SubtreeView:
        """The node itself and the ends of the frontier, with the quantities that are stored here."""
        columns: dict[Quantity, FloatArray] = {}
        for quantity, own, values in zip(self._bounds, self._node_values, self._bounded, strict=True):
            if z_of(quantity):  # load is added before standard deviations: another order of additions rounds differently
                continue
            delay_s = self._delay_s(request.load_s) if metric_of(quantity) is Metric.LATENCY else None
            column = np.concatenate(([own], values if delay_s is None else values + delay_s))
            columns[quantity] = -column if quantity is Metric.ACCURACY else column
        return SubtreeView(metrics, request, self.ends, columns)

    def _delay_s(self, load_s: FloatArray | None) -> FloatArray | None:
        return None if load_s is None or self._visits is None else self._visits.dot(load_s).take(self._group)

    def _first(self, limits: Sequence[float], load_s: FloatArray | None) -> int:
        """Position of the best end within the limits, -1 if there is none."""
        if not len(self.ends):
            return -1
        if self._rising is not None:
            at = bisect_left(self._rising, -limits[0])
            return at if at < len(self._rising) else -1
        if self._blocks is not None:
            return self._blocks.first(limits, load_s)
        if not limits:
            return 0
        fits = within(self._bounded, limits, self._delay_s(load_s))
        at = int(fits.argmax())
        return at if fits[at] else -1
