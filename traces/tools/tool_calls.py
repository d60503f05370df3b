"""Stores and reads tool calls, grouped in sessions."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, MutableMapping
from dataclasses import replace
from typing import Any

from sqlalchemy import delete, func, insert, inspect, select

from vinelm.tools.call import SessionPart, ToolEvent, ToolSession
from vinelm.traces.store.store import ObservationStore
from vinelm.traces.store.tool_rows import MESSAGE, metadata, tool_calls

_PLAIN = ("request_id", "seq", "tool", "key", "kind", "is_ok", "is_used", "started_s", "ended_s", "cost_usd")


class ToolCalls:
    """Reads and adds the tool calls of a store. Every write is durable.

    Args:
        store: the store; to add something, the caller must have locked it.
    """

    def __init__(self, store: ObservationStore) -> None:
        self._database = store.database

    def add(self, sessions: Iterable[ToolSession], reads: Collection[str] | None = None) -> int:
        """Add sessions, replacing earlier sessions of the same name, and return the number of added calls.

        Args:
            sessions: the sessions; they contain messages of the user only if values (arguments and results) are recorded.
            reads: the names of the tools that only read; None if unknown.
        """
        count = 0
        with self._database.transaction() as connection:
            metadata.create_all(connection)
            for session in sessions:
                rows = [_row(session, seq, event, reads) for seq, event in enumerate(session.events)]
                connection.execute(delete(tool_calls).where(tool_calls.c.request_id == session.name))
                if rows:
                    connection.execute(insert(tool_calls), rows)
                count += sum(isinstance(event, ToolEvent) for event in session.events)
        return count

    def append(self, parts: Iterable[SessionPart], begins: MutableMapping[str, float]) -> None:
        """Append the tool calls of runs to their sessions.

        Args:
            parts: the tool calls and messages, in order; they contain arguments and results only if these are recorded.
            begins: for each run, the time of its beginning, in seconds since the start of its session. A missing run is added:
                it begins where the recorded session ends, because a pause between two turns does not count.
        """
        rows, places = list[dict[str, Any]](), dict[str, int]()
        with self._database.transaction() as connection:
            metadata.create_all(connection)
            for part in parts:
                name = part.session
                if name not in places or part.run not in begins:
                    of_session = tool_calls.c.request_id == name
                    last = func.coalesce(func.max(tool_calls.c.seq), -1), func.coalesce(func.max(tool_calls.c.ended_s), 0.0)
                    seq, ended_s = connection.execute(select(*last).where(of_session)).one()
                    waiting = [row["ended_s"] for row in rows if row["request_id"] == name]
                    places.setdefault(name, seq + 1)
                    begins.setdefault(part.run, max([ended_s, *waiting]))
                event, begin_s = part.event, begins[part.run]
                if isinstance(event, ToolEvent):
                    event = replace(event, started_s=event.started_s + begin_s, ended_s=event.ended_s + begin_s)
                row = _row(ToolSession(name, name, []), places[name], event, None)
                rows.append({**row, "is_read": part.is_read})
                places[name] += 1
            if rows:
                connection.execute(insert(tool_calls), rows)

    def sessions(self) -> tuple[list[ToolSession], frozenset[str]]:
        """Return (the sessions, the names of the read-only tools). Prefetched calls that no model requested are left out."""
        found: dict[str, ToolSession] = {}
        reads: set[str] = set()
        with self._database.transaction() as connection:
            if not inspect(connection).has_table(tool_calls.name):
                return [], frozenset()
            for row in connection.execute(select(tool_calls).order_by(tool_calls.c.request_id, tool_calls.c.seq)):
                session = found.setdefault(row.request_id, ToolSession(row.request_id, row.grouped, []))
                if row.kind == MESSAGE:
                    session.events.append(_value(row.arguments) or "")
                elif row.is_used:
                    plain = {name: row._mapping[name] for name in _PLAIN}
                    session.events.append(ToolEvent(**plain, arguments=_value(row.arguments), result=_value(row.result)))
                if row.is_read:
                    reads.add(row.tool)
        return list(found.values()), frozenset(reads)


def _row(session: ToolSession, seq: int, event: str | ToolEvent, reads: Collection[str] | None) -> dict[str, Any]:
    of = {"request_id": session.name, "grouped": session.group, "seq": seq}
    if isinstance(event, str):
        empty = {"tool": "", "key": "", "kind": MESSAGE, "is_read": None, "is_ok": True, "is_used": True}
        nothing = dict.fromkeys(("started_s", "ended_s", "cost_usd"), 0.0)
        return {**of, **empty, **nothing, "arguments": json.dumps(event), "result": None}
    plain = {name: getattr(event, name) for name in _PLAIN if name not in of}
    has_values = event.arguments is not None
    return {
        **of,
        **plain,
        "is_read": None if reads is None else event.tool in reads,
        "arguments": json.dumps(event.arguments) if has_values else None,
        "result": json.dumps(event.result) if has_values else None,
    }


def _value(text: str | None) -> Any:
    return None if text is None else json.loads(text)
