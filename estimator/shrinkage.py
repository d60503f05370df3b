"""Means that borrow strength: a node leans on its depth x model, that on its model, that on everything."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from vinelm.trie import FloatArray, Trie

Ints = npt.NDArray[np.int64]


def pooled_mean(
    trie: Trie, total: npt.NDArray[Any], count: npt.NDArray[Any], *, prior: float, weight: float = 1.0
) -> FloatArray:
    """Mean per depth x model, spread to the nodes of that depth and model; shape (n + 1,), finite everywhere.

    ``total`` and ``count`` are sums per node. A depth x model pair leans with ``weight`` pseudo-counts on its model's mean, a
    model on the mean of all, and that on ``prior``: a pair never seen gets its model's mean.
    """
    model = np.maximum(trie.model, 0).astype(np.int64)
    pair = trie.depth.astype(np.int64) * len(trie.models) + model
    overall = (total.sum() + weight * prior) / (count.sum() + weight)
    of_model = _lean(model, len(trie.models), total=total, count=count, towards=np.full(len(trie), overall), weight=weight)
    return _lean(pair, (trie.max_depth + 1) * len(trie.models), total=total, count=count, towards=of_model, weight=weight)


def shrunk_mean(total: npt.NDArray[Any], count: npt.NDArray[Any], towards: FloatArray, weight: float) -> FloatArray:
    """(total + weight * towards) / (count + weight), elementwise."""
    return np.asarray((total + weight * towards) / (count + weight), dtype=np.float64)


def _lean(
    group: Ints, n_groups: int, *, total: npt.NDArray[Any], count: npt.NDArray[Any], towards: FloatArray, weight: float
) -> FloatArray:
    """Group means with pseudo-counts on the (group-wise constant) ``towards``, given back per node."""
    sums = np.bincount(group, total, n_groups)
    sizes = np.bincount(group, count, n_groups)
    return np.asarray((sums[group] + weight * towards) / (sizes[group] + weight), dtype=np.float64)
