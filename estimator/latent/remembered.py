"""The common part of all histories of a merged node: the features of a node may say no more than that."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vinelm.trie import MergedTrie

Ints = npt.NDArray[np.int64]
_UNKNOWN = -1


def previous_model(trie: MergedTrie) -> Ints:
    """Return the model called just before each node's, shape (n + 1,); -1 where there is none or the histories differ."""
    return _common(trie, trie.model.astype(np.int64))


def previous_choice(trie: MergedTrie) -> Ints:
    """Return the (stage, model) just before each node's as one number; -1 where the histories differ, and at the root.

    At depth 1 nothing came before, in every history alike: the root has a number too.
    """
    choice = np.where(trie.model >= 0, _choice(trie), len(trie.stages) * len(trie.models))
    return _common(trie, choice)


def _choice(trie: MergedTrie) -> Ints:
    return trie.stage.astype(np.int64) * len(trie.models) + trie.model


def _common(trie: MergedTrie, label: Ints) -> Ints:
    """The label of a node's sources if it is the same for all, else -1."""
    of_edge = label[trie.source[trie.by_target]]
    starts = trie.first_in_edge[1:-1]  # every node but the root has an edge into it
    lowest, highest = np.minimum.reduceat(of_edge, starts), np.maximum.reduceat(of_edge, starts)
    return np.concatenate(([_UNKNOWN], np.where(lowest == highest, lowest, _UNKNOWN)))


def certain_models(trie: MergedTrie) -> tuple[Ints, Ints, Ints]:
    """Return (node, model, times): models that every history of a node called before its last choice, and how often at least.

    Sorted by node, then model. With ``memory=k`` these are the choices before the last one of those that are remembered.
    """
    return _certain(trie, trie.model.astype(np.int64), len(trie.models))


def certain_choices_of(trie: MergedTrie, nodes: Ints) -> tuple[Ints, Ints]:
    """Return (place, choice): for each of ``nodes`` the choices that every history made before the last one, once each."""
    choice = np.where(trie.model >= 0, _choice(trie), _UNKNOWN)
    node, made, _ = _certain(trie, choice, len(trie.stages) * len(trie.models))
    first = np.searchsorted(node, nodes)
    count = np.searchsorted(node, nodes, side="right") - first
    place = np.repeat(np.arange(len(nodes)), count)
    offset = np.arange(len(place)) - np.repeat(np.cumsum(count) - count, count)
    return place, made[first[place] + offset]


def certain_decisions(trie: MergedTrie) -> tuple[Ints, Ints, Ints]:
    """Return (node, decision, arm): nodes at whose sources, all of one stage and model, one of several arms was taken.

    ``decision`` is one of the sources, and ``arm`` the node itself. Earlier decisions are left out.
    """
    n_arms = np.bincount(trie.source[trie.begins_arm], minlength=len(trie))
    node = np.flatnonzero((previous_choice(trie) >= 0) & (n_arms[np.maximum(trie.parent, 0)] > 1))
    return node, trie.parent[node].astype(np.int64), node


def _certain(trie: MergedTrie, label: Ints, n_labels: int) -> tuple[Ints, Ints, Ints]:
    """The least number of each label among the nodes before a node, over all of its histories."""
    times = np.zeros((len(trie), n_labels), np.int16)
    order = trie.by_target
    for level in trie.levels[1:]:
        first, last = int(level[0]), int(level[-1]) + 1
        edges = order[trie.first_in_edge[first] : trie.first_in_edge[last]]
        source = trie.source[edges]
        before = times[source]
        labelled = np.flatnonzero(label[source] >= 0)
        before[labelled, label[source[labelled]]] += 1
        starts = trie.first_in_edge[first:last] - trie.first_in_edge[first]
        times[first:last] = np.minimum.reduceat(before, starts, axis=0)
    node, found = np.nonzero(times)
    return node.astype(np.int64), found.astype(np.int64), times[node, found].astype(np.int64)
