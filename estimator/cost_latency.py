"""Dollars and seconds of one invocation per node: effects of request size, depth x model, change of engine, and node."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri, stdtrit

from vinelm.estimator.observation_table import ObservationTable
from vinelm.estimator.shrinkage import pooled_mean, shrunk_mean
from vinelm.trie import FloatArray, Trie

Ints = npt.NDArray[np.int64]
NODE_WEIGHT = 8.0
"""Observations that a node's depth x model is worth in the node's own mean: an amount is mostly the model's and the depth's."""
EDGE_WEIGHT = 20.0
"""Observations that "the engine before does not matter" is worth."""
TURNS = 6
TINY = 1e-300


@dataclass(frozen=True, eq=False)
class MeanEstimate:
    """Mean and variance of one invocation per node, shape (n + 1,), 0 at the root; and how well that mean is known.
    ``size_var`` is the part of ``var`` that is the request's size, and so the same request's everywhere.

    Its error has three parts. ``mean_var``: the squared standard error that is a node's own. ``along``: the standard error that
    the nodes of a path have in common, since the few requests seen far down are those that were seen above, and their sizes are
    known in part only. ``shared``: the squared *relative* error of all nodes, for having seen these requests and no others.
    """

    mean: FloatArray
    var: FloatArray
    size_var: FloatArray
    mean_var: FloatArray
    along: FloatArray
    shared: float = 0.0


def edges_of(trie: Trie, engine: npt.NDArray[np.int16]) -> Ints:
    """0 for a first invocation, 1 after one elsewhere, 2 after one that left a warm prompt cache; shape (n + 1,).

    ``engine`` says by node whose cache the invocation meets (:attr:`~vinelm.catalog.catalog.Model.prompt_cache`).
    """
    up = np.maximum(trie.parent, 0)
    return np.where(trie.depth < 2, 0, np.where(engine == engine[up], 2, 1)).astype(np.int64)


def zero_load_s(cells: ObservationTable, engine: npt.NDArray[np.int16]) -> FloatArray:
    """``cells.latency_s`` as it would have been on idle engines: divided by 1 + slope x calls in flight, a slope per engine.

    The slope is a regression within depth x model; one that is not twice its standard error, or negative, is taken as none.
    """
    latency_s = cells.latency_s.copy()
    if not cells.in_flight.any():
        return latency_s
    pair = _pair(cells.trie)[cells.node]
    size = np.maximum(np.bincount(pair), 1)
    relative = latency_s / np.maximum((np.bincount(pair, latency_s) / size)[pair], TINY) - 1.0
    off = cells.in_flight - (np.bincount(pair, cells.in_flight) / size)[pair]
    for served in np.unique(engine[cells.node]):
        here = engine[cells.node] == served
        square = float((off[here] ** 2).sum())
        if square <= 0.0:
            continue
        slope = float((off[here] * relative[here]).sum()) / square
        if slope < 2.0 * float(np.sqrt((relative[here] ** 2).mean() / square)):
            continue
        slope /= max(1.0 - slope * float(cells.in_flight[here].mean()), 0.05)  # relative to idle, not to the mean
        latency_s[here] /= 1.0 + slope * cells.in_flight[here]
    return latency_s


def estimate_amount(
    cells: ObservationTable, values: FloatArray, *, edges: Ints | None = None, reaching: FloatArray | None = None
) -> MeanEstimate:
    """Moments of ``values`` (one per cell); failed calls count with what they cost until then.

    A value is taken as (depth x model) x (edge) x (node) x (request size) x noise, so that a model tried on long requests
    only is not called expensive. ``edges`` is what :func:`edges_of` gives. With ``reaching``, the expected number of requests
    at each node, the observed values enter as they are and only those of the other requests are predicted.
    """
    trie, size = cells.trie, len(cells.trie)
    if not values.any():
        return MeanEstimate(*np.zeros((5, size)))
    count = cells.count.astype(np.float64)
    edges = np.zeros(size, np.int64) if edges is None else edges
    edge_factor = np.ones(3)
    expected, edge_factor = _typical(cells, values, np.ones(len(cells)), edges, edge_factor)
    for _ in range(TURNS):
        sizes = _Sizes.of(cells, values / np.maximum(expected[cells.node], TINY))
        expected, edge_factor = _typical(cells, values, sizes.factor[cells.request], edges, edge_factor)
    off = values / np.maximum(expected[cells.node], TINY) - 1.0
    spread = pooled_mean(trie, np.bincount(cells.node, off**2, size), count, prior=float((off**2).mean()))
    pair = _pair(trie)
    free = max(len(cells) - len(np.unique(pair[cells.node])), 1)  # rows that no mean was fitted to
    spread *= len(cells) / free
    mean = expected.copy()
    if reaching is not None:
        total = np.bincount(cells.node, values, size)
        predicted = np.maximum(reaching - count, 0.0) * expected
        mean = np.where(count > 0, (total + predicted) / np.maximum(reaching, TINY), expected)
    error = mean**2 * spread * _few(free)
    rows = 1.0 / np.maximum(np.bincount(pair, count)[pair] - 1.0, 0.5) + 0.25 / (count + NODE_WEIGHT)
    requests = np.unique(pair[cells.node] * cells.n_requests + cells.request) // max(cells.n_requests, 1)
    distinct = np.maximum(np.bincount(requests, minlength=int(pair.max()) + 1)[pair] - 1.0, 0.5)
    mean_var, along = error * sizes.noise * rows, np.sqrt(error * sizes.unknown / distinct)
    var = mean**2 * spread
    size_var = var * (1.0 - sizes.noise)
    for array in (mean, var, size_var, mean_var, along):
        array[0] = 0.0
    return MeanEstimate(mean, var, size_var, mean_var, along, sizes.spread / cells.n_requests * _few(cells.n_requests - 1))


def _few(free: int) -> float:
    """Squared ratio of Student's 90 % interval to the normal one: what a variance estimated from few rows costs."""
    return float(stdtrit(max(free, 1), 0.95) / ndtri(0.95)) ** 2


def _typical(
    cells: ObservationTable, values: FloatArray, sizes: FloatArray, edges: Ints, edge_factor: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Mean of each node for a request of size 1 (its depth x model's, times the edge's and the node's own shrunken factors),
    and the edges' factors anew. ``sizes`` is the size of each cell's request.

    Sums are divided by sums: a size learned from a value follows its noise, so that the mean of their ratios would be too low.
    """
    trie, size, node = cells.trie, len(cells.trie), cells.node
    kind = edges[node]
    total, weight = np.bincount(node, values, size), np.bincount(node, sizes * edge_factor[kind], size)
    pair = pooled_mean(trie, total, weight, prior=float(values.mean()), weight=0.1)
    ratio = values / np.maximum(pair[node], TINY)
    edge_factor = shrunk_mean(np.bincount(kind, ratio, 3), np.bincount(kind, sizes, 3), np.ones(3), EDGE_WEIGHT)
    edge_factor[0] = 1.0  # a first invocation has no engine before it
    of_node, seen = np.bincount(node, ratio / edge_factor[kind], size), np.bincount(node, sizes, size)
    return pair * edge_factor[edges] * shrunk_mean(of_node, seen, np.ones(size), NODE_WEIGHT), edge_factor


@dataclass(frozen=True, eq=False)
class _Sizes:
    """``factor``: size of each request relative to the mean one, leaning on 1 by the ratio of the noise to the ``spread``
    (variance) of sizes. Shares of a cell's variance: ``noise`` is no matter of size, ``unknown`` that of a size that ``factor``
    misses.
    """

    factor: FloatArray
    spread: float
    noise: float
    unknown: float

    @classmethod
    def of(cls, cells: ObservationTable, ratio: FloatArray) -> _Sizes:
        n_rows = np.bincount(cells.request, minlength=cells.n_requests).astype(np.float64)
        total = np.bincount(cells.request, ratio, cells.n_requests)
        mean = total / n_rows
        within = np.bincount(cells.request, (ratio - mean[cells.request]) ** 2, cells.n_requests).sum()
        noise = within / max(float((n_rows - 1.0).sum()), 1.0)
        spread = max(float(((mean - 1.0) ** 2).mean() - noise * float((1.0 / n_rows).mean())), 0.0)
        if spread <= 1e-9 or not (n_rows > 1).any():
            return cls(np.ones(cells.n_requests), 0.0, 1.0, 0.0)
        weight = noise / spread
        factor = (total + weight) / (n_rows + weight)
        missed = spread * float((weight / (n_rows + weight))[cells.request].mean())
        return cls(factor / factor.mean(), spread, noise / (noise + spread), missed / (noise + spread))


def _pair(trie: Trie) -> Ints:
    return np.asarray(trie.depth.astype(np.int64) * len(trie.models) + np.maximum(trie.model, 0))
