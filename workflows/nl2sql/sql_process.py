"""The process that runs SQL: it forks one process per session, which runs statements under limits of the kernel."""

from __future__ import annotations

import json
import math
import os
import sqlite3
import time
from base64 import b64encode
from contextlib import closing
from itertools import accumulate, takewhile
from pathlib import Path
from typing import Any, BinaryIO

from vinelm.errors import DatasetError
from vinelm.workflows.limited.session_process import deadline, serve_sessions
from vinelm.workflows.nl2sql.sql import (
    _COSTLY,
    _COSTLY_STEPS,
    _STEPS_BETWEEN_CLOCK_READS,
    SqlResult,
    _blame,
    _Statement,
    open_reading,
)

HEAP_BYTES = 512 << 20
"""The bytes that SQLite may allocate, including temporary tables and sorting, which are in memory."""

SPACE_BYTES = 1 << 30
"""The bytes that a session may map in addition to the process's mappings at its start."""

MAX_CELLS = 5_000_000


def main(descriptor: int) -> None:
    """For each socket received over the socket ``descriptor``, fork a process that runs statements.

    Return when the application has ended.
    """
    serve_sessions(descriptor, _answer, space_bytes=SPACE_BYTES)


def _answer(line: bytes, answers: BinaryIO) -> None:
    question = json.loads(line)
    with deadline(question["timeout_s"]):
        try:
            limits = question["timeout_s"], question["rows"], question["steps"]
            result = _run(Path(question["database"]), question["sql"], *limits)
        except DatasetError as error:
            _write(answers, {"file_at_fault": str(error)})
        except MemoryError:
            os._exit(1)
        else:
            _write_result(answers, result)
        answers.flush()


def _write_result(answers: BinaryIO, result: SqlResult) -> None:
    rows = result.rows[: _rows_that_fit(result)]
    head = {"status": result.status, "error": result.error, "columns": result.columns, "rows": len(rows)}
    is_truncated = result.is_truncated or len(rows) < len(result.rows)
    _write(answers, {**head, "is_truncated": is_truncated, "elapsed_s": result.elapsed_s})
    for row in rows:
        _write(answers, [[b64encode(cell).decode()] if isinstance(cell, bytes) else cell for cell in row])


def _rows_that_fit(result: SqlResult) -> int:
    return sum(1 for _ in takewhile(lambda cells: cells <= MAX_CELLS, accumulate(map(len, result.rows))))


def _write(answers: BinaryIO, plain: Any) -> None:
    answers.write(json.dumps(plain, ensure_ascii=False).encode() + b"\n")


class _CountedStatement(_Statement):
    """A statement with an additional limit on steps, independent of the machine's load; ``max_steps`` None sets no limit.

    Steps are counted whenever the clock is checked. The steps of the statement's compilation count too, at most a few hundred.
    """

    def __init__(self, connection: sqlite3.Connection, sql: str, deadline: float, max_rows: int, max_steps: int | None) -> None:
        super().__init__(connection, sql, deadline, max_rows)
        self._steps = _COSTLY_STEPS if _COSTLY.search(sql) else _STEPS_BETWEEN_CLOCK_READS
        self._steps_left = math.inf if max_steps is None else max_steps

    def _is_late(self) -> bool:
        self._steps_left -= self._steps
        return self._steps_left < 0 or super()._is_late()


def _run(database: Path, sql: str, timeout_s: float, max_rows: int, max_steps: int | None) -> SqlResult:
    """Run a statement with limits on SQLite's memory and steps; otherwise like :func:`~vinelm.workflows.nl2sql.sql.run_sql`."""
    started = time.monotonic()
    try:
        with closing(open_reading(database)) as connection:
            connection.execute("PRAGMA temp_store = MEMORY")
            connection.execute(f"PRAGMA hard_heap_limit = {HEAP_BYTES}")
            statement = _CountedStatement(connection, sql, started + timeout_s, max_rows, max_steps)
            status, error = statement.run()
    except sqlite3.Error as failure:
        raise DatasetError(_blame(database, failure)) from failure
    elapsed_s = time.monotonic() - started
    if status != "ok":
        return SqlResult(status, error=_without_type(error), elapsed_s=elapsed_s)
    return SqlResult("ok", statement.columns, tuple(statement.rows), None, statement.is_truncated, elapsed_s)


def _without_type(error: str | None) -> str | None:
    return "the statement took too much memory" if error is not None and error.startswith("MemoryError") else error
