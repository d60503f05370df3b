"""Standard errors of the path metrics: the delta method along every path, times a measured factor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from vinelm.annotated_trie import AnnotatedTrie
from vinelm.estimator.cost_latency import MeanEstimate
from vinelm.estimator.latent.em import LatentFit
from vinelm.estimator.latent.logistic_regression import Regression
from vinelm.estimator.latent.prediction import PredictedRates, Sensitivity
from vinelm.estimator.observation_table import ObservationTable
from vinelm.trie import FloatArray, Trie

ACCURACY_SCALE = 0.92
COST_SCALE = 1.25
LATENCY_SCALE = 1.2
"""What brought 90 % intervals to about 90 % at 2 % on simulated truths of other seeds than those reported. Below 1 for accuracy
because a table's own mean is less uncertain than that of further requests; above 1 for what the amounts' model leaves out.
"""


@dataclass(frozen=True, eq=False)
class StandardErrors:
    """Of A, C and T, shape (n + 1,)."""

    accuracy: FloatArray
    cost_usd: FloatArray
    latency_s: FloatArray


def standard_errors(
    cells: ObservationTable,
    mixture: LatentFit,
    completed: PredictedRates,
    annotated: AnnotatedTrie,
    *,
    cost_usd: MeanEstimate,
    latency_s: MeanEstimate,
) -> StandardErrors:
    """Uncertainty about *further requests of the same kind*: of the model's effects where outcomes were not seen, and of having
    drawn these requests and no others.

    With reach_j = prod (1 - s_i), B_j = sum of reach_i b_i up to j, and ds, db, da what one logit more of a question does to a
    node's rates, the derivatives of A(u) along effects x_j are reach_j db_j + (B_j - A(u)) ds_j / (1 - s_j) for proper
    ancestors j, and reach_u da_u for u itself: every one a running sum from the root.
    """
    accuracy = annotated.accuracy
    weights = path_weights(completed, annotated)
    leaning = (accuracy * cells.n_requests + 1.0) / (cells.n_requests + 2.0)  # nothing seen either way is no certainty
    accuracy_var = leaning * (1.0 - leaning) / cells.n_requests * (1.0 + _unknown(cells))
    for regression, weight in zip(mixture.regressions, weights, strict=True):
        if regression is not None:
            accuracy_var = accuracy_var + _variance(cells.trie, regression, completed, weight, accuracy)
    spent = annotated.path_cost_usd
    cost_var = cells.trie.accumulate(annotated.reach**2 * cost_usd.mean_var) + spent**2 * cost_usd.shared
    cost_var += cells.trie.accumulate(annotated.reach * cost_usd.along) ** 2
    for regression, weight in zip(mixture.regressions, weights, strict=True):
        if regression is not None:
            thins = weight.discount
            fewer = PathWeights(through=thins * spent, discount=thins, own=np.zeros(len(cells.trie)))
            cost_var = cost_var + _variance(cells.trie, regression, completed, fewer, spent)
    latency_var = cells.trie.accumulate(latency_s.mean_var) + annotated.path_latency_s**2 * latency_s.shared
    latency_var += cells.trie.accumulate(latency_s.along) ** 2
    return StandardErrors(
        ACCURACY_SCALE * np.sqrt(accuracy_var), COST_SCALE * np.sqrt(cost_var), LATENCY_SCALE * np.sqrt(latency_var)
    )


def path_weights(completed: PredictedRates, annotated: AnnotatedTrie) -> tuple[PathWeights, PathWeights, PathWeights]:
    """How much one logit more of each question at each node moves the accuracy of the paths through it (see above)."""
    reach, stop = annotated.reach, completed.rates.stop
    ended = annotated.trie.accumulate(reach * completed.rates.stop_success)
    first, second, third = (_path_weights(moves, reach, stop, ended) for moves in completed.sensitivity)
    return first, second, third


def _path_weights(moves: Sensitivity, reach: FloatArray, stop: FloatArray, ended: FloatArray) -> PathWeights:
    thins = moves.stop / np.maximum(1.0 - stop, 1e-9)  # -d log(1 - s): what one logit more takes from everything below
    return PathWeights(through=reach * moves.stop_success + thins * ended, discount=thins, own=reach * moves.success)


def _unknown(cells: ObservationTable) -> FloatArray:
    """Share of the requests whose outcome at the end of each path was not seen: neither there nor by a stop above."""
    size = len(cells.trie)
    stops = np.bincount(cells.node[cells.stop], minlength=size).astype(np.float64)
    known = cells.trie.accumulate(stops) + (cells.count - stops)
    return np.clip(1.0 - known / cells.n_requests, 0.0, 1.0)


@dataclass(frozen=True, eq=False)
class PathWeights:
    """Per node: the factor of its design row in the metric of each proper descendant (``through``), the part of it that is
    multiplied by the descendant's own metric and subtracted (``discount``), and the factor in its own metric (``own``).
    """

    through: FloatArray
    discount: FloatArray
    own: FloatArray


def _variance(
    trie: Trie, regression: Regression, completed: PredictedRates, weights: PathWeights, metric: FloatArray
) -> FloatArray:
    """Rowwise v' covariance v of each node's gradient: squared lengths along a root of the covariance."""
    variance = np.zeros(len(trie))
    root = np.asarray(np.linalg.cholesky(regression.covariance), dtype=np.float64)
    for part, gradient in gradients(trie, regression, completed, weights, metric, basis=root):
        variance[part] = np.einsum("ij,ij->i", gradient, gradient)
    return variance


def gradients(
    trie: Trie,
    regression: Regression,
    completed: PredictedRates,
    weights: PathWeights,
    metric: FloatArray,
    *,
    basis: FloatArray | None = None,
) -> Iterator[tuple[slice, FloatArray]]:
    """(nodes, derivatives of their path metric along the question's coefficients), one subtree of the root at a time to bound
    memory; shape (nodes, coefficients). With ``basis``, along its columns.
    """
    for child in trie.children(0):
        part = trie.subtree(child)
        rows = design_rows(regression, completed, part, basis)
        total = weights.own[part, None] * rows + _above(trie, part, weights.through[part, None] * rows)
        yield part, total - metric[part, None] * _above(trie, part, weights.discount[part, None] * rows)


def design_rows(regression: Regression, completed: PredictedRates, nodes: slice, basis: FloatArray | None = None) -> FloatArray:
    """Dense design of the nodes, slopes taken at the mean difficulty of the requests that reach them; times ``basis``."""
    design, slope = regression.effects.design[nodes], regression.effects.slope[nodes]
    difficulty = completed.mean_difficulty[nodes, None]
    if basis is None:
        return np.hstack([design.toarray(), slope.toarray() * difficulty])
    n_effects = design.shape[1]
    return np.asarray(design @ basis[:n_effects] + difficulty * (slope @ basis[n_effects:]), dtype=np.float64)


def _above(trie: Trie, part: slice, rows: FloatArray) -> FloatArray:
    """Sum of the rows of each node's proper ancestors within the subtree."""
    total = np.zeros_like(rows)
    depth = trie.depth[part]
    for d in range(int(depth[0]) + 1, int(depth.max()) + 1):
        level = np.flatnonzero(depth == d)
        up = trie.parent[part][level] - part.start
        total[level] = total[up] + rows[up]
    return total
