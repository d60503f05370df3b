"""The arrays of an annotated merged trie that planning reads: nodes, arms and edges, level by level."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from vinelm.annotated_trie import AnnotatedTrie
from vinelm.errors import VineLMError
from vinelm.trie import MergedTrie
from vinelm.trie.arrays import BoolArray, FloatArray

Ints = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class ArmLevel:
    """The arms and edges out of the nodes of one depth, all contiguous.

    Args:
        arms, edges: their ranges.
        first_edge: the first edge of each arm, relative to ``edges``; shape (arms of the level,).
        sources: the nodes that have arms, shape (sources,).
        first_arm: the first arm of each of them, relative to ``arms``.
    """

    arms: slice
    edges: slice
    first_edge: Ints
    sources: Ints
    first_arm: Ints


@dataclass(frozen=True, eq=False)
class MergedGraph:
    """A merged trie for planning. All rates are conditional on reaching the node, or the source of the arm.

    Args:
        annotated: the trie.
        trie: its graph.
        arm_source: the node of each arm, shape (arms,).
        going: P(the arm comes next).
        right: P(the arm comes next and the source's answer is correct).
        levels: of each depth but the last.
        ends: nodes at which a request may be ended, shape (n + 1,).
        barred: edges that may not be taken, shape (edges,).
    """

    annotated: AnnotatedTrie
    trie: MergedTrie
    arm_source: Ints
    going: FloatArray
    right: FloatArray
    levels: tuple[ArmLevel, ...]
    ends: BoolArray
    barred: BoolArray

    @classmethod
    def of(cls, annotated: AnnotatedTrie, *, unavailable: Collection[str] = (), ends: BoolArray | None = None) -> MergedGraph:
        """Build the arrays.

        Args:
            annotated: an annotated merged trie.
            unavailable: models that are not served.
            ends: nodes at which a request may be ended; None: every answerable one.
        """
        trie = annotated.trie
        if not isinstance(trie, MergedTrie):
            raise VineLMError("this trie merges no histories: plan over it as a tree")
        is_first = np.diff(trie.edge_arm, prepend=-1) != 0
        arm_source = trie.source[is_first].astype(np.int64)
        if annotated.arm is None or annotated.arm_success is None:
            going = 1.0 - annotated.stop[arm_source]
            right = (annotated.success - annotated.stop_success)[arm_source]
        else:
            going, right = annotated.arm[is_first], annotated.arm_success[is_first]
        gone = np.isin(trie.model[trie.target], [i for i, name in enumerate(trie.models) if name in unavailable])
        allowed = trie.answerable if ends is None else trie.answerable & ends
        levels = tuple(_level(trie, edges, np.flatnonzero(is_first), arm_source) for edges in trie.edge_levels)
        return cls(annotated, trie, arm_source, going, right, levels, allowed, gone)

    def for_mass(self, mass: FloatArray) -> MergedGraph:
        """Return the graph with the rates of the requests of a plan; nodes that the plan does not reach keep theirs.

        Args:
            mass: P(each node is reached and the request has each difficulty), shape (n + 1, points).
        """
        annotated, known = self.annotated, self.annotated.difficulty
        if known is None:
            return self
        reach = mass.sum(axis=1)
        is_reached = reach > 0.0
        rates = {}
        for name in ("success", "stop", "stop_success"):
            own = (mass * getattr(known, name)).sum(axis=1) / np.where(is_reached, reach, 1.0)
            rates[name] = np.where(is_reached, own, getattr(annotated, name))
        source = self.arm_source
        if known.arm is None or known.arm_success is None:
            going, right = 1.0 - rates["stop"][source], (rates["success"] - rates["stop_success"])[source]
        else:
            share = mass[source] / np.where(is_reached, reach, 1.0)[source, None]
            going = np.where(is_reached[source], (share * known.arm).sum(axis=1), self.going)
            right = np.where(is_reached[source], (share * known.arm_success).sum(axis=1), self.right)
        return replace(self, annotated=replace(annotated, **rates), going=going, right=right)

    @property
    def n_arms(self) -> int:
        """Number of arms."""
        return len(self.arm_source)

    def arms_of(self, node: int) -> range:
        """Return the arms of a node."""
        first, last = np.searchsorted(self.arm_source, [node, node + 1])
        return range(int(first), int(last))

    def edges_of(self, arm: int) -> range:
        """Return the edges of an arm."""
        first, last = np.searchsorted(self.trie.edge_arm, [arm, arm + 1])
        return range(int(first), int(last))

    def stage_of(self, arm: int) -> str:
        """Return the stage that the arm runs."""
        return self.trie.stages[int(self.trie.stage[self.trie.target[self.edges_of(arm)[0]]])]

    def model_of(self, edge: int) -> str:
        """Return the model that the edge runs."""
        return self.trie.models[int(self.trie.model[self.trie.target[edge]])]


def _level(trie: MergedTrie, edges: slice, first_of_arm: Ints, arm_source: Ints) -> ArmLevel:
    arms = slice(*(int(at) for at in np.searchsorted(first_of_arm, [edges.start, edges.stop])))
    sources, first_arm = np.unique(arm_source[arms], return_index=True)
    return ArmLevel(arms, edges, first_of_arm[arms] - edges.start, sources, first_arm)
