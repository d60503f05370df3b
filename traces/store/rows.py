"""Convert observations to table rows and back, in bulk: about 100,000 rows per second."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from typing import Any, cast

from sqlalchemy import Connection, Insert, insert, select
from sqlalchemy.dialects import postgresql, sqlite

from vinelm.catalog import redacted
from vinelm.observation import Observation
from vinelm.traces.store.schema import decode_prefix, encode_prefix, observations

FIELDS = tuple(field.name for field in fields(Observation) if field.name in observations.columns)
_ALL_ROWS = str(select(*(observations.c[name] for name in FIELDS)).order_by(observations.c.row_id))
_ROWS_AFTER = _ALL_ROWS.replace("ORDER BY", "WHERE observations.row_id > {after} ORDER BY")
_COLUMNS = (*FIELDS, "model", "depth", "identity_id")
_BOUND: Insert = insert(observations).values(dict.fromkeys(_COLUMNS))
_INSERTS = {
    "sqlite": str(_BOUND.compile(dialect=sqlite.dialect(paramstyle="named"))),
    "postgresql": str(_BOUND.compile(dialect=cast("Any", postgresql.psycopg.dialect)(paramstyle="pyformat"))),
}

_ADD_LEDGER_ENTRIES = (
    "INSERT INTO ledger (request_id, prefix, reserved_usd, settled_usd, is_abandoned) "
    "SELECT request_id, prefix, cost_usd + tool_cost_usd, cost_usd + tool_cost_usd, false FROM observations "
    "WHERE row_id > {last} ORDER BY row_id"
)


def values_of(observation: Observation) -> dict[str, Any]:
    """Return the values of all columns but ``row_id``. Secrets in the detail are replaced: it may quote anything."""
    values = {name: getattr(observation, name) for name in FIELDS}
    if observation.detail is not None:
        values["detail"] = redacted(observation.detail)
    values["prefix"] = encode_prefix(observation.prefix)
    values["model"], values["depth"] = observation.model, observation.depth
    return values


def insert_rows(connection: Connection, rows: Iterable[Observation], identity_id: int = 1) -> int:
    """Insert all rows in the caller's transaction, each with a settled ledger entry, and return their number.

    Args:
        connection: in a transaction.
        rows: the rows.
        identity_id: what they were executed with.

    Raises:
        sqlite3.IntegrityError, psycopg.errors.UniqueViolation: a cell has a row already.
    """
    cursor = connection.connection.cursor()
    try:
        cursor.execute("SELECT coalesce(max(row_id), 0) FROM observations")
        (last,) = cursor.fetchone() or (0,)
        plain: Callable[[dict[str, Any]], dict[str, Any]] = dict if connection.dialect.name == "sqlite" else _with_number
        values: Any = ({**plain(values_of(row)), "identity_id": identity_id} for row in rows)
        cursor.executemany(_INSERTS[connection.dialect.name], values)
        count = int(cursor.rowcount)
        cursor.execute(_ADD_LEDGER_ENTRIES.format(last=int(last)))
        return count
    finally:
        cursor.close()


def _with_number(values: dict[str, Any]) -> dict[str, Any]:
    """The values with ``success`` as a number: a flag or a score, which PostgreSQL does not take in one column."""
    success = values["success"]
    return values if success is None else {**values, "success": float(success)}


def read_rows(connection: Connection, *, after: int | None = None) -> Iterator[Observation]:
    """Yield the rows in insertion order, all or those after the row of this number, inside the caller's transaction."""
    prefixes: dict[str, tuple[str, ...]] = {}  # few distinct ones: each is decoded once
    cursor = connection.connection.cursor()
    try:
        cursor.execute(_ALL_ROWS if after is None else _ROWS_AFTER.format(after=int(after)))
        for row in cast("Iterator[tuple[Any, ...]]", cursor):
            values = dict(zip(FIELDS, row, strict=True))
            text = values["prefix"]
            prefix = prefixes.get(text)
            if prefix is None:
                prefix = prefixes[text] = decode_prefix(text)
            values["prefix"] = prefix
            if values["stopped"] is not None:
                values["stopped"] = values["stopped"] == 1
            if values["success"] in (0, 1):  # else a score between them, or unknown
                values["success"] = values["success"] == 1
            values["tokens_estimated"] = values["tokens_estimated"] == 1
            values["is_continued"] = values["is_continued"] == 1
            yield Observation(**values)
    finally:
        cursor.close()
