"""After a run that did not end in good order: are all its rows in this file?

Rows are durable in the log beside the file (``STORE-wal``) before they are in the file itself. A store whose run was killed
still has its log and loses nothing. A *copy* made while a run was writing may lack it, or have another moment's: SQLite would
open it without a word, rows short. So a run leaves a mark in the file itself for as long as it lasts.
"""

from __future__ import annotations

import sqlite3
import struct
from pathlib import Path

from vinelm.errors import StoreError
from vinelm.traces.store.database import Database, connect_read_only
from vinelm.traces.store.lock import holder, run_lock

_LOG_HEADER = struct.Struct(">8I")  # magic, version, page size, checkpoint number, two salts, two checksums
_FRAME_HEADER = struct.Struct(">6I")  # page number, pages after commit (0: no commit), two salts, two checksums
OPEN_RUN = "open_run"
"""Key of ``meta``: a run holds the store, or died while it did."""


def recover(path: Path, *, accept: bool = False) -> None:
    """Take the mark of a dead run off the store at ``path``; nothing if the run is alive.

    :class:`StoreError`, and nothing written, if the log is missing (unless ``accept``: whatever rows the file has are taken as
    all there are) or does not fit the file.
    """
    if holder(path) is not None:
        return
    if not accept and not path.with_name(f"{path.name}-wal").exists():
        raise StoreError(
            f"{path}: copied while a run was writing to it, without its log, so that rows are missing: copy {path.name}-wal "
            f"beside it, or go on without them after `vinelm store check --accept {path.name}`"
        )
    with run_lock(path):
        _require_one_moment(path)
        database = Database(path)
        try:
            with database.transaction() as connection:
                connection.exec_driver_sql("DELETE FROM meta WHERE key = ?", (OPEN_RUN,))
        finally:
            database.close()


def _require_one_moment(path: Path) -> None:
    """:class:`StoreError`, and nothing written, unless file and log go together. Reads the whole file.

    SQLite itself does not notice a log of a later moment whose pages no page of the older file refers to: the sizes tell.
    """
    pages = _pages_by_log(path.with_name(f"{path.name}-wal"))
    try:
        connection = connect_read_only(path)
        try:
            (size,) = connection.execute("PRAGMA page_count").fetchone()
            (wrong,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        finally:
            connection.close()
    except sqlite3.Error as error:
        size, wrong = 0, str(error)
    if wrong != "ok" or (pages or size) != size:
        raise StoreError(f"{path}: file and log are not of the same moment: copy both while no run is writing")


def _pages_by_log(log: Path) -> int | None:
    """How many pages the file has after the log's last whole transaction; None if the log holds none.

    Layout: https://www.sqlite.org/fileformat2.html#walformat
    """
    try:
        content = log.read_bytes()
    except OSError:
        return None
    if len(content) < _LOG_HEADER.size:
        return None
    _, _, page_size, _, *salts, _, _ = _LOG_HEADER.unpack_from(content)
    pages = None
    for at in range(_LOG_HEADER.size, len(content) - page_size, _FRAME_HEADER.size + page_size):
        _, size_after, *found = _FRAME_HEADER.unpack_from(content, at)
        if found[:2] != salts:
            break  # left over from before the log was last folded
        pages = size_after or pages
    return pages
