"""Edges of nodes with several parents, in place of subtrees: by source and by target."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from vinelm.errors import ConfigError, VineLMError
from vinelm.trie.arrays import BoolArray, IntArray, frozen


class SharedNodes:
    """The part of :class:`~vinelm.trie.trie.MergedTrie` that needs its edges only."""

    depth: npt.NDArray[np.int16]
    stage: npt.NDArray[np.int16]
    source: IntArray
    target: IntArray

    def __len__(self) -> int:
        """Number of nodes, the root included."""
        return len(self.depth)

    @property
    def is_merged(self) -> bool:
        """True."""
        return True

    def require_paths(self, what: str) -> NoReturn:
        """Raise :class:`ConfigError`: several paths lead to a node."""
        raise ConfigError(f"{what}, and this trie merges histories: use 'latent'")

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

    @property
    def arm_items(self) -> npt.NDArray[Any]:
        """Where annotations of arms hold the value of each edge: at the edge, since the sources of a node differ."""
        return np.arange(self.n_edges)

    @property
    def n_arm_items(self) -> int:
        """Length of the annotations of arms."""
        return self.n_edges

    @cached_property
    def is_leaf(self) -> BoolArray:
        """True for nodes without children, shape (n + 1,)."""
        return frozen(np.diff(self.first_edge) == 0, np.bool_)

    @cached_property
    def is_linear(self) -> bool:
        """True if the children of each node run one stage."""
        return bool(self.begins_arm.sum() == np.sum(~self.is_leaf))

    def children(self, node: int) -> list[int]:
        """Return the node's children, in the order of the template."""
        return [int(at) for at in self.target[self.first_edge[node] : self.first_edge[node + 1]]]

    def sources(self, node: int) -> list[int]:
        """Return the nodes that lead to this one, in order."""
        edges = self.by_target[self.first_in_edge[node] : self.first_in_edge[node + 1]]
        return [int(at) for at in self.source[edges]]

    def subtree(self, node: int) -> NoReturn:
        """Raise :class:`VineLMError`: a merged trie has no subtrees."""
        raise no_single_path("subtree")

    def accumulate(self, values: npt.NDArray[Any]) -> NoReturn:
        """Raise :class:`VineLMError`: several paths lead to a node."""
        raise no_single_path("a sum along the path")

    def multiply(self, of_edges: npt.NDArray[Any]) -> NoReturn:
        """Raise :class:`VineLMError`: several paths lead to a node."""
        raise no_single_path("reach")

    def __getattr__(self, name: str) -> Any:
        """Raise :class:`VineLMError` for ``end``, which only a tree has."""
        if name == "end":
            raise no_single_path("end")
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")


def no_single_path(what: str) -> VineLMError:
    """The error for a question that has no answer where histories share nodes."""
    return VineLMError(f"{what} has no meaning on a merged trie, where several histories lead to a node: plan over it instead")
