"""Per node, the few ends that any bound can make the best, in the objective's order: the first that fits is the answer.

So no bound and no load ever rebuilds anything, and the search stays exact.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import le

import numpy as np

from vinelm.controller.planning.block_index import BlockIndex, within
from vinelm.controller.planning.objective_class import ObjectiveClass
from vinelm.controller.planning.path_metrics import IntArray, PathMetrics
from vinelm.controller.planning.plan_request import PlanRequest
from vinelm.controller.planning.subtree import SubtreeView
from vinelm.trie import FloatArray

SCAN = 12_000
"""Up to so many ends are compared at once; longer lists are cut into tiles."""
_COLUMN = {"T": "live_s", "C": "cost_usd", "K": "bounded_usd", "A": "accuracy"}


class Frontier:
    """The kept ends strictly below one node, in the objective's order, and how ending at the node itself compares."""

    __slots__ = (
        "_bounded", "_bounds", "_children", "_group", "_here", "_models",
        "_node", "_own", "_rising", "_tiles", "_visits", "ends",
    )  # fmt: skip

    def __init__(self, known: PathMetrics, kind: ObjectiveClass, node: int, ends: IntArray) -> None:
        self.ends = ends.astype(np.int32)
        self._node = node
        self._children = known.trie.children(node)
        self._models = [known.trie.models[int(known.trie.model[child])] for child in self._children]
        place = known.place(kind.target, kind.confidence)
        self._here = int(place[ends].searchsorted(place[node])) if known.endings[node] else -1
        self._bounds = kind.bounds
        with_own = [kind.ahead(known, bound, np.append(ends, node), node) for bound in kind.bounds]
        self._bounded = [values[:-1] for values in with_own]
        self._own = [float(values[-1]) for values in with_own]
        self._group = self._visits = self._rising = self._tiles = None
        if kind.has_load:
            vectors, self._group = np.unique(known.visit_group[ends], return_inverse=True)
            self._visits = known.visits[vectors] - known.visits[known.visit_group[node]]
        elif len(kind.bounds) == 1 and not kind.bounds[0].z:
            self._rising = (-self._bounded[0]).tolist()
        if len(ends) > SCAN and self._rising is None:
            self._tiles = BlockIndex(self._bounded, self._group, self._visits)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        arrays = [self.ends, *self._bounded, *(values for values in (self._group, self._visits) if values is not None)]
        tiles = self._tiles.nbytes if self._tiles else 0
        return sum(values.nbytes for values in arrays) + tiles + 40 * len(self._rising or ())

    def best(self, limits: Sequence[float], load_s: FloatArray | None, may_stop: bool) -> tuple[int, str | None] | None:
        """The best end within what is left of each bound, and the model that leads there, None for the node itself; None where
        there is no such end.
        """
        at = self._first(limits, load_s)
        if self._here >= 0 and may_stop and not 0 <= at < self._here and all(map(le, self._own, limits)):
            return self._node, None
        if at < 0:
            return None
        end = int(self.ends[at])
        return end, self._models[bisect_right(self._children, end) - 1]

    def view(self, known: PathMetrics, query: PlanRequest) -> SubtreeView:
        """The node itself and the kept ends as the objective sees them, with the columns that are already here."""
        columns = {}
        for (quantity, z), own, values in zip(self._bounds, self._own, self._bounded, strict=True):
            if z:  # the view adds standard deviations last, and rounds otherwise
                continue
            delay_s = self._delay_s(query.load_s) if quantity == "T" else None
            column = np.concatenate(([own], values if delay_s is None else values + delay_s))
            columns[_COLUMN[quantity]] = -column if quantity == "A" else column
        return SubtreeView(known, query, self.ends, columns)

    def _delay_s(self, load_s: FloatArray | None) -> FloatArray | None:
        return None if load_s is None or self._visits is None else self._visits.dot(load_s).take(self._group)

    def _first(self, limits: Sequence[float], load_s: FloatArray | None) -> int:
        """Position of the best of the kept ends that is within the limits, -1 for none."""
        if not len(self.ends):
            return -1
        if self._rising is not None:
            at = bisect_left(self._rising, -limits[0])
            return at if at < len(self._rising) else -1
        if self._tiles is not None:
            return self._tiles.first(limits, load_s)
        if not limits:
            return 0
        fits = within(self._bounded, limits, self._delay_s(load_s))
        at = int(fits.argmax())
        return at if fits[at] else -1
