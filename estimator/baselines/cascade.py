"""The paper's estimators: cascade decomposition (§4.2, A.3) and the rank-1 step on the deepest block (A.4)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from vinelm.estimator.base import RateEstimator
from vinelm.estimator.observation_table import ObservationTable
from vinelm.estimator.outcome_rates import Head, Rates, outcome_questions
from vinelm.estimator.shrinkage import pooled_mean
from vinelm.trie import FloatArray, Trie


class CascadeEstimator(RateEstimator):
    """VineLM-Lite: each node's conditional rate is the raw mean of its own observations.

    Under the oracle stop the path sums are the paper's recursion A(v) = A(u) + (1 - A(u)) q_v; under the workflow's stop each
    of the three rates is such a raw mean. The paper leaves open what a node without observations gets: here the mean of its
    model at its depth, and where that was never seen either, the model's over all depths.
    """

    name: ClassVar[str] = "cascade"

    def _rates(self, cells: ObservationTable) -> Rates:
        return Rates.of(cells.trie, *(self._rate(head, cells) for head in outcome_questions(cells)))

    def _rate(self, head: Head, cells: ObservationTable) -> FloatArray:
        yes, asked = head.counts(cells)
        fallback = pooled_mean(cells.trie, yes, asked, prior=1.0 if head.name == "right_if_stop" else 0.0, weight=1e-6)
        return np.where(asked > 0, yes / np.maximum(asked, 1.0), fallback)


class CascadeSvdEstimator(CascadeEstimator):
    """VineLM: the cascade decomposition with the deepest block of conditional rates projected onto rank 1 (eq. 10).

    Rows are the prefixes one short of the full depth, columns the last models; an entry without observations starts from the
    plain mean of its column's observed entries. One projection, clipped to [0, 1].
    """

    name: ClassVar[str] = "cascade-svd"

    def _rate(self, head: Head, cells: ObservationTable) -> FloatArray:
        rate = super()._rate(head, cells)
        _, asked = head.counts(cells)
        return project_deepest(cells.trie, rate, asked > 0)


def project_deepest(trie: Trie, rate: FloatArray, is_observed: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> FloatArray:
    """``rate`` with the nodes of the last depth replaced by the rank-1 projection of their prefix x model block.

    An irregular trie leaves holes in the block; they are filled like unobserved entries and dropped again.
    """
    deepest = trie.levels[-1]
    rows, row = np.unique(trie.parent[deepest], return_inverse=True)
    columns, column = np.unique(trie.model[deepest], return_inverse=True)
    block = np.full((len(rows), len(columns)), np.nan)
    seen = is_observed[deepest]
    block[row[seen], column[seen]] = rate[deepest][seen]
    fallback = np.zeros(len(columns))
    fallback[column] = rate[deepest]  # a column without any entry: the model's mean, as in the plain cascade
    n_seen = (~np.isnan(block)).sum(axis=0)
    means = np.where(n_seen > 0, np.nansum(block, axis=0) / np.maximum(n_seen, 1), fallback)
    left, strength, right = np.linalg.svd(np.where(np.isnan(block), means, block), full_matrices=False)
    projected = strength[0] * np.outer(left[:, 0], right[0])
    smooth = rate.copy()
    smooth[deepest] = np.clip(projected[row, column], 0.0, 1.0)
    return smooth
