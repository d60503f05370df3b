"""Standard errors of the path metrics: the delta method along every path, times a calibrated factor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from vinelm.estimator.cost_latency import MeanEstimate
from vinelm.estimator.latent.em import LatentFit
from vinelm.estimator.latent.logistic_regression import Regression
from vinelm.estimator.latent.prediction import PredictedRates
from vinelm.estimator.observation_table import ObservationTable
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.arrays import FloatArray

ACCURACY_SCALE = 0.92
COST_SCALE = 1.25
LATENCY_SCALE = 1.2
"""Factors that bring the coverage of 90 % intervals to about 90 %, calibrated at 2 % of the exhaustive cost on simulated tables
of seeds that are not reported. Below 1 for accuracy, because the mean of the table's own requests is less uncertain than that
of further ones; above 1 for dollars and seconds, because of effects that their model leaves out.
"""


@dataclass(frozen=True, eq=False)
class StandardErrors:
    """Standard errors of path accuracy (fraction), cost (dollars) and latency (seconds), shape (n + 1,) each."""

    accuracy: FloatArray
    cost_usd: FloatArray
    latency_s: FloatArray


def standard_errors(
    cells: ObservationTable,
    fit: LatentFit,
    predicted: PredictedRates,
    annotated: AnnotatedTrie,
    *,
    cost_usd: MeanEstimate,
    latency_s: MeanEstimate,
) -> StandardErrors:
    """Return the standard errors of the path metrics for *further requests of the same kind*.

    Two sources: the posterior of the effects where outcomes were not observed, and the sample of requests.

    With reach_j = prod (1 - s_i), B_j = sum of reach_i b_i up to j, and ds, db, da the derivatives of a node's rates by the
    logit of a question, the derivatives of A(u) along effects x_j are reach_j db_j + (B_j - A(u)) ds_j / (1 - s_j) for proper
    ancestors j, and reach_u da_u for u itself: each is a running sum from the root.

    Args:
        cells: the observations.
        fit: the latent model fitted to them.
        predicted: its predicted rates.
        annotated: the trie with these rates.
        cost_usd: estimate of the dollars per invocation.
        latency_s: estimate of the seconds per invocation at zero load.
    """
    accuracy = annotated.accuracy
    weights = path_weights(predicted, annotated)
    shrunk = (accuracy * cells.n_requests + 1.0) / (cells.n_requests + 2.0)  # 0 or 1 observed is not certainty
    accuracy_var = shrunk * (1.0 - shrunk) / cells.n_requests * (1.0 + _unknown(cells))
    for regression, weight in zip(fit.regressions, weights, strict=True):
        if regression is not None:
            accuracy_var = accuracy_var + _variance(cells.trie, regression, predicted, weight, accuracy)
    spent = annotated.path_cost_usd
    cost_var, latency_var = amount_variances(annotated, cost_usd, latency_s)
    for regression, weight in zip(fit.regressions, weights, strict=True):
        if regression is not None:
            thins = weight.discount
            # Dollars depend on the questions only by who goes on: no term of a node's own, none for answers.
            fewer = PathWeights(through=thins * spent, discount=thins, own=np.zeros(len(cells.trie)))
            cost_var = cost_var + _variance(cells.trie, regression, predicted, fewer, spent)
    return StandardErrors(
        ACCURACY_SCALE * np.sqrt(accuracy_var), COST_SCALE * np.sqrt(cost_var), LATENCY_SCALE * np.sqrt(latency_var)
    )


def amount_variances(
    annotated: AnnotatedTrie, cost_usd: MeanEstimate, latency_s: MeanEstimate
) -> tuple[FloatArray, FloatArray]:
    """Return the variances of path cost and path latency that are due to the amounts themselves, shape (n + 1,) each."""
    trie, spent = annotated.trie, annotated.path_cost_usd
    cost_var = trie.accumulate(annotated.reach**2 * cost_usd.mean_var) + spent**2 * cost_usd.shared
    cost_var += trie.accumulate(annotated.reach * cost_usd.along) ** 2
    latency_var = trie.accumulate(latency_s.mean_var) + annotated.path_latency_s**2 * latency_s.shared
    latency_var += trie.accumulate(latency_s.along) ** 2
    return cost_var, latency_var


def path_weights(predicted: PredictedRates, annotated: AnnotatedTrie) -> list[PathWeights]:
    """Return the derivatives of path accuracy by the logit of each question at each node (see :func:`standard_errors`)."""
    reach, stop = annotated.reach, predicted.rates.stop
    ended = annotated.trie.accumulate(reach * predicted.rates.stop_success)
    found = []
    for moves in predicted.sensitivity:
        thins = moves.stop / np.maximum(1.0 - stop, 1e-9)  # -d log(1 - s): relative reduction of all that follows
        found.append(PathWeights(reach * moves.stop_success + thins * ended, discount=thins, own=reach * moves.success))
    return found


def _unknown(cells: ObservationTable) -> FloatArray:
    """Share of the requests whose outcome on each path was not observed, neither at its end nor by an earlier stop."""
    size = len(cells.trie)
    stops = np.bincount(cells.node[cells.stop], minlength=size).astype(np.float64)
    known = cells.trie.accumulate(stops) + (cells.count - stops)
    return np.clip(1.0 - known / cells.n_requests, 0.0, 1.0)


@dataclass(frozen=True, eq=False)
class PathWeights:
    """Factors of a node's design row in the gradients of path metrics, shape (n + 1,) each.

    Args:
        through: factor in the metric of each proper descendant.
        discount: factor that is multiplied by the descendant's own metric and subtracted.
        own: factor in the node's own metric.
    """

    through: FloatArray
    discount: FloatArray
    own: FloatArray


def _variance(
    trie: Trie, regression: Regression, predicted: PredictedRates, weights: PathWeights, metric: FloatArray
) -> FloatArray:
    """Quadratic form v' C v of each node's gradient v with the posterior covariance C, by a Cholesky factor of C."""
    variance = np.zeros(len(trie))
    root = np.asarray(np.linalg.cholesky(regression.covariance), dtype=np.float64)
    for part, gradient in gradients(trie, regression, predicted, weights, metric, basis=root):
        variance[part] = np.einsum("ij,ij->i", gradient, gradient)
    return variance


def gradients(
    trie: Trie,
    regression: Regression,
    predicted: PredictedRates,
    weights: PathWeights,
    metric: FloatArray,
    *,
    basis: FloatArray | None = None,
) -> Iterator[tuple[slice, FloatArray]]:
    """Yield (nodes, gradients of their path metric by the question's coefficients), one subtree of the root at a time.

    Gradients have shape (nodes, coefficients), or (nodes, columns of ``basis``) if that is given. Iterating bounds the memory.
    """
    for child in trie.children(0):
        part = trie.subtree(child)
        rows = design_rows(regression, predicted, part, basis)
        total = weights.own[part, None] * rows + above(trie, part, weights.through[part, None] * rows)
        yield part, total - metric[part, None] * above(trie, part, weights.discount[part, None] * rows)


def design_rows(regression: Regression, predicted: PredictedRates, nodes: slice, basis: FloatArray | None = None) -> FloatArray:
    """Return the dense design of the nodes, slopes at the mean difficulty of the requests that reach them, times ``basis``."""
    design, slope = regression.features.design[nodes], regression.features.slope[nodes]
    difficulty = predicted.mean_difficulty[nodes, None]
    if basis is None:
        return np.hstack([design.toarray(), slope.toarray() * difficulty])
    n_effects = design.shape[1]
    return np.asarray(design @ basis[:n_effects] + difficulty * (slope @ basis[n_effects:]), dtype=np.float64)


def above(trie: Trie, part: slice, rows: FloatArray) -> FloatArray:
    """Return the sum of the rows of each node's proper ancestors within the subtree."""
    total = np.zeros_like(rows)
    depth = trie.depth[part]
    for d in range(int(depth[0]) + 1, int(depth.max()) + 1):
        level = np.flatnonzero(depth == d)
        up = trie.parent[part][level] - part.start
        total[level] = total[up] + rows[up]
    return total
