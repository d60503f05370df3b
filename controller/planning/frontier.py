"""The Pareto frontier of the ends (nodes at which a request may end) below one node, and the search for the best end.

The frontier holds every end that can be the best for some values of the bounds and some load, sorted best first by the
objective's target. So the first end that meets all bounds is the plan, and the frontier stays valid when bounds or load
change. In a long frontier, the search skips whole blocks by the minimum of each quantity (a zone map).

Ends are ranked by the objective's target. An end is dominated if a better-ranked end uses the same engines equally often and is
no worse in any bounded quantity. Then the better-ranked end is always chosen instead, even if bounds are relaxed. Dominance
does not depend on the request's node, so ends dropped from a child's frontier are not examined again for its parent.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import le
from typing import Any

import numpy as np
import numpy.typing as npt

from vinelm.controller.planning.metric import Metric, Quantity, metric_of, z_of
from vinelm.controller.planning.objective_class import ObjectiveClass
from vinelm.controller.planning.path_metrics import IntArray, PathMetrics
from vinelm.controller.planning.plan_request import PlanRequest
from vinelm.controller.planning.subtree import SubtreeView
from vinelm.trie.arrays import BoolArray, FloatArray

FEW, MANY = 4, 8
"""Ends per block: few if few ends share their engine visits."""
FIRST = 1024
"""Number of blocks whose minima are compared in the first step; each further step takes four times as many."""
AT_ONCE = 64
"""Number of blocks within the limits whose ends are read first; others are read only if they may hold an earlier end."""
_NONE = np.iinfo(np.int32).max


class BlockIndex:
    """Finds the best end (node at which a request may end) within limits fast, by skipping blocks without such an end.

    A block contains ends whose paths call each engine equally often. For each bounded quantity, the block's minimum over its
    ends is stored. A block whose minima exceed the limits is skipped (databases call this a zone map).

    Args:
        bounded: The ends' values of each bounded quantity, best end first. Latency is the first quantity if load matters.
        group: The row of ``visits`` for each end's path, shape (ends,); None without load.
        visits: The numbers of calls that paths make on each engine, shape (groups, engines); None without load.
    """

    __slots__ = ("bounded", "earliest", "least", "position", "visits")

    def __init__(self, bounded: Sequence[FloatArray], group: npt.NDArray[Any] | None, visits: FloatArray | None) -> None:
        size = len(bounded[0])
        if group is None or visits is None:
            group, visits = np.zeros(size, np.uint16), None
        # Wide blocks skip more ends per comparison, but only ends with the same engine visits may share a block: their delay
        # under any load is then one number, so that the block's minimum is exact.
        width = MANY if visits is None or size >= 2 * MANY * len(visits) else FEW
        # Stable, so that within a group ends stay best first: the first end of a block is its best.
        order = np.argsort(group, kind="stable")
        sizes = np.bincount(group)
        column = (np.arange(size) - np.repeat(np.cumsum(sizes) - sizes, sizes)) % width
        starts = np.flatnonzero(column == 0)
        by_position = np.argsort(order[starts])
        row = np.argsort(by_position)[np.cumsum(column == 0) - 1]

        def in_blocks(values: npt.NDArray[Any], filler: float) -> npt.NDArray[Any]:
            blocks = np.full((len(starts), width), filler, values.dtype)
            blocks[row, column] = values[order]
            return blocks

        self.bounded = [in_blocks(values, np.inf) for values in bounded]
        self.least = [values.min(1) for values in self.bounded]
        self.position = in_blocks(np.arange(size, dtype=np.int32), _NONE)
        self.earliest = self.position[:, 0].copy()
        self.visits = None if visits is None else visits[group[order[starts[by_position]]]]

    @property
    def nbytes(self) -> int:
        """The size of the arrays in bytes."""
        visits = [] if self.visits is None else [self.visits]
        return sum(values.nbytes for values in (*self.bounded, *self.least, *visits, self.position, self.earliest))

    def first(self, limits: Sequence[float], load_s: FloatArray | None) -> int:
        """Return the index of the best end within the limits; -1 if there is none. Index 0 is the best end of all."""
        best, low, high = _NONE, 0, FIRST
        while low < len(self.earliest) and self.earliest[low] < best:
            # Blocks are sorted by their best end. Once an end is found, blocks that begin after it cannot hold a better one, so
            # the search first looks at few blocks, and at four times as many only if necessary.
            delay_s = None if load_s is None or self.visits is None else self.visits[low:high].dot(load_s)
            blocks = within([values[low:high] for values in self.least], limits, delay_s).nonzero()[0]
            count = AT_ONCE
            while len(blocks):
                now, blocks = blocks[:count], blocks[count:]
                best = min(best, self._first_in(now + low, limits, None if delay_s is None else delay_s[now, None]))
                # Of the remaining candidates, only those that begin before the end found may still win.
                if best < _NONE and len(blocks):
                    blocks = blocks[: self.earliest[blocks + low].searchsorted(best)]
                count *= 4
            low, high = high, 4 * high
        return best if best < _NONE else -1

    def _first_in(self, blocks: npt.NDArray[np.intp], limits: Sequence[float], delay_s: FloatArray | None) -> int:
        """Return the best end within the limits in the blocks (groups of ends) with the given indices.

        The result is the end's index among all ends, sorted best first; ``_NONE`` if there is none.
        """
        fits = within([values.take(blocks, 0) for values in self.bounded], limits, delay_s)
        return int(self.position.take(blocks, 0)[fits].min(initial=_NONE))


def within(bounded: Sequence[FloatArray], limits: Sequence[float], delay_s: FloatArray | None) -> BoolArray:
    """Return a mask of the ends, or of the blocks of ends, in which every bounded quantity is within its limit.

    ``bounded`` has an array for each quantity, with an element for each end or block; ``limits`` has a number for each.
    ``delay_s``, the seconds that load adds, is added to the first quantity, latency. It is None without load.
    """
    fits: BoolArray = (bounded[0] if delay_s is None else bounded[0] + delay_s) <= limits[0]
    for i in range(1, len(limits)):
        fits &= bounded[i] <= limits[i]
    return fits


LAGS = 32
"""How many predecessors each end is compared with per pass."""
LITTLE = 0.1
"""Passes stop when a pass drops at most this share. A dominated end that stays costs memory, never correctness."""


def pareto_frontier(metrics: PathMetrics, objective_class: ObjectiveClass, ends: IntArray) -> IntArray:
    """Return those of ``ends`` that no other end dominates. An end is a node at which a request may end.

    ``ends`` must be sorted best first. With load, or with several bounded quantities, a few dominated ends may remain.
    """
    keys = objective_class.dominance_keys(metrics, ends)
    if objective_class.has_load:
        group = metrics.visit_group[ends]
        order = np.argsort(group, kind="stable")
        return ends[np.sort(order[_kept([values[order] for values in keys], group[order])])]
    if len(keys) > 1:
        return ends[_kept(keys, None)]
    if not keys:
        return ends[:1]
    # With one quantity a running minimum is exact: an end stays if it is cheaper than all better ones.
    best_before = np.minimum.accumulate(np.concatenate(([np.inf], keys[0])))[:-1]
    return ends[keys[0] < best_before]


def _kept(keys: list[FloatArray], group: npt.NDArray[Any] | None) -> npt.NDArray[np.intp]:
    """Return the indices of the ends that remain after dropping ends that an earlier end of their group dominates.

    An end is a node at which a request may end. Ends must be sorted by group, then best first. A few dominated ends may remain.

    Args:
        keys: Arrays over the ends; a dominating end has no larger value in any of these.
        group: The group of each end, within which ends are compared; None to compare all.
    """
    kept = np.arange(len(keys[0]))
    while True:
        stays = ~_dominated(keys, group)
        kept, keys = kept[stays], [values[stays] for values in keys]
        group = None if group is None else group[stays]
        if len(stays) - len(kept) <= LITTLE * len(stays):
            return kept


def _dominated(keys: list[FloatArray], group: npt.NDArray[Any] | None) -> BoolArray:
    """Return a mask of the ends that are dominated by one of the ``LAGS`` preceding ends of the same group.

    A dominating end has no larger value in any of ``keys``. For ``keys`` and ``group``, see :func:`_kept`.
    """
    size = len(keys[0])
    dominated = np.zeros(size, np.bool_)
    for lag in range(1, min(LAGS, size - 1) + 1):
        # Ends are sorted by the target, so an earlier end is no worse in it: only the bounded quantities are compared. A full
        # comparison would be quadratic; nearby predecessors find nearly all, and what stays only costs memory.
        beaten = keys[0][:-lag] <= keys[0][lag:]
        for values in keys[1:]:
            beaten &= values[:-lag] <= values[lag:]
        if group is not None:
            beaten &= group[:-lag] == group[lag:]
        dominated[lag:] |= beaten
    return dominated


SCAN = 12_000
"""Longest frontier that is scanned as a whole; a longer one gets a :class:`BlockIndex`."""


class Frontier:
    """The Pareto-optimal ends below a node of the trie, and how the node itself ranks among them as an end.

    Args:
        metrics: Accuracy, cost and latency of each node's path.
        objective_class: Which quantity is optimized and which quantities have bounds.
        node: The node.
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
        # There are three ways to the first end within the limits, by what may differ between requests: bisection for a single
        # bound without load or standard deviations (ends of a frontier get cheaper as they get worse), blocks for long lists,
        # else a scan.
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
        """The size of the arrays in bytes."""
        arrays = [self.ends, *self._bounded, *(values for values in (self._group, self._visits) if values is not None)]
        blocks = self._blocks.nbytes if self._blocks else 0
        return sum(values.nbytes for values in arrays) + blocks + 40 * len(self._rising or ())

    def best(self, limits: Sequence[float], load_s: FloatArray | None, may_stop: bool) -> tuple[int, str | None] | None:
        """Return the best end within ``limits`` and the next model on the path to it; None if no end is within the limits.

        The next model is None if the request should end at the node itself, which ``may_stop`` allows.
        """
        at = self._first(limits, load_s)
        here = self._position_of_node
        # Ends are sorted best first. Ending here wins if it is within the limits and no end before its own position is.
        if here >= 0 and may_stop and not 0 <= at < here and all(map(le, self._node_values, limits)):
            return self._node, None
        if at < 0:
            return None
        end = int(self.ends[at])
        # Nodes are numbered in preorder: the end lies below the last child whose number is not above its own.
        return end, self._models[bisect_right(self._children, end) - 1]

    def view(self, metrics: PathMetrics, request: PlanRequest) -> SubtreeView:
        """Return a :class:`SubtreeView` of the frontier's node and its ends, with the stored values of bounded quantities."""
        columns: dict[Quantity, FloatArray] = {}
        for quantity, own, values in zip(self._bounds, self._node_values, self._bounded, strict=True):
            if z_of(quantity):  # load is added before standard deviations: another order of additions would round differently
                continue
            delay_s = self._delay_s(request.load_s) if metric_of(quantity) is Metric.LATENCY else None
            column = np.concatenate(([own], values if delay_s is None else values + delay_s))
            columns[quantity] = -column if quantity is Metric.ACCURACY else column
        return SubtreeView(metrics, request, self.ends, columns)

    def _delay_s(self, load_s: FloatArray | None) -> FloatArray | None:
        return None if load_s is None or self._visits is None else self._visits.dot(load_s).take(self._group)

    def _first(self, limits: Sequence[float], load_s: FloatArray | None) -> int:
        """Return the index in ``ends`` (sorted best first) of the first end within the limits; -1 if there is none."""
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
