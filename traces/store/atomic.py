"""Creates files atomically: writes them under a temporary name in the same folder, then renames them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vinelm.errors import StoreError
from vinelm.io.atomic import atomic_path, draft_path, sync_to_disk
from vinelm.traces.databases.identity import StoreIdentity
from vinelm.traces.store.store import ObservationStore

_SIDE_FILES = ("", "-wal", "-shm", "-journal")


@contextmanager
def new_store(path: Path, identity: StoreIdentity) -> Iterator[ObservationStore]:
    """Yield an empty store to fill; it is created at ``path`` only if the block ends without an error.

    Raises:
        StoreError: ``path`` exists (nothing is overwritten), or cannot be written.
    """
    with _draft(path) as draft, ObservationStore.create(draft, identity, shown_as=path) as store:
        yield store


@contextmanager
def copied_store(source: ObservationStore, path: Path) -> Iterator[ObservationStore]:
    """Yield a copy of a store to change; it is created at ``path`` only if the block ends without an error.

    Raises:
        StoreError: ``path`` exists (nothing is overwritten), or cannot be written.
    """
    with _draft(path) as draft:
        source.database.copy_to(draft)
        with ObservationStore.open(draft) as store:
            yield store


@contextmanager
def _draft(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write; at the end of the block the file is renamed to ``path``, which must not exist."""
    _require_free(path)
    draft = draft_path(path)
    try:
        yield draft
        sync_to_disk(draft)
        _move_new(draft, path)
    except OSError as error:
        raise StoreError(f"{path}: cannot write the store: {error.strerror or error}") from error
    finally:
        _remove(draft)


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write; at the end of the block this file replaces the file at ``path``.

    Raises:
        StoreError: the folder is missing or the file cannot be written; an older file at ``path`` stays.
    """
    _require_folder(path)
    try:
        with atomic_path(path) as draft:
            yield draft
    except OSError as error:
        raise StoreError(f"{path}: cannot write the file: {error.strerror or error}") from error


def _require_free(path: Path) -> None:
    if path.exists():
        raise StoreError(f"{path}: exists already: use another path")
    _require_folder(path)


def _require_folder(path: Path) -> None:
    if not path.parent.is_dir():
        raise StoreError(f"{path}: the folder {path.parent} does not exist: create it first")


def _move_new(draft: Path, path: Path) -> None:
    """Rename ``draft`` to ``path``; raise :class:`StoreError` if ``path`` exists.

    If the file system has hard links, this also holds if another process creates ``path`` at the same time.
    """
    try:
        # A link fails if the name is taken; a rename would replace a store that was created meanwhile.
        os.link(draft, path)
    except FileExistsError:
        raise StoreError(f"{path}: exists already: use another path") from None
    except OSError:  # a file system without hard links
        _require_free(path)
        draft.rename(path)
    # The folder too: otherwise a power failure may lose the new name.
    sync_to_disk(path.parent)


def _remove(draft: Path) -> None:
    for ending in _SIDE_FILES:
        draft.with_name(f"{draft.name}{ending}").unlink(missing_ok=True)
