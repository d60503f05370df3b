"""Checks a store for damage: the file, rows, checkpoints, ledger and tool calls."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vinelm.errors import StoreError, VineLMError
from vinelm.rows.observation import Observation
from vinelm.template import Template
from vinelm.traces.databases import schema
from vinelm.traces.databases.address import file_of
from vinelm.traces.databases.database import SQLITE_ERRORS, connect_read_only, readable
from vinelm.traces.databases.lock import holder
from vinelm.traces.store.checkpoints import CheckpointPlace, unpacked
from vinelm.traces.store.rows import FIELDS, cell_name, decode_prefix, encode_prefix, misfit
from vinelm.traces.store.store import ObservationStore
from vinelm.traces.store.tool_rows import COLUMNS, MESSAGE, problem_of, tool_calls

Check = Callable[[sqlite3.Connection, Template], Iterator[str]]


@dataclass(frozen=True)
class Finding:
    """One kind of problem that was found in a store.

    Attributes:
        what: what is wrong.
        count: how many cases were found.
        first: a description of the first case.
        is_damage: whether it is damage; False for a mere remark.
    """

    what: str
    count: int
    first: str
    is_damage: bool


@dataclass(frozen=True)
class CheckedStore:
    """Result of :func:`check_store`.

    Attributes:
        rows, checkpoints, ledger_entries, tool_calls: how many of them were checked.
        findings: the problems that were found.
    """

    rows: int
    checkpoints: int
    ledger_entries: int
    tool_calls: int
    findings: tuple[Finding, ...]

    @property
    def is_whole(self) -> bool:
        """Whether no damage was found."""
        return not any(finding.is_damage for finding in self.findings)


def check_store(path: Path) -> CheckedStore:
    """Check the parts of a store that can be checked without its workflow: file, rows, checkpoints, ledger and tool calls.

    Reads the whole file. Changes nothing.

    Raises:
        StoreError: the store cannot be opened, or is in PostgreSQL.
    """
    path = file_of(path, "store check")
    if path.exists():
        damage = _file_damage(path)
        if damage is not None:
            return CheckedStore(0, 0, 0, 0, (damage,))
    with ObservationStore.open(path) as store:  # checks the version and recovers
        template = store.identity.bound_template()
        try:
            with closing(connect_read_only(store.database.file)) as connection:
                connection.execute("BEGIN")
                rows, checkpoints, entries = (_count(connection, table) for table in ("observations", "checkpoints", "ledger"))
                calls = _count(connection, f"{tool_calls.name} WHERE kind <> '{MESSAGE}'") if _has_tool_calls(connection) else 0
                return CheckedStore(rows, checkpoints, entries, calls, tuple(_findings(connection, template, path)))
        except SQLITE_ERRORS as error:
            raise StoreError(f"{path}: {error}: the file is damaged: restore it from a copy", code="store-damaged") from error


def _file_damage(path: Path) -> Finding | None:
    try:
        with readable(path) as file, closing(connect_read_only(file)) as connection:
            lines = [str(line) for (line,) in connection.execute("PRAGMA integrity_check(100)")]
    except SQLITE_ERRORS as error:
        if getattr(error, "sqlite_errorname", "") == "SQLITE_NOTADB":
            return None  # not a store at all: opening reports it
        lines = [str(error)]
    if lines == ["ok"]:
        return None
    first = " ".join(line for line in lines if not line.startswith("***")) or lines[0]
    return Finding("the file is damaged: restore it from a copy", len(lines), first.split("\n")[0][:200], True)


def _findings(connection: sqlite3.Connection, template: Template, path: Path) -> Iterator[Finding]:
    for what, is_damage, check in _CHECKS:
        found = list(check(connection, template))
        # A run in progress has open reservations, and settles them itself.
        if what == _UNSETTLED and holder(path) is not None:
            continue
        if found:
            yield Finding(what, len(found), found[0], is_damage)


def _count(connection: sqlite3.Connection, table: str) -> int:
    (count,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608 - our own names
    return int(count)


def _rows(connection: sqlite3.Connection) -> Iterator[dict[str, Any]]:
    columns = ("row_id", "model", "depth", *FIELDS)
    for row in connection.execute(f"SELECT {', '.join(columns)} FROM observations ORDER BY row_id"):  # noqa: S608
        yield dict(zip(columns, row, strict=True))


def _bad_rows(connection: sqlite3.Connection, template: Template) -> Iterator[str]:
    """Yield a description of each row that is not a valid result of this workflow."""
    for values in _rows(connection):
        where = f"row {values.pop('row_id')}"
        model, depth = values.pop("model"), values.pop("depth")
        try:
            latency_s = math.nan if values["latency_s"] is None else values["latency_s"]
            row = Observation(**{**values, "prefix": decode_prefix(values["prefix"]), "latency_s": latency_s})
        except (VineLMError, ValueError, TypeError) as error:
            yield f"{where}: {error}"
            continue
        problem = misfit(row, template)
        if problem is None and (model, depth) != (row.model, row.depth):
            problem = f"the columns say model {model!r} at depth {depth}"
        if problem:
            yield f"{where}: {cell_name(row.request_id, row.prefix)}: {problem}"


def _below_a_failure(connection: sqlite3.Connection, _template: Template) -> Iterator[str]:
    failed = set(connection.execute("SELECT request_id, prefix FROM observations WHERE failure IS NOT NULL"))
    if not failed:
        return
    for request, prefix in connection.execute("SELECT request_id, prefix FROM observations WHERE depth > 1"):
        models = json.loads(prefix)
        if any((request, encode_prefix(models[:k])) in failed for k in range(1, len(models))):
            yield f"request {request!r}, prefix {prefix}"


def _bad_checkpoints(connection: sqlite3.Connection, _template: Template) -> Iterator[str]:
    query = (
        "SELECT request_id, prefix, checkpoints.digest, content FROM checkpoints LEFT JOIN blobs "
        "ON blobs.digest = checkpoints.digest UNION ALL SELECT request_id, prefix, state, content FROM retired "
        "LEFT JOIN blobs ON blobs.digest = state WHERE state IS NOT NULL"
    )
    url = connection.execute("SELECT value FROM meta WHERE key = ?", (schema.CHECKPOINTS,)).fetchone()
    place = None if url is None else CheckpointPlace(url[0])
    for request, prefix, digest, content in connection.execute(query):
        if not _is_intact(digest, content, place):
            yield f"request {request!r}, prefix {prefix}"


def _is_intact(digest: str, content: bytes | None, place: CheckpointPlace | None) -> bool:
    try:
        return content is not None and unpacked(digest, content, place) is not None
    except StoreError as error:
        if error.code != "store-damaged":  # otherwise none of them can be read
            raise
        return False


def _unpaid(connection: sqlite3.Connection, _template: Template) -> Iterator[str]:
    query = (
        "SELECT request_id, prefix FROM observations o WHERE NOT EXISTS "
        "(SELECT 1 FROM paid p WHERE p.request_id = o.request_id AND p.prefix = o.prefix)"
    )
    connection.execute(
        "CREATE TEMP TABLE paid AS SELECT DISTINCT request_id, prefix FROM main.ledger WHERE settled_usd NOT NULL"
    )
    # Without an index every row would read all entries.
    connection.execute("CREATE INDEX temp.by_cell ON paid (request_id, prefix)")
    for request, prefix in connection.execute(query):
        yield f"request {request!r}, prefix {prefix}"


def _has_tool_calls(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute(f"PRAGMA table_info({tool_calls.name})").fetchall())


def _bad_tool_calls(connection: sqlite3.Connection, _template: Template) -> Iterator[str]:
    names = [column.name for column in COLUMNS]
    if _has_tool_calls(connection):
        for row in connection.execute(f"SELECT {', '.join(names)} FROM {tool_calls.name} ORDER BY call_id"):  # noqa: S608
            call = dict(zip(names, row, strict=True))
            problem = problem_of(call)
            if problem is not None:
                yield f"request {call['request_id']!r}, call {call['seq']}: {problem}"


def _wrong_tables(connection: sqlite3.Connection, _template: Template) -> Iterator[str]:
    for table in schema.metadata.sorted_tables:
        found = {name for _, name, *_ in connection.execute(f"PRAGMA table_info({table.name})")}
        missing = {column.name for column in table.columns} - found
        if missing:
            yield f"{table.name}: {', '.join(sorted(missing))}"


def _found_by(query: str, words: str = "request {0!r}, prefix {1}") -> Check:
    """Return a check that yields one text for each row that a SQL query finds.

    ``words`` is a format string for the text, whose fields ``{0}``, ``{1}`` and so on are the columns of the query.
    """

    def check(connection: sqlite3.Connection, _template: Template) -> Iterator[str]:
        for row in connection.execute(query):
            yield words.format(*row)

    return check


_duplicates = _found_by(
    # Read from the table itself: in the unique index no cell can appear twice, whatever the table holds.
    "SELECT request_id, prefix, count(*) FROM observations NOT INDEXED GROUP BY 1, 2 HAVING count(*) > 1",
    "request {0!r}, prefix {1}: {2} rows",
)
_unregistered = _found_by(
    "SELECT DISTINCT request_id FROM observations WHERE request_id NOT IN (SELECT request_id FROM requests)", "request {0!r}"
)
_orphan_checkpoints = _found_by(
    "SELECT c.request_id, c.prefix FROM checkpoints c LEFT JOIN observations o "
    "ON o.request_id = c.request_id AND o.prefix = c.prefix WHERE o.row_id IS NULL"
)
_orphan_blobs = _found_by(
    "SELECT substr(digest, 1, 12) FROM blobs WHERE digest NOT IN "
    "(SELECT digest FROM checkpoints UNION ALL SELECT state FROM retired WHERE state IS NOT NULL)",
    "digest {0}",
)
_unsettled = _found_by(
    "SELECT request_id, prefix, reserved_usd FROM ledger WHERE settled_usd IS NULL ORDER BY entry_id",
    "request {0!r}, prefix {1}, {2:g} dollars",
)
_bad_entries = _found_by(
    "SELECT request_id, prefix, entry_id FROM ledger WHERE NOT (reserved_usd >= 0 AND reserved_usd < 9e999) "
    "OR NOT (coalesce(settled_usd, 0) >= 0 AND coalesce(settled_usd, 0) < 9e999)",
    "entry {2}: request {0!r}, prefix {1}",
)
_UNSETTLED = "reservations of calls that never returned: the next run charges them at their upper bound"
_CHECKS: tuple[tuple[str, bool, Check], ...] = (
    ("tables or columns are missing", True, _wrong_tables),
    ("rows that do not fit this workflow", True, _bad_rows),
    ("cells with more than one row", True, _duplicates),
    ("requests with rows that were never registered", True, _unregistered),
    ("rows below a failed invocation", True, _below_a_failure),
    ("checkpoints that are missing or do not match their digest", True, _bad_checkpoints),
    ("checkpoints without a row", True, _orphan_checkpoints),
    ("ledger entries with an invalid amount", True, _bad_entries),
    ("tool calls that cannot be true", True, _bad_tool_calls),
    (_UNSETTLED, False, _unsettled),
    ("rows without a ledger entry", False, _unpaid),
    ("checkpoint contents that no checkpoint refers to", False, _orphan_blobs),
)
