"""Predict unobserved outcomes: rates of every node over *all* requests, using observed outcomes as they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vinelm.estimator.latent.em import LatentFit, OutcomeProbabilities
from vinelm.estimator.observation_table import ObservationTable
from vinelm.estimator.outcome_rates import Rates
from vinelm.trie.arrays import FloatArray

TINY = 1e-9
"""Pseudo-requests with the predicted rates, so that nodes that no request reaches have finite rates."""


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """Derivatives of a node's rates s, b and a by the logit of one question; shape (n + 1,) each.

    The rates are those of docs/mathematics.md. Derivatives are means of p (1 - p) over the grid points of
    unobserved requests only.
    """

    stop: FloatArray
    stop_success: FloatArray
    success: FloatArray


@dataclass(frozen=True, eq=False)
class PredictedRates:
    """Predicted rates of every node; arrays have shape (n + 1,).

    Args:
        rates: the rates over observed and predicted requests.
        reaching: expected number of requests that reach the node; ``cells.count`` of them were observed there.
        unseen: expected number of the others, by grid point, shape (n + 1, points).
        mean_difficulty: mean grid value of those requests.
        sensitivity: of the rates to each question of the latent model.
    """

    rates: Rates
    reaching: FloatArray
    unseen: FloatArray
    mean_difficulty: FloatArray
    sensitivity: tuple[Sensitivity, Sensitivity, Sensitivity]


def predict_rates(cells: ObservationTable, fit: LatentFit) -> PredictedRates:
    """Propagate every request down every path.

    A cell is executed only after its ancestors, so a request observed at a node certainly reaches it and counts with its full
    posterior. The others arrive as one mass per grid point, reduced by the predicted stop rate at every step: the work is
    nodes x points, independent of the number of requests.
    """
    trie, probabilities = cells.trie, fit.probabilities
    stop = probabilities.stop
    seen = by_node(cells, fit.posterior)
    seen_stop = by_node(cells, fit.posterior, cells.stop)
    arriving, leaving = np.zeros_like(seen), np.zeros_like(seen)
    arriving[0] = leaving[0] = fit.posterior.sum(axis=0)
    for level in trie.levels[1:]:
        arriving[level] = leaving[trie.parent[level]]
        unseen = np.maximum(arriving[level] - seen[level], 0.0)
        leaving[level] = unseen * (1.0 - stop[level]) + seen[level] - seen_stop[level]
    unseen = np.maximum(arriving - seen, 0.0) + TINY * fit.posterior.mean(axis=0)
    return rates_of(cells, fit, unseen=unseen, seen=seen, seen_stop=seen_stop)


def rates_of(
    cells: ObservationTable, fit: LatentFit, *, unseen: FloatArray, seen: FloatArray, seen_stop: FloatArray
) -> PredictedRates:
    """Return the rates over requests observed at each node, stopped there, and expected unobserved: (n + 1, points) each."""
    probabilities = fit.probabilities
    stop, right = probabilities.stop, probabilities.right
    stopping = (unseen * stop + seen_stop).sum(axis=1)
    going_on = (unseen * (1.0 - stop) + seen - seen_stop).sum(axis=1)
    reaching = stopping + going_on
    seen_right = fit.posterior[cells.request] * fit.belief
    right_stop = (unseen * right * probabilities.stop_if_right).sum(axis=1) + _sums(cells, seen_right, cells.stop)
    right_on = (unseen * right * (1.0 - probabilities.stop_if_right)).sum(axis=1) + _sums(cells, seen_right, ~cells.stop)
    rates = Rates.of(
        cells.trie, stopping / reaching, right_stop / np.maximum(stopping, 1e-300), right_on / np.maximum(going_on, 1e-300)
    )
    moves = sensitivity(probabilities, unseen / np.maximum(reaching, 1e-300)[:, None])
    return PredictedRates(rates, reaching, unseen, (unseen + seen) @ fit.grid / reaching, moves)


def sensitivity(probabilities: OutcomeProbabilities, unseen: FloatArray) -> tuple[Sensitivity, Sensitivity, Sensitivity]:
    """Return the sensitivity to each question; ``unseen``: share of the requests that reach a node unobserved, by point."""
    right, if_right, if_wrong = probabilities.right, probabilities.stop_if_right, probabilities.stop_if_wrong
    moved = unseen * right * (1.0 - right)
    accepted = (unseen * right * if_right * (1.0 - if_right)).sum(axis=1)
    given_up = (unseen * (1.0 - right) * if_wrong * (1.0 - if_wrong)).sum(axis=1)
    nothing = np.zeros(len(right))
    return (
        Sensitivity((moved * (if_right - if_wrong)).sum(axis=1), (moved * if_right).sum(axis=1), moved.sum(axis=1)),
        Sensitivity(accepted, accepted, nothing),
        Sensitivity(given_up, nothing, nothing),
    )


def _sums(cells: ObservationTable, values: FloatArray, which: npt.NDArray[np.bool_]) -> FloatArray:
    """Sum of ``values`` (cells, points) over the chosen cells and all points, per node."""
    total = np.bincount(cells.node[which], values[which].sum(axis=1), len(cells.trie))
    return np.asarray(total, dtype=np.float64)


def by_node(cells: ObservationTable, posterior: FloatArray, which: npt.NDArray[np.bool_] | slice = slice(None)) -> FloatArray:
    """Return the sum of the requests' posteriors over the chosen cells of each node, shape (n + 1, points)."""
    total = np.zeros((len(cells.trie), posterior.shape[1]))
    nodes = cells.node[which]
    if len(nodes):
        rows, starts = np.unique(nodes, return_index=True)  # cells are sorted by node
        total[rows] = np.add.reduceat(posterior[cells.request[which]], starts, axis=0)
    return total
