"""What the sources of extra cells have in common: they draw a node where some request can be executed, with a known chance."""

from __future__ import annotations

import random
from typing import NamedTuple, Protocol

import numpy as np

from vinelm.estimator.sampling.candidate_cells import CandidateCells
from vinelm.trie import FloatArray


class DrawnNode(NamedTuple):
    """A node, and the chance in (0, 1] with which it was drawn, given all earlier draws."""

    node: int
    chance: float


class NodeSource(Protocol):
    """Draws the nodes that are worth another answer, one at a time."""

    def draw(self, candidates: CandidateCells, rng: random.Random) -> DrawnNode | None:
        """Return a node that has a candidate; None if none is worth anything."""


def draw_index(weights: FloatArray, rng: random.Random) -> DrawnNode:
    """Draw an index in proportion to the weights, which are >= 0 and not all 0."""
    total = np.cumsum(weights)
    index = int(np.searchsorted(total, rng.random() * total[-1], side="right"))
    return DrawnNode(index, float(weights[index] / total[-1]))
