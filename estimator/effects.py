"""Which effects decide a node's rates: a sparse 0/1 design over the trie, in groups that share one variance.

A node is (m1, ..., md). Its logit is a sum of effects of its last model m = md, of the depth, and of what was asked before:

========== ===============================================  ==========================================================
group      one effect per                                   meaning
========== ===============================================  ==========================================================
level      stage                                            how hard a first answer or a repair is
depth      depth                                            what each further turn adds
model      model                                            how good a model is
role       stage x model                                    a good writer need not be a good mender
turn       depth x model                                    the same, per turn
previous   previous model x model                           mending this very model's answer
earlier    earlier model (any turn, once) x model           errors that two models share
legacy     earlier model (any turn, once)                   what its failure says about the request and leaves behind
self       stage at which the model itself was asked before asking again repeats a wrong answer
again      (none)                                           asking the very same model twice running
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
    "level": 4.0, "depth": 0.05, "model": 0.5, "role": 0.05, "turn": 0.02, "previous": 0.05, "earlier": 0.05, "legacy": 0.03,
    "self": 4.0, "again": 1.0,
}  # fmt: skip
"""Prior variance of each group on the logit scale, where the fit starts; it is then estimated from the rows."""


@dataclass(frozen=True, eq=False)
class Effects:
    """``design`` is CSR of shape (n + 1, effects), zero row for the root; ``group`` names each effect's group by index."""

    design: Matrix
    group: Ints
    groups: tuple[str, ...]
    slope: Matrix
    """CSR (n + 1, slopes): how strongly the latent difficulty acts: overall, per stage, per model."""
    slope_group: Ints

    @classmethod
    def of(cls, trie: Trie) -> Effects:
        """The design of every node of the trie."""
        n_models, n_stages, size = len(trie.models), len(trie.stages), len(trie)
        nodes = np.arange(1, size)
        model, stage = trie.model[1:].astype(np.int64), trie.stage[1:].astype(np.int64)
        depth = trie.depth[1:].astype(np.int64) - 1
        earlier_node, earlier_model = _earlier(trie)
        last = trie.model[earlier_node].astype(np.int64)
        was_self = earlier_model == last
        up = trie.parent[nodes]
        deep = up > 0
        up_model = trie.model[up[deep]].astype(np.int64)
        entries: list[tuple[str, Ints, Ints, int]] = [
            ("level", nodes, stage, n_stages),
            ("depth", nodes, depth, trie.max_depth),
            ("model", nodes, model, n_models),
            ("role", nodes, stage * n_models + model, n_stages * n_models),
            ("turn", nodes, depth * n_models + model, trie.max_depth * n_models),
            ("previous", nodes[deep], up_model * n_models + model[deep], n_models**2),
            ("earlier", earlier_node, earlier_model * n_models + last, n_models**2),
            ("legacy", earlier_node, earlier_model, n_models),
            ("self", earlier_node[was_self], np.zeros(int(was_self.sum()), np.int64), 1),
            ("again", nodes[deep][up_model == model[deep]], np.zeros(int((up_model == model[deep]).sum()), np.int64), 1),
        ]
        design, group = _stack(entries, size)
        slopes = [
            ("all", nodes, np.zeros(size - 1, np.int64), 1),
            ("stage", nodes, stage, n_stages),
            ("model", nodes, model, n_models),
        ]
        slope, slope_group = _stack(slopes, size)
        return cls(design, group, tuple(name for name, *_ in entries), slope, slope_group)


def _earlier(trie: Trie) -> tuple[Ints, Ints]:
    """(node, model) pairs: each model that was asked above the node, once per node. Sorted by node, then model."""
    pairs: list[Ints] = []
    nodes = np.arange(1, len(trie), dtype=np.int64)
    ancestor = trie.parent[nodes].astype(np.int64)
    while np.any(ancestor > 0):
        keep = ancestor > 0
        nodes, ancestor = nodes[keep], ancestor[keep]
        pairs.append(nodes * len(trie.models) + trie.model[ancestor])
        ancestor = trie.parent[ancestor].astype(np.int64)
    found = np.unique(np.concatenate(pairs)) if pairs else np.zeros(0, np.int64)
    return found // len(trie.models), found % len(trie.models)


def _stack(entries: list[tuple[str, Ints, Ints, int]], size: int) -> tuple[Matrix, Ints]:
    """One CSR matrix of all groups side by side, and each column's group. Columns that no node uses stay, harmless."""
    starts = np.cumsum([0, *(width for *_, width in entries)])
    rows = np.concatenate([nodes for _, nodes, _, _ in entries])
    columns = np.concatenate([column + start for (_, _, column, _), start in zip(entries, starts, strict=False)])
    matrix = sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(size, int(starts[-1])))
    group = np.repeat(np.arange(len(entries)), [width for *_, width in entries])
    return matrix, group
