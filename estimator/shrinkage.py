"""Hierarchical shrinkage of means: depth x model towards the model, the model towards the overall mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from vinelm.trie import Trie
from vinelm.trie.arrays import FloatArray

Ints = npt.NDArray[np.int64]


def pooled_mean(
    trie: Trie, total: npt.NDArray[Any], count: npt.NDArray[Any], *, prior: float, weight: float = 1.0
) -> FloatArray:
    """Return the shrunken mean of each node's depth x model pair, shape (n + 1,), finite everywhere.

    A pair is shrunken towards its model's mean, the model's towards the overall mean and that towards ``prior``; a pair without
    observations gets its model's mean. Where the trie branches, a model stands for the model at one stage.

    Args:
        trie: the trie.
        total: sum of the values of each node, shape (n + 1,).
        count: number of values of each node, shape (n + 1,).
        prior: the mean without any observation.
        weight: pseudo-count of each level.
    """
    model, n_models = trie.kinds
    pair = trie.depth.astype(np.int64) * n_models + model
    overall = (total.sum() + weight * prior) / (count.sum() + weight)
    of_model = _shrunk_group_mean(model, n_models, total=total, count=count, towards=np.full(len(trie), overall), weight=weight)
    return _shrunk_group_mean(pair, (trie.max_depth + 1) * n_models, total=total, count=count, towards=of_model, weight=weight)


def shrunk_mean(total: npt.NDArray[Any], count: npt.NDArray[Any], towards: FloatArray, weight: float) -> FloatArray:
    """Return (total + weight * towards) / (count + weight), elementwise."""
    return np.asarray((total + weight * towards) / (count + weight), dtype=np.float64)


def _shrunk_group_mean(
    group: Ints, n_groups: int, *, total: npt.NDArray[Any], count: npt.NDArray[Any], towards: FloatArray, weight: float
) -> FloatArray:
    """Mean of each node's group, shrunken towards ``towards`` (constant within a group); shape (n + 1,)."""
    sums = np.bincount(group, total, n_groups)
    sizes = np.bincount(group, count, n_groups)
    return np.asarray((sums[group] + weight * towards) / (sizes[group] + weight), dtype=np.float64)
