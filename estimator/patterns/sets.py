"""Finds the sets of bindings that explain recorded reads. A binding is the source of one argument of a tool call."""

from __future__ import annotations

import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from vinelm.catalog.secrets import holds_secret
from vinelm.estimator.patterns.bindings import ANY_ITEM, ANY_KEY, ANY_VALUE, Binding, Bindings, Path, as_type, fill
from vinelm.estimator.patterns.session_state import SessionState
from vinelm.estimator.patterns.words import tokens_of
from vinelm.tools.call import History, ToolEvent

LEAST_GROUPS = 2
"""The fewest groups of sessions in which a set must have yielded a call."""
MOST_SETS = 8
"""The most sets of one tool."""
LEAST_CONSTANT, LEAST_CONSTANT_SHARE, LEAST_CONSTANT_GROUPS = 8, 0.10, 4
"""A value is a constant if it occurs in at least this many calls of the tool, this share of them, and this many groups."""
LITERAL_SHARE = 0.15
"""A key is part of a path if at least this share of the dictionaries at that position have it; rarer keys are data."""
_SOURCES_AN_ARGUMENT = 4
_MOST_CHOICES = 64
_MOST_LEAVES = 2000


def find_sets(
    sessions: Sequence[History], groups: Sequence[Hashable], reads: frozenset[str]
) -> dict[tuple[str, Bindings], set[Hashable]]:
    """Return, for each tool, a few sets of bindings (sources of its arguments) that together explain the recorded reads.

    The result maps (tool, set of bindings) to the groups of those sessions in which the set gives the arguments of a recorded
    read.
    """
    finder = _Finder(sessions, groups, reads)
    support: dict[tuple[str, str, Binding], set[Hashable]] = defaultdict(set)
    for read in finder.reads_with_sources():
        for name, found in read.sources.items():
            for binding in found:
                support[read.event.tool, name, binding].add(read.group)
    yielded: dict[tuple[str, Bindings], _Yield] = defaultdict(_Yield)
    for at, read in enumerate(finder.reads_with_sources()):
        tool, wanted = read.event.tool, _comparable(read.event.arguments)
        ranked = [
            [(name, one) for one in sorted(found, key=lambda one: (-len(support[tool, name, one]), one))][:_SOURCES_AN_ARGUMENT]
            for name, found in sorted(read.sources.items())
        ]
        for chosen in itertools.islice(itertools.product(*ranked), _MOST_CHOICES):
            rows = fill(chosen, read.seen.sources).values()
            if any(_comparable(one.arguments) == wanted for one in rows):
                of = yielded[tool, chosen]
                of.calls.add(at)
                of.groups.add(read.group)
                of.rows += len(rows)
    kept: dict[tuple[str, Bindings], set[Hashable]] = {}
    for tool in sorted({tool for tool, _ in yielded}):
        of_tool = {key: one for key, one in yielded.items() if key[0] == tool and len(one.groups) >= LEAST_GROUPS}
        for key in _cover(of_tool):
            kept[key] = of_tool[key].groups
    return kept


@dataclass
class _Yield:
    """The recorded reads that one set of bindings (sources of a call's arguments) explains.

    Attributes:
        calls: the numbers of these reads. Only recorded reads that have sources are numbered.
        groups: the groups of these reads' sessions.
        rows: the total number of calls that the set predicted before these reads, including calls that were not made.
    """

    calls: set[int] = field(default_factory=set)
    groups: set[Hashable] = field(default_factory=set)
    rows: int = 0


def _cover(found: Mapping[tuple[str, Bindings], _Yield]) -> list[tuple[str, Bindings]]:
    """Return at most :data:`MOST_SETS` sets of bindings that together yield the recorded calls, most useful first.

    A set gives the source of each argument of one tool. Sets are chosen greedily, by the number of recorded calls that no
    earlier set yields. Of equally good sets, the one that yields the fewest calls is chosen.
    """
    chosen: list[tuple[str, Bindings]] = []
    covered: set[int] = set()
    left = sorted(found)
    while left and len(chosen) < MOST_SETS:
        best = max(left, key=lambda key: (len(found[key].calls - covered), -found[key].rows / len(found[key].calls)))
        if not found[best].calls - covered:
            break
        covered |= found[best].calls
        chosen.append(best)
        left.remove(best)
    return chosen


class _Read(NamedTuple):
    """A recorded read, the possible bindings of its arguments, and the session's state before it.

    Attributes:
        group: the group that the session belongs to; a source counts once for each group in which it occurs.
        event: the read.
        sources: the possible bindings by the argument's name.
        seen: the session's state before the read.
    """

    group: Hashable
    event: ToolEvent
    sources: dict[str, set[Binding]]
    seen: SessionState


class _Finder:
    """Finds the sources of the arguments of every read in some sessions."""

    def __init__(self, sessions: Sequence[History], groups: Sequence[Hashable], reads: frozenset[str]) -> None:
        self.sessions = sessions
        self.groups = groups
        self.reads = reads
        self.calls: Counter[str] = Counter()
        self.constants: Counter[tuple[str, str, str]] = Counter()
        results: dict[str, list[Any]] = defaultdict(list)
        self.groups_of_constant: dict[tuple[str, str, str], set[Hashable]] = defaultdict(set)
        for group, event in ((group, event) for group, one in zip(groups, sessions, strict=True) for event in one):
            if isinstance(event, ToolEvent):
                self.calls[event.tool] += 1
                results[event.tool].append(event.result)
                for name, value in (event.arguments or {}).items():
                    constant = (event.tool, name, json.dumps(value, sort_keys=True))
                    self.constants[constant] += 1
                    self.groups_of_constant[constant].add(group)
        self.literals: dict[tuple[str, Path], set[str]] = {}
        for tool, nodes in results.items():
            self._learn_literals(tool, (), nodes)

    def _learn_literals(self, tool: str, path: Path, nodes: Sequence[Any]) -> None:
        dictionaries = [node for node in nodes if isinstance(node, dict)]
        if dictionaries:
            count = Counter(key for node in dictionaries for key in node)
            least = max(2.0, LITERAL_SHARE * len(dictionaries))
            literals = self.literals[tool, path] = {key for key, times in count.items() if times >= least}
            for key in literals:
                self._learn_literals(tool, (*path, key), [node[key] for node in dictionaries if key in node])
            rest = [value for node in dictionaries for key, value in node.items() if key not in literals]
            self._learn_literals(tool, (*path, ANY_VALUE), rest)
        items = [item for node in nodes if isinstance(node, list) for item in node]
        if items:
            self._learn_literals(tool, (*path, ANY_ITEM), items)

    def _leaves(self, tool: str, node: Any, path: Path) -> Iterator[tuple[Path, Any]]:
        """Yield the path and value of each leaf below ``node``, the part of a tool's result at ``path``."""
        if isinstance(node, dict):
            literals = self.literals.get((tool, path), set())
            for key, value in node.items():
                if key not in literals:
                    yield (*path, ANY_KEY), key
                yield from self._leaves(tool, value, (*path, key if key in literals else ANY_VALUE))
        elif isinstance(node, list):
            for item in node:
                yield from self._leaves(tool, item, (*path, ANY_ITEM))
        else:
            yield path, node

    def reads_with_sources(self) -> Iterator[_Read]:
        """Yield every recorded read for which each argument has at least one possible binding.

        The state ``seen`` of a yielded read is valid only until the next read is requested.
        """
        for session, group in zip(self.sessions, self.groups, strict=True):
            seen = SessionState(self.reads)
            at_hand: dict[tuple[type, Any], set[Binding]] = defaultdict(set)
            for event in session:
                if isinstance(event, ToolEvent) and event.tool in self.reads and event.arguments is not None:
                    sources = {name: self._of(event.tool, name, value, at_hand) for name, value in event.arguments.items()}
                    if all(sources.values()):
                        yield _Read(group, event, sources, seen)
                self._take_in(event, at_hand)
                seen.add(event)

    def _of(self, tool: str, name: str, value: Any, at_hand: dict[tuple[type, Any], set[Binding]]) -> set[Binding]:
        found = set(at_hand.get((type(value), value), ())) if _is_telling(value) else set()
        for kind, of_kind in (("text", str), ("int", int), ("float", float)):
            if type(value) is of_kind:
                found |= {
                    Binding("user", shape=one.shape, text=kind)
                    for one in at_hand.get((Binding, str(value)), ())
                    if as_type(one.text, kind) == value
                }
        if type(value) is float:
            found |= {Binding("user", shape=one.shape, text="float") for one in at_hand.get((Binding, f"{value:g}"), ())}
        constant = (tool, name, json.dumps(value, sort_keys=True))
        least = max(LEAST_CONSTANT, LEAST_CONSTANT_SHARE * self.calls[tool])
        is_common = self.constants[constant] >= least and len(self.groups_of_constant[constant]) >= LEAST_CONSTANT_GROUPS
        # Applications pass tokens to their tools, which are the same in all sessions: no file may contain them.
        if is_common and not holds_secret({name: value}):
            found.add(Binding("constant", text=constant[-1]))
        return found

    def _take_in(self, event: str | ToolEvent, at_hand: dict[tuple[type, Any], set[Binding]]) -> None:
        if isinstance(event, str):
            for token in tokens_of(event):
                plain = token.text.replace(",", "").lstrip("$")
                for text in {token.text, plain}:
                    at_hand[Binding, text].add(Binding("user", shape=token.shape, text=plain))
        elif event.is_ok:
            for name, value in (event.arguments or {}).items():
                if _is_telling(value):
                    at_hand[type(value), value] |= {
                        Binding("call", event.tool, ("arguments", name)),
                        Binding("named", path=(name,)),
                    }
            for path, value in itertools.islice(self._leaves(event.tool, event.result, ()), _MOST_LEAVES):
                if _is_telling(value):
                    at_hand[type(value), value].add(Binding("call", event.tool, ("result", *path)))
                    if len(path) == 1 and isinstance(path[0], str):
                        at_hand[type(value), value].add(Binding("named", path=path))


def _is_telling(value: Any) -> bool:
    """Return whether the value is so specific that equal values likely have the same source (unlike 1 or True)."""
    if isinstance(value, str):
        return 2 <= len(value) <= 300
    return type(value) in (int, float) and (abs(value) >= 10 or not float(value).is_integer())


def _comparable(arguments: Any) -> str:
    return json.dumps(arguments, sort_keys=True, default=str)
