"""The history of a session, and the calls that bindings yield from it."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from vinelm.errors import WorkflowError
from vinelm.estimator.patterns.bindings import Bindings, Filled, Sources, fill
from vinelm.estimator.patterns.words import stems_of, tokens_of
from vinelm.tools.call import ToolEvent, canonical_key

USER = "user"
"""The signature of a user message. The signature of a call is the name of its tool, with ``!`` if the call failed."""
LONGEST_SUFFIX = 2


_stems_of_tool = functools.lru_cache(maxsize=1024)(stems_of)


WithSources = tuple[str, Bindings, tuple[str, ...]]
"""A tool, a set of bindings of its arguments, and the sources that these bindings read (:attr:`Binding.reads`)."""


def with_sources(sets: Iterable[tuple[str, Bindings]]) -> tuple[WithSources, ...]:
    """Return, for each set of bindings, (its tool, the bindings, the names of the sources that the bindings read).

    A binding gives the source of one argument of a predicted call. Constants have no source. For the names see
    :attr:`Binding.reads`.
    """
    return tuple((tool, of, tuple({one.reads: None for _, one in of if one.kind != "constant"})) for tool, of in sets)


class Yielded(NamedTuple):
    """A possible tool call that a set of bindings (sources of its arguments) gives, and its rank among the set's possible
    calls.

    Args:
        at: the index of the set.
        rank: how many of the set's calls come before this call, not counting calls made since the last write; at most 8.
        of: how many calls the set gives, not counting calls made since the last write.
        read_share: the share of the set's calls that were made since the last write.
        age: the number of events since the newest source of the call's arguments.
    """

    at: int
    rank: int
    of: int
    read_share: float
    age: int


@dataclass(slots=True)
class Possible:
    """A tool call that may come next.

    Attributes:
        tool, arguments: the call.
        is_again: whether an equal call was executed before the last write.
        yielded: one item for each set of bindings (sources of arguments) that gives this call, with the call's rank among all
            calls that the set gives.
    """

    tool: str
    arguments: dict[str, Any]
    is_again: bool
    yielded: list[Yielded]


class SessionState:
    """The state of a session after some of its events.

    Args:
        reads: the names of the read-only tools; every other tool writes.
    """

    def __init__(self, reads: Iterable[str]) -> None:
        self.reads = frozenset(reads)
        self.sources = Sources()
        self.is_fresh: dict[str, bool] = {}
        """For the key of every executed read, whether no write came after it."""
        self.signatures: list[str] = []
        self.calls_of: dict[str, int] = {}
        self.last_words: set[str] = set()
        self.words: set[str] = set()
        self.last_stems: frozenset[str] = frozenset()
        self.tools_this_turn: set[str] = set()
        self.suffixes: list[tuple[str, ...]] = [()]
        """The signatures of the last 0, 1, ... events, up to :data:`LONGEST_SUFFIX`; of all events if there are fewer."""
        self.turns = 0
        self._keys: dict[tuple[str, str], str] = {}
        """The key of each call that a set has ever yielded, by the tool and the text of the arguments."""
        self._known: dict[int, tuple[list[int | None], list[tuple[str, Filled]]]] = {}
        self.calls_this_turn = 0

    def add(self, event: str | ToolEvent) -> None:
        """Update the state with a user message or a finished call."""
        self._take_in(event)
        self.suffixes = [tuple(self.signatures[-length:]) if length else () for length in range(LONGEST_SUFFIX + 1)]

    def _take_in(self, event: str | ToolEvent) -> None:
        at = len(self.signatures)
        if isinstance(event, str):
            tokens = tokens_of(event)
            self.sources.add_words(at, tokens)
            self.last_words = {token.text for token in tokens}
            self.words |= self.last_words
            self.signatures.append(USER)
            self.turns += 1
            self.last_stems = stems_of(event)
            self.tools_this_turn = set()
            self.calls_this_turn = 0
            return
        self.signatures.append(event.tool if event.is_ok else f"{event.tool}!")
        self.calls_of[event.tool] = self.calls_of.get(event.tool, 0) + 1
        self.calls_this_turn += 1
        self.tools_this_turn.add(event.tool)
        if event.tool in self.reads:
            self.is_fresh[event.key] = True
        else:
            self.is_fresh = dict.fromkeys(self.is_fresh, False)
        if event.is_ok:
            self.sources.add_call(at, event)

    def possible(self, sets: Sequence[WithSources]) -> dict[str, Possible]:
        """Return the calls that the sets of bindings yield now, keyed by the call's key.

        A set of bindings says where the arguments of a tool's calls come from. Calls already executed since the last write are
        left out.
        """
        found: dict[str, Possible] = {}
        version_of = self.sources.versions.get
        for at, (tool, bindings, sources) in enumerate(sets):
            version = [version_of(one) for one in sources]
            known = self._known.get(at)
            if known is None or known[0] != version:  # something that the set reads has changed
                known = self._known[at] = (version, [] if None in version else self._rows(tool, bindings))
            rows = known[1]
            if not rows:
                continue
            open_rows = [(key, filled) for key, filled in rows if not self.is_fresh.get(key)]
            share = 1.0 - len(open_rows) / len(rows)
            for rank, (key, filled) in enumerate(open_rows):
                one = found.get(key)
                if one is None:
                    one = found[key] = Possible(tool, filled.arguments, key in self.is_fresh, [])
                age = len(self.signatures) - 1 - filled.source if filled.source >= 0 else 0
                one.yielded.append(Yielded(at, min(rank, 8), len(open_rows), share, age))
        return found

    def _rows(self, tool: str, bindings: Bindings) -> list[tuple[str, Filled]]:
        """Return the calls of ``tool`` that a set of bindings yields now, as pairs of the call's key and its arguments."""
        rows = []
        for text, filled in fill(bindings, self.sources).items():
            key = self._keys.get((tool, text))
            if key is None:
                with suppress(WorkflowError):  # NaN in a result: no call can be identified by it
                    key = self._keys[tool, text] = canonical_key(tool, filled.arguments)
            if key is not None:
                rows.append((key, filled))
        return rows

    def names_tool(self, tool: str) -> float:
        """Return the share, in [0, 1], of the words in the tool's name that occur in the user's last message."""
        stems = _stems_of_tool(tool)
        return len(stems & self.last_stems) / len(stems) if stems else 0.0

    def has_words(self, arguments: Mapping[str, Any]) -> tuple[bool, bool]:
        """Return whether a value of ``arguments`` occurs in the user's last message, and whether in any user message."""
        texts = {str(value) for value in arguments.values()}
        return bool(texts & self.last_words), bool(texts & self.words)
