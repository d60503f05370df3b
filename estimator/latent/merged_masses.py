"""The number of requests that reach each node of a merged trie when models are chosen as in the profile."""

from __future__ import annotations

import numpy as np

from vinelm.estimator.observation_table import ObservationTable
from vinelm.trie import MergedTrie
from vinelm.trie.arrays import FloatArray

PSEUDO_ROWS = 20.0
"""Rows of a uniform choice that are added to those of each stage."""


def choice_shares(cells: ObservationTable, trie: MergedTrie) -> FloatArray:
    """Return for each edge the share of the profile's choices at its stage that fell on its model, shape (edges,).

    Shares are those of the stage's rows, shrunken towards a uniform choice; the edges of one source and stage sum to 1.
    """
    n_models = len(trie.models)
    kind = trie.stage.astype(np.int64) * n_models + trie.model
    rows = np.bincount(kind[cells.node], minlength=len(trie.stages) * n_models).astype(np.float64)
    of_edge, arm = kind[trie.target], trie.edge_arm
    n_options = np.bincount(arm)[arm]
    weight = rows[of_edge] + PSEUDO_ROWS / n_options
    return np.asarray(weight / np.bincount(arm, weight)[arm])


def spread_masses(trie: MergedTrie, start: FloatArray, going_on: FloatArray, share: FloatArray) -> FloatArray:
    """Carry masses from the root along the edges, level by level.

    Args:
        trie: the graph.
        start: mass of each grid point at the root, shape (points,).
        going_on: the part of a source's mass that takes the edge's arm, shape (edges, points) or (n + 1, points) by source.
        share: of each edge among those of its arm, shape (edges,).

    Returns:
        The mass of each grid point at each node, shape (n + 1, points).
    """
    mass = np.zeros((len(trie), len(start)))
    mass[0] = start
    by_source = len(going_on) == len(trie)
    for depth, edges in enumerate(trie.edge_levels):
        source, target = trie.source[edges], trie.target[edges]
        part = mass[source] * (going_on[source] if by_source else going_on[edges]) * share[edges, None]
        first, size = int(trie.levels[depth + 1][0]), len(trie.levels[depth + 1])
        for point in range(len(start)):
            mass[first : first + size, point] = np.bincount(target - first, part[:, point], size)
    return mass
