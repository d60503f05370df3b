"""Observations as rows of the table and back, in bulk: a hundred thousand in about a second."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any, cast

from sqlalchemy import Connection, Insert, insert, select
from sqlalchemy.dialects import sqlite

from vinelm.observation import Observation
from vinelm.traces.store.schema import decode_prefix, encode_prefix, observations

FIELDS = tuple(field.name for field in fields(Observation))
_ALL_ROWS = str(select(*(observations.c[name] for name in FIELDS)).order_by(observations.c.row_id))
_COLUMNS = (*FIELDS, "model", "depth")
_BOUND: Insert = insert(observations).values(dict.fromkeys(_COLUMNS))
_INSERT = str(_BOUND.compile(dialect=sqlite.dialect(paramstyle="named")))

_PAY = (
    "INSERT INTO ledger (request_id, prefix, reserved_usd, settled_usd, is_abandoned) "
    "SELECT request_id, prefix, cost_usd + tool_cost_usd, cost_usd + tool_cost_usd, 0 FROM observations "
    "WHERE row_id > ? ORDER BY row_id"
)


def values_of(observation: Observation) -> dict[str, Any]:
    """The row's columns, without its number."""
    values = {name: getattr(observation, name) for name in FIELDS}
    values["prefix"] = encode_prefix(observation.prefix)
    values["model"], values["depth"] = observation.model, observation.depth
    return values


def insert_rows(connection: Connection, rows: Iterable[Observation]) -> int:
    """Add all rows in the caller's transaction, each with a settled ledger entry, at the driver's speed; how many.

    ``IntegrityError`` for a cell that has a row.
    """
    cursor = connection.connection.cursor()
    try:
        cursor.execute("SELECT coalesce(max(row_id), 0) FROM observations")
        (last,) = cursor.fetchone() or (0,)
        cursor.executemany(_INSERT, map(values_of, rows))  # type: ignore[arg-type]
        count = int(cursor.rowcount)
        cursor.execute(_PAY, (last,))
        return count
    finally:
        cursor.close()


def read_rows(connection: Connection) -> Iterator[Observation]:
    """All rows in the order bought, inside the caller's transaction."""
    prefixes: dict[str, tuple[str, ...]] = {}  # few different ones, so that each is decoded once
    cursor = connection.connection.cursor()
    try:
        cursor.execute(_ALL_ROWS)
        for row in cast("Iterator[tuple[Any, ...]]", cursor):
            values = dict(zip(FIELDS, row, strict=True))
            text = values["prefix"]
            prefix = prefixes.get(text)
            if prefix is None:
                prefix = prefixes[text] = decode_prefix(text)
            values["prefix"] = prefix
            for name in ("success", "stopped"):
                if values[name] is not None:
                    values[name] = values[name] == 1
            values["tokens_estimated"] = values["tokens_estimated"] == 1
            yield Observation(**values)
    finally:
        cursor.close()
