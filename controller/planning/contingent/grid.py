"""Caps that hold for each request where histories are merged: what a request has left is a coordinate beside its node.

A merged node is reached with different amounts left, so that what is best there depends on them. They are kept on a grid of
:data:`BINS` equal parts, and worths are interpolated between its points: plans under caps are approximate here, while the least
that a node needs before an answer is exact. So no plan goes beyond a cap for want of resolution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Self

import numpy as np

from vinelm.controller.planning.contingent.plan import ContingentPlan
from vinelm.plans.decision_graph import DecisionGraph
from vinelm.trie.arrays import BoolArray, FloatArray

BINS = 64
BINS_OF_TWO = 24
"""Parts of each grid where both time and dollars are bounded."""
_ROUNDING = 1e-9
_TINY = 1e-300


@dataclass(frozen=True, eq=False)
class GridCap:
    """A limit on what one request uses up.

    Args:
        whole: What a request may use from its arrival on, in seconds or dollars; the grid runs from 0 to it.
        use: Of each edge, margins and load included.
        need: The least that each position needs before the request surely has an answer; 0 where it may end.
        mean: Of each edge at zero load.
        z: Standard deviations in ``use``.
        used: What the request has used.
    """

    whole: float
    use: FloatArray
    need: FloatArray
    mean: FloatArray
    z: float = 0.0
    used: float = 0.0

    @property
    def limit(self) -> float:
        """How much the request has left."""
        return self.whole - self.used

    @property
    def kind(self) -> tuple[object, ...]:
        """What two caps have in common that admit the same histories from the root on, at zero load."""
        return self.z, self.limit

    def with_left(self, left: float) -> Self:
        """The same for a request that has so much left."""
        return replace(self, used=self.whole - left)

    def fits(self, after: FloatArray) -> BoolArray:
        """Where what is left in the end is not below zero, but for rounding."""
        return np.asarray(after >= -_ROUNDING * max(self.whole, _TINY))

    def holds(self, plan: ContingentPlan) -> bool:
        """Whether every history of a plan is within the limit."""
        return plan.longest(self.use) <= self.limit

    def most_used(self, plan: ContingentPlan) -> float:
        """What the longest (or most expensive) history of a plan uses on average, at zero load."""
        return plan.longest(self.mean)


class LeftGrid:
    """What requests have left of some caps, as coordinates.

    Args:
        graph: The graph.
        caps: At most two.
        servable: Whether each edge's model can be served; None if all can.
    """

    def __init__(self, graph: DecisionGraph, caps: Mapping[str, GridCap], servable: BoolArray | None) -> None:
        self.graph, self.caps, self.servable = graph, tuple(caps.values()), servable
        bins = BINS if len(self.caps) == 1 else BINS_OF_TWO
        self.shape = (bins + 1,) * len(self.caps)

    def admitted(self, edges: slice) -> BoolArray:
        """Which edges leave enough for an answer, by what is left before them; shape (*grid, edges)."""
        found = np.ones((*self.shape, edges.stop - edges.start), np.bool_)
        if self.servable is not None:
            found &= self.servable[edges]
        for axis, cap in enumerate(self.caps):
            left = np.linspace(0.0, cap.whole, self.shape[axis])[:, None]
            fits = cap.fits(left - cap.use[edges] - cap.need[self.graph.target[edges]])
            found &= fits.reshape(*(size if k == axis else 1 for k, size in enumerate(self.shape)), -1)
        return found

    def shifted(self, values: FloatArray, edges: slice) -> FloatArray:
        """Values at what is left before each edge, given those at what is left after it; linear between the grid's points."""
        for axis, cap in enumerate(self.caps):
            bins = self.shape[axis] - 1
            steps = np.minimum(cap.use[edges] / max(cap.whole, _TINY) * bins, 4.0 * bins)
            whole = np.floor(steps).astype(np.int64)
            index = (np.arange(bins + 1)[:, None] - whole).reshape(
                *(bins + 1 if k == axis else 1 for k in range(len(self.shape))), len(whole)
            )
            here = np.take_along_axis(values, np.maximum(index, 0), axis)
            below = np.take_along_axis(values, np.maximum(index - 1, 0), axis)
            values = (1.0 - (steps - whole)) * here + (steps - whole) * below
        return values

    def at(self, values: FloatArray, left: Sequence[FloatArray]) -> FloatArray:
        """Values of items with so much left of each cap each, shape (items,), given those on the grid."""
        values = np.moveaxis(values, -1, 0)
        for cap, amount in zip(self.caps, left, strict=True):
            bins = values.shape[1] - 1
            place = np.clip(amount / max(cap.whole, _TINY) * bins, 0.0, bins)
            low = np.minimum(place.astype(np.int64), bins - 1)
            share = (place - low).reshape(-1, *(1 for _ in values.shape[2:]))
            rows = np.arange(len(values))
            values = (1.0 - share) * values[rows, low] + share * values[rows, low + 1]
        return values


def least_need(graph: DecisionGraph, use: FloatArray, servable: BoolArray | None) -> FloatArray:
    """Return the least use before a request at each position surely has an answer: least over models, most over arms."""
    need = np.where(graph.may_end, 0.0, np.inf)
    for nodes in reversed(list(pairwise(graph.levels))):
        low, high = graph.first_group[nodes[0]], graph.first_group[nodes[1]]
        if low == high:
            continue
        edges = slice(int(graph.first_edge[low]), int(graph.first_edge[high]))
        through = use[edges] + need[graph.target[edges]]
        if servable is not None:
            through = np.where(servable[edges], through, np.inf)
        least = np.minimum.reduceat(through, graph.first_edge[low:high] - edges.start)
        sources, first = np.unique(graph.source[low:high], return_index=True)
        need[sources] = np.where(graph.may_end[sources], 0.0, np.maximum.reduceat(least, first))
    return need
