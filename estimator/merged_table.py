"""The cells of a merged trie that belong to one path of one request: nodes do not say, since histories share them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from vinelm.estimator.arms import arms_of
from vinelm.rows.observation import Cell
from vinelm.trie import Trie
from vinelm.trie.arrays import BoolArray

Ints = npt.NDArray[np.int64]


def cells_above(cells: Sequence[Cell]) -> Ints:
    """Return for each cell the one of its request's longest observed prefix above it, as an index; -1 if there is none."""
    index = {cell: i for i, cell in enumerate(cells)}
    found = np.full(len(cells), -1, np.int64)
    for i, (request, prefix) in enumerate(cells):
        for length in range(len(prefix) - 1, 0, -1):
            up = index.get((request, prefix[:length]))
            if up is not None:
                found[i] = up
                break
    return found


def below_a_stop(trie: Trie, node: Ints, stop: BoolArray, above: Ints) -> BoolArray:
    """Return whether an observed cell above each one already stopped its request."""
    beyond = np.zeros(len(node), np.bool_)
    depth = trie.depth[node]
    for level in range(2, trie.max_depth + 1):
        here = np.flatnonzero((depth == level) & (above >= 0))
        beyond[here] = beyond[above[here]] | stop[above[here]]
    return beyond


def told_arms(trie: Trie, node: Ints, stop: BoolArray, arm: Ints, above: Ints) -> Ints:
    """Return the arms, with those that the cell just below tells, and those of nodes with one arm; -1 where a request ended."""
    found = arm.copy()
    below = np.flatnonzero(above >= 0)
    below = below[trie.depth[node[below]] == trie.depth[node[above[below]]] + 1]
    below = below[found[above[below]] < 0]
    found[above[below]] = trie.stage[node[below]]
    only = arms_of(trie).only_stage[node]
    return np.asarray(np.where(stop, -1, np.where((found < 0) & (only >= 0), only, found)), np.int64)
