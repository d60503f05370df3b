"""An exclusive lock per store: two concurrent runs would settle each other's reservations and pay for results twice.

The lock is a separate file, ``STORE.lock``, which its holder removes. The store's file cannot be locked itself: when a process
closes any descriptor of a file, POSIX releases SQLite's locks on that file.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vinelm.errors import StoreError
from vinelm.io.operating_system import lock
from vinelm.traces.databases.address import require_store_file

_FOLDED = "folded"
_LINE = 80  # bytes


class RunLock:
    """The lock file of a run on a store.

    The file contains a line that names the process, and space for a note (:meth:`note_folded`).
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path, self._descriptor = path, descriptor
        self._pid = os.getpid()

    def note_owner(self) -> None:
        """Record which process holds the lock, and reserve space for :meth:`note_folded`."""
        owner = f"pid {self._pid} on {socket.gethostname()}"
        with suppress(OSError):  # a full disk: the lock works without it
            if os.fstat(self._descriptor).st_size < 2 * _LINE:
                self._write("", _LINE)
            self._write(owner, 0)

    def note_folded(self, run: str) -> None:
        """Note in the lock file that the store's file is complete without its write-ahead log.

        Does nothing if the log is not empty. ``run`` is the value of the marker that a run sets in the store's file while it
        lasts. If a killed run leaves the marker there, the note tells the next run that no log is missing. A lock file with
        a note is not removed at the end of the run.
        """
        wal = self._path.with_name(f"{self._path.name}-wal")
        with suppress(OSError):
            if not wal.exists() or wal.stat().st_size == 0:
                self._write(f"{_FOLDED} {run}", _LINE)

    def clear_note(self) -> None:
        """Delete the note that :meth:`note_folded` wrote, once the run's marker has been deleted from the store's file."""
        with suppress(OSError):
            self._write("", _LINE)

    def require_held(self) -> None:
        """Raise an error if the lock file was removed or renamed, since another process could then lock the store, too.

        Raises:
            StoreError: the lock file was removed or replaced, by a person or a cleanup tool.
        """
        if not _is_current(self._path, self._descriptor):
            raise StoreError(
                f"{_lock_file(self._path)}: was removed while this run held the store, and another run may have it now: run the"
                " same line again, which continues",
                code="store-hold-lost",
            )

    def release(self) -> None:
        """Remove the lock file, unless it contains a note (:meth:`note_folded`) for the next run, and release the lock.

        The file is removed while it is locked. Another process that has already opened the file notices that it was removed,
        and tries again. A forked child that ends leaves the lock to its parent.
        """
        try:
            is_ours = os.getpid() == self._pid and _is_current(self._path, self._descriptor)
            if is_ours and not any(line.startswith(_FOLDED) for line in _lines(self._path)):
                with suppress(OSError):  # the folder is no longer writable, or the system removes no open file
                    _lock_file(self._path).unlink()
        finally:
            os.close(self._descriptor)

    def _write(self, text: str, at: int) -> None:
        os.lseek(self._descriptor, at, os.SEEK_SET)
        os.write(self._descriptor, text.encode()[: _LINE - 1].ljust(_LINE - 1) + b"\n")


def was_folded(path: Path, run: str) -> bool:
    """Return whether the lock file of the store ``path`` notes that the store's file is complete without its write-ahead log.

    ``run`` is the value of the marker in the store's file, which the note must name; see :meth:`RunLock.note_folded`.
    """
    return f"{_FOLDED} {run}" in _lines(path)


@contextmanager
def run_lock(path: Path) -> Iterator[RunLock]:
    """Lock the store at ``path`` inside the block, with the file ``PATH.lock``, which is removed at the end.

    The kernel releases the lock when the process dies. A killed process leaves the file, and the next run reuses it.

    Raises:
        StoreError: another process holds the lock; the message names it. Or ``path`` is not a regular file.
    """
    require_store_file(path)
    lock = RunLock(path, _acquired(path))
    try:
        lock.note_owner()
        yield lock
    finally:
        lock.release()


def holder(path: Path) -> str | None:
    """Return the process that holds the lock of the store at ``path``, as ``pid N on HOST``; None if it is not locked.

    Writes nothing.
    """
    try:
        with _lock_file(path).open(encoding="utf-8") as file:
            is_free = lock(file.fileno(), is_shared=True)
    except OSError:
        return None
    return None if is_free else _owner(path)


def _acquired(path: Path) -> int:
    """Lock the lock file of the store at ``path``, creating it if missing, and return its file descriptor."""
    while True:
        descriptor = -1
        try:
            descriptor = os.open(_lock_file(path), os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
            is_free = lock(descriptor)  # on Windows only SQLite's own lock protects the file
            # First check whether the file still has its name, then whether the lock is ours: a lock on a removed file excludes
            # nobody.
            if _is_current(path, descriptor):
                if is_free:
                    return descriptor
                raise StoreError(f"{path}: another run is writing to it ({_owner(path)}): wait for it to end, or stop it")
        except OSError as error:
            _close(descriptor)
            raise StoreError(f"{path}: cannot lock the store: {error.strerror}") from error
        except BaseException:
            _close(descriptor)
            raise
        os.close(descriptor)  # its holder removed it after it was opened here


def _is_current(path: Path, descriptor: int) -> bool:
    """Return whether the open file is still the lock file of ``path``."""
    try:
        return os.path.samestat(os.fstat(descriptor), _lock_file(path).stat())
    except FileNotFoundError:
        return False


def _close(descriptor: int) -> None:
    if descriptor >= 0:
        os.close(descriptor)


def _lock_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


def _owner(path: Path) -> str:
    return next(iter(_lines(path)), "") or "unknown"


def _lines(path: Path) -> list[str]:
    try:
        text = _lock_file(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [line.strip() for line in text.split("\n")]
