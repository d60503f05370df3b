"""The features of the latent model: a sparse design matrix over the trie's nodes, in groups that share one prior variance.

A node is a prefix (m1, ..., md). Its logit is a sum of effects of its last model m = md, its depth and the models before:

========== ===============================================  ==========================================================
group      one effect per                                   meaning
========== ===============================================  ==========================================================
level      stage                                            difficulty of a first answer or a repair
depth      depth                                            change with each further call
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

On a trie that branches, effects of the branches (arms) that led to the node are added, because an answer on the wrong
branch is mostly wrong:

========== ===============================================  ==========================================================
arrival    stage before x model before x stage              what this stage was handed
decided    decision x arm x stage                           the arm that was taken at each earlier decision
decider    decision x its model x arm x stage               whether the model that decided took the right one
========== ===============================================  ==========================================================

If request types (kinds) are distinguished, the stages above are the application's stages, and these groups are added:

========== ===============================================  ==========================================================
group      one effect per                                   meaning
========== ===============================================  ==========================================================
kind       kind                                             difficulty of the kind
suited     kind x model                                     the model is better or worse at requests of this kind
========== ===============================================  ==========================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from vinelm.estimator.arms import arms_of
from vinelm.estimator.stage_kinds import ONE_KIND, OneKind
from vinelm.trie import Trie
from vinelm.trie.arrays import FloatArray

Ints = npt.NDArray[np.int64]
Matrix = Any  # scipy.sparse has no stubs

START_VARIANCE = {
    "level": 4.0, "depth": 0.05, "model": 0.5, "role": 0.03, "turn": 0.01, "previous": 0.05, "earlier": 0.03,
    "further": 0.01, "legacy": 0.01, "self": 4.0, "again": 1.0,
    "arrival": 0.1, "decided": 0.25, "decider": 0.25,
    "kind": 1.0, "suited": 0.16,
    "choice": 0.5, "before": 0.1, "history": 0.05, "outcome": 1.0, "verdict": 0.1,
}  # fmt: skip
"""The initial prior variance of each group on the logit scale, which is then estimated from the observations."""


@dataclass(frozen=True, eq=False)
class FeatureMatrix:
    """The features of every row of a regression, such as the nodes of a trie.

    Args:
        design: CSR matrix of the features that change the probability at every difficulty, shape (rows, effects); the root's
            row is zero.
        group: the group of each effect, as an index into ``groups``; shape (effects,).
        groups: the names of the groups; the effects of a group share one prior variance.
        slope: CSR matrix of the features that change the influence of the latent difficulty, shape (rows, slopes): an overall
            slope, and slopes per stage and model.
        slope_group: the group of each slope, as a number from 0; shape (slopes,).
    """

    design: Matrix
    group: Ints
    groups: tuple[str, ...]
    slope: Matrix
    slope_group: Ints

    @classmethod
    def of(cls, trie: Trie, kinds: OneKind = ONE_KIND) -> FeatureMatrix:
        """Return the features of every node of ``trie``.

        ``kinds`` gives the application's stage and the request type that each stage of the trie stands for.
        """
        n_models, n_stages, size = len(trie.models), len(trie.stages), len(trie)
        nodes = np.arange(1, size)
        model, stage = trie.model[1:].astype(np.int64), trie.stage[1:].astype(np.int64)
        stage, of_kinds = kinds.labelled(stage, model)
        depth = trie.depth[1:].astype(np.int64) - 1
        above, above_model, times = certain_before(trie, trie.model.astype(np.int64), n_models)
        pair = above_model * n_models + trie.model[above]
        is_self, is_repeated = above_model == trie.model[above], times > 1
        previous = just_before(trie, trie.model.astype(np.int64))
        deep = np.flatnonzero(previous >= 0)
        before, now = previous[deep], trie.model[deep].astype(np.int64)
        parts = [
            Part("level", nodes, stage, n_stages),
            Part("depth", nodes, depth, trie.max_depth),
            Part("model", nodes, model, n_models),
            Part("role", nodes, stage * n_models + model, n_stages * n_models),
            Part("turn", nodes, depth * n_models + model, trie.max_depth * n_models),
            Part("previous", deep, before * n_models + now, n_models**2),
            Part("earlier", above, pair, n_models**2),
            Part("further", above[is_repeated], pair[is_repeated], n_models**2, times[is_repeated] - 1.0),
            Part("legacy", above, above_model, n_models),
            Part("self", above[is_self], 0 * above[is_self], 1),
            Part("again", deep[before == now], 0 * deep[before == now], 1),
        ]
        if arms_of(trie).is_choice.any():
            parts += _arm_parts(trie)
        parts += [coded(name, nodes, *labels) for name, labels in of_kinds]
        design, group = stack(parts, size)
        slopes = [
            Part("all", nodes, 0 * nodes, 1),
            Part("stage", nodes, stage, n_stages),
            Part("model", nodes, model, n_models),
        ]
        slope, slope_group = stack(slopes, size)
        return cls(design, group, tuple(part.name for part in parts), slope, slope_group)

    @cached_property
    def dense(self) -> tuple[FloatArray, FloatArray]:
        """``design`` and ``slope`` as dense arrays, shape (rows, effects) and (rows, slopes)."""
        return self.design.toarray(), self.slope.toarray()


@dataclass(frozen=True, eq=False)
class Part:
    """A group of columns of a sparse matrix, the features of one kind: one column for each effect in the regression.

    Attributes:
        name: the name of the group.
        nodes: the row of each entry that is not 0.
        column: the column of each of these entries, counted from 0 within the group; same shape.
        width: the number of columns.
        times: the value of each entry, same shape; None if all are 1.
    """

    name: str
    nodes: Ints
    column: Ints
    width: int
    times: npt.NDArray[Any] | None = None


def _arm_parts(trie: Trie) -> list[Part]:
    """Return the features of a request's earlier branches, as groups of columns. They change the logits of later nodes."""
    stage, model = trie.stage.astype(np.int64), trie.model.astype(np.int64)
    nodes = certain_nodes(trie)
    up = trie.parent[nodes].astype(np.int64)
    later, decision, arm = decisions(trie)
    return [
        coded("arrival", nodes, stage[up], model[up], stage[nodes]),
        coded("decided", later, stage[decision], stage[arm], stage[later]),
        coded("decider", later, stage[decision], model[decision], stage[arm], stage[later]),
    ]


def coded(name: str, rows: Ints, *labels: npt.NDArray[Any], times: npt.NDArray[Any] | None = None) -> Part:
    """Return a group of matrix columns, one column for each combination of labels that occurs.

    Args:
        name: The name of the group.
        rows: The row of each entry of the matrix.
        *labels: Arrays with an integer label >= -1 for each entry. An entry's labels determine its column.
        times: The value of each entry; None makes all values 1.
    """
    code = np.zeros(len(rows), np.int64)
    for label in labels:
        code = code * (int(label.max(initial=0)) + 2) + label + 1
    columns, column = np.unique(code, return_inverse=True)
    return Part(name, rows, np.asarray(column, np.int64), len(columns), times)


def stack(parts: list[Part], size: int) -> tuple[Matrix, Ints]:
    """Return a CSR matrix of all groups, with ``size`` rows, and the index of each column's group.

    Columns that no node uses remain in the matrix and are all zero.
    """
    starts = np.cumsum([0, *(part.width for part in parts)])
    rows = np.concatenate([part.nodes for part in parts])
    columns = np.concatenate([part.column + start for part, start in zip(parts, starts, strict=False)])
    values = np.concatenate([np.ones(len(part.nodes)) if part.times is None else part.times for part in parts])
    matrix = sparse.csr_array((values, (rows, columns)), shape=(size, int(starts[-1])))
    return matrix, np.repeat(np.arange(len(parts)), [part.width for part in parts])


# -- the common part of all histories of a node (a tree has one history): its features must not say more than that -----


def just_before(trie: Trie, label: Ints) -> Ints:
    """Return, for each node, the label of the call right before the node's own call, shape (nodes,).

    A label is a number, for example of a stage and model; ``label`` has the label of each node's own call. A first call gets
    the label of the root. The result is -1 if several sequences of calls lead to the node and end with different labels.
    """
    order = np.argsort(trie.target, kind="stable")
    starts = np.flatnonzero(np.diff(trie.target[order], prepend=0))  # every node except the root has an edge into it
    of_edge = label[trie.source[order]]
    lowest, highest = np.minimum.reduceat(of_edge, starts), np.maximum.reduceat(of_edge, starts)
    return np.concatenate(([-1], np.where(lowest == highest, lowest, -1)))


def certain_before(trie: Trie, label: Ints, n_labels: int) -> tuple[Ints, Ints, Ints]:
    """Return how often every request at a node has made earlier calls with a certain label, as arrays (node, label, times).

    Each item says: whichever calls led to the node, at least ``times`` of them have the label. Only numbers above 0 are
    included. The arrays are sorted by node, then label.

    Args:
        trie: the trie.
        label: the label of each node's call, shape (nodes,); -1 for none.
        n_labels: the number of labels.
    """
    times = np.zeros((len(trie), n_labels), np.int16)
    for edges in trie.edge_levels:
        order = np.argsort(trie.target[edges], kind="stable")
        source, target = trie.source[edges][order], trie.target[edges][order]
        before = times[source]
        labelled = np.flatnonzero(label[source] >= 0)
        before[labelled, label[source[labelled]]] += 1
        starts = np.flatnonzero(np.diff(target, prepend=0))
        times[target[starts]] = np.minimum.reduceat(before, starts, axis=0)
    node, found = np.nonzero(times)
    return node.astype(np.int64), found.astype(np.int64), times[node, found].astype(np.int64)


def certain_nodes(trie: Trie) -> Ints:
    """Return the indices of the nodes for which the call right before is certain: it has one possible stage and model.

    It is uncertain if several sequences of calls lead to a node and end with different stages or models. Nodes of first calls
    are included, the root is not.
    """
    choice = np.where(trie.model >= 0, _choice(trie), len(trie.stages) * len(trie.models))
    return np.flatnonzero(just_before(trie, choice) >= 0)


def earlier_choices(trie: Trie, nodes: Ints) -> tuple[Ints, Ints]:
    """Return the pairs of stage and model that every request at one of ``nodes`` has run before, as arrays (place, choice).

    Each pair of elements says that a choice ran before a node. ``place`` is the node's index in ``nodes``; ``choice`` is the
    stage's index times the number of models, plus the model's index. Each choice occurs once for a node.
    """
    node, made, _ = certain_before(trie, np.where(trie.model >= 0, _choice(trie), -1), len(trie.stages) * len(trie.models))
    first = np.searchsorted(node, nodes)
    count = np.searchsorted(node, nodes, side="right") - first
    place = np.repeat(np.arange(len(nodes)), count)
    offset = np.arange(len(place)) - np.repeat(np.cumsum(count) - count, count)
    return place, made[first[place] + offset]


def _choice(trie: Trie) -> Ints:
    return trie.stage.astype(np.int64) * len(trie.models) + trie.model


def decisions(trie: Trie) -> tuple[Ints, Ints, Ints]:
    """Return which branch a request took at earlier decisions on its way to each node, as arrays (node, decision, branch).

    ``decision`` is the node after which several branches were possible; ``branch`` is the next node on the taken branch. If
    several sequences of calls may lead to a node, at most the decision right before it is included.
    """
    is_choice = arms_of(trie).is_choice
    nodes = at = certain_nodes(trie)
    found: list[tuple[Ints, Ints, Ints]] = []
    while len(nodes):
        up = trie.parent[at].astype(np.int64)
        here = is_choice[up]
        found.append((nodes[here], up[here], at[here]))
        nodes, at = nodes[up > 0], up[up > 0]
        if trie.is_merged:
            break
    first, second, third = (np.concatenate([part[i] for part in found]) for i in range(3))
    return first, second, third
