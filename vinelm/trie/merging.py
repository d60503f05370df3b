"""Computes the nodes and edges of a trie in which loops merge histories (sequences of stages and models).

A history is cut into segments: the choices made inside a loop that merges are one segment, every other choice is kept
unchanged. A node keeps the last ``memory`` choices of a segment. With ``order="ignored"`` it keeps how often each choice was
made and which choice came last, since the last choice gave the answer. A finished segment does not change after the loop. If
nested loops merge, the outermost loop decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from vinelm.errors import ConfigError, TemplateError, VineLMError
from vinelm.template import Branch, Loop, Stage, Template
from vinelm.template.steps import Step, mapped, stages_of, walk
from vinelm.trie.arrays import BoolArray, IntArray, frozen


class SharedNodes:
    """A base class of :class:`~vinelm.trie.trie.MergedTrie` with the methods that need only the trie's edges."""

    depth: npt.NDArray[np.int16]
    stage: npt.NDArray[np.int16]
    source: IntArray
    target: IntArray

    def __len__(self) -> int:
        """Return the number of nodes, the root included."""
        return len(self.depth)

    @property
    def is_merged(self) -> bool:
        """Whether histories share nodes: True."""
        return True

    def require_paths(self, what: str) -> NoReturn:
        """Raise :class:`ConfigError`: ``what`` needs a single path for each node, and here several paths lead to a node.

        ``what`` begins the error message.
        """
        raise ConfigError(f"{what}, and this trie merges histories: use 'latent'")

    @property
    def n_edges(self) -> int:
        """Number of edges."""
        return len(self.source)

    @cached_property
    def first_edge(self) -> npt.NDArray[np.int64]:
        """For each node, the index of the first edge that leaves it; one more element has the number of edges.

        The edges that leave node u are ``first_edge[u]`` up to, but not including, ``first_edge[u + 1]``.
        """
        return np.searchsorted(self.source, np.arange(len(self) + 1))

    @cached_property
    def by_target(self) -> npt.NDArray[np.int64]:
        """The indices of the edges sorted by target, then by source; shape (edges,)."""
        return np.argsort(self.target, kind="stable")

    @cached_property
    def first_in_edge(self) -> npt.NDArray[np.int64]:
        """For each node, the index in ``by_target`` of the first edge into it; one more element has the number of edges.

        The edges into node v are ``by_target[first_in_edge[v] : first_in_edge[v + 1]]``.
        """
        return np.searchsorted(self.target[self.by_target], np.arange(len(self) + 1))

    @property
    def arm_items(self) -> npt.NDArray[Any]:
        """For each edge, its index in the arrays about branches, such as ``arm``; shape (edges,).

        In a merged trie, these arrays have one element for each edge. So the result counts from 0 to the number of edges - 1.
        """
        return np.arange(self.n_edges)

    @property
    def n_arm_items(self) -> int:
        """The length of the arrays about branches, such as ``arm``. In a merged trie, they have one value for each edge."""
        return self.n_edges

    @cached_property
    def is_leaf(self) -> BoolArray:
        """For each node, whether it is a leaf (has no children)."""
        return frozen(np.diff(self.first_edge) == 0, np.bool_)

    @cached_property
    def next_stage(self) -> npt.NDArray[np.int16]:
        """For each node, the index of the stage of its first child; -1 for leaves.

        If several stages may follow a node, its other children may run other stages.
        """
        found = np.full(len(self), -1)
        found[~self.is_leaf] = self.stage[self.target[self.first_edge[:-1][~self.is_leaf]]]
        return frozen(found, np.int16)

    def children(self, node: int) -> list[int]:
        """Return the node's children, in the order of the template."""
        return [int(at) for at in self.target[self.first_edge[node] : self.first_edge[node + 1]]]

    def sources(self, node: int) -> list[int]:
        """Return the nodes from which an edge leads to this node, in order."""
        edges = self.by_target[self.first_in_edge[node] : self.first_in_edge[node + 1]]
        return [int(at) for at in self.source[edges]]

    def subtree(self, node: int) -> NoReturn:
        """Raise :class:`VineLMError`: a merged trie has no subtrees."""
        raise no_single_path("subtree")

    def accumulate(self, values: npt.NDArray[Any]) -> NoReturn:
        """Raise :class:`VineLMError`: a node of a merged trie has several paths, so there is no sum along its path."""
        raise no_single_path("a sum along the path")

    def multiply(self, of_edges: npt.NDArray[Any]) -> NoReturn:
        """Raise :class:`VineLMError`: a node of a merged trie has several paths, so there is no product along its path."""
        raise no_single_path("reach")

    def __getattr__(self, name: str) -> Any:
        """Raise :class:`VineLMError` for the attribute ``end``, which only a tree has, and :class:`AttributeError` for
        others.
        """
        if name == "end":
            raise no_single_path("end")
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")


def no_single_path(what: str) -> VineLMError:
    """Return an error which says that ``what``, such as ``subtree``, has no meaning because several histories lead to a
    node.
    """
    return VineLMError(f"{what} has no meaning on a merged trie, where several histories lead to a node: plan over it instead")


MOST_MERGED = 1_000_000
"""The most nodes of a trie with merged histories."""
Ints = npt.NDArray[np.int64]
_OUTSIDE = -1
_PACKED = 2**62


class _TooManyError(Exception):
    """Raised inside this module if the trie would have more nodes than allowed."""


@dataclass(frozen=True)
class _Segments:
    """Encodes which models were chosen inside the merging loops of a trie, as far as the trie remembers the choices.

    A choice is a number: stage index * number of models + model index. A sequence of calls is encoded as a row of ``width``
    numbers: either its last choices, each plus 1 (0 means none), or how often each choice was made.

    Args:
        owner: for each stage, the index of the merging loop that it is in, or -1.
        memory: for each loop, the number of last choices to remember; None if choices are counted.
        column: for each choice, the column with its count, if its loop counts choices.
        width: the number of columns.
    """

    owner: Ints
    memory: tuple[int | None, ...]
    column: Ints
    width: int

    @classmethod
    def of(cls, template: Template, n_models: int) -> _Segments:
        names = [stage.name for stage in template.stages]
        loops = list(_merging_loops(template.steps))
        owner = np.full(len(names), _OUTSIDE, np.int64)
        column = np.zeros(len(names) * n_models, np.int64)
        memory: list[int | None] = []
        widths = [1]
        for number, loop in enumerate(loops):
            inside = [names.index(name) for name in dict.fromkeys(stage.name for stage in stages_of([loop]))]
            owner[inside] = number
            choices = np.concatenate([np.arange(n_models) + stage * n_models for stage in inside])
            column[choices] = np.arange(len(choices))
            memory.append(None if loop.memory is None else min(loop.memory, template.depth))
            widths.append(len(choices) if loop.memory is None else min(loop.memory, template.depth))
        _check_one_place(template, loops)
        return cls(owner, tuple(memory), column, max(widths))

    def extended(self, window: Ints, loop: int, choice: Ints) -> Ints:
        """Return the windows of several histories after one more choice (stage and model) in the same loop.

        A window has what distinguishes a history in the trie: its last choices in the loop, or how often it made each choice.

        Args:
            window: The windows before this choice, shape (histories, width).
            loop: The index of the loop.
            choice: The new choice of each history, as its number.
        """
        memory = self.memory[loop]
        window = window.copy()
        if memory is None:
            window[np.arange(len(window)), self.column[choice]] += 1
        else:
            window[:, : memory - 1] = window[:, 1:memory]
            window[:, memory - 1] = choice + 1  # 0: no choice yet
        return window


def merged_arrays(template: Template, most: int = MOST_MERGED) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of the :class:`~vinelm.trie.trie.MergedTrie` of a template, keyed by attribute name. The template
    must be bound to a catalog.

    Raises:
        TemplateError: there are more nodes than ``most``; the message says which settings give fewer nodes. Or a stage is both
            inside and outside of a loop that merges.
    """
    try:
        return _built(template, most)
    except _TooManyError:
        raise TemplateError(_advice(template, most)) from None


# -- building ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Level:
    """The nodes of one depth; every array has one element for each node.

    A node is a position in the template's automaton together with what is remembered of the histories that lead to it.

    Attributes:
        position: The index of the position in the template's automaton.
        past: A number for all remembered choices except those in ``window``. Nodes for which these choices are the same have
            the same number.
        loop: The index of the merging loop that the node is in, or -1.
        window: The choices remembered in this loop, shape (nodes, width); see :class:`_Segments`.
        last: The last choice, as a number; -1 at the root.
    """

    position: Ints
    past: Ints
    loop: Ints
    window: Ints
    last: Ints

    @property
    def columns(self) -> list[Ints]:
        return [self.position, self.past, self.loop + 1, *self.window.T, self.last + 1]

    def rows(self, keep: Ints) -> _Level:
        return _Level(self.position[keep], self.past[keep], self.loop[keep], self.window[keep], self.last[keep])


def _built(template: Template, most: int) -> dict[str, npt.NDArray[Any]]:
    n_models = len(template.models)
    segments = _Segments.of(template, n_models)
    start, nothing = np.zeros(1, np.int64), np.full(1, -1)
    level = _Level(start, start, nothing, np.zeros((1, segments.width), np.int64), nothing)
    levels, edges, first = [level], [], 0
    while True:
        found = _followers(template, segments, level, n_models)
        if found is None:
            break
        source, after = found
        rank, kept = _ranks(after.columns)
        after = after.rows(kept)
        after = replace(after, past=_ranks([after.past])[0])
        below = first + len(level.position)
        if below + len(kept) - 1 > most:
            raise _TooManyError
        order = np.argsort(source, kind="stable")  # by branch, then by model, in the order of the template
        edges.append((first + source[order], below + rank[order]))
        levels.append(after)
        level, first = after, below
    last = np.concatenate([each.last for each in levels])
    answerable = np.array([stage.answerable for stage in template.stages])
    return {
        "depth": np.repeat(np.arange(len(levels)), [len(each.last) for each in levels]),
        "stage": np.where(last < 0, -1, last // n_models),
        "model": np.where(last < 0, -1, last % n_models),
        "answerable": (last >= 0) & answerable[last // n_models],
        "source": np.concatenate([source for source, _ in edges]),
        "target": np.concatenate([target for _, target in edges]),
    }


def _followers(template: Template, segments: _Segments, level: _Level, n_models: int) -> tuple[Ints, _Level] | None:
    """Return all edges that leave the nodes of a level, branch by branch; None after the last level.

    Args:
        template: The template.
        segments: Encodes remembered choices.
        level: The level.
        n_models: The number of the template's models.

    Returns:
        The index in ``level`` of each edge's source, and the node to which each edge leads. If several edges lead to the same
            node, the node occurs several times, because equal nodes are not merged yet.
    """
    stage_index = {stage.name: i for i, stage in enumerate(template.stages)}
    model_index = {name: i for i, name in enumerate(template.models)}
    memories, _ = _ranks([level.past, level.loop + 1, *level.window.T])
    offset = len(level.position)  # ids of earlier segments are below it
    sources, states = [], []
    for number in np.unique(level.position):
        nodes = np.flatnonzero(level.position == number)
        for name, after in template.flow.positions[number].arms.items():
            stage = stage_index[name]
            models = np.array([model_index[model] for model in template.stage(name).models or ()])
            source, model = np.repeat(nodes, len(models)), np.tile(models, len(nodes))
            choice, loop = stage * n_models + model, int(segments.owner[stage])
            goes_on = (level.loop[source] == loop) & (loop != _OUTSIDE)
            window = level.window[source] * goes_on[:, None]
            begun = offset + memories[source]  # the segments so far belong to the past
            if loop == _OUTSIDE:
                begun = 2 * offset + memories[source] * len(stage_index) * n_models + choice
            else:
                window = segments.extended(window, loop, choice)
            past = np.where(goes_on, level.past[source], begun)
            sources.append(source)
            states.append(_Level(np.full(len(source), after), past, np.full(len(source), loop), window, choice))
    if not sources:
        return None
    joined = [np.concatenate([getattr(state, name) for state in states]) for name in _Level.__dataclass_fields__]
    return np.concatenate(sources), _Level(*joined)


def _ranks(columns: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Rank the rows of a table lexicographically. ``columns`` are the table's columns; equal rows share a rank.

    Return the rank of each row, and for each rank the index of one row with this rank.
    """
    key, size = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        span = int(column.max(initial=0)) + 1
        if size * span > _PACKED:
            distinct, key = np.unique(key, return_inverse=True)
            size = len(distinct)
        key, size = key * span + column, size * span
    _, rows, ranks = np.unique(key, return_index=True, return_inverse=True)
    return ranks, rows


# -- the template ------------------------------------------------------------------------------------------------


def _merging_loops(steps: Sequence[Step]) -> Iterator[Loop]:
    """Yield the loops in which several sequences of choices may share a node; of nested loops, only the outermost."""
    for step in steps:
        if isinstance(step, Loop):
            if step.merges:
                yield step
            else:
                yield from _merging_loops(step.stages)
        elif isinstance(step, Branch):
            for arm in step.ways.values():
                yield from _merging_loops(arm)


def merging_words(template: Template) -> list[str]:
    """Return, for each loop that lets several sequences of choices share a node, its setting as a text such as ``memory=2``."""
    return [step.merging for step in walk(template.steps) if isinstance(step, Loop) and step.merging]


def _check_one_place(template: Template, loops: Sequence[Loop]) -> None:
    total = [stage.name for stage in stages_of(template.steps)]
    for loop in loops:
        inside = [stage.name for stage in stages_of([loop])]
        for name in dict.fromkeys(inside):
            if inside.count(name) != total.count(name):
                raise TemplateError(
                    f"stage {name!r} stands inside and outside of a loop with memory= or order='ignored': name its node in the"
                    " graph otherwise at one of the places"
                )


# -- too many ----------------------------------------------------------------------------------------------------


def _advice(template: Template, most: int) -> str:
    """Return the error message for a template whose trie would have more than ``most`` nodes, with advice on how to get fewer.

    The advice names settings of loops and a number of models, each with the number of nodes that it gives.
    """
    has_memory = any(loop.memory for loop in _merging_loops(template.steps))
    memories = [loop.memory or 4 for loop in _merging_loops(template.steps)]
    ways = []
    for memory in range(min(max(memories) - has_memory, 6), 0, -1):
        n = _size(replace(template, steps=_remerged(template.steps, memory=memory, order="seen")), most)
        if n is not None:
            ways.append(f"memory={memory} ({n:,} nodes)")
            break
    if has_memory:
        n = _size(replace(template, steps=_remerged(template.steps, memory=None, order="ignored")), most)
        if n is not None:
            ways.append(f"order='ignored' ({n:,}; exact where no turn sees earlier answers)")
    for n_models in range(len(template.models) - 1, 0, -1):
        n = _size(_fewer(template, n_models), most)
        if n is not None:
            ways.append(f"{n_models} model{'s' * (n_models > 1)} ({n:,})")
            break
    return f"the template has more than {most:,} merged histories: use {' or '.join(ways) or 'fewer loop turns'}"


def _size(template: Template, most: int) -> int | None:
    try:
        return len(_built(template, most)["depth"]) - 1
    except _TooManyError:
        return None


def _remerged(steps: Sequence[Step], **settings: Any) -> tuple[Step, ...]:
    """Return a copy of the steps in which these ``settings`` replace those of every loop with ``memory=`` or
    ``order="ignored"``.
    """
    changed: list[Step] = []
    for step in steps:
        if isinstance(step, Loop):
            inner = _remerged(step.stages, **settings)
            changed.append(replace(step, stages=inner, **(settings if step.merges else {})))
        elif isinstance(step, Branch):
            changed.append(Branch({label: _remerged(arm, **settings) for label, arm in step.ways.items()}))
        else:
            changed.append(step)
    return tuple(changed)


def _fewer(template: Template, n_models: int) -> Template:
    """Return a copy of the template with only the first ``n_models`` of its models. A stage that allows none of these keeps
    its first model.
    """
    kept = template.models[:n_models]

    def cut(stage: Stage) -> Stage:
        models = tuple(name for name in stage.models or () if name in kept) or (stage.models or ())[:1]
        return replace(stage, models=models, default=stage.default if stage.default in models else None)

    return replace(template, steps=mapped(template.steps, cut))
