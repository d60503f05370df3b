"""Backward induction over a merged trie: the best conditional value of every node at a price of accuracy.

V(n) = stop_success(n) + sum over the arms of n of max( right, going * max over models of V(target) - price * cost ), with the
rates of :class:`MergedGraph`. Where time or dollars of a request are bounded, values also depend on what is left: on a grid of
:data:`BINS` equal parts, interpolated between its points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vinelm.controller.planning.merged.graph import ArmLevel, Ints, MergedGraph
from vinelm.trie.arrays import BoolArray, FloatArray

BINS = 64
BINS_OF_TWO = 24
"""Parts of each grid where both time and dollars are bounded."""
END = -1
NOTHING = -2
"""Choices of an arm that are no edge: the request ends; nothing is admitted and there is no answer."""
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Resource:
    """A bound on what one request uses up.

    Args:
        name: the objective's field that bounds it.
        left: what is left at most, in seconds or dollars; the grid runs from 0 to it.
        use: of each edge, shape (edges,).
        need: the least that each node needs before the request has an answer, shape (n + 1,); 0 where it may end.
    """

    name: str
    left: float
    use: FloatArray
    need: FloatArray

    @classmethod
    def of(cls, graph: MergedGraph, name: str, left: float, use: FloatArray) -> Resource:
        """Compute what each node needs: the least over models, the most over arms."""
        return cls(name, left, use, least_need(graph, use))

    def admits(self, graph: MergedGraph, edges: slice | Ints, left: FloatArray | float) -> BoolArray:
        """Return whether edges leave enough for an answer, elementwise."""
        after = np.asarray(left) - self.use[edges] - self.need[graph.trie.target[edges]]
        return np.asarray(after >= -_ROUNDING * max(self.left, 1e-300))


@dataclass(frozen=True, eq=False)
class Values:
    """The result of an induction.

    Args:
        value: of each node, shape (n + 1, *grid): accuracy less price times dollars, from the node on.
        cost_usd: expected dollars from the node on, its own not counted; same shape.
        choice: of each arm the edge to take, :data:`END` or :data:`NOTHING`; shape (arms, *grid).
    """

    value: FloatArray
    cost_usd: FloatArray
    choice: npt.NDArray[np.int32]


def least_need(graph: MergedGraph, use: FloatArray) -> FloatArray:
    """Return the least use of a resource before a request at each node surely has an answer, shape (n + 1,)."""
    need = np.where(graph.ends, 0.0, np.inf)
    for level in reversed(graph.levels):
        through = use[level.edges] + need[graph.trie.target[level.edges]]
        through = np.where(graph.barred[level.edges], np.inf, through)
        of_arm = np.minimum.reduceat(through, level.first_edge)
        need[level.sources] = np.where(graph.ends[level.sources], 0.0, np.maximum.reduceat(of_arm, level.first_arm))
    return need


def induce(graph: MergedGraph, price: float, resources: Sequence[Resource] = (), *, weight: float = 1.0) -> Values:
    """Maximize weight * accuracy - price * dollars from every node on.

    Args:
        graph: the graph.
        price: what a dollar costs in accuracy.
        resources: bounds of one request, at most two.
        weight: of accuracy; 0 to minimize dollars alone.
    """
    trie, annotated = graph.trie, graph.annotated
    shape = _grid_shape(resources)
    spread = (slice(None), *(None for _ in shape))
    value = np.zeros((len(trie), *shape))
    cost = np.zeros_like(value)
    choice = np.full((graph.n_arms, *shape), END, np.int32)
    leaves = np.flatnonzero(trie.is_leaf)
    value[leaves] = weight * np.where(graph.ends, annotated.success, annotated.stop_success)[leaves][spread]
    for level in reversed(graph.levels):
        target = trie.target[level.edges]
        own = annotated.cost_usd[target][spread]
        onward, dearer = value[target], cost[target]
        for axis, resource in enumerate(resources):
            onward, dearer = (_shifted(part, resource, level.edges, axis) for part in (onward, dearer))
        onward, dearer = onward - price * own, dearer + own
        onward[~_admitted(graph, level.edges, resources, shape)] = -np.inf
        best, at = _best_edge(onward, dearer, level)
        going, right = graph.going[level.arms][spread], weight * graph.right[level.arms][spread]
        is_end = graph.ends[graph.arm_source[level.arms]][spread]
        ended = np.where(is_end, right, 0.0)
        goes_on = np.isfinite(best) & ((going * np.where(np.isfinite(best), best, 0.0) > ended) | ~is_end)
        choice[level.arms] = np.where(goes_on, at + level.edges.start, np.where(is_end, END, NOTHING))
        gained = np.where(goes_on, going * np.where(goes_on, best, 0.0), ended)
        paid = np.where(goes_on, going * np.take_along_axis(dearer, at, axis=0), 0.0)
        stopped = weight * annotated.stop_success[level.sources][spread]
        value[level.sources] = stopped + np.add.reduceat(gained, level.first_arm, axis=0)
        cost[level.sources] = np.add.reduceat(paid, level.first_arm, axis=0)
    return Values(value, cost, choice)


def at_left(part: FloatArray, resources: Sequence[Resource], left: Sequence[FloatArray]) -> FloatArray:
    """Interpolate values of shape (items, *grid) where ``left[k]`` (items,) of each resource is left."""
    for resource, amount in zip(resources, left, strict=True):
        bins = part.shape[1] - 1
        x = np.clip(amount / max(resource.left, 1e-300) * bins, 0.0, bins)
        low = np.minimum(x.astype(np.int64), bins - 1)
        share = (x - low).reshape(-1, *(1 for _ in part.shape[2:]))
        rows = np.arange(len(part))
        part = (1.0 - share) * part[rows, low] + share * part[rows, low + 1]
    return part


def _grid_shape(resources: Sequence[Resource]) -> tuple[int, ...]:
    return (BINS + 1,) if len(resources) == 1 else (BINS_OF_TWO + 1,) * len(resources)


def _shifted(part: FloatArray, resource: Resource, edges: slice, axis: int) -> FloatArray:
    """Values at what is left after each edge's use, between the grid's points."""
    bins = part.shape[axis + 1] - 1
    steps = np.minimum(resource.use[edges] / max(resource.left, 1e-300) * bins, 4.0 * bins)
    whole = np.floor(steps).astype(np.int64)
    rest = (steps - whole).reshape(-1, *(1 for _ in part.shape[1:]))
    index = np.arange(bins + 1)[None, :] - whole[:, None]
    index = index.reshape(len(whole), *(bins + 1 if k == axis else 1 for k in range(part.ndim - 1)))
    here = np.take_along_axis(part, np.maximum(index, 0), axis=axis + 1)
    below = np.take_along_axis(part, np.maximum(index - 1, 0), axis=axis + 1)
    return np.asarray((1.0 - rest) * here + rest * below)


def _admitted(graph: MergedGraph, edges: slice, resources: Sequence[Resource], shape: tuple[int, ...]) -> BoolArray:
    admitted = np.broadcast_to(~graph.barred[edges].reshape(-1, *(1 for _ in shape)), (edges.stop - edges.start, *shape)).copy()
    for axis, resource in enumerate(resources):
        left = np.linspace(0.0, resource.left, shape[axis])
        after = (left[None, :] - resource.use[edges][:, None]) - resource.need[graph.trie.target[edges]][:, None]
        fits = after >= -_ROUNDING * max(resource.left, 1e-300)
        admitted &= fits.reshape(len(fits), *(shape[axis] if k == axis else 1 for k in range(len(shape))))
    return admitted


def _best_edge(onward: FloatArray, dearer: FloatArray, level: ArmLevel) -> tuple[FloatArray, Ints]:
    """The best value of each arm and its edge, relative to the level: ties go to fewer dollars, then to the first."""
    best = np.maximum.reduceat(onward, level.first_edge, axis=0)
    size = np.diff(level.first_edge, append=len(onward))
    is_best = onward == np.repeat(best, size, axis=0)
    dollars = np.where(is_best, dearer, np.inf)
    least = np.repeat(np.minimum.reduceat(dollars, level.first_edge, axis=0), size, axis=0)
    number = np.arange(len(onward)).reshape(-1, *(1 for _ in onward.shape[1:]))
    first = np.where(is_best & (dollars <= least), number, len(onward))
    at = np.minimum.reduceat(first, level.first_edge, axis=0)
    return best, np.minimum(at, len(onward) - 1)
