"""Estimates calls' cost in dollars and latency in seconds from factors for depth x model, edge type, node and request size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri, stdtrit

from vinelm.estimator.observation_table import ObservationTable
from vinelm.estimator.shrinkage import pooled_mean, shrunk_mean
from vinelm.estimator.sizes_by_outcome import SizesByOutcome
from vinelm.trie import Trie
from vinelm.trie.arrays import FloatArray

Ints = npt.NDArray[np.int64]
NODE_WEIGHT = 8.0
"""Pseudo-observations that shrink a node's factor towards 1: amounts depend mostly on depth x model."""
EDGE_WEIGHT = 20.0
"""Pseudo-observations that shrink the edge types' factors towards 1."""
SLOPE_SD = 0.5
"""The prior standard deviation of the slope of log size on what the outcomes imply."""
LARGEST_STEP, SMALLEST_ERROR = 0.3, 1e-6
ITERATIONS = 6
TINY = 1e-300


@dataclass(frozen=True, eq=False)
class RequestSizes:
    """Sizes of requests: the factors by which their calls cost or take more than those of the mean request.

    Args:
        factor: size of each request, shrunk towards the expected one; shape (requests,), mean 1.
        mean: for each request, the mean of its results' ratios; shape (requests,). A ratio is a result's dollars or seconds,
            divided by those expected for a request of size 1.
        error: variance of ``mean`` around the expected size; same shape.
        spread: variance of the requests' sizes.
        noise: share of a result's variance that is not due to size.
        unknown: share of a result's variance that is due to the part of the size that ``factor`` does not capture.
    """

    factor: FloatArray
    mean: FloatArray
    error: FloatArray
    spread: float
    noise: float
    unknown: float

    @classmethod
    def of(cls, cells: ObservationTable, ratio: FloatArray, expected: FloatArray) -> RequestSizes:
        """Return the estimated sizes of the requests.

        A size is a factor on the dollars or seconds of a request's calls; the mean size is 1.

        Args:
            cells: the results.
            ratio: dollars or seconds of each result, divided by those expected for a request of size 1; shape (results,).
            expected: the size that each request's outcomes imply, shape (requests,).
        """
        n_rows = np.bincount(cells.request, minlength=cells.n_requests).astype(np.float64)
        total = np.bincount(cells.request, ratio, cells.n_requests)
        known = n_rows > 0.0  # a request whose calls went in batches has no row with seconds
        mean = np.divide(total, n_rows, out=expected.copy(), where=known)
        within = np.bincount(cells.request, (ratio - mean[cells.request]) ** 2, cells.n_requests).sum()
        noise = within / max(float((n_rows - 1.0)[known].sum()), 1.0)
        rest = max(float(((mean - expected)[known] ** 2).mean() - noise * float((1.0 / n_rows[known]).mean())), 0.0)
        error = np.full(cells.n_requests, np.inf)
        error[known] = np.maximum(rest + noise / n_rows[known], SMALLEST_ERROR)
        if not (n_rows > 1).any():  # nothing distinguishes a long request from an expensive invocation
            return cls(np.ones(cells.n_requests), mean, error, 0.0, 1.0, 0.0)
        explained = float(expected.var())
        if rest <= 1e-9:
            every = noise + explained
            return cls(expected / expected.mean(), mean, error, explained, noise / every if every > 0.0 else 1.0, 0.0)
        weight = noise / rest
        factor = (total + weight * expected) / (n_rows + weight)
        missed = rest * float((weight / (n_rows + weight))[cells.request].mean())
        spread = rest + explained
        return cls(factor / factor.mean(), mean, error, spread, noise / (noise + spread), missed / (noise + spread))

    @property
    def is_known(self) -> bool:
        """Whether some request has several results, from which its size can be estimated."""
        return self.noise < 1.0 or self.spread > 0.0


def improved_slope(sizes: RequestSizes, expected: FloatArray, change: FloatArray, slope: float) -> tuple[float, float]:
    """Improve ``slope``, which says how the logarithm of a request's size depends on its outcomes, by one Gauss-Newton step.

    The observed sizes are regressed on the expected sizes. Errors are assumed proportional to the size.

    Args:
        sizes: the observed sizes of the requests; see :attr:`RequestSizes.mean`.
        expected: expected size of each request at the given slope, shape (requests,).
        change: the derivative of ``expected`` with respect to the slope, shape (requests,).
        slope: the slope before the step.

    Returns:
        The new slope, and its standard error.
    """
    weight = 1.0 / (sizes.error * expected**2)
    columns = np.stack([expected, change], axis=1)  # the level is free: typical amounts are estimated elsewhere
    information = columns.T @ (weight[:, None] * columns)
    score = columns.T @ (weight * (sizes.mean - expected))
    information[1, 1] += 1.0 / SLOPE_SD**2
    score[1] -= slope / SLOPE_SD**2
    inverse = np.linalg.inv(information)
    step = float(np.clip((inverse @ score)[1], -LARGEST_STEP, LARGEST_STEP))
    return slope + step, float(np.sqrt(inverse[1, 1]))


@dataclass(frozen=True, eq=False)
class MeanEstimate:
    """The mean and variance of one call's cost or latency at each node, and the mean's standard error in three parts.

    Arrays have shape (nodes,) and are 0 at the root. The unit is that of the estimated amount (dollars or seconds), squared for
    variances.

    Args:
        size_var: the part of ``var`` that is due to the request's size, common to all calls of a request.
        mean_var: the first part, squared: errors that are independent between nodes.
        along: the second part: errors that are common to the nodes of a path.
        shared: the third part, squared and *relative* to the mean: an error common to all nodes, due to the sample of requests.
    """

    mean: FloatArray
    var: FloatArray
    size_var: FloatArray
    mean_var: FloatArray
    along: FloatArray
    shared: float = 0.0


def zero_load_s(cells: ObservationTable, engine: npt.NDArray[np.int16]) -> FloatArray:
    """Return a copy of ``cells.latency_s``, corrected to idle engines.

    Each latency is divided by 1 + slope * calls in flight, with one slope per engine. Slopes are estimated by regression within
    depth x model. A slope below twice its standard error counts as 0.

    Args:
        cells: the observations.
        engine: index of each node's engine, shape (nodes,).

    Returns:
        Seconds of each result at zero load, shape (results,).
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


def estimate_amount(cells: ObservationTable, values: FloatArray, *, edges: Ints, by_outcome: SizesByOutcome) -> MeanEstimate:
    """Return the estimated mean and variance of an amount (dollars or seconds) of one call, for each node.

    A value is modelled as (depth x model) * (edge type) * (node) * (request size) * noise, so that a model observed only on
    long requests does not appear expensive. A node's mean is over the requests that *reach* it, which are harder, and often
    larger, than the mean request. Failed calls count with their cost until the failure. If the trie branches, "model" means the
    model at one stage.

    Args:
        cells: the observations.
        values: the amount of each result, shape (results,).
        edges: edge type of each node, shape (nodes,) (:func:`~vinelm.estimator.prompt_cache.edge_types`).
        by_outcome: predicts the size of a request from its outcomes. Its attribute ``unseen`` has the number of unobserved
            requests that reach each node, or is None. If it is not None, observed values are used as they are, and values are
            predicted only for unobserved requests.
    """
    trie, size = cells.trie, len(cells.trie)
    if not values.any():
        return MeanEstimate(*np.zeros((5, size)))
    count = cells.count.astype(np.float64)
    fitted = _fit(cells, values, edges, by_outcome)
    sizes, expected = fitted.sizes, fitted.typical * fitted.mean_size
    off = values / np.maximum((fitted.typical * _over_all(cells, fitted, by_outcome))[cells.node], TINY) - 1.0
    spread = pooled_mean(trie, np.bincount(cells.node, off**2, size), count, prior=float((off**2).mean()))
    pair = _pair(trie)
    free = max(len(cells) - len(np.unique(pair[cells.node])), 1)  # degrees of freedom
    spread *= len(cells) / free
    mean, predicted = expected.copy(), np.ones(size)
    if by_outcome.unseen is not None:
        total, unseen = np.bincount(cells.node, values, size), by_outcome.unseen
        mean = np.where(count > 0, (total + unseen * expected) / np.maximum(count + unseen, TINY), expected)
        predicted = np.where(count > 0, unseen * expected / np.maximum(total + unseen * expected, TINY), 1.0)
    error = mean**2 * spread * _small_sample_inflation(free)
    rows = 1.0 / np.maximum(np.bincount(pair, count)[pair] - 1.0, 0.5) + 0.25 / (count + NODE_WEIGHT)
    requests = np.unique(pair[cells.node] * cells.n_requests + cells.request) // max(cells.n_requests, 1)
    distinct = np.maximum(np.bincount(requests, minlength=int(pair.max()) + 1)[pair] - 1.0, 0.5)
    mean_var = error * sizes.noise * rows
    along = np.sqrt(error * sizes.unknown / distinct + (mean * predicted * fitted.slope_error) ** 2)
    var = mean**2 * spread
    size_var = var * (1.0 - sizes.noise)
    for array in (mean, var, size_var, mean_var, along):
        array[0] = 0.0
    n_requests = len(np.unique(cells.request))
    return MeanEstimate(
        mean, var, size_var, mean_var, along, sizes.spread / n_requests * _small_sample_inflation(n_requests - 1)
    )


@dataclass(frozen=True, eq=False)
class _Fitted:
    """Fitted amounts (dollars or seconds) per node, and fitted sizes of the requests; arrays of shape (nodes,).

    Attributes:
        sizes: the sizes of the requests.
        typical: the amount of each node's call for a request of size 1.
        mean_size: the mean size of the requests that are predicted to reach the node.
        slope_error: the part of the relative standard error of ``mean_size`` that is due to the slope of size on outcomes.
    """

    sizes: RequestSizes
    typical: FloatArray
    mean_size: FloatArray
    slope_error: FloatArray


def _fit(cells: ObservationTable, values: FloatArray, edges: Ints, by_outcome: SizesByOutcome) -> _Fitted:
    """Fit each node's typical amount (dollars or seconds), each request's size, and how sizes depend on outcomes.

    Return all three.
    """
    expected, slope, error = np.ones(cells.n_requests), 0.0, 0.0
    typical, edge_factor = _typical(cells, values, np.ones(len(cells)), edges, np.ones(3))
    for _ in range(ITERATIONS):
        sizes = RequestSizes.of(cells, values / np.maximum(typical[cells.node], TINY), expected)
        typical, edge_factor = _typical(cells, values, sizes.factor[cells.request], edges, edge_factor)
        if sizes.is_known:
            slope, error = improved_slope(sizes, *by_outcome.expected(slope), slope)
            expected, _ = by_outcome.expected(slope)
    if not sizes.is_known:
        return _Fitted(sizes, typical, np.ones(len(cells.trie)), np.zeros(len(cells.trie)))
    mean_size, change = by_outcome.reaching(slope, sizes.factor)
    return _Fitted(sizes, typical, mean_size, np.abs(change) * error)


def _over_all(cells: ObservationTable, fitted: _Fitted, by_outcome: SizesByOutcome) -> FloatArray:
    """Return the mean size of all requests that reach each node, shape (nodes,).

    If the number of unobserved requests is known, this is the mean over observed and unobserved requests; otherwise it is the
    fitted ``mean_size``.
    """
    if by_outcome.unseen is None:
        return fitted.mean_size
    seen = np.bincount(cells.node, fitted.sizes.factor[cells.request], len(cells.trie))
    return np.asarray(
        (seen + by_outcome.unseen * fitted.mean_size) / np.maximum(cells.count + by_outcome.unseen, TINY), dtype=np.float64
    )


def _small_sample_inflation(free: int) -> float:
    """Return the factor by which to enlarge a variance that was estimated with ``free`` degrees of freedom.

    It is the squared ratio of Student's 90 % interval to the normal interval.
    """
    return float(stdtrit(max(free, 1), 0.95) / ndtri(0.95)) ** 2


def _typical(
    cells: ObservationTable, values: FloatArray, sizes: FloatArray, edges: Ints, edge_factor: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return each node's expected amount for a request of size 1, shape (nodes,), and updated factors of the edge types.

    The expected amount is the depth x model mean times the shrunken factors of edge type and node. Factors are ratios of sums,
    since means of ratios would be biased low.

    Args:
        cells: the results.
        values: the dollars or seconds of each result, shape (results,).
        sizes: the size of each result's request, shape (results,).
        edges: the edge type of each node, shape (nodes,).
        edge_factor: the factor of each edge type before the update, shape (edge types,).
    """
    trie, size, node = cells.trie, len(cells.trie), cells.node
    kind = edges[node]
    total, weight = np.bincount(node, values, size), np.bincount(node, sizes * edge_factor[kind], size)
    pair = pooled_mean(trie, total, weight, prior=float(values.mean()), weight=0.1, prior_of=cells.kinds.prior)
    ratio = values / np.maximum(pair[node], TINY)
    edge_factor = shrunk_mean(np.bincount(kind, ratio, 3), np.bincount(kind, sizes, 3), np.ones(3), EDGE_WEIGHT)
    edge_factor[0] = 1.0  # a first invocation has no engine before it
    of_node, seen = np.bincount(node, ratio / edge_factor[kind], size), np.bincount(node, sizes, size)
    return pair * edge_factor[edges] * shrunk_mean(of_node, seen, np.ones(size), NODE_WEIGHT), edge_factor


def _pair(trie: Trie) -> Ints:
    kind, n_kinds = trie.kinds
    return np.asarray(trie.depth.astype(np.int64) * n_kinds + kind)
