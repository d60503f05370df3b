"""Hierarchical shrinkage: depth x model means towards the model's mean, and model means towards the overall mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from vinelm.trie import Trie
from vinelm.trie.arrays import FloatArray

Ints = npt.NDArray[np.int64]

Amounts = tuple[npt.NDArray[Any], npt.NDArray[Any]]
"""The sum of the values of each node, and their number; shape (n + 1,) each."""
Prior = Callable[[Trie, Amounts, FloatArray, float], tuple[FloatArray, float]]
"""Returns what a model's mean is shrunk towards, shape (n + 1,), and the weight of this value. The arguments are the trie, the
amounts, the overall mean, shape (n + 1,), and the number of pseudo-observations at each level of shrinkage."""


def of_all(trie: Trie, amounts: Amounts, overall: FloatArray, weight: float) -> tuple[FloatArray, float]:
    """Return ``overall`` and ``weight`` unchanged, so that a model's mean is shrunk towards the overall mean.

    The default of the argument ``prior_of`` of :func:`pooled_mean`.
    """
    return overall, weight


def pooled_mean(
    trie: Trie,
    total: npt.NDArray[Any],
    count: npt.NDArray[Any],
    *,
    prior: float,
    weight: float = 1.0,
    prior_of: Prior = of_all,
) -> FloatArray:
    """Return the shrunk mean of each node's depth x model pair, shape (nodes,); always finite.

    A pair is shrunk towards its model's mean, the model's mean towards the overall mean, and the overall mean towards
    ``prior``. A pair without observations gets its model's mean. If the trie branches, "model" means the model at one stage.

    Args:
        trie: the trie.
        total: sum of the values of each node, shape (nodes,).
        count: number of values of each node, shape (nodes,).
        prior: the mean to assume if there are no observations.
        weight: number of pseudo-observations at each level of shrinkage.
        prior_of: returns the value towards which a model's mean is shrunk, and the weight of this value.
    """
    model, n_models = trie.kinds
    pair = trie.depth.astype(np.int64) * n_models + model
    overall = (total.sum() + weight * prior) / (count.sum() + weight)
    towards, strength = prior_of(trie, (total, count), np.full(len(trie), overall), weight)
    of_model = shrunk_group_mean(model, n_models, total=total, count=count, towards=towards, weight=strength)
    return shrunk_group_mean(pair, (trie.max_depth + 1) * n_models, total=total, count=count, towards=of_model, weight=weight)


def shrunk_mean(total: npt.NDArray[Any], count: npt.NDArray[Any], towards: FloatArray, weight: float) -> FloatArray:
    """Return (total + weight * towards) / (count + weight), elementwise."""
    return np.asarray((total + weight * towards) / (count + weight), dtype=np.float64)


def shrunk_group_mean(
    group: Ints, n_groups: int, *, total: npt.NDArray[Any], count: npt.NDArray[Any], towards: FloatArray, weight: float
) -> FloatArray:
    """Return for each node the mean of its group, shrunk towards ``towards``, which counts as ``weight`` observations.

    All arrays have one value for each node, shape (nodes,); ``towards`` is constant within a group.
    """
    sums = np.bincount(group, total, n_groups)
    sizes = np.bincount(group, count, n_groups)
    return np.asarray((sums[group] + weight * towards) / (sizes[group] + weight), dtype=np.float64)
