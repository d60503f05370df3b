"""Observed outcomes as they are, the rest predicted: rates of every node over *all* requests, seen there or not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vinelm.estimator.cells import Cells
from vinelm.estimator.heads import Rates
from vinelm.estimator.mixture import Mixture
from vinelm.trie import FloatArray

TINY = 1e-9
"""Requests' worth of the model's own rates, so that a node that nobody reaches has finite ones."""


@dataclass(frozen=True, eq=False)
class Completed:
    """Shape (n + 1,) each: ``rates`` of every node; ``reaching``, the expected requests that reach it, of which ``cells.count``
    were seen there; ``mean_difficulty``, the mean grid value of those; ``sensitivity`` of each head's rate to its logit.

    A sensitivity is the mean of p (1 - p) over grid points, smaller than that of the mean p, and counts unseen requests only.
    """

    rates: Rates
    reaching: FloatArray
    mean_difficulty: FloatArray
    sensitivity: tuple[FloatArray, FloatArray, FloatArray]


def complete(cells: Cells, mixture: Mixture) -> Completed:
    """Sends every request down every path at once.

    Because a cell is bought only after its ancestors, a request seen at a node surely reaches it: its weights over the grid
    enter whole. The others arrive as one mass per grid point, thinned by the model's stop rate at every step, so that the
    work is nodes x points whatever the number of requests.
    """
    trie = cells.trie
    stop, right_if_stop, right_if_on = mixture.chances
    seen = _by_node(cells, mixture.posterior, np.ones(len(cells), np.bool_))
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
    right_stop = _right(cells, mixture.posterior, unseen * stop, right_if_stop, cells.stop)
    right_on = _right(cells, mixture.posterior, unseen * (1.0 - stop), right_if_on, ~cells.stop)
    rates = Rates.of(
        trie, stopping / reaching, right_stop / np.maximum(stopping, 1e-300), right_on / np.maximum(going_on, 1e-300)
    )
    sensitivity = (
        _mean_slope(unseen, stop, reaching),
        _mean_slope(unseen * stop, right_if_stop, stopping),
        _mean_slope(unseen * (1.0 - stop), right_if_on, going_on),
    )
    return Completed(rates, reaching, (unseen + seen) @ mixture.grid / reaching, sensitivity)


def _mean_slope(unseen: FloatArray, chance: FloatArray, everyone: FloatArray) -> FloatArray:
    return np.asarray((unseen * chance * (1.0 - chance)).sum(axis=1) / np.maximum(everyone, 1e-300))


def _right(
    cells: Cells, posterior: FloatArray, unseen: FloatArray, chance: FloatArray, which: npt.NDArray[np.bool_]
) -> FloatArray:
    """Expected right answers per node among the ``unseen`` mass and the seen cells ``which``, unlabelled ones predicted."""
    unlabelled = _by_node(cells, posterior, which & ~cells.labelled)
    seen = _by_node(cells, posterior, which & cells.labelled & cells.right)
    return np.asarray(((unseen + unlabelled) * chance + seen).sum(axis=1))


def _by_node(cells: Cells, posterior: FloatArray, which: npt.NDArray[np.bool_]) -> FloatArray:
    """Sum of the requests' weights over the chosen cells of each node, shape (n + 1, points)."""
    total = np.zeros((len(cells.trie), posterior.shape[1]))
    nodes = cells.node[which]
    if len(nodes):
        rows, starts = np.unique(nodes, return_index=True)  # cells are sorted by node
        total[rows] = np.add.reduceat(posterior[cells.request[which]], starts, axis=0)
    return total
