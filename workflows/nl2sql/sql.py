"""Runs one SQL statement on a SQLite file in this process, read-only: for gold SQL, and inside limited processes.

Model-written statements go through :mod:`vinelm.workflows.nl2sql.limited_sql`, whose process is killed if these guards fail.
"""

from __future__ import annotations

import re
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from vinelm.errors import DatasetError

SqlStatus = Literal["ok", "error", "timeout", "refused"]
"""The outcome of a statement: ``error`` is an error of SQLite, ``refused`` means that the statement would do more than read."""

MAX_VALUE_BYTES = 4_000_000
MAX_RESULT_BYTES = 64_000_000
_STEPS_BETWEEN_CLOCK_READS = 5_000
"""The steps of SQLite's virtual machine between checks, about 0.1 ms. Each check takes the GIL, so more frequent ones would
slow the query."""

# One call of a built-in function cannot be interrupted, and these take time quadratic in their arguments (instr on 2 MB:
# minutes) or create large values from nothing. Statements that name them get smaller values and more frequent checks of the
# clock.
_COSTLY = re.compile(r"\b(instr|replace|[lr]?trim|zeroblob|randomblob|hex|quote|printf|format)\b", re.IGNORECASE)
_COSTLY_VALUE_BYTES = 100_000
_COSTLY_STEPS = 100
_HEADER = b"SQLite format 3\x00"

_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: MAX_VALUE_BYTES,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 100_000,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 250_000,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 200,  # LIKE's time is pattern x text
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
_READING = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE})
_BARRED_FUNCTIONS = frozenset({"load_extension", "fts3_tokenizer", "writefile", "readfile", "edit"})
_FILE_AT_FAULT = frozenset({sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR})
_FILE_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY})


@dataclass(frozen=True, slots=True)
class SqlResult:
    """The result of a statement. If ``status`` is ``ok``, ``error`` is None; otherwise ``rows`` and ``columns`` are empty.

    Cells are None, int, float, str or bytes. ``is_truncated`` is True if there were more rows than the limits allow.
    """

    status: SqlStatus
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    error: str | None = None
    is_truncated: bool = False
    elapsed_s: float = 0.0


def run_sql(database: Path, sql: str, *, timeout_s: float = 5.0, max_rows: int = 10_000) -> SqlResult:
    """Run exactly one read-only statement and return the result. If the *statement* fails, the result's ``status`` says so.

    Neither the database file nor another file is written. Values above 4 MB are an ``error`` (above 100 kB if functions of
    quadratic time, such as ``replace``, are called). A result above ``max_rows`` rows or 64 MB of text is cut. Text that is not
    UTF-8 is returned with replacement characters. Each call opens a connection, so any number of threads may call this
    function.

    SQLite reads the clock only between steps. So a statement that is costly to compile (twenty WITH clauses, each of which uses
    the previous clause twice) can exceed ``timeout_s`` by seconds.

    Raises:
        DatasetError: the file is missing, is not SQLite, is damaged, or is held by a writer.
    """
    started = time.monotonic()
    try:
        with closing(open_reading(database)) as connection:
            statement = _Statement(connection, sql, started + timeout_s, max_rows)
            status, error = statement.run()
    except sqlite3.Error as failure:
        raise DatasetError(_blame(database, failure)) from failure
    elapsed_s = time.monotonic() - started
    if status != "ok":
        return SqlResult(status, error=error, elapsed_s=elapsed_s)
    return SqlResult("ok", statement.columns, tuple(statement.rows), None, statement.is_truncated, elapsed_s)


def open_reading(database: Path) -> sqlite3.Connection:
    """Return a read-only connection to a database.

    A file in WAL mode without a write-ahead log (``-wal``) is opened as immutable. Otherwise SQLite would create ``-wal`` and
    ``-shm``, and fail in a folder that it cannot write. For other files SQLite takes its usual shared lock, so that an active
    writer causes an error and never a wrong answer.

    Raises:
        DatasetError: the file is missing or is not SQLite.
    """
    try:
        with open(database, "rb") as file:
            head = file.read(20)
    except OSError as failure:
        raise DatasetError(f"{database}: cannot read the database: {failure.strerror}") from failure
    if not head.startswith(_HEADER):
        raise DatasetError(f"{database}: not a SQLite database: put the file that `db_id` names in its place")
    wal = Path(f"{database}-wal")
    is_idle_wal = head[18:20] == b"\x02\x02" and not (wal.exists() and wal.stat().st_size)
    uri = f"{database.resolve().as_uri()}?mode=ro{'&immutable=1' if is_idle_wal else ''}"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=1.0)
    connection.text_factory = _text
    for limit, value in _LIMITS.items():
        connection.setlimit(limit, value)
    return connection


class _Statement:
    """One execution of a statement under limits, with the callbacks of SQLite's authorizer and progress handler."""

    def __init__(self, connection: sqlite3.Connection, sql: str, deadline: float, max_rows: int) -> None:
        self.connection = connection
        self.sql = sql
        self.deadline = deadline
        self.max_rows = max_rows
        self.columns: tuple[str, ...] = ()
        self.rows: list[tuple[Any, ...]] = []
        self.is_truncated = False
        self.is_refused = False
        self.is_timed_out = False

    def run(self) -> tuple[SqlStatus, str | None]:
        """Run the statement; return its status, and an error message or None.

        Raises:
            sqlite3.Error: the file cannot be read.
        """
        self._load_schema()
        is_costly = _COSTLY.search(self.sql) is not None
        if is_costly:
            self.connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _COSTLY_VALUE_BYTES)
        self.connection.set_progress_handler(self._is_late, _COSTLY_STEPS if is_costly else _STEPS_BETWEEN_CLOCK_READS)
        self.connection.set_authorizer(self._authorize)
        try:
            self._fetch()
        except sqlite3.Error as failure:
            return self._verdict(failure)
        except (ValueError, MemoryError, OverflowError) as failure:  # lone surrogates; a result beyond the machine
            return "error", f"{type(failure).__name__}: {failure}"
        return ("ok", None) if self.columns else ("error", "no query found: write one SELECT statement")

    def _load_schema(self) -> None:
        """Read the schema before the statement's limits are set: an error here is caused by the file, not by the statement."""
        self.connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
        if "json_" in self.sql.lower():  # building these table-valued functions looks like a write to the authorizer
            self.connection.execute("SELECT 1 FROM json_each('[]'), json_tree('[]')").fetchone()

    def _fetch(self) -> None:
        cursor = self.connection.execute(self.sql)
        self.columns = tuple(column[0] for column in cursor.description or ())
        left = MAX_RESULT_BYTES
        for row in cursor:
            if len(self.rows) >= self.max_rows or left < 0:
                self.is_truncated = True
                break
            self.rows.append(row)
            left -= sum(len(cell) for cell in row if isinstance(cell, str | bytes))

    def _authorize(self, action: int, first: str | None, second: str | None, *_: str | None) -> int:
        if self._is_late():  # compiling counts too: nested views or WITH clauses can double it at each level
            self.is_timed_out = True
            return sqlite3.SQLITE_DENY
        if action in _READING and not (action == sqlite3.SQLITE_FUNCTION and second and second.lower() in _BARRED_FUNCTIONS):
            return sqlite3.SQLITE_OK
        self.is_refused = True
        return sqlite3.SQLITE_DENY

    def _is_late(self) -> bool:
        return time.monotonic() > self.deadline

    def _verdict(self, failure: sqlite3.Error) -> tuple[SqlStatus, str]:
        code = getattr(failure, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if self.is_refused:
            return "refused", "only a statement that reads this database may run"
        if code == sqlite3.SQLITE_INTERRUPT or self.is_timed_out:
            return "timeout", "the statement ran too long"
        if "one statement at a time" in str(failure):
            return "refused", "only one statement may run"
        if code in _FILE_AT_FAULT or code in _FILE_BUSY:
            raise failure
        return "error", str(failure)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _blame(database: Path, failure: sqlite3.Error) -> str:
    code = getattr(failure, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    mend = "wait until its writer is done" if code in _FILE_BUSY else "restore the file"
    return f"{database}: cannot read the database: {failure}: {mend}"
