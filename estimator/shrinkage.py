"""Hierarchical shrinkage of means: depth x model towards the model, the model towards the overall mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from vinelm.template.kinds import StageKinds
from vinelm.trie import Trie
from vinelm.trie.arrays import FloatArray

Ints = npt.NDArray[np.int64]

KIND_ROWS = 4.0
"""Pseudo-observations that shrink the amounts of one kind of request towards those of all kinds."""


def pooled_mean(
    trie: Trie,
    total: npt.NDArray[Any],
    count: npt.NDArray[Any],
    *,
    prior: float,
    weight: float = 1.0,
    kinds: StageKinds | None = None,
) -> FloatArray:
    """Return the shrunk mean of each node's depth x model pair, shape (n + 1,), finite everywhere.

    A pair is shrunk towards its model's mean, the model's mean towards the overall mean and that towards ``prior``; a pair
    without observations gets its model's mean. Where the trie branches, "model" means the model at one stage.

    Args:
        trie: the trie.
        total: sum of the values of each node, shape (n + 1,).
        count: number of values of each node, shape (n + 1,).
        prior: the mean without any observation.
        weight: pseudo-count of each level.
        kinds: the kinds of request that the trie's stages stand for. A model at a kind's stage is then shrunk towards the model
            at this stage for all kinds, times the factor of the kind, with the weight of :data:`KIND_ROWS` rows.
    """
    model, n_models = trie.kinds
    pair = trie.depth.astype(np.int64) * n_models + model
    overall = (total.sum() + weight * prior) / (count.sum() + weight)
    towards, strength = np.full(len(trie), overall), weight
    if kinds is not None:
        towards = _over_kinds(trie, kinds, (total, count), towards, weight)
        strength = KIND_ROWS * _per_row(count)
    of_model = _shrunk_group_mean(model, n_models, total=total, count=count, towards=towards, weight=strength)
    return _shrunk_group_mean(pair, (trie.max_depth + 1) * n_models, total=total, count=count, towards=of_model, weight=weight)


def shrunk_mean(total: npt.NDArray[Any], count: npt.NDArray[Any], towards: FloatArray, weight: float) -> FloatArray:
    """Return (total + weight * towards) / (count + weight), elementwise."""
    return np.asarray((total + weight * towards) / (count + weight), dtype=np.float64)


def _shrunk_group_mean(
    group: Ints, n_groups: int, *, total: npt.NDArray[Any], count: npt.NDArray[Any], towards: FloatArray, weight: float
) -> FloatArray:
    """Return the mean of each node's group, shrunk towards ``towards`` (constant within a group); shape (n + 1,)."""
    sums = np.bincount(group, total, n_groups)
    sizes = np.bincount(group, count, n_groups)
    return np.asarray((sums[group] + weight * towards) / (sizes[group] + weight), dtype=np.float64)


def _per_row(count: npt.NDArray[Any]) -> float:
    """Return the weight of one row in ``count``, near 1."""
    used = count[count > 0]
    return float(min(used.mean(), 1.0)) if len(used) else 1.0


def _over_kinds(
    trie: Trie, kinds: StageKinds, amounts: tuple[npt.NDArray[Any], npt.NDArray[Any]], towards: FloatArray, weight: float
) -> FloatArray:
    """Return the mean of each node's model at its stage over all kinds, times the factor of its kind; shape (n + 1,)."""
    total, count = amounts
    at = np.maximum(trie.stage, 0)
    group = kinds.stage[at] * len(trie.models) + np.maximum(trie.model, 0)
    n_groups = (int(kinds.stage.max()) + 1) * len(trie.models)
    of_all = _shrunk_group_mean(group, n_groups, total=total, count=count, towards=towards, weight=weight)
    kind, n_kinds = kinds.kind[at], int(kinds.kind.max()) + 1
    expected = np.maximum(np.bincount(kind, count * of_all, n_kinds), 1e-300)
    row = float(of_all.mean()) * KIND_ROWS
    factor = (np.bincount(kind, total, n_kinds) + row) / (expected + row) if row > 0.0 else np.ones(n_kinds)
    return np.asarray(of_all * factor[kind], dtype=np.float64)
