"""One run at a time writes to a store: two would settle each other's reservations and pay for cells twice."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vinelm.errors import StoreError

if sys.platform != "win32":
    import fcntl


@contextmanager
def run_lock(path: Path) -> Iterator[None]:
    """Hold the store at ``path`` for a run. :class:`StoreError` names the process that holds it already.

    The kernel lets go of it when the process dies, however it dies. Leaves ``PATH.lock`` beside the store.
    """
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
    """Which process holds the store for a run, as ``pid N on HOST``; None if nobody does. Writes nothing."""
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
    if sys.platform != "win32":  # there, a database that stays locked is the only sign
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StoreError(f"{path}: another run is writing to it ({owner}): wait for it to end, or stop it") from error


def _owner(path: Path) -> str:
    return path.with_name(f"{path.name}.lock").read_text(encoding="utf-8").strip() or "unknown"
