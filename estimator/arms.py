"""The branches of a trie. A branch consists of the edges from one node to one stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from vinelm.trie import Trie
from vinelm.trie.annotated_trie import AnyTrie
from vinelm.trie.arrays import BoolArray

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Arms:
    """The branches of a trie, numbered by node, then by the stage to which they lead.

    Args:
        source: the index of the node that a branch leaves, shape (branches,), ascending.
        stage: the stage that the branch leads to, an index into the trie's stages; shape (branches,).
        order: the branch's position among the branches of its node, from 0; shape (branches,).
        target: the index of the first node that the branch leads to, shape (branches,).
        of_edge: the index of the branch that each edge of the trie belongs to, shape (edges,).
        of_node: the index of the branch that leads to each node (the first, if several do); -1 at the root; shape (nodes,).
        count: the number of branches of each node, shape (nodes,).
        first: the index of each node's first branch, shape (nodes,); meaningless if ``count`` is 0.
        is_choice: whether several stages may follow the node, shape (nodes,).
        only_stage: the stage that follows each node if there is only one, else -1; shape (nodes,).
    """

    source: Ints
    stage: Ints
    order: Ints
    target: Ints
    of_edge: Ints
    of_node: Ints
    count: Ints
    first: Ints
    is_choice: BoolArray
    only_stage: Ints

    def __len__(self) -> int:
        return len(self.source)

    def find(self, node: Ints, stage: Ints) -> Ints:
        """Return the index of the branch from each of the nodes ``node`` to the stage at the same position in ``stage``.

        These branches must exist.
        """
        width = int(self.stage.max(initial=0)) + 2
        key = self.source * width + self.stage
        return np.asarray(np.searchsorted(key, node * width + stage), np.int64)


def arms_of(trie: Trie) -> Arms:
    """Return the branches of a trie as arrays."""
    width = len(trie.stages)
    key = trie.source.astype(np.int64) * width + trie.stage[trie.target]
    found, first_edge, of_edge = np.unique(key, return_index=True, return_inverse=True)
    source, stage = found // width, found % width
    count = np.bincount(source, minlength=len(trie)).astype(np.int64)
    first = np.cumsum(count) - count
    of_node = np.full(len(trie), -1, np.int64)
    of_node[trie.target[::-1]] = of_edge[::-1]  # the first of several edges to one node
    only_stage = np.full(len(trie), -1, np.int64)
    only_stage[count == 1] = stage[first[count == 1]]
    return Arms(
        source=source,
        stage=stage,
        order=np.arange(len(found)) - first[source],
        target=trie.target[first_edge].astype(np.int64),
        of_edge=of_edge,
        of_node=of_node,
        count=count,
        first=first,
        is_choice=count > 1,
        only_stage=only_stage,
    )


UNSEEN = 1e-6
"""The count that is added to each request type, so that a type without requests still has a plan."""


def with_kinds_counted(annotated: AnyTrie, counts: Mapping[str, float]) -> AnyTrie:
    """Return the trie with each request type's share of the requests computed from ``counts`` instead of the profile.

    The application's traffic may have other shares than the profile. The trie is returned unchanged if it has no types, if all
    counts are 0, or if it has separate rates for easier and harder requests.

    Args:
        annotated: The trie.
        counts: Number of requests of each type, >= 0, or their weights; missing types count 0.
    """
    kinds, trie = annotated.template.kind_names, annotated.trie
    arm = annotated.arm
    if arm is None or annotated.difficulty or not sum(counts.values()) > 0.0:
        return annotated
    weight = np.array([counts.get(kind, 0.0) + UNSEEN for kind in kinds])
    first = np.flatnonzero(trie.source == 0)
    stage, items = trie.stage[trie.target[first]], trie.arm_items[first]
    kind = np.array([kinds.index(annotated.stage_kinds[number]) for number in stage.tolist()])
    begins = np.unique(stage, return_index=True)[1]  # an edge of each branch
    usual = np.bincount(kind[begins], arm[items[begins]], len(kinds))[kind]
    within = np.divide(arm[items], usual, out=np.ones(len(items)), where=usual > 0.0)
    shares, arm = within * (weight[kind] / weight.sum()), arm.copy()
    change = np.divide(shares, arm[items], out=np.zeros(len(items)), where=arm[items] > 0.0)
    at = np.append(np.ones(1), np.repeat(change, np.diff([*trie.target[first], len(trie)])))
    arm[items] = shares
    return replace(annotated.with_shares(at), arm=arm)
