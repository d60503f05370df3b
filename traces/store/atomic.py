"""Atomic file creation: files are written under a temporary name in the same folder, then renamed."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vinelm.errors import StoreError
from vinelm.traces.store.identity import StoreIdentity
from vinelm.traces.store.store import ObservationStore

_SIDE_FILES = ("", "-wal", "-shm", "-journal")


@contextmanager
def new_store(path: Path, identity: StoreIdentity) -> Iterator[ObservationStore]:
    """Yield an empty store to fill; it appears at ``path`` when the block ends, and never if the block fails.

    Raises:
        StoreError: ``path`` exists already (nothing is overwritten), or cannot be written.
    """
    _require_free(path)
    draft = _draft(path)
    try:
        with ObservationStore.create(draft, identity, shown_as=path) as store:
            yield store
        _sync(draft)
        _move_new(draft, path)
    except OSError as error:
        raise StoreError(f"{path}: cannot write the store: {error.strerror or error}") from error
    finally:
        _remove(draft)


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write; the file replaces ``path`` when the block ends.

    Raises:
        StoreError: the folder is missing or the file cannot be written; an older file at ``path`` stays.
    """
    _require_folder(path)
    draft = _draft(path)
    try:
        yield draft
        _sync(draft)
        os.replace(draft, path)
        _sync(path.parent)
    except OSError as error:
        raise StoreError(f"{path}: cannot write the file: {error.strerror or error}") from error
    finally:
        _remove(draft)


def _require_free(path: Path) -> None:
    if path.exists():
        raise StoreError(f"{path}: exists already: use another path")
    _require_folder(path)


def _require_folder(path: Path) -> None:
    if not path.parent.is_dir():
        raise StoreError(f"{path}: the folder {path.parent} does not exist: create it first")


def _draft(path: Path) -> Path:
    """A temporary name for this process; drafts of dead processes of this machine are deleted."""
    host = socket.gethostname()
    for left in path.parent.glob(f".{path.name}.{host}.*.draft*"):
        pid = left.name.split(".draft")[0].rpartition(".")[2]
        if pid.isdigit() and int(pid) != os.getpid() and not _is_alive(int(pid)):
            left.unlink(missing_ok=True)
    return path.with_name(f".{path.name}.{host}.{os.getpid()}.draft{path.suffix}")


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _move_new(draft: Path, path: Path) -> None:
    """Rename without replacing an existing file, safely against concurrent writers."""
    try:
        os.link(draft, path)
    except FileExistsError:
        raise StoreError(f"{path}: exists already: use another path") from None
    except OSError:  # a file system without hard links
        _require_free(path)
        draft.rename(path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    with suppress(PermissionError):  # a folder cannot be opened everywhere
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _remove(draft: Path) -> None:
    for ending in _SIDE_FILES:
        draft.with_name(f"{draft.name}{ending}").unlink(missing_ok=True)
