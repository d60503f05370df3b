"""The paper's estimators: cascade decomposition (VineLM paper §4.2, A.3) and rank-1 projection of the deepest block (A.4)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from vinelm.estimator.base import RateEstimator
from vinelm.estimator.observation_table import ObservationTable
from vinelm.estimator.outcome_rates import Rates, outcome_counts
from vinelm.estimator.shrinkage import pooled_mean
from vinelm.trie import Trie
from vinelm.trie.arrays import FloatArray


class CascadeEstimator(RateEstimator):
    """The paper's VineLM-Lite: estimates each probability of a node (see :class:`Rates`) by the mean of its observations.

    Under the oracle stop, accuracies of paths follow the paper's recursion A(v) = A(u) + (1 - A(u)) q_v. Here, node u comes
    right before node v, and q_v is P(right | v is reached). Under the workflow's stop, each of the three probabilities is such
    a mean. The paper defines no estimate for a node without observations. Here, it is the mean of the node's model at its
    depth or, without observations there, over all depths. If the trie branches, shares of branches are shrunk counts
    (:func:`vinelm.estimator.arm_counts.counted_arms`).
    """

    name: ClassVar[str] = "cascade"

    def _rates(self, cells: ObservationTable) -> Rates:
        counts = zip(outcome_counts(cells), (0.0, 1.0, 0.0), strict=True)  # without any row, whatever stops is assumed right
        return Rates.of(cells.trie, *(self._rate(cells.trie, yes, asked, prior) for (yes, asked), prior in counts))

    def _rate(self, trie: Trie, yes: FloatArray, asked: FloatArray, prior: float) -> FloatArray:
        fallback = pooled_mean(trie, yes, asked, prior=prior, weight=1e-6)
        return np.where(asked > 0, yes / np.maximum(asked, 1.0), fallback)


class CascadeSvdEstimator(CascadeEstimator):
    """VineLM: cascade decomposition with the deepest block of conditional rates projected onto rank 1 (VineLM paper, eq. 10).

    The block's rows are the prefixes that are one call shorter than the full depth. Its columns are the last models or, if the
    trie branches, the last stages and models. An entry without observations starts from the mean of its column's observed
    entries. The block is projected once and clipped to [0, 1].
    """

    name: ClassVar[str] = "cascade-svd"

    def _rate(self, trie: Trie, yes: FloatArray, asked: FloatArray, prior: float) -> FloatArray:
        return project_deepest(trie, super()._rate(trie, yes, asked, prior), asked > 0)


def project_deepest(trie: Trie, rate: FloatArray, is_observed: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> FloatArray:
    """Replace the rates of the last depth by a rank-1 approximation of the table of these rates.

    The table (block) has a row for each prefix before the last call and a column for each last model. An entry without
    observations, or without a node in the trie, starts from the mean of its column.

    Args:
        trie: the trie.
        rate: conditional rate of each node, shape (nodes,).
        is_observed: whether the node has observations, shape (nodes,).

    Returns:
        A copy of ``rate``, with the values of the last depth replaced and clipped to [0, 1].
    """
    deepest = trie.levels[-1]
    rows, row = np.unique(trie.parent[deepest], return_inverse=True)
    columns, column = np.unique(trie.kinds[0][deepest], return_inverse=True)
    block = np.full((len(rows), len(columns)), np.nan)
    seen = is_observed[deepest]
    block[row[seen], column[seen]] = rate[deepest][seen]
    fallback = np.zeros(len(columns))
    fallback[column] = rate[deepest]  # a column without entries uses the model's mean, as in the plain cascade
    n_seen = (~np.isnan(block)).sum(axis=0)
    means = np.where(n_seen > 0, np.nansum(block, axis=0) / np.maximum(n_seen, 1), fallback)
    left, strength, right = np.linalg.svd(np.where(np.isnan(block), means, block), full_matrices=False)
    projected = strength[0] * np.outer(left[:, 0], right[0])
    smooth = rate.copy()
    smooth[deepest] = np.clip(projected[row, column], 0.0, 1.0)
    return smooth
