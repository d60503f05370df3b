"""An exclusive lock per store: two concurrent runs would settle each other's reservations and pay for cells twice."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vinelm.errors import StoreError
from vinelm.io import lock
from vinelm.traces.store.database import require_store_file

_FOLDED = "folded"
_LINE = 80  # bytes


class RunLock:
    """The lock file of a store while a run holds it: a line with the process, and room for a note."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path, self._descriptor = path, descriptor

    def note_owner(self) -> None:
        """Note which process holds the lock, and keep room for :meth:`note_folded`."""
        owner = f"pid {os.getpid()} on {socket.gethostname()}"
        with suppress(OSError):  # a full disk: the lock holds without it
            if os.fstat(self._descriptor).st_size < 2 * _LINE:
                self._write("", _LINE)
            self._write(owner, 0)

    def note_folded(self, run: str) -> None:
        """Note that the file of the store holds everything, without its write-ahead log, although it says that ``run`` is open.

        Does nothing if the log is not empty. Overwrites in place, since the disk may be full.
        """
        wal = self._path.with_name(f"{self._path.name}-wal")
        with suppress(OSError):
            if not wal.exists() or wal.stat().st_size == 0:
                self._write(f"{_FOLDED} {run}", _LINE)

    def _write(self, text: str, at: int) -> None:
        os.lseek(self._descriptor, at, os.SEEK_SET)
        os.write(self._descriptor, text.encode()[: _LINE - 1].ljust(_LINE - 1) + b"\n")


def was_folded(path: Path, run: str) -> bool:
    """Return whether :meth:`RunLock.note_folded` was called for ``run``."""
    return f"{_FOLDED} {run}" in _lines(path)


@contextmanager
def run_lock(path: Path) -> Iterator[RunLock]:
    """Lock the store at ``path`` for one run. The kernel releases the lock when the process dies; ``PATH.lock`` is not deleted.

    Raises:
        StoreError: another process holds the lock; the message names it. Or ``path`` is not a regular file.
    """
    require_store_file(path)
    try:
        descriptor = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
    except OSError as error:
        raise StoreError(f"{path}: cannot lock the store: {error.strerror}") from error
    try:
        _acquire(descriptor, path, _owner(path))
        lock = RunLock(path, descriptor)
        lock.note_owner()
        yield lock
    finally:
        os.close(descriptor)


def holder(path: Path) -> str | None:
    """Return the process that holds the lock, as ``pid N on HOST``; None if there is none. Writes nothing."""
    try:
        with path.with_name(f"{path.name}.lock").open(encoding="utf-8") as file:
            is_free = lock(file.fileno(), is_shared=True)
    except OSError:
        return None
    return None if is_free else _owner(path)


def _acquire(descriptor: int, path: Path, owner: str) -> None:
    try:
        is_free = lock(descriptor)  # on Windows only SQLite's own lock protects the file
    except OSError as error:
        raise StoreError(f"{path}: cannot lock the store: {error.strerror}") from error
    if not is_free:
        raise StoreError(f"{path}: another run is writing to it ({owner}): wait for it to end, or stop it")


def _owner(path: Path) -> str:
    return next(iter(_lines(path)), "") or "unknown"


def _lines(path: Path) -> list[str]:
    try:
        text = path.with_name(f"{path.name}.lock").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [line.strip() for line in text.split("\n")]
