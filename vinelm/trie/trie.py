"""The execution trie (VineLM paper §3.2) as flat pre-order arrays: every subtree is a slice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from vinelm.template import Template
from vinelm.trie.arrays import BoolArray, FloatArray, IntArray, frozen, preorder_misfit
from vinelm.trie.merging import MOST_MERGED, SharedNodes, merged_arrays, merging_words
from vinelm.trie.preorder import prefix_arrays, template_arrays

ARRAYS = ("parent", "end", "depth", "stage", "model", "answerable")


class Trie:
    """All sequences of models (prefixes) that requests may have run so far, as nodes in pre-order. Node 0 is the root (the
    empty prefix), nodes 1 to n are the other prefixes.

    If several stages may come next, a node's children are ordered by branch, and within a branch by the order of the stage's
    models. The stages along a path tell which branches the request took.

    Every array has one element for each node, shape (n + 1,), and is read-only:

    - ``parent``: the node's parent; -1 at the root.
    - ``end``: one past the node's last descendant, so that its subtree is ``[node, end[node])``.
    - ``depth``: number of invocations in the prefix; 0 at the root.
    - ``stage``, ``model``: the label of the edge into the node, as indices into ``stages`` and ``models``; -1 at the root.
    - ``answerable``: whether the workflow has an answer at the node, so that it may end there. False between stages that
      run at the same time.
    """

    def __init__(
        self,
        *,
        stages: Sequence[str],
        models: Sequence[str],
        parent: npt.ArrayLike,
        end: npt.ArrayLike,
        depth: npt.ArrayLike,
        stage: npt.ArrayLike,
        model: npt.ArrayLike,
        answerable: npt.ArrayLike,
    ) -> None:
        self.stages = tuple(stages)
        self.models = tuple(models)
        self.parent: IntArray = frozen(parent, np.int32)
        self.end: IntArray = frozen(end, np.int32)
        self.depth: npt.NDArray[np.int16] = frozen(depth, np.int16)
        self.stage: npt.NDArray[np.int16] = frozen(stage, np.int16)
        self.model: npt.NDArray[np.int16] = frozen(model, np.int16)
        self.answerable: BoolArray = frozen(answerable, np.bool_)

    array_names: ClassVar[tuple[str, ...]] = ARRAYS
    """The arrays of the trie, as they are named in a ``.vine`` file."""

    # -- construction ------------------------------------------------------------------------------------------

    @classmethod
    def from_template(cls, template: Template) -> Trie:
        """Return the trie of every prefix that the template allows. For example, 8 models at 3 invocations give 584 nodes
        and the root.

        If loops of the template merge histories, the result is a :class:`MergedTrie`.

        Raises:
            TemplateError: The template is not bound to a catalog, or has 2**31 prefixes or more, or too many merged histories.
        """
        if template.merges:
            return MergedTrie.of(template)
        return cls(stages=tuple(stage.name for stage in template.stages), models=template.models, **template_arrays(template))

    @classmethod
    def from_prefixes(cls, template: Template, prefixes: Iterable[Sequence[str]]) -> Trie:
        """Return the trie of only the given prefixes and all their ancestors.

        The template must be linear: otherwise the models alone do not say which stages ran.

        Args:
            template: A linear template that is bound to a catalog.
            prefixes: Model names from the first invocation on.

        Raises:
            TemplateError: A prefix is longer than the template, or has a model that its stage does not allow.
        """
        arrays = prefix_arrays(template, prefixes)
        return cls(stages=tuple(stage.name for stage in template.stages), models=template.models, **arrays)

    # -- shape -------------------------------------------------------------------------------------------------

    @property
    def is_merged(self) -> bool:
        """Whether several sequences of calls may lead to the same node (:class:`MergedTrie`), so that a node has no single
        path.
        """
        return False

    def with_answerable(self, answerable: npt.ArrayLike) -> Self:
        """Return a copy of the trie with another array ``answerable``: for each node, whether the workflow has an answer
        there.
        """
        arrays = {name: getattr(self, name) for name in self.array_names} | {"answerable": answerable}
        return type(self)(stages=self.stages, models=self.models, **arrays)

    def __len__(self) -> int:
        """Return the number of nodes, the root included."""
        return len(self.parent)

    @property
    def n_nodes(self) -> int:
        """Number of prefixes, not counting the root."""
        return len(self.parent) - 1

    @cached_property
    def max_depth(self) -> int:
        """Length of the longest prefix."""
        return int(self.depth.max())

    @cached_property
    def levels(self) -> tuple[npt.NDArray[np.intp], ...]:
        """The nodes of each depth, one array per depth; the first has only the root.

        They are used to compute values of all nodes of one depth at a time.
        """
        order = np.argsort(self.depth, kind="stable")
        cuts = np.cumsum(np.bincount(self.depth))[:-1]
        return tuple(np.split(order, cuts))

    @cached_property
    def is_leaf(self) -> BoolArray:
        """For each node, whether it is a leaf (has no children)."""
        return frozen(self.end == np.arange(1, len(self) + 1), np.bool_)

    @cached_property
    def next_stage(self) -> npt.NDArray[np.int16]:
        """For each node, the index of the stage of its first child; -1 for leaves.

        If several stages may follow a node, its other children may run other stages.
        """
        return frozen(np.where(self.is_leaf, -1, np.append(self.stage[1:], -1)), np.int16)

    def require_paths(self, what: str) -> None:
        """Do nothing, since each node of this trie has a single path; a merged trie raises :class:`ConfigError`, whose
        message begins with ``what``.
        """

    def misfit(self, template: Template) -> str | None:
        """Return in one line why the arrays do not form a valid trie; None if they do.

        It does not check whether the indices in ``stage`` and ``model`` are in range, or whether ``template`` allows the paths.
        """
        problem = preorder_misfit(self.parent, self.end, self.depth)
        siblings = (self.parent.astype(np.int64) * len(self.stages) + self.stage) * len(self.models) + self.model
        if problem is None and len(np.unique(siblings[1:])) < len(self) - 1:
            return "a node has two children of one model"
        return problem

    # -- edges: sorted by the depth of their source, then by source; those of one source by stage and model in trie order ------

    @cached_property
    def target(self) -> IntArray:
        """The node that each edge leads to, shape (edges,)."""
        return frozen(np.concatenate(self.levels)[1:], np.int32)

    @cached_property
    def source(self) -> IntArray:
        """The node that each edge leaves, shape (edges,)."""
        return frozen(self.parent[self.target], np.int32)

    @property
    def n_edges(self) -> int:
        """Number of edges."""
        return len(self.target)

    @cached_property
    def edge_levels(self) -> tuple[slice, ...]:
        """For each depth except the last, the slice of the edges that leave the nodes of this depth."""
        cuts = np.searchsorted(self.depth[self.source], np.arange(int(self.depth.max()) + 1))
        return tuple(slice(int(a), int(b)) for a, b in pairwise(cuts))

    @cached_property
    def begins_arm(self) -> BoolArray:
        """For each edge, whether it is the first of its branch (the edges from one node to one stage); shape (edges,)."""
        first = np.ones(self.n_edges, np.bool_)
        first[1:] = (np.diff(self.source) != 0) | (np.diff(self.stage[self.target]) != 0)
        return frozen(first, np.bool_)

    @cached_property
    def edge_arm(self) -> npt.NDArray[np.int64]:
        """For each edge, the number of its branch (the edges from one node to one stage), from 0 in edge order."""
        return np.cumsum(self.begins_arm) - 1

    @property
    def arm_items(self) -> npt.NDArray[Any]:
        """For each edge, its index in the arrays about branches, such as ``arm``; shape (edges,).

        In a tree, these arrays have one element for each node, and the index is that of the edge's target.
        """
        return self.target

    @property
    def n_arm_items(self) -> int:
        """Length of the arrays with a value for each branch, such as ``arm``."""
        return len(self)

    # -- lookup ------------------------------------------------------------------------------------------------

    def subtree(self, node: int) -> slice:
        """Return the slice of the node and all its descendants."""
        return slice(node, int(self.end[node]))

    def accumulate(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return, for each node, the sum of the values along its path, root and node included.

        Args:
            values: A value for each node, in trie order, on the last axis; shape (..., nodes).

        Returns:
            A new array of the same shape and type.
        """
        total = values.copy()
        for level in self.levels[1:]:
            total[..., level] += total[..., self.parent[level]]
        return total

    def multiply(self, of_edges: FloatArray) -> FloatArray:
        """Return, for each node, the product of the values of the edges on its path; 1 at the root.

        ``of_edges`` has a value for each edge, in edge order.
        """
        product = np.ones(len(self))
        for level in self.levels[1:]:  # edges are sorted by level, and within a level like the nodes that they lead to
            product[level], of_edges = product[self.parent[level]] * of_edges[: len(level)], of_edges[len(level) :]
        return product

    def children(self, node: int) -> list[int]:
        """Return the node's children, in trie order."""
        found, at, stop = [], node + 1, int(self.end[node])
        while at < stop:
            found.append(at)
            at = int(self.end[at])
        return found

    def child(self, node: int, model: str, stage: str | None = None) -> int:
        """Return the child reached by this model; raise ``KeyError`` if there is none.

        Args:
            node: the parent.
            model: name of the model.
            stage: name of the stage; None if only one stage can follow, or to get the first branch's child with this model.
        """
        wanted = self._model_index[model]
        arm = None if stage is None else self._stage_index[stage]
        for at in self.children(node):
            if self.model[at] == wanted and (arm is None or self.stage[at] == arm):
                return at
        raise KeyError(model)

    def arms(self, node: int) -> dict[str, list[int]]:
        """Return the node's children, keyed by the stage that they run, in trie order."""
        found: dict[str, list[int]] = {}
        for at in self.children(node):
            found.setdefault(self.stages[self.stage[at]], []).append(at)
        return found

    def arm_items_after(self, node: int) -> dict[str, int]:
        """Return, for each stage that may follow the node, the index of that branch in arrays with a value for each branch."""
        return {stage: nodes[0] for stage, nodes in self.arms(node).items()}

    @cached_property
    def is_linear(self) -> bool:
        """Whether all children of each node run the same stage."""
        return bool(self.begins_arm.sum() == np.sum(~self.is_leaf))

    @cached_property
    def kinds(self) -> tuple[npt.NDArray[np.int64], int]:
        """Numbers that identify what each node runs: an array with one number per node, and how many numbers are possible.

        Nodes of one depth have equal numbers if they run the same stage with the same model. The number is the model's index
        or, if the trie branches, stage index * number of models + model index.
        """
        model = np.maximum(self.model, 0).astype(np.int64)
        if self.is_linear:
            return model, len(self.models)
        stage = np.maximum(self.stage, 0).astype(np.int64)
        return stage * len(self.models) + model, len(self.stages) * len(self.models)

    @cached_property
    def _stage_index(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.stages)}

    @cached_property
    def _model_index(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.models)}

    def node(self, prefix: Sequence[str], stages: Sequence[str] | None = None) -> int:
        """Return the node of a prefix of model names; raise ``KeyError``, which names the prefix, if the trie lacks it.

        Args:
            prefix: the models.
            stages: the stages that ran them; None if the trie is linear.
        """
        at = 0
        for k, model in enumerate(prefix):
            try:
                at = self.child(at, model, None if stages is None else stages[k])
            except KeyError:
                raise KeyError("/".join(prefix)) from None
        return at

    def sole_node(self, prefix: Sequence[str]) -> int:
        """Return the only node of a prefix of model names; raise ``KeyError`` if there is none, or several."""
        at = 0
        for name in prefix:
            wanted = self._model_index[name]
            (at, *others) = [child for child in self.children(at) if self.model[child] == wanted] or [-1]
            if at < 0 or others:
                raise KeyError("/".join(prefix))
        return at

    def path(self, node: int) -> list[int]:
        """Return the nodes from the first invocation down to ``node``; empty for the root."""
        nodes: list[int] = []
        while node > 0:
            nodes.append(node)
            node = int(self.parent[node])
        return nodes[::-1]

    def prefix(self, node: int) -> tuple[str, ...]:
        """Return the model names from the root down to ``node``."""
        return tuple(self.models[self.model[at]] for at in self.path(node))

    def edges(self, node: int) -> Iterator[tuple[str, str]]:
        """Return the (stage, model) labels from the root down to ``node``."""
        return ((self.stages[self.stage[at]], self.models[self.model[at]]) for at in self.path(node))

    def labels(self) -> dict[str, list[Any]]:
        """Return the columns of a table that identify each node except the root: ``prefix`` (model names), depth, stage and
        model.
        """
        prefixes: list[tuple[str, ...]] = [()]
        for node in range(1, len(self)):
            prefixes.append((*prefixes[self.parent[node]], self.models[self.model[node]]))
        return {
            "prefix": prefixes[1:],
            "depth": self.depth[1:].tolist(),
            "stage": [self.stages[stage] for stage in self.stage[1:]],
            "model": [self.models[model] for model in self.model[1:]],
        }

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Trie) or type(other) is not type(self):
            return NotImplemented
        return (
            self.stages == other.stages
            and self.models == other.models
            and all(np.array_equal(getattr(self, name), getattr(other, name)) for name in self.array_names)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Trie({self.n_nodes:,} nodes, depth {self.max_depth}, {len(self.models)} models)"


class MergedTrie(SharedNodes, Trie):
    """A trie in which histories share a node, for a template with ``Loop(..., memory=k)`` or ``order="ignored"``.

    Node 0 is the root; nodes are in the order of their depth. A node is a position of the template's automaton
    (:class:`~vinelm.template.Flow`) together with the remembered part of the history. This part has every choice outside of
    such a loop and, of the choices inside of the loop,

    - with ``memory=k`` the last k, also after the loop has been left;
    - with ``order="ignored"`` how often each choice was made, and which choice was the last, because that choice gave the
      answer.

    The label of a node, its ``stage`` and ``model``, is its last choice. Edges lead one level down. Arrays of shape (edges,):

    - ``source``, ``target``: the nodes that the edge connects. Edges are sorted by source, then by stage and model in the
      order of the template.

    ``parent`` is the first source of a node, so that ``path``, ``prefix``, ``edges`` and ``labels`` give *one* of the merged
    histories, for display. Methods that need the single path of a node (``end``, ``subtree``, ``accumulate``) raise
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

    array_names = ("depth", "stage", "model", "answerable", "source", "target")

    @classmethod
    def of(cls, template: Template, most: int = MOST_MERGED) -> MergedTrie:
        """Return the trie of every history that the template allows.

        Args:
            template: A template that is bound to a catalog.
            most: The maximum number of nodes.

        Raises:
            TemplateError: The template is not bound to a catalog, or there are more than ``most`` nodes.
        """
        arrays = merged_arrays(template, most)
        return cls(stages=tuple(stage.name for stage in template.stages), models=template.models, **arrays)

    def arm_items_after(self, node: int) -> dict[str, int]:
        """Return, for each stage that may follow the node, an index of that branch in arrays such as ``arm``.

        In a merged trie these arrays have a value for each edge. All edges of a branch have equal values; the index is that of
        one of them.
        """
        edges = range(self.first_edge[node], self.first_edge[node + 1])
        return {self.stages[self.stage[self.target[edge]]]: edge for edge in edges}

    def misfit(self, template: Template) -> str | None:
        """Return in one line why the arrays do not form a valid trie of ``template``; None if they do.

        The template determines all arrays except ``answerable``.
        """
        own, settings = MergedTrie.of(template), ", ".join(merging_words(template))
        if len(self) != len(own):
            return f"it has {self.n_nodes:,} merged nodes where its template ({settings}) has {own.n_nodes:,}"
        if np.any(self.answerable & ~own.answerable):
            return "trie.answerable does not follow the template"
        is_same = self.with_answerable(own.answerable) == own
        return None if is_same else f"its merged nodes are not those of its template ({settings})"

    def __repr__(self) -> str:
        size = f"{self.n_nodes:,} nodes, {self.n_edges:,} edges"
        return f"MergedTrie({size}, depth {self.max_depth}, {len(self.models)} models)"
