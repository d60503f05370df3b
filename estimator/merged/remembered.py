"""What all histories of a merged node have in common: the features of a node may say no more than that."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vinelm.trie import MergedTrie

Ints = npt.NDArray[np.int64]
_UNKNOWN = -1


def previous_model(trie: MergedTrie) -> Ints:
    """Return the model called just before each node's, shape (n + 1,); -1 where there is none or the histories differ."""
    of_edge = trie.model[trie.source[trie.by_target]].astype(np.int64)
    starts = trie.first_in_edge[1:-1]  # every node but the root has an edge into it
    lowest, highest = np.minimum.reduceat(of_edge, starts), np.maximum.reduceat(of_edge, starts)
    return np.concatenate(([_UNKNOWN], np.where(lowest == highest, lowest, _UNKNOWN)))


def certain_models(trie: MergedTrie) -> tuple[Ints, Ints, Ints]:
    """Return (node, model, times): models that every history of a node called before its last choice, and how often at least.

    Sorted by node, then model. With ``memory=k`` these are the choices before the last one of those that are remembered.
    """
    times = np.zeros((len(trie), len(trie.models)), np.int16)
    order = trie.by_target
    for level in trie.levels[1:]:
        first, last = int(level[0]), int(level[-1]) + 1
        edges = order[trie.first_in_edge[first] : trie.first_in_edge[last]]
        source = trie.source[edges]
        before = times[source]
        has_model = np.flatnonzero(trie.model[source] >= 0)
        before[has_model, trie.model[source[has_model]]] += 1
        starts = trie.first_in_edge[first:last] - trie.first_in_edge[first]
        times[first:last] = np.minimum.reduceat(before, starts, axis=0)
    node, model = np.nonzero(times)
    return node.astype(np.int64), model.astype(np.int64), times[node, model].astype(np.int64)
