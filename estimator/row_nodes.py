"""Locates observations in a trie: finds each result's node, and the results above it on its request's path."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from vinelm.errors import InputError
from vinelm.estimator.arms import arms_of
from vinelm.rows.observation import Cell, Observation
from vinelm.template import StopRule
from vinelm.trie import Trie
from vinelm.trie.arrays import BoolArray

Ints = npt.NDArray[np.int64]


def rows_with_nodes(observations: Iterable[Observation], trie: Trie, rule: StopRule) -> Iterator[tuple[Observation, int]]:
    """Yield each result with the index of its node.

    The stages of a request's earlier results determine which branches it took. If a result is missing, the result before it
    names the stage that came next; otherwise the template must allow only one stage.

    Raises:
        InputError: a prefix, stage or branch is not in the template, a request's results contradict one another, or an earlier
            result is missing and several stages are possible.
    """
    rows = list(observations)
    walker = _Walker(rows, trie)
    for row in rows:
        node = walker.find(row)
        if not row.ended(rule) and row.contradicts(arms := walker.arms(node)):
            raise InputError(
                f"{where_of(row)}: stage {row.arm!r} came next, which the template does not allow there"
                f" (it allows {', '.join(arms) or 'none'}): add the arm to the template and profile again"
            )
        yield row, node


def where_of(row: Observation) -> str:
    """Return the request and prefix of a result, as the start of an error message."""
    return f"request {row.request_id!r}, prefix {'/'.join(row.prefix)}"


class _Walker:
    """Finds the nodes of results by following the stages of each request's results down the trie."""

    def __init__(self, rows: Sequence[Observation], trie: Trie) -> None:
        self._trie = trie
        self._rows: dict[tuple[str, tuple[str, ...]], Observation] = {}
        for row in rows:
            self._rows.setdefault((row.request_id, row.prefix), row)
        self._nodes: dict[tuple[str, tuple[str, ...]], int] = {}
        self._child: dict[tuple[int, str, str], int] = {}
        self._arms: dict[int, tuple[str, ...]] = {}

    def arms(self, node: int) -> tuple[str, ...]:
        if node not in self._arms:
            self._arms[node] = tuple(self._trie.arms(node))
        return self._arms[node]

    def find(self, row: Observation) -> int:
        known, node = self._known_above(row)
        before = self._rows[row.request_id, row.prefix[:known]] if known else None
        for k in range(known + 1, len(row.prefix) + 1):
            own = row if k == len(row.prefix) else self._rows.get((row.request_id, row.prefix[:k]))
            stage = self._stage(row, node, own, before)
            node = self._step(row, node, row.prefix[k - 1], stage)
            before = own
        self._nodes[row.request_id, row.prefix] = node
        return node

    def _known_above(self, row: Observation) -> tuple[int, int]:
        """Return the longest proper prefix of the result's path whose node is known, as (length, node).

        (0, 0) stands for the root, if no longer prefix is known.
        """
        for length in range(len(row.prefix) - 1, 0, -1):
            node = self._nodes.get((row.request_id, row.prefix[:length]))
            if node is not None:
                return length, node
        return 0, 0

    def _stage(self, row: Observation, node: int, own: Observation | None, before: Observation | None) -> str:
        told = None if before is None else before.arm
        if own is not None:
            if told is not None and told != own.stage:
                raise InputError(
                    f"{where_of(own)}: it ran stage {own.stage!r}, but the row before it says that {told!r} came next:"
                    " keep the rows of one run"
                )
            return own.stage
        arms = self.arms(node)
        if told is not None or len(arms) == 1:
            return told or arms[0]
        raise InputError(
            f"{where_of(row)}: an earlier row of this request is missing, and any of {', '.join(arms) or 'no stages'} may"
            " have run there: give the rows of its whole path"
        )

    def _step(self, row: Observation, node: int, model: str, stage: str) -> int:
        key = (node, model, stage)
        if key not in self._child:
            try:
                self._child[key] = self._trie.child(node, model, stage)
            except KeyError:
                arms = self.arms(node)
                what = "the template has no such prefix"
                if arms and stage not in arms:
                    what = f"stage {stage!r}, where the template has {' or '.join(map(repr, arms))}"
                raise InputError(
                    f"{where_of(row)}: {what}: estimate with the template and models of the profiling run"
                ) from None
        return self._child[key]


def cells_above(cells: Sequence[Cell]) -> Ints:
    """Return for each result the index of its request's nearest earlier result on the same path; -1 if there is none."""
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
    """Return for each result whether the request had already stopped at an earlier result on the same path.

    Args:
        trie: the trie.
        node: the node of each result.
        stop: whether the request stops at each result.
        above: the index of the previous result on the path; -1 if there is none.
    """
    beyond = np.zeros(len(node), np.bool_)
    depth = trie.depth[node]
    for level in range(2, trie.max_depth + 1):
        here = np.flatnonzero((depth == level) & (above >= 0))
        beyond[here] = beyond[above[here]] | stop[above[here]]
    return beyond


def told_arms(trie: Trie, node: Ints, stop: BoolArray, arm: Ints, above: Ints) -> Ints:
    """Return the stage that followed each result, as an index into the trie's stages; -1 after a stop or if unknown.

    Where ``arm`` is -1, a later result or the template may determine the stage. For the other arguments see
    :func:`below_a_stop`.
    """
    found = arm.copy()
    below = np.flatnonzero(above >= 0)
    below = below[trie.depth[node[below]] == trie.depth[node[above[below]]] + 1]
    below = below[found[above[below]] < 0]
    found[above[below]] = trie.stage[node[below]]
    only = arms_of(trie).only_stage[node]
    return np.asarray(np.where(stop, -1, np.where((found < 0) & (only >= 0), only, found)), np.int64)
