"""An exclusive lock per store: two concurrent runs would settle each other's reservations and pay for cells twice."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vinelm.errors import StoreError
from vinelm.traces.store.database import require_store_file

if sys.platform != "win32":
    import fcntl


@contextmanager
def run_lock(path: Path) -> Iterator[None]:
    """Lock the store at ``path`` for one run. The kernel releases the lock when the process dies; ``PATH.lock`` is not deleted.

    Raises:
        StoreError: another process holds the lock; the message names it. Or ``path`` is not a regular file.
    """
    require_store_file(path)
    try:
        file = path.with_name(f"{path.name}.lock").open("a+", encoding="utf-8")
    except OSError as error:
        raise StoreError(f"{path}: cannot lock the store: {error.strerror}") from error
    with file:
        _acquire(file.fileno(), path, _owner(path))
        file.truncate(0)
        file.write(f"pid {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        yield


def holder(path: Path) -> str | None:
    """Return the process that holds the lock, as ``pid N on HOST``; None if there is none. Writes nothing."""
    if sys.platform == "win32":
        return None
    try:
        with path.with_name(f"{path.name}.lock").open(encoding="utf-8") as file:
            fcntl.flock(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _owner(path)
    except OSError:
        return None
    return None


def _acquire(descriptor: int, path: Path, owner: str) -> None:
    if sys.platform != "win32":  # on Windows only SQLite's own lock protects the file
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StoreError(f"{path}: another run is writing to it ({owner}): wait for it to end, or stop it") from error


def _owner(path: Path) -> str:
    return path.with_name(f"{path.name}.lock").read_text(encoding="utf-8").strip() or "unknown"
