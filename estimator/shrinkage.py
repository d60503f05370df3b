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
    model, n_models = kinds_of(trie)
    pair = trie.depth.astype(np.int64) * n_models + model
    overall = (total.sum() + weight * prior) / (count.sum() + weight)
    of_model = _shrunk_group_mean(model, n_models, total=total, count=count, towards=np.full(len(trie), overall), weight=weight)
    return _shrunk_group_mean(pair, (trie.max_depth + 1) * n_models, total=total, count=count, towards=of_model, weight=weight)


def kinds_of(trie: Trie) -> tuple[Ints, int]:
    """Return what kind of invocation each node is, shape (n + 1,), and the number of kinds.

    The kind is the model; where the trie branches, the stage and the model, since nodes of one depth run several stages.
    """
    model = np.maximum(trie.model, 0).astype(np.int64)
    if trie.is_linear:
        return model, len(trie.models)
    stage = np.maximum(trie.stage, 0).astype(np.int64)
    return stage * len(trie.models) + model, len(trie.stages) * len(trie.models)


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
