"""The process that runs SQL: it forks one process per session, and each runs statements under limits that the kernel keeps.

Started by :mod:`vinelm.workflows.nl2sql.sql_sessions` with an empty environment. It ends when everybody who could ask is gone.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import time
from base64 import b64encode
from contextlib import closing, suppress
from itertools import accumulate, takewhile
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from vinelm.errors import DatasetError
from vinelm.workflows.nl2sql.sql import SqlResult, _blame, _Statement, open_reading

HEAP_BYTES = 512 << 20
"""What SQLite may allocate; temporary tables and sorting are kept in memory."""

SPACE_BYTES = 1 << 30
"""What the process may map beyond that which it has at its start."""

MAX_CELLS = 5_000_000
GRACE_S = 0.5
"""Seconds after the timeout at which the process is killed."""


def main(descriptor: int) -> None:
    """Fork a session for each socket that arrives, until the other side is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the application, which ends this process
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a session
    control = socket.socket(fileno=descriptor)
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not data:
            return
        session = socket.socket(fileno=descriptors[0])
        if os.fork() == 0:
            control.close()
            _serve(session)
        session.close()


def _serve(session: socket.socket) -> NoReturn:
    with suppress(OSError):
        _limit()
        session.sendall(b"ready\n")
        with session.makefile("rb") as questions, session.makefile("wb") as answers:
            for line in questions:
                _answer(json.loads(line), answers)
    os._exit(0)


def _limit() -> None:
    import resource

    limits = {resource.RLIMIT_FSIZE: 0, resource.RLIMIT_CORE: 0}
    with suppress(OSError), open("/proc/self/statm", encoding="ascii") as file:
        limits[resource.RLIMIT_AS] = int(file.read().split()[0]) * resource.getpagesize() + SPACE_BYTES
    for kind, wanted in limits.items():
        _, hard = resource.getrlimit(kind)
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(kind, (most, most))


def _answer(question: dict[str, Any], answers: BinaryIO) -> None:
    signal.setitimer(signal.ITIMER_REAL, question["timeout_s"] + GRACE_S)  # its signal ends the process, whatever runs
    try:
        result = _run(Path(question["database"]), question["sql"], question["timeout_s"], question["rows"])
    except DatasetError as error:
        _write(answers, {"file_at_fault": str(error)})
    except MemoryError:
        os._exit(1)
    else:
        rows = result.rows[: _rows_that_fit(result)]
        head = {"status": result.status, "error": result.error, "columns": result.columns, "rows": len(rows)}
        is_truncated = result.is_truncated or len(rows) < len(result.rows)
        _write(answers, {**head, "is_truncated": is_truncated, "elapsed_s": result.elapsed_s})
        for row in rows:
            _write(answers, [[b64encode(cell).decode()] if isinstance(cell, bytes) else cell for cell in row])
    answers.flush()
    signal.setitimer(signal.ITIMER_REAL, 0)


def _rows_that_fit(result: SqlResult) -> int:
    return sum(1 for _ in takewhile(lambda cells: cells <= MAX_CELLS, accumulate(map(len, result.rows))))


def _write(answers: BinaryIO, plain: Any) -> None:
    answers.write(json.dumps(plain, ensure_ascii=False).encode() + b"\n")


def _run(database: Path, sql: str, timeout_s: float, max_rows: int) -> SqlResult:
    """As :func:`~vinelm.workflows.nl2sql.sql.run_sql`, with limits on SQLite's memory."""
    started = time.monotonic()
    try:
        with closing(open_reading(database)) as connection:
            connection.execute("PRAGMA temp_store = MEMORY")
            connection.execute(f"PRAGMA hard_heap_limit = {HEAP_BYTES}")
            statement = _Statement(connection, sql, started + timeout_s, max_rows)
            status, error = statement.run()
    except sqlite3.Error as failure:
        raise DatasetError(_blame(database, failure)) from failure
    elapsed_s = time.monotonic() - started
    if status != "ok":
        return SqlResult(status, error=_without_type(error), elapsed_s=elapsed_s)
    return SqlResult("ok", statement.columns, tuple(statement.rows), None, statement.is_truncated, elapsed_s)


def _without_type(error: str | None) -> str | None:
    return "the statement took too much memory" if error is not None and error.startswith("MemoryError") else error
