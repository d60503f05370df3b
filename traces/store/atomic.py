"""Files that appear whole or not at all: written beside their place under another name, then moved there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vinelm.errors import StoreError
from vinelm.io import atomic_path, draft_path, sync_to_disk
from vinelm.traces.store.identity import StoreIdentity
from vinelm.traces.store.store import ObservationStore

_SIDE_FILES = ("", "-wal", "-shm", "-journal")


@contextmanager
def new_store(path: Path, identity: StoreIdentity) -> Iterator[ObservationStore]:
    """An empty store to fill in the block; it appears at ``path`` when the block is left, and never if it raises or dies.

    :class:`StoreError` if there is anything at ``path`` already: nothing is overwritten.
    """
    _require_free(path)
    draft = draft_path(path)
    try:
        with ObservationStore.create(draft, identity, shown_as=path) as store:
            yield store
        sync_to_disk(draft)
        _move_new(draft, path)
    except OSError as error:
        raise StoreError(f"{path}: cannot write the store: {error.strerror or error}") from error
    finally:
        _remove(draft)


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A path to write to in the block; the file moves to ``path`` when the block is left, in place of what was there.

    :class:`StoreError` if the folder is missing or the disk is full; the old file stays then.
    """
    _require_folder(path)
    try:
        with atomic_path(path) as draft:
            yield draft
    except OSError as error:
        raise StoreError(f"{path}: cannot write it: {error.strerror or error}") from error


def _require_free(path: Path) -> None:
    if path.exists():
        raise StoreError(f"{path}: exists already: give another path")
    _require_folder(path)


def _require_folder(path: Path) -> None:
    if not path.parent.is_dir():
        raise StoreError(f"{path}: the folder {path.parent} does not exist: make it first")


def _move_new(draft: Path, path: Path) -> None:
    """Move without replacing, also when two do it at once."""
    try:
        os.link(draft, path)
    except FileExistsError:
        raise StoreError(f"{path}: exists already: give another path") from None
    except OSError:  # a file system without hard links
        _require_free(path)
        draft.rename(path)
    sync_to_disk(path.parent)


def _remove(draft: Path) -> None:
    for ending in _SIDE_FILES:
        draft.with_name(f"{draft.name}{ending}").unlink(missing_ok=True)
