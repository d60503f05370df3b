"""Recovers a store whose run was killed, and detects incomplete copies.

SQLite commits rows to the write-ahead log (WAL, ``STORE-wal``) before it copies them into the file. A store whose run was
killed still has its WAL and loses nothing. A *copy* made during a run may lack the WAL or have an older or newer WAL, and
SQLite would open it without a warning, with rows missing. Each run therefore sets a marker in the file's ``meta`` table while
it lasts, and a second marker only in the log. The process that closes a store last copies the log into the file and removes it,
so that the file then has both markers.
"""

from __future__ import annotations

import struct
from pathlib import Path

from vinelm.errors import StoreError
from vinelm.traces.databases.database import SQLITE_ERRORS, Database, connect_read_only
from vinelm.traces.databases.lock import holder, run_lock, was_folded
from vinelm.traces.databases.schema import OPEN_LOG, OPEN_RUN

_LOG_HEADER = struct.Struct(">8I")  # magic, version, page size, checkpoint number, two salts, two checksums
_FRAME_HEADER = struct.Struct(">6I")  # page number, pages after commit (0: no commit), two salts, two checksums


def recover(
    path: Path,
    *,
    run: str = "",
    is_whole: bool = False,
    accept: bool = False,
    shown_as: Path | None = None,
    is_read_only: bool = False,
) -> None:
    """Clear the marker that a killed run has left in the store at ``path``; do nothing while a run is active.

    A run that ended on a full disk may have been unable to clear its marker. It has then noted in the lock file that the
    store's file is complete. A missing WAL then does not mean that the file is an incomplete copy.

    Args:
        path: the store.
        run: the marker's value, which identifies the run.
        is_whole: whether the second marker, which the run wrote only to the WAL, is in the file itself. The WAL was then copied
            into the file, so the file has all writes of the run.
        accept: whether to accept a file without its WAL, so that rows that are only in the WAL are lost.
        shown_as: the path that errors name, if ``path`` is a copy of it.
        is_read_only: whether to check only, without writing.

    Raises:
        StoreError: the WAL is missing (without ``accept`` or ``is_whole``) or does not match the file; nothing is written then.
    """
    if holder(path) is not None:
        return  # the marker is of a run that is alive
    if not (accept or is_whole) and not path.with_name(f"{path.name}-wal").exists() and not was_folded(path, run):
        raise StoreError(
            f"{shown_as or path}: copied during a run without its write-ahead log, so rows are missing: copy {path.name}-wal "
            "beside it, or accept the rows that are there",
            code="store-without-log",
        )
    if is_read_only:
        return
    # Under the run lock: since the check above, another process may have begun a run, whose marker must stay.
    with run_lock(path) as lock:
        _require_matching_wal(path)
        database = Database(path)
        try:
            with database.transaction() as connection:
                connection.exec_driver_sql("DELETE FROM meta WHERE key IN (?, ?)", (OPEN_RUN, OPEN_LOG))
            lock.clear_note()
        finally:
            database.close()


def _require_matching_wal(path: Path) -> None:
    """Raise :class:`StoreError` unless file and WAL belong together. Reads the whole file, writes nothing.

    SQLite does not detect a WAL that is newer than the file if the file refers to none of the WAL's pages. So the file's size
    is also compared with the size that the WAL implies.
    """
    pages = _pages_by_wal(path.with_name(f"{path.name}-wal"))
    try:
        connection = connect_read_only(path)
        try:
            (size,) = connection.execute("PRAGMA page_count").fetchone()
            (result,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        finally:
            connection.close()
    except SQLITE_ERRORS as error:
        size, result = 0, str(error)
    # Neither check is enough: a log of another time may leave every page valid, and one of the right length may mix pages of
    # two states.
    if result != "ok" or (pages or size) != size:
        raise StoreError(f"{path}: the file and its write-ahead log do not match: copy both while no run is writing")


def _pages_by_wal(wal: Path) -> int | None:
    """Return the number of pages that the file has after the last complete transaction of the WAL; None without such a
    transaction.

    Layout: https://www.sqlite.org/fileformat2.html#walformat
    """
    try:
        content = wal.read_bytes()
    except OSError:
        return None
    if len(content) < _LOG_HEADER.size:
        return None
    _, _, page_size, _, *salts, _, _ = _LOG_HEADER.unpack_from(content)
    pages = None
    for at in range(_LOG_HEADER.size, len(content) - page_size, _FRAME_HEADER.size + page_size):
        _, size_after, *found = _FRAME_HEADER.unpack_from(content, at)
        # A checkpoint starts the log again with new salts and leaves the old frames behind: they are no longer part of it.
        if found[:2] != salts:
            break  # frames from before the last checkpoint of the WAL
        # Only the last frame of a transaction has the size: without it the transaction was not committed and does not count.
        pages = size_after or pages
    return pages
