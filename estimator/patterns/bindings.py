"""Sources of a tool call's arguments: a path in an earlier call, the user's words, or a constant."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from vinelm.estimator.patterns.words import Token
from vinelm.tools.call import ToolEvent

ANY_ITEM, ANY_VALUE, ANY_KEY = 0, 1, 2
"""Steps of a path that stand for every item of a list, every value of a dictionary whose keys vary, and every such key."""
Path = tuple[str | int, ...]
MOST_ROWS = 16
"""The most candidates of one pattern that are considered."""
MOST_EVENTS = 6
"""The most earlier calls of one tool that are considered, the newest first."""
MOST_NAMED = 2
"""How many of the last values of one name are kept."""
_PLACES_A_MESSAGE = 1000


@dataclass(frozen=True, slots=True, order=True)
class Binding:
    """The source from which one argument of a predicted tool call is taken.

    Args:
        kind: "call" for a value of an earlier call of ``tool``. "named" for the last values of a given name in any earlier
            call. "user" for a token of the user's words. "constant" for a constant.
        tool: for "call", the tool of the earlier call.
        path: for "call", the steps to the value from ``"result"`` or ``"arguments"`` on, each a key or a wildcard such as
            :data:`ANY_ITEM`. For "named", the name.
        shape: for "user", the token's shape.
        text: for "constant", the value as JSON; for "user", the type that the token is converted to: "text", "int" or "float".
    """

    kind: Literal["call", "named", "user", "constant"]
    tool: str = ""
    path: Path = ()
    shape: str = ""
    text: str = ""

    @property
    def reads(self) -> str:
        """The name of the source that the binding reads: ``call TOOL``, ``named NAME`` or ``user``; else ``constant``."""
        return f"call {self.tool}" if self.kind == "call" else f"named {self.path[0]}" if self.kind == "named" else self.kind


Bindings = tuple[tuple[str, Binding], ...]
"""The binding of each argument, by name in order. Empty for a tool without arguments."""


class Filled(NamedTuple):
    """Arguments of a predicted call, filled in by bindings.

    Attributes:
        arguments: the values by the argument's name.
        source: the index in the session's history of the newest event that the values come from; -1 if they come from none.
    """

    arguments: dict[str, Any]
    source: int


class Sources:
    """The values in the events of one session from which bindings fill in arguments."""

    def __init__(self) -> None:
        self.calls: dict[str, list[tuple[int, Mapping[str, Any]]]] = {}
        self.tokens: dict[str, list[Token]] = {}
        """The user's tokens by shape; their positions are numbered across all messages."""
        self.event_of_message: list[int] = []
        self._words: dict[tuple[tuple[str, Binding], ...], tuple[int, list[Filled]]] = {}
        self.named: dict[str, list[Filled]] = {}
        """By name, the latest values of arguments of calls and of entries of their results, newest first."""
        self.versions: dict[str, int] = {}
        """The position of the last event that changed what a binding reads, by :attr:`Binding.reads`."""

    def add_call(self, at: int, event: ToolEvent) -> None:
        """Add a call that did not fail; ``at`` is its position in the history."""
        root = {"arguments": event.arguments or {}, "result": event.result}
        self.calls.setdefault(event.tool, []).append((at, root))
        self.versions[f"call {event.tool}"] = at
        for entries in root.values():
            for name, value in entries.items() if isinstance(entries, dict) else ():
                if not isinstance(value, (dict, list)):
                    self.versions[f"named {name}"] = at
                    last = self.named.setdefault(name, [])
                    last[:] = [Filled({name: value}, at), *(one for one in last if one.arguments[name] != value)][:MOST_NAMED]

    def add_words(self, at: int, tokens: Sequence[Token]) -> None:
        """Add the tokens of a user message; ``at`` is its position in the history."""
        offset = len(self.event_of_message) * _PLACES_A_MESSAGE
        self.event_of_message.append(at)
        self.versions["user"] = at
        for token in tokens:
            place = offset + min(token.place, _PLACES_A_MESSAGE - 1)
            self.tokens.setdefault(token.shape, []).append(Token(token.text, token.shape, place))

    def words_of(self, wanted: tuple[tuple[str, Binding], ...]) -> list[Filled]:
        """Return the combinations of arguments that the bindings ``wanted`` can take from tokens of the user's messages.

        Combinations from the newest message come first. The result is cached until the next user message.
        """
        messages, known = len(self.event_of_message), self._words.get(wanted)
        if known is None or known[0] != messages:
            known = self._words[wanted] = (messages, list(_of_words(wanted, self)))
        return known[1]

    def event_at(self, place: int) -> int:
        """Return the index in the history of the user message that contains the token with the number ``place``.

        Tokens are numbered over all user messages of the session; see :meth:`add_words`.
        """
        return self.event_of_message[place // _PLACES_A_MESSAGE]


def fill(bindings: Bindings, sources: Sources) -> dict[str, Filled]:
    """Return the combinations of arguments that the bindings yield from the values seen so far, newest values first.

    Each combination is the arguments of one possible call. The keys of the result are the combinations as text. At most
    :data:`MOST_ROWS` combinations are returned.
    """
    constants = {name: json.loads(one.text) for name, one in bindings if one.kind == "constant"}
    words = [(name, one) for name, one in bindings if one.kind == "user"]
    tools: dict[str, dict[str, Path]] = {}
    for name, one in bindings:
        if one.kind == "call":
            tools.setdefault(one.tool, {})[name] = one.path
    parts = [list(_of_calls(sources.calls.get(tool, ()), paths)) for tool, paths in tools.items()]
    parts += [
        [Filled({name: old.arguments[str(one.path[0])]}, old.source) for old in sources.named.get(str(one.path[0]), ())]
        for name, one in bindings
        if one.kind == "named"
    ]
    if words:
        parts.append(sources.words_of(tuple(words)))
    found: dict[str, Filled] = {}
    for chosen in itertools.islice(itertools.product(*parts), 4 * MOST_ROWS):
        arguments = dict(constants)
        for part in chosen:
            arguments.update(part.arguments)
        found.setdefault(repr(sorted(arguments.items())), Filled(arguments, max((part.source for part in chosen), default=-1)))
        if len(found) >= MOST_ROWS:
            break
    return found


def _of_calls(calls: Sequence[tuple[int, Mapping[str, Any]]], paths: dict[str, Path]) -> Iterator[Filled]:
    for at, root in itertools.islice(reversed(calls), MOST_EVENTS):
        for row in itertools.islice(_rows(root, paths), MOST_ROWS):
            yield Filled(row, at)


def _rows(node: Any, paths: Mapping[str, Path]) -> Iterator[dict[str, Any]]:
    """Yield the combinations of values found below the JSON value ``node``, each as a dictionary by the argument's name.

    ``paths`` maps the argument's name to the path of its value. Paths that share a wildcard use the same item of the list.
    """
    ended = {name: node for name, path in paths.items() if not path}
    if ended and isinstance(node, (dict, list)):
        return
    groups: dict[str | int, dict[str, Path]] = {}
    for name, path in paths.items():
        if path:
            groups.setdefault(ANY_VALUE if path[0] == ANY_KEY else path[0], {})[name] = path
    below = [list(itertools.islice(_step(node, step, wanted), MOST_ROWS)) for step, wanted in groups.items()]
    for chosen in itertools.product(*below):
        row = dict(ended)
        for part in chosen:
            row.update(part)
        yield row


def _step(node: Any, step: str | int, paths: dict[str, Path]) -> Iterator[dict[str, Any]]:
    if isinstance(step, str):
        if isinstance(node, dict) and step in node:
            yield from _rows(node[step], {name: path[1:] for name, path in paths.items()})
    elif step == ANY_ITEM:
        for item in node if isinstance(node, list) else ():
            yield from _rows(item, {name: path[1:] for name, path in paths.items()})
    elif isinstance(node, dict):
        inside = {name: path[1:] for name, path in paths.items() if path[0] == ANY_VALUE}
        for key, value in node.items():
            for row in _rows(value, inside) if inside else ({},):
                yield {**row, **{name: key for name, path in paths.items() if path[0] == ANY_KEY}}


def _of_words(wanted: Sequence[tuple[str, Binding]], sources: Sources) -> Iterator[Filled]:
    """Yield sets of arguments that are filled with tokens of the user's messages, those of the newest message first.

    ``wanted`` has each argument's name and its binding, which gives the shape that the argument's token must have. For one
    message, sets whose tokens are close to each other come first.
    """
    lists = [sources.tokens.get(one.shape, []) for _, one in wanted]
    if not all(lists):
        return
    rarest = min(range(len(wanted)), key=lambda i: len(lists[i]))
    rows = []
    for anchor in lists[rarest][-12:]:
        near = [
            [anchor] if i == rarest else sorted(tokens, key=lambda token: abs(token.place - anchor.place))[:4]
            for i, tokens in enumerate(lists)
        ]
        for chosen in itertools.islice(itertools.product(*near), 64):
            places = [token.place for token in chosen]
            if len(set(zip(places, (token.text for token in chosen), strict=True))) == len(places):
                backwards = sum(a > b for a, b in itertools.pairwise(places))
                message = max(places) // _PLACES_A_MESSAGE
                rows.append(((-message, max(places) - min(places), backwards, min(places)), chosen))
    rows.sort(key=lambda row: row[0])
    for _, chosen in rows[:MOST_ROWS]:
        values = {name: as_type(token.text, one.text) for (name, one), token in zip(wanted, chosen, strict=True)}
        if None not in values.values():
            yield Filled(values, sources.event_at(max(token.place for token in chosen)))


def as_type(text: str, kind: str) -> str | int | float | None:
    """Return a token converted to the type ``kind``: "text", "int" or "float"; None if this conversion is impossible."""
    if kind == "text":
        return text
    try:
        return int(text.replace(",", "").lstrip("$")) if kind == "int" else float(text.replace(",", "").lstrip("$"))
    except ValueError:
        return None
