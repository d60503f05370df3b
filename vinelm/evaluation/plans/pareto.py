"""The Pareto frontier of accuracy against cost or latency."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Literal

import numpy as np

from vinelm.trie.annotated_trie import AnnotatedTrie


def pareto_frontier(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return the indices of the undominated (cost, value) points, by rising cost.

    A point is dominated if another costs no more and has at least its value. Of equal points the first stays.
    """
    order = sorted(range(len(points)), key=lambda i: (points[i][0], -points[i][1]))
    kept: list[int] = []
    best = -inf
    for index in order:
        if points[index][1] > best:
            kept.append(index)
            best = points[index][1]
    return kept


def frontier_nodes(annotated: AnnotatedTrie, amount: Literal["cost", "latency"]) -> list[int]:
    """Return the answerable nodes on the frontier of estimated accuracy and expected dollars (or seconds), by rising amount."""
    nodes = np.flatnonzero(annotated.trie.answerable)
    amounts = annotated.path_cost_usd if amount == "cost" else annotated.path_latency_s
    return [int(nodes[i]) for i in pareto_frontier([(float(amounts[n]), float(annotated.accuracy[n])) for n in nodes])]
