"""The trie of a template whose long loops merge histories: a graph in which a node may have several parents."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from vinelm.errors import VineLMError
from vinelm.template import Template
from vinelm.trie.merging import MOST_MERGED, merged_arrays
from vinelm.trie.trie import BoolArray, IntArray, Trie, frozen

MERGED_ARRAYS = ("depth", "stage", "model", "answerable", "source", "target")
"""The arrays of a merged trie, as they are named in a ``.vine`` file."""


class MergedTrie(Trie):
    """The histories of a template with ``Loop(..., memory=k)`` or ``order="ignored"``, those that agree being one node.

    Node 0 is the root; nodes are in the order of their depth. A node is a position of the template's automaton
    (:class:`~vinelm.template.Flow`) with what is remembered of the history: every choice made outside of such a loop, and of
    the choices inside of it

    - with ``memory=k`` the last k, also after the loop has been left;
    - with ``order="ignored"`` how often each was made, and which one was the last: the answer is that one's.

    The label of a node, its ``stage`` and ``model``, is its last choice. Edges lead one level down. Arrays of shape (edges,):

    - ``source``, ``target``: the nodes that the edge connects. Edges are sorted by source, and those of one source by stage and
      model in the order of the template.

    ``parent`` is the first source of a node, so that ``path``, ``prefix``, ``edges`` and ``labels`` give *one* of the merged
    histories, for display. What needs the single path of a node (``end``, ``subtree``, ``accumulate``) raises
    :class:`VineLMError`.
    """

    def __init__(
        self,
        *,
        stages: Sequence[str],
        models: Sequence[str],
        depth: npt.ArrayLike,
        stage: npt.ArrayLike,
        model: npt.ArrayLike,
        answerable: npt.ArrayLike,
        source: npt.ArrayLike,
        target: npt.ArrayLike,
    ) -> None:
        self.stages = tuple(stages)
        self.models = tuple(models)
        self.depth = frozen(depth, np.int16)
        self.stage = frozen(stage, np.int16)
        self.model = frozen(model, np.int16)
        self.answerable = frozen(answerable, np.bool_)
        self.source: IntArray = frozen(source, np.int32)
        self.target: IntArray = frozen(target, np.int32)
        parent = np.full(len(self.depth), -1, np.int32)
        targets, first = np.unique(self.target, return_index=True)
        parent[targets] = self.source[first]
        self.parent = frozen(parent, np.int32)

    @classmethod
    def of(cls, template: Template, most: int = MOST_MERGED) -> MergedTrie:
        """Return the trie of every history that the template allows.

        Args:
            template: A bound template.
            most: The most nodes.

        Raises:
            TemplateError: The template is not bound to a catalog, or there are more than ``most`` nodes.
        """
        arrays = merged_arrays(template, most)
        return cls(stages=tuple(stage.name for stage in template.stages), models=template.models, **arrays)

    @property
    def is_merged(self) -> bool:
        """True."""
        return True

    @property
    def n_edges(self) -> int:
        """Number of edges."""
        return len(self.source)

    @cached_property
    def first_edge(self) -> npt.NDArray[np.int64]:
        """The edges of node u are ``first_edge[u]`` to ``first_edge[u + 1]``, shape (n + 2,)."""
        return np.searchsorted(self.source, np.arange(len(self) + 1))

    @cached_property
    def by_target(self) -> npt.NDArray[np.int64]:
        """The edges sorted by target, and those of one target by source: an order of shape (edges,)."""
        return np.argsort(self.target, kind="stable")

    @cached_property
    def first_in_edge(self) -> npt.NDArray[np.int64]:
        """The edges into node v are ``by_target[first_in_edge[v] : first_in_edge[v + 1]]``, shape (n + 2,)."""
        return np.searchsorted(self.target[self.by_target], np.arange(len(self) + 1))

    @cached_property
    def edge_levels(self) -> tuple[slice, ...]:
        """The edges out of the nodes of each depth, as slices; none leave the last depth."""
        cuts = np.searchsorted(self.depth[self.source], np.arange(self.max_depth + 1))
        return tuple(slice(int(a), int(b)) for a, b in pairwise(cuts))

    @cached_property
    def edge_arm(self) -> npt.NDArray[np.int64]:
        """The arm of each edge: edges of one source and one stage have one number, counted from 0 in edge order."""
        return np.cumsum(np.concatenate(([False], (np.diff(self.source) != 0) | (np.diff(self.stage[self.target]) != 0))))

    @cached_property
    def is_leaf(self) -> BoolArray:
        """Whether each node has no children, shape (n + 1,)."""
        return frozen(np.diff(self.first_edge) == 0, np.bool_)

    @cached_property
    def is_linear(self) -> bool:
        """Whether the children of each node run one stage."""
        return bool(self.edge_arm[-1] + 1 == np.sum(~self.is_leaf)) if self.n_edges else True

    def children(self, node: int) -> list[int]:
        """Return the node's children, in the order of the template."""
        return [int(at) for at in self.target[self.first_edge[node] : self.first_edge[node + 1]]]

    def sources(self, node: int) -> list[int]:
        """Return the nodes that lead to this one, in order."""
        edges = self.by_target[self.first_in_edge[node] : self.first_in_edge[node + 1]]
        return [int(at) for at in self.source[edges]]

    def with_answerable(self, answerable: npt.ArrayLike) -> MergedTrie:
        """Return the same trie with other answerable nodes, shape (n + 1,)."""
        arrays = {name: getattr(self, name) for name in MERGED_ARRAYS} | {"answerable": answerable}
        return MergedTrie(stages=self.stages, models=self.models, **arrays)

    def subtree(self, node: int) -> NoReturn:
        """Raise :class:`VineLMError`: a merged trie has no subtrees."""
        raise no_single_path("subtree")

    def accumulate(self, values: npt.NDArray[Any]) -> NoReturn:
        """Raise :class:`VineLMError`: several paths lead to a node."""
        raise no_single_path("a sum along the path")

    def __getattr__(self, name: str) -> Any:
        """Raise :class:`VineLMError` for ``end``, which only a tree has."""
        if name == "end":
            raise no_single_path("end")
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MergedTrie):
            return NotImplemented
        return (
            self.stages == other.stages
            and self.models == other.models
            and all(np.array_equal(getattr(self, name), getattr(other, name)) for name in MERGED_ARRAYS)
        )

    __hash__ = None

    def __repr__(self) -> str:
        size = f"{self.n_nodes:,} nodes, {self.n_edges:,} edges"
        return f"MergedTrie({size}, depth {self.max_depth}, {len(self.models)} models)"


def no_single_path(what: str) -> VineLMError:
    """The error for a question that has no answer where histories share nodes."""
    return VineLMError(f"{what} has no meaning on a merged trie, where several histories lead to a node: plan over it instead")
