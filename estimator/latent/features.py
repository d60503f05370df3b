"""The features of the latent model: a sparse design matrix over the trie's nodes, in groups that share one prior variance.

A node is a prefix (m1, ..., md). Its logit is a sum of effects of its last model m = md, its depth and the models before:

========== ===============================================  ==========================================================
group      one effect per                                   meaning
========== ===============================================  ==========================================================
level      stage                                            difficulty of a first answer or a repair
depth      depth                                            change with each further invocation
model      model                                            accuracy of the model
role       stage x model                                    accuracy of the model at this stage
turn       depth x model                                    accuracy of the model at this depth
previous   previous model x model                           repairing this model's answer
earlier    earlier model (any depth, once) x model          errors that two models share
further    earlier model x model                            each further call of the earlier model
legacy     earlier model (any depth, once)                  effect of the earlier model's failure on any later model
self       (none)                                           the model was called before: it may repeat its answer
again      (none)                                           the model was called just before
========== ===============================================  ==========================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from vinelm.trie import Trie

Ints = npt.NDArray[np.int64]
Matrix = Any  # scipy.sparse has no stubs

START_VARIANCE = {
    "level": 4.0, "depth": 0.05, "model": 0.5, "role": 0.03, "turn": 0.01, "previous": 0.05, "earlier": 0.03,
    "further": 0.01, "legacy": 0.01, "self": 4.0, "again": 1.0,
}  # fmt: skip
"""Initial prior variance of each group on the logit scale; then estimated from the observations."""


@dataclass(frozen=True, eq=False)
class FeatureMatrix:
    """Features of every node of a trie.

    Args:
        design: CSR matrix of shape (n + 1, effects); the root's row is zero.
        group: index into ``groups`` of each effect, shape (effects,).
        groups: names of the groups.
        slope: CSR matrix of shape (n + 1, slopes): overall, per-stage and per-model slopes of the latent difficulty.
        slope_group: index of each slope's group, shape (slopes,).
    """

    design: Matrix
    group: Ints
    groups: tuple[str, ...]
    slope: Matrix
    slope_group: Ints

    @classmethod
    def of(cls, trie: Trie) -> FeatureMatrix:
        """Build the features of every node of ``trie``."""
        n_models, n_stages, size = len(trie.models), len(trie.stages), len(trie)
        nodes = np.arange(1, size)
        model, stage = trie.model[1:].astype(np.int64), trie.stage[1:].astype(np.int64)
        depth = trie.depth[1:].astype(np.int64) - 1
        above, above_model, times = _earlier(trie)
        pair = above_model * n_models + trie.model[above]
        is_self, is_repeated = above_model == trie.model[above], times > 1
        deep = nodes[trie.parent[nodes] > 0]
        before, now = trie.model[trie.parent[deep]].astype(np.int64), trie.model[deep].astype(np.int64)
        parts = [
            _Part("level", nodes, stage, n_stages),
            _Part("depth", nodes, depth, trie.max_depth),
            _Part("model", nodes, model, n_models),
            _Part("role", nodes, stage * n_models + model, n_stages * n_models),
            _Part("turn", nodes, depth * n_models + model, trie.max_depth * n_models),
            _Part("previous", deep, before * n_models + now, n_models**2),
            _Part("earlier", above, pair, n_models**2),
            _Part("further", above[is_repeated], pair[is_repeated], n_models**2, times[is_repeated] - 1.0),
            _Part("legacy", above, above_model, n_models),
            _Part("self", above[is_self], 0 * above[is_self], 1),
            _Part("again", deep[before == now], 0 * deep[before == now], 1),
        ]
        design, group = _stack(parts, size)
        slopes = [
            _Part("all", nodes, 0 * nodes, 1),
            _Part("stage", nodes, stage, n_stages),
            _Part("model", nodes, model, n_models),
        ]
        slope, slope_group = _stack(slopes, size)
        return cls(design, group, tuple(part.name for part in parts), slope, slope_group)


@dataclass(frozen=True, eq=False)
class _Part:
    """One group of columns: entries at (node, column) with the value ``times``, or 1 if that is None."""

    name: str
    nodes: Ints
    column: Ints
    width: int
    times: npt.NDArray[Any] | None = None


def _earlier(trie: Trie) -> tuple[Ints, Ints, Ints]:
    """(node, model, times): the models called before each node and how often, sorted by node, then model."""
    pairs: list[Ints] = []
    nodes = np.arange(1, len(trie), dtype=np.int64)
    ancestor = trie.parent[nodes].astype(np.int64)
    while np.any(ancestor > 0):
        keep = ancestor > 0
        nodes, ancestor = nodes[keep], ancestor[keep]
        pairs.append(nodes * len(trie.models) + trie.model[ancestor])
        ancestor = trie.parent[ancestor].astype(np.int64)
    found, times = np.unique(np.concatenate(pairs) if pairs else np.zeros(0, np.int64), return_counts=True)
    return found // len(trie.models), found % len(trie.models), times


def _stack(parts: list[_Part], size: int) -> tuple[Matrix, Ints]:
    """One CSR matrix of all groups side by side, and each column's group. Columns that no node uses remain, all zero."""
    starts = np.cumsum([0, *(part.width for part in parts)])
    rows = np.concatenate([part.nodes for part in parts])
    columns = np.concatenate([part.column + start for part, start in zip(parts, starts, strict=False)])
    values = np.concatenate([np.ones(len(part.nodes)) if part.times is None else part.times for part in parts])
    matrix = sparse.csr_array((values, (rows, columns)), shape=(size, int(starts[-1])))
    return matrix, np.repeat(np.arange(len(parts)), [part.width for part in parts])
