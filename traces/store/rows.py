"""Checks observations against a template, and converts them to table rows and back, about 100,000 per second."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import fields
from itertools import islice
from typing import Any, cast, get_args

from sqlalchemy import Connection, Insert, insert, select
from sqlalchemy.dialects import sqlite

from vinelm.catalog.secrets import redacted
from vinelm.errors import FailureKind
from vinelm.rows.observation import Cell, Observation
from vinelm.template import Template
from vinelm.traces.databases.schema import ledger, number_of_flag, observations

_FAILURES = frozenset(get_args(FailureKind))


def misfit(row: Observation, template: Template) -> str | None:
    """Return why ``row`` does not fit ``template``; None if it fits.

    Args:
        row: the observation; its prefix, stage, failure kind and outcome are checked.
        template: the template, bound to the catalog's models.
    """
    problem = _place_misfit(row, template)
    if problem is not None:
        return problem
    if row.failure is not None and row.failure not in _FAILURES:
        return f"unknown failure kind {row.failure!r}"
    if row.failure is not None and (row.success is not None or row.stopped is not None):
        return "a failed invocation has neither success nor stopped"
    return None


def _place_misfit(row: Observation, template: Template) -> str | None:
    """Return why the fields of a row do not fit a template; None if nothing is wrong with them.

    Only the row itself is checked, not the earlier rows on its path.
    """
    levels = template.flow.stages_at
    if row.depth > len(levels):
        return f"the workflow has at most {len(levels)} invocations, but the prefix has {row.depth}"
    for model, level in zip(row.prefix, levels, strict=False):
        if not any(model in (template.stage(name).models or ()) for name in level):
            return f"stage {' or '.join(map(repr, level))} does not allow the model {model!r}"
    level = levels[row.depth - 1]
    if row.stage not in level:
        return f"invocation {row.depth} is of stage {' or '.join(map(repr, level))}, not {row.stage!r}"
    if row.model not in (template.stage(row.stage).models or ()):
        return f"stage {row.stage!r} does not allow the model {row.model!r}"
    arms = level[row.stage]
    if row.contradicts(arms):
        return f"after stage {row.stage!r} as invocation {row.depth} there is no arm {row.arm!r}"
    if row.failure is not None or row.stopped:
        return f"it ended and has the arm {row.arm!r}" if row.contradicts(()) else None
    if row.stopped is None or len(arms) < 2 or row.next_stage(arms) is not None:
        return None
    return f"it went on, and does not say to which of {', '.join(map(repr, arms))}: set its arm"


def cell_name(request_id: str, prefix: Sequence[str]) -> str:
    """Return a text that names a request and prefix in messages."""
    return f"request {request_id!r}, prefix {'/'.join(prefix)}"


FIELDS = tuple(field.name for field in fields(Observation) if field.name in observations.columns)
_ALL_ROWS = str(select(*(observations.c[name] for name in FIELDS)).order_by(observations.c.row_id))
_COLUMNS = (*FIELDS, "model", "depth", "identity_id")
_BOUND: Insert = insert(observations).values(dict.fromkeys(_COLUMNS))
_INSERT = str(_BOUND.compile(dialect=sqlite.dialect(paramstyle="named")))
_ROWS_AT_ONCE = 1000  # PostgreSQL takes 65,535 values in a statement

_ADD_LEDGER_ENTRIES = (
    "INSERT INTO ledger (request_id, prefix, reserved_usd, settled_usd, is_abandoned) "
    "SELECT request_id, prefix, cost_usd + tool_cost_usd, cost_usd + tool_cost_usd, false FROM observations "
    "WHERE row_id > {last} ORDER BY row_id"
)


def values_of(observation: Observation) -> dict[str, Any]:
    """Return the values of all columns except ``row_id``, by column. Secrets in the text of the failure are replaced."""
    values = {name: getattr(observation, name) for name in FIELDS}
    if not observation.is_timed:
        values["latency_s"] = None
    if observation.detail is not None:
        values["detail"] = redacted(observation.detail)
    values["prefix"] = encode_prefix(observation.prefix)
    values["model"], values["depth"] = observation.model, observation.depth
    return values


def insert_rows(
    connection: Connection, rows: Iterable[Observation], identity_id: int = 1, unpaid: Collection[Cell] = frozenset()
) -> int:
    """Insert all rows in the caller's transaction, each with a ledger entry, and return their number.

    Args:
        connection: a connection in a transaction.
        rows: the rows.
        identity_id: the number of the identity under which the rows were executed.
        unpaid: (request, prefix) of the rows that get $0 on the ledger, because another row or a separate entry has their cost.

    Raises:
        sqlite3.IntegrityError, psycopg.errors.UniqueViolation: a request and prefix already have a row.
    """
    cursor = connection.connection.cursor()
    try:
        cursor.execute("SELECT coalesce(max(row_id), 0) FROM observations")
        (last,) = cursor.fetchone() or (0,)
        entries: list[dict[str, Any]] = []
        values: Any = ({**values_of(row), "identity_id": identity_id} for row in _noted(rows, unpaid, entries))
        if connection.dialect.name == "sqlite":
            cursor.executemany(_INSERT, values)
            count = int(cursor.rowcount)
        else:
            count = sum(_insert_at_once(cursor, some) for some in _chunks(values))
        if entries:
            connection.execute(insert(ledger), entries)
        else:
            cursor.execute(_ADD_LEDGER_ENTRIES.format(last=int(last)))
        return count
    finally:
        cursor.close()


def _noted(rows: Iterable[Observation], unpaid: Collection[Cell], entries: list[dict[str, Any]]) -> Iterator[Observation]:
    """Yield the rows unchanged; if ``unpaid`` is not empty, also append a ledger entry for each row to ``entries``.

    The entry has the row's cost, or $0 for a row in ``unpaid``.
    """
    for row in rows:
        if unpaid:
            usd = 0.0 if (row.request_id, row.prefix) in unpaid else row.cost_usd + row.tool_cost_usd
            entries.append(ledger_entry(row.request_id, row.prefix, usd))
        yield row


def ledger_entry(request_id: str, prefix: Sequence[str], usd: float) -> dict[str, Any]:
    """Return the column values of a ledger entry for dollars that were spent."""
    cell = {"request_id": request_id, "prefix": encode_prefix(prefix)}
    return {**cell, "reserved_usd": usd, "settled_usd": usd, "is_abandoned": False}


def _chunks(values: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    rest = iter(values)
    while some := list(islice(rest, _ROWS_AT_ONCE)):
        yield some


def _insert_at_once(cursor: Any, rows: list[dict[str, Any]]) -> int:
    """Insert rows into PostgreSQL in one statement, and return their number.

    The triggers that update totals then run only once.
    """
    one = f"({', '.join(['%s'] * len(_COLUMNS))})"
    columns, places = ", ".join(_COLUMNS), ", ".join([one] * len(rows))
    values = [number_of_flag(row[name]) if name == "success" else row[name] for row in rows for name in _COLUMNS]
    cursor.execute(f"INSERT INTO observations ({columns}) VALUES {places}", values)  # noqa: S608 - our own names
    return len(rows)


def read_rows(connection: Connection) -> Iterator[Observation]:
    """Yield all rows in the order of insertion. Reads in the caller's transaction."""
    prefixes: dict[str, tuple[str, ...]] = {}  # only a few distinct ones: each is decoded once
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
            if values["latency_s"] is None:
                values["latency_s"] = math.nan
            if values["stopped"] is not None:
                values["stopped"] = values["stopped"] == 1
            if values["success"] in (0, 1):  # otherwise a score between them, or unknown
                values["success"] = values["success"] == 1
            values["tokens_estimated"] = values["tokens_estimated"] == 1
            values["is_continued"] = values["is_continued"] == 1
            yield Observation(**values)
    finally:
        cursor.close()


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))  # `dumps` would create one for each call


def encode_prefix(prefix: Sequence[str]) -> str:
    """Return a prefix (the models of the calls so far) as compact JSON text."""
    return _ENCODER.encode(list(prefix))


def decode_prefix(text: str) -> tuple[str, ...]:
    """Return the prefix that :func:`encode_prefix` wrote as ``text``."""
    return tuple(json.loads(text))
