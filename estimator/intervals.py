"""Standard errors of the path metrics: the delta method along every path, times a measured inflation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vinelm.annotated import AnnotatedTrie
from vinelm.estimator.amounts import Amount
from vinelm.estimator.cells import Cells
from vinelm.estimator.completion import Completed
from vinelm.estimator.logistic import Regression
from vinelm.estimator.mixture import Mixture
from vinelm.trie import FloatArray, Trie

INFLATION = 1.0
"""Measured by scripts/bench_estimator.py: what the Laplace covariance leaves out (the latent weights, the variances)."""


@dataclass(frozen=True, eq=False)
class StandardErrors:
    """Of A, C and T, shape (n + 1,)."""

    accuracy: FloatArray
    cost_usd: FloatArray
    latency_s: FloatArray


def standard_errors(
    cells: Cells, mixture: Mixture, completed: Completed, annotated: AnnotatedTrie, *, cost_usd: Amount, latency_s: Amount
) -> StandardErrors:
    """Uncertainty about *further requests of the same kind*: of the model's effects where outcomes were not seen, and of having
    drawn these requests and no others.

    With reach_j = prod (1 - s_i) and B_j = sum of reach_i b_i up to j, the derivatives of A(u) along effects x_j are
    s_j (reach_j (1 - s_j) q1_j + B_j - A(u)) for the stop rates of proper ancestors j, reach_j s_j q1_j (1 - q1_j) for
    P(right | stop), and those of a_u itself for u: every one a running sum from the root.
    """
    rates, reach, accuracy = completed.rates, annotated.reach, annotated.accuracy
    guessed = np.clip(1.0 - cells.count / np.maximum(completed.reaching, 1e-9), 0.0, 1.0)
    guessed[0] = 0.0
    stop, q1, q0 = rates.stop, rates.right_if_stop, rates.right_if_on
    ended = _down(cells.trie, reach * rates.stop_success)
    weights = (
        _Weights(
            through=guessed * stop * (reach * (1 - stop) * q1 + ended),
            discount=guessed * stop,
            own=guessed * stop * (1 - stop) * reach * (q1 - q0),
        ),
        _Weights(through=guessed * reach * stop * q1 * (1 - q1), own=guessed * reach * stop * q1 * (1 - q1)),
        _Weights(own=guessed * reach * (1 - stop) * q0 * (1 - q0)),
    )
    accuracy_var = accuracy * (1.0 - accuracy) / cells.n_requests
    for regression, weight in zip(mixture.regressions, weights, strict=True):
        if regression is not None:
            accuracy_var = accuracy_var + _variance(cells.trie, regression, completed, weight, accuracy)
    spent = annotated.path_cost_usd
    cost_var = _down(cells.trie, reach**2 * cost_usd.mean_var)
    if mixture.regressions[0] is not None:
        weight = _Weights(through=guessed * stop * spent, discount=guessed * stop)
        cost_var = cost_var + _variance(cells.trie, mixture.regressions[0], completed, weight, spent)
    latency_var = _down(cells.trie, latency_s.mean_var)
    return StandardErrors(INFLATION * np.sqrt(accuracy_var), np.sqrt(cost_var), np.sqrt(latency_var))


@dataclass(frozen=True, eq=False)
class _Weights:
    """Per node: the factor of its design row in the metric of each proper descendant (``through``), the part of it that is
    multiplied by the descendant's own metric and subtracted (``discount``), and the factor in its own metric (``own``).
    """

    through: FloatArray | None = None
    discount: FloatArray | None = None
    own: FloatArray | None = None


def _variance(trie: Trie, regression: Regression, completed: Completed, weights: _Weights, metric: FloatArray) -> FloatArray:
    """Rowwise v' covariance v of each node's gradient, one subtree of the root at a time to bound memory."""
    variance = np.zeros(len(trie))
    effects = regression.effects
    for child in trie.children(0):
        part = trie.subtree(child)
        steep = effects.slope[part].toarray() * completed.mean_difficulty[part, None]
        gradient = _gradient(trie, part, np.hstack([effects.design[part].toarray(), steep]), weights, metric)
        variance[part] = np.einsum("ij,ij->i", gradient @ regression.covariance, gradient)
    return variance


def _gradient(trie: Trie, part: slice, rows: FloatArray, weights: _Weights, metric: FloatArray) -> FloatArray:
    total = np.zeros_like(rows)
    if weights.own is not None:
        total += weights.own[part, None] * rows
    if weights.through is not None:
        total += _above(trie, part, weights.through[part, None] * rows)
    if weights.discount is not None:
        total -= metric[part, None] * _above(trie, part, weights.discount[part, None] * rows)
    return total


def _above(trie: Trie, part: slice, rows: FloatArray) -> FloatArray:
    """Sum of the rows of each node's proper ancestors within the subtree."""
    total = np.zeros_like(rows)
    depth = trie.depth[part]
    for d in range(int(depth[0]) + 1, int(depth.max()) + 1):
        level = np.flatnonzero(depth == d)
        up = trie.parent[part][level] - part.start
        total[level] = total[up] + rows[up]
    return total


def _down(trie: Trie, values: FloatArray) -> FloatArray:
    total = values.copy()
    for level in trie.levels[1:]:
        total[level] += total[trie.parent[level]]
    return total
