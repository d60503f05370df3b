"""Runs one model-written SQL statement on a SQLite file, read-only, in a process with limits on time, memory and files.

SQLite reads the clock only between steps. So one function call, or a statement that is costly to compile, can outlast any
deadline (``printf`` makes 2 GB of text in one step). The process is therefore killed: no statement exceeds its time by more
than ``GRACE_S``, and none takes memory or disk from this process.
"""

from __future__ import annotations

import json
import os
import socket
import time
from base64 import b64decode
from pathlib import Path
from typing import Any, BinaryIO

from vinelm.errors import DatasetError
from vinelm.workflows.limited.session_process import GRACE_S
from vinelm.workflows.limited.sessions import Sessions, is_supported
from vinelm.workflows.nl2sql.sql import SqlResult, run_sql

SESSIONS = Sessions("vinelm.workflows.nl2sql.sql_process", "runs SQL")
_SILENT_S = 5.0
"""Seconds after the grace at which the process is given up, if the machine is too busy to kill it in time."""


def run_limited(
    database: Path, sql: str, *, timeout_s: float = 5.0, max_rows: int = 10_000, max_steps: int | None = None
) -> SqlResult:
    """Run exactly one read-only statement and return the result. If the *statement* fails, the result's ``status`` says so.

    The result is that of :func:`vinelm.workflows.nl2sql.sql.run_sql`. In addition, a statement that needs more memory than its
    process may have is an ``error``. A result of more than 5 million values is cut. Any number of threads may call it. The
    first call starts a process, which later calls reuse.

    ``max_steps`` also limits the steps of SQLite's virtual machine, which takes about 50 million per second. A statement with
    more steps is a ``timeout``, however busy the machine is.

    If processes cannot be forked (Windows), the statement runs in this process without ``max_steps``, and a single function
    call can outlast ``timeout_s``.

    Raises:
        DatasetError: the file is missing, is not SQLite, is damaged, or is held by a writer.
    """
    if not is_supported():
        return run_sql(database, sql, timeout_s=timeout_s, max_rows=max_rows)
    limits = {"timeout_s": timeout_s, "rows": max_rows, "steps": max_steps}
    question = {"database": os.fspath(database.absolute()), "sql": sql, **limits}
    with SESSIONS.one() as session:
        started = time.monotonic()
        session.settimeout(timeout_s + GRACE_S + _SILENT_S)
        result = _asked(session, question)
    if result is not None:
        return result
    elapsed_s = time.monotonic() - started
    if elapsed_s >= timeout_s:
        return SqlResult("timeout", error="the statement ran too long", elapsed_s=elapsed_s)
    return SqlResult("error", error="the statement took too much memory, or crashed SQLite", elapsed_s=elapsed_s)


def _asked(session: socket.socket, question: dict[str, Any]) -> SqlResult | None:
    """Send ``question`` (a statement with its limits) to a session and return the result; None if its process has ended.

    The session is closed unless it can be reused.
    """
    is_reusable = False
    try:
        session.sendall(json.dumps(question).encode() + b"\n")
        with session.makefile("rb") as lines:
            head = _line(lines)
            result = None if head is None or "file_at_fault" in head else _result(head, lines)
        is_reusable = head is not None and (result is not None or "file_at_fault" in head)
    except OSError:  # also a timeout
        return None
    finally:
        if not is_reusable:
            session.close()
    if head is not None and "file_at_fault" in head:
        raise DatasetError(head["file_at_fault"])
    return result


def _result(head: dict[str, Any], lines: BinaryIO) -> SqlResult | None:
    rows = []
    for _ in range(head["rows"]):
        row = _line(lines)
        if row is None:
            return None
        rows.append(tuple(b64decode(cell[0]) if isinstance(cell, list) else cell for cell in row))
    columns, is_truncated = tuple(head["columns"]), head["is_truncated"]
    return SqlResult(head["status"], columns, tuple(rows), head["error"], is_truncated, head["elapsed_s"])


def _line(lines: BinaryIO) -> Any:
    text = lines.readline()
    return json.loads(text) if text.endswith(b"\n") else None
