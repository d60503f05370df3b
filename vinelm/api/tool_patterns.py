"""Mines patterns from an application's recorded tool calls, and reports how well the patterns predict calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from vinelm.errors import ConfigError
from vinelm.estimator.patterns.patterns import Patterns, mine, schema_digest
from vinelm.estimator.patterns.replay import Replayed, hold_out, replay
from vinelm.io.reading import open_regular
from vinelm.tools.call import ToolEvent, ToolSession
from vinelm.traces.tools.message_log import read_sessions

LEAST_GROUPS = 6
"""The fewest groups of sessions to mine from: each of three folds needs two groups to be tested on."""


@dataclass(frozen=True, kw_only=True)
class MinedPatterns:
    """The result of mining patterns from recorded tool calls.

    Attributes:
        sessions: the number of recorded sessions that patterns were mined from.
        without_values: the number of recorded sessions from which nothing can be learnt, because some of their calls were
            recorded without arguments. They are not counted in ``sessions``.
        replayed: the result of replaying the sessions with patterns mined from other sessions; it contains no predictions if
            prefetching would save no time.
        patterns: the patterns; None if prefetching would save no time.
    """

    sessions: int
    replayed: Replayed
    patterns: Patterns | None
    without_values: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a dict of JSON types."""
        held_out = self.replayed
        shares = {"ready": held_out.ready_share, "speculations_per_call": held_out.speculations_per_call}
        return {
            "sessions": self.sessions,
            "without_values": self.without_values,
            "sets": 0 if self.patterns is None else len(self.patterns.sets),
            **shares,
            "precision": held_out.precision,
            "nothing_to_gain": held_out.nothing_to_gain,
            "replayed": asdict(held_out),
        }


def mine_tools(
    source: Path,
    read_only: Sequence[str],
    *,
    schemas: Mapping[str, Mapping[str, Any]] | None = None,
) -> MinedPatterns:
    """Mine patterns from the tool calls of a store or of a log of messages.

    Args:
        source: a store, or a log for :func:`vinelm.traces.tools.message_log.read_sessions`.
        read_only: names of tools that only read, or patterns of names (``get_*``), in addition to the tools that the store
            records as read-only.
        schemas: the JSON schema of the arguments of each tool, whose digest the patterns keep.

    Raises:
        ConfigError: no tool is read-only, a name matches no recorded tool, or too few calls with values are recorded.
        DatasetError: the log cannot be read.
        StoreError: the store cannot be read.
    """
    sessions, declared = recorded_sessions(source)
    events = _calls(sessions)
    if not events:
        raise ConfigError(f"{source}: no call of a tool is recorded: `vinelm tools import` a log into it, or give the log")
    reads = declared | named_tools(read_only, {event.tool for event in events})
    if not reads:
        raise ConfigError(f"{source}: no tool is known to only read: name them with read_only", code="tools-read-only")
    histories, groups = [session.events for session in sessions], [session.group for session in sessions]
    whole = sum((replay(history, [[] for _ in history], reads) for history in histories), Replayed())
    if whole.nothing_to_gain:
        return MinedPatterns(sessions=len(sessions), replayed=whole, patterns=None)
    valued = [session for session in sessions if all(event.arguments is not None for event in _calls([session]))]
    if not _calls(valued):
        raise ConfigError(f"{source}: {_without_values(whole)}", code="tools-without-values")
    without, events = len(sessions) - len(valued), _calls(valued)
    histories, groups = [session.events for session in valued], [session.group for session in valued]
    whole = whole if not without else sum((replay(one, [[] for _ in one], reads) for one in histories), Replayed())
    if len(set(groups)) < LEAST_GROUPS:
        raise ConfigError(f"{source}: {len(set(groups))} requests are recorded: patterns need {LEAST_GROUPS}, better 50")
    cost_usd = sum(event.cost_usd for event in events if event.tool in reads) / max(1, whole.reads)
    held_out = hold_out(histories, reads, groups=groups, cost_usd=cost_usd)
    digests = {tool: schema_digest(schema) for tool, schema in (schemas or {}).items()}
    patterns = mine(histories, reads, groups=groups, schemas=digests)
    return MinedPatterns(sessions=len(valued), replayed=held_out, patterns=patterns, without_values=without)


def _calls(sessions: Sequence[ToolSession]) -> list[ToolEvent]:
    return [event for session in sessions for event in session.events if isinstance(event, ToolEvent)]


def _without_values(whole: Replayed) -> str:
    """Return a message about calls that were recorded without arguments. It states how many there are, and what share of the
    time would be saved if every read were predicted.
    """
    known = (
        f"{whole.calls} calls, {whole.reads} of them reads, are recorded without arguments: which reads come next cannot be "
        'learnt from names and times: record values (record_tools="values", or `vinelm tools record --values`)'
    )
    if whole.total_s:
        known += f"; with every read predicted {100.0 * whole.hideable_s / whole.total_s:.1f} % of the time would be saved"
    return known


def recorded_sessions(source: Path) -> tuple[list[ToolSession], frozenset[str]]:
    """Return the sessions of a store or log, and the names of the tools that it declares as read-only."""
    from vinelm.traces import ObservationStore
    from vinelm.traces.tools.tool_calls import ToolCalls

    if _is_log(source):
        return read_sessions(source), frozenset()
    with ObservationStore.open(source) as store:
        return ToolCalls(store).sessions()


def import_sessions(log: Path, store: Path, read_only: Sequence[str]) -> tuple[int, int]:
    """Add the sessions of a log of messages or spans to a store; return the numbers of sessions and of calls. ``read_only``
    has names, or patterns of names, of tools that only read.

    Raises:
        DatasetError: the log cannot be read.
        StoreError: the store does not exist or is in use by a run.
    """
    from vinelm.traces import ObservationStore
    from vinelm.traces.tools.tool_calls import ToolCalls

    sessions = read_sessions(log)
    tools = {event.tool for session in sessions for event in session.events if isinstance(event, ToolEvent)}
    reads = named_tools(read_only, tools) if read_only else None
    with ObservationStore.open(store) as opened, opened.exclusive():
        return len(sessions), ToolCalls(opened).add(sessions, reads)


def named_tools(names: Sequence[str], known: set[str]) -> frozenset[str]:
    """Return the tools among ``known`` that match these names or patterns.

    Raises:
        ConfigError: a name or pattern matches no tool.
    """
    found: set[str] = set()
    for name in names:
        those = {tool for tool in known if fnmatchcase(tool, name)}
        if not those:
            there = ", ".join(sorted(known))
            raise ConfigError(f"read_only: no recorded tool is named {name!r}: there are {there}", code="tools-read-only")
        found |= those
    return frozenset(found)


def _is_log(source: Path) -> bool:
    """Return whether the source is a log, which is a text file, and not a store, which is an SQLite file or an address."""
    try:
        with open_regular(source) as file:
            return not file.read(16).startswith(b"SQLite format 3")
    except OSError:
        return source.suffix in (".jsonl", ".json")
