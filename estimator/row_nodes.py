"""Find the node of the trie that each observation stands for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from vinelm.errors import InputError
from vinelm.rows.observation import Observation
from vinelm.template import StopRule
from vinelm.trie import Trie


def rows_with_nodes(observations: Iterable[Observation], trie: Trie, rule: StopRule) -> Iterator[tuple[Observation, int]]:
    """Return each row with its node.

    Where the template branches, the stages of a request's earlier rows say which arms it took. A row that is missing there is
    replaced by what the row before it says of the stage that came next, or by the template if it allows one stage only.

    Raises:
        InputError: a prefix, stage or arm is not in the template, a request's rows contradict one another, or an earlier row is
            missing and several stages are possible.
    """
    if trie.is_linear:
        finder = _NodeFinder(trie)
        yield from ((row, finder.find(row)) for row in observations)
        return
    rows = list(observations)
    walker = _BranchWalker(rows, trie)
    for row in rows:
        node = walker.find(row)
        if row.arm is not None and not row.ended(rule) and row.arm not in (arms := walker.arms(node)):
            raise InputError(
                f"{where_of(row)}: stage {row.arm!r} came next, which the template does not allow there"
                f" (it allows {', '.join(arms) or 'none'}): add the arm to the template and profile again"
            )
        yield row, node


def where_of(row: Observation) -> str:
    """Return the request and prefix of a row, as the start of an error."""
    return f"request {row.request_id!r}, prefix {'/'.join(row.prefix)}"


class _NodeFinder:
    """Finds the node of a row; caches prefixes, since many rows share one."""

    def __init__(self, trie: Trie) -> None:
        self._trie = trie
        self._known: dict[tuple[tuple[str, ...], str], int] = {}

    def find(self, row: Observation) -> int:
        key = (row.prefix, row.stage)
        if key not in self._known:
            self._known[key] = self._look_up(row)
        return self._known[key]

    def _look_up(self, row: Observation) -> int:
        where = where_of(row)
        try:
            node = self._trie.node(row.prefix)
        except KeyError:
            raise InputError(
                f"{where}: the template has no such prefix: estimate with the template and models of the profiling run"
            ) from None
        stage = self._trie.stages[self._trie.stage[node]]
        if stage != row.stage:
            raise InputError(
                f"{where}: stage {row.stage!r}, where the template has {stage!r}: estimate with the profiling run's template"
            )
        return node


class _BranchWalker:
    """Walks down a trie that branches, along the stages that the rows of one request tell."""

    def __init__(self, rows: Sequence[Observation], trie: Trie) -> None:
        self._trie = trie
        self._rows: dict[tuple[str, tuple[str, ...]], Observation] = {}
        for row in rows:
            if self._rows.setdefault((row.request_id, row.prefix), row) != row:
                raise InputError(f"{where_of(row)}: two different rows for one cell: keep one of them")
        self._child: dict[tuple[int, str, str], int] = {}
        self._arms: dict[int, tuple[str, ...]] = {}

    def arms(self, node: int) -> tuple[str, ...]:
        if node not in self._arms:
            self._arms[node] = tuple(self._trie.arms(node))
        return self._arms[node]

    def find(self, row: Observation) -> int:
        node = 0
        before: Observation | None = None
        for k in range(1, len(row.prefix) + 1):
            own = row if k == len(row.prefix) else self._rows.get((row.request_id, row.prefix[:k]))
            stage = self._stage(row, node, own, before)
            node = self._step(row, node, row.prefix[k - 1], stage)
            before = own
        return node

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
                raise InputError(
                    f"{where_of(row)}: the template has no such path at stage {stage!r}: estimate with the template and"
                    " models of the profiling run"
                ) from None
        return self._child[key]
