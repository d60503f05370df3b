"""The table of tool calls in a store: adding, copying and checking its rows. It is created with the first call."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    Float,
    Integer,
    MetaData,
    String,
    Table,
    UniqueConstraint,
    func,
    insert,
    inspect,
    select,
)

MESSAGE = "message"
"""The value of the column ``kind`` in a row with a user message."""
KINDS = frozenset((MESSAGE, "authoritative", "speculated", "eager"))
metadata = MetaData()
tool_calls = Table(
    "tool_calls",
    metadata,
    Column("call_id", Integer, primary_key=True, autoincrement=True, comment="order"),
    Column("request_id", String, nullable=False, comment="the request, or the conversation"),
    Column("grouped", String, nullable=False, comment="requests of one group repeat each other; else the request"),
    Column("seq", Integer, nullable=False, comment="place among the request's messages and calls, from 0"),
    Column("tool", String, nullable=False, comment="name of the tool; empty for a message"),
    Column("key", String, nullable=False, comment="hash of the tool and its arguments; empty for a message"),
    Column("kind", String, nullable=False, comment="authoritative, speculated or eager; message: what the user said"),
    Column("is_read", Boolean, comment="whether the tool is declared to only read; NULL: not known"),
    Column("is_ok", Boolean, nullable=False, comment="whether it returned"),
    Column("is_used", Boolean, nullable=False, comment="whether the application asked for the result"),
    Column("started_s", Float, nullable=False, comment="seconds since the request began"),
    Column("ended_s", Float, nullable=False, comment="the same for its end"),
    Column("cost_usd", Float, nullable=False, comment="declared dollars"),
    Column("arguments", String, comment="JSON, where values were recorded; of a message its text"),
    Column("result", String, comment="JSON, where values were recorded"),
    UniqueConstraint("request_id", "seq", name="one_call"),
    comment="Calls of tools, as they were recorded or imported. Made with the first of them.",
)
ToolRow = Mapping[str, Any]
"""The values of one row by column, without its ``call_id``."""
_FIGURES = ("started_s", "ended_s", "cost_usd")
COLUMNS = tuple(column for column in tool_calls.columns if column.name != "call_id")


def tool_rows(connection: Connection) -> dict[str, list[ToolRow]]:
    """Return the rows of each session of tool calls, in order, by the session's name; empty if nothing was recorded."""
    found: dict[str, list[ToolRow]] = {}
    if inspect(connection).has_table(tool_calls.name):
        for row in connection.execute(select(*COLUMNS).order_by(tool_calls.c.request_id, tool_calls.c.seq)):
            found.setdefault(row.request_id, []).append(dict(row._mapping))
    return found


def add_tool_rows(connection: Connection, rows: Sequence[ToolRow]) -> None:
    """Add rows to the table of tool calls, inside the caller's transaction.

    Raises:
        ValueError: a value is not a valid row of the table.
    """
    for row in rows:
        if set(row) != {column.name for column in COLUMNS} or problem_of(row) is not None:
            raise ValueError(problem_of(row) or "not the columns of tool_calls")
    if rows:
        metadata.create_all(connection)
        connection.execute(insert(tool_calls), [dict(row) for row in rows])


def copy_tool_rows(source: Connection, target: Connection) -> None:
    """Copy the sessions of one store to another, inside the caller's transactions.

    A session that both stores have is copied once. If its version in one store continues that in the other, the longer version
    is kept. Two different sessions of the same name are both kept. The second gets a new name but belongs to the group of the
    first, so that the two do not count as independent evidence.
    """
    held, found = tool_rows(target), tool_rows(source)
    for name, rows in found.items():
        there = held.get(name, [])
        length = min(len(rows), len(there))
        if rows[:length] == there[:length]:
            add_tool_rows(target, rows[length:])
            continue
        others = [there, *(held[other] for other in held if other.startswith(f"{name} ("))]
        if any([_unnamed(row) for row in rows] == [_unnamed(row) for row in other] for other in others):
            continue
        free = next(other for at in count(2) if (other := f"{name} ({at})") not in held and other not in found)
        held[free] = [{**row, "request_id": free, "grouped": there[0]["grouped"]} for row in rows]
        add_tool_rows(target, held[free])


def _unnamed(row: ToolRow) -> dict[str, Any]:
    return {column: value for column, value in row.items() if column not in ("request_id", "grouped")}


def tool_counts(connection: Connection) -> dict[str, int]:
    """Return four counts by name; empty if nothing was recorded.

    The names are ``sessions``, ``calls``, ``unused`` (calls whose result the application never requested) and ``with_values``
    (calls whose arguments are recorded).
    """
    if not inspect(connection).has_table(tool_calls.name):
        return {}
    of, is_call = tool_calls.c, tool_calls.c.kind != MESSAGE
    numbers = {
        "sessions": func.count(of.request_id.distinct()),
        "calls": func.count().filter(is_call),
        "unused": func.count().filter(is_call & ~of.is_used),
        "with_values": func.count(of.arguments).filter(is_call),
    }
    return dict(zip(numbers, connection.execute(select(*numbers.values())).one(), strict=True))


def problem_of(row: ToolRow) -> str | None:
    """Return what is wrong with a row of the table of tool calls; None if the row is valid."""
    figures = [one for name in _FIGURES if isinstance(one := row.get(name), int | float) and math.isfinite(one)]
    if len(figures) < len(_FIGURES):
        return "seconds or dollars are no finite numbers"
    started_s, ended_s, cost_usd = figures
    if not started_s <= ended_s or cost_usd < 0.0:
        return "it ends before it starts, or its dollars are negative"
    if row.get("kind") not in KINDS:
        return f"unknown kind {row.get('kind')!r}"
    for column in ("arguments", "result"):
        try:
            json.loads(row.get(column) or "null")
        except (TypeError, ValueError, RecursionError):
            return f"{column} are not valid JSON"
    return None
