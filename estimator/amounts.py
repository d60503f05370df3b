"""Dollars and seconds of one invocation per node: means and variances, shrunk towards depth x model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from vinelm.estimator.cells import Cells
from vinelm.estimator.pooling import pooled_mean, shrunk_mean

from vinelm.trie import FloatArray

NODE_WEIGHT = 8.0
"""Pseudo-observations of the depth x model mean in a node's mean: cost and latency are mostly the model's and the depth's."""


@dataclass(frozen=True, eq=False)
class Amount:
    """Mean and variance of one invocation per node, shape (n + 1,); 0 at the root, where no observation lies."""

    mean: FloatArray
    var: FloatArray


def estimate_amount(cells: Cells, values: FloatArray) -> Amount:
    """Moments of ``values`` (one per cell). Failed calls count with what they cost until then."""
    trie, size = cells.trie, len(cells.trie)
    count = cells.count.astype(np.float64)
    total = np.bincount(cells.node, values, size)
    overall = float(values.mean())
    mean = shrunk_mean(total, count, pooled_mean(trie, total, count, prior=overall), NODE_WEIGHT)
    squares = np.bincount(cells.node, (values - mean[cells.node]) ** 2, size)
    var = shrunk_mean(squares, count, pooled_mean(trie, squares, count, prior=float(values.var())), NODE_WEIGHT)
    mean[0] = var[0] = 0.0
    return Amount(mean, var)
