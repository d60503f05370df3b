"""Observed outcomes as they are, the rest predicted: rates of every node over *all* requests, seen there or not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vinelm.estimator.latent.em import LatentFit, OutcomeProbabilities
from vinelm.estimator.observation_table import ObservationTable
from vinelm.estimator.outcome_rates import Rates
from vinelm.trie import FloatArray

TINY = 1e-9
"""Requests' worth of the model's own rates, so that a node that nobody reaches has finite ones."""


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """How much one logit more of a question moves a node's rates s, b and a (DESIGN §4); shape (n + 1,) each.

    Means of p (1 - p) over grid points, smaller than that of the mean p, and over unseen requests only.
    """

    stop: FloatArray
    stop_success: FloatArray
    success: FloatArray


@dataclass(frozen=True, eq=False)
class PredictedRates:
    """Shape (n + 1,) each: ``rates`` of every node; ``reaching``, the expected requests that reach it, of which ``cells.count``
    were seen there; ``mean_difficulty``, the mean grid value of those; ``sensitivity`` to each question of the mixture.
    """

    rates: Rates
    reaching: FloatArray
    mean_difficulty: FloatArray
    sensitivity: tuple[Sensitivity, Sensitivity, Sensitivity]


def complete(cells: ObservationTable, mixture: LatentFit) -> PredictedRates:
    """Sends every request down every path at once.

    Because a cell is bought only after its ancestors, a request seen at a node surely reaches it: its weights over the grid
    enter whole. The others arrive as one mass per grid point, thinned by the model's stop rate at every step, so that the
    work is nodes x points whatever the number of requests.
    """
    trie, chances = cells.trie, mixture.chances
    stop, right = chances.stop, chances.right
    seen = _by_node(cells, mixture.posterior)
    seen_stop = _by_node(cells, mixture.posterior, cells.stop)
    arriving, leaving = np.zeros_like(seen), np.zeros_like(seen)
    arriving[0] = leaving[0] = mixture.posterior.sum(axis=0)
    for level in trie.levels[1:]:
        arriving[level] = leaving[trie.parent[level]]
        unseen = np.maximum(arriving[level] - seen[level], 0.0)
        leaving[level] = unseen * (1.0 - stop[level]) + seen[level] - seen_stop[level]
    unseen = np.maximum(arriving - seen, 0.0) + TINY * mixture.posterior.mean(axis=0)
    stopping = (unseen * stop + seen_stop).sum(axis=1)
    going_on = (unseen * (1.0 - stop) + seen - seen_stop).sum(axis=1)
    reaching = stopping + going_on
    seen_right = mixture.posterior[cells.request] * mixture.belief
    right_stop = (unseen * right * chances.stop_if_right).sum(axis=1) + _sums(cells, seen_right, cells.stop)
    right_on = (unseen * right * (1.0 - chances.stop_if_right)).sum(axis=1) + _sums(cells, seen_right, ~cells.stop)
    rates = Rates.of(
        trie, stopping / reaching, right_stop / np.maximum(stopping, 1e-300), right_on / np.maximum(going_on, 1e-300)
    )
    sensitivity = _sensitivity(chances, unseen / np.maximum(reaching, 1e-300)[:, None])
    return PredictedRates(rates, reaching, (unseen + seen) @ mixture.grid / reaching, sensitivity)


def _sensitivity(chances: OutcomeProbabilities, unseen: FloatArray) -> tuple[Sensitivity, Sensitivity, Sensitivity]:
    """``unseen``: share of the requests that reach each node, were not seen there, and sit at each point."""
    right, if_right, if_wrong = chances.right, chances.stop_if_right, chances.stop_if_wrong
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
    """Per node, the sum of ``values`` (cells, points) over the chosen cells and all points."""
    total = np.bincount(cells.node[which], values[which].sum(axis=1), len(cells.trie))
    return np.asarray(total, dtype=np.float64)


def _by_node(cells: ObservationTable, posterior: FloatArray, which: npt.NDArray[np.bool_] | slice = slice(None)) -> FloatArray:
    """Sum of the requests' weights over the chosen cells of each node, shape (n + 1, points)."""
    total = np.zeros((len(cells.trie), posterior.shape[1]))
    nodes = cells.node[which]
    if len(nodes):
        rows, starts = np.unique(nodes, return_index=True)  # cells are sorted by node
        total[rows] = np.add.reduceat(posterior[cells.request[which]], starts, axis=0)
    return total
