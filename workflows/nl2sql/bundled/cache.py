"""The cache of the bundled databases: written once per user and version of the data, then only read."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vinelm.errors import DatasetError
from vinelm.workflows.nl2sql.bundled import build
from vinelm.workflows.nl2sql.bundled.build import DATABASES, MANIFEST, QUESTIONS

_LEFTOVER_S = 3600.0
"""Seconds after which an unfinished folder belongs to a process that died, because a build takes only seconds."""
_UNFINISHED = ".building-"
DATA = Path(__file__).parent / "data"
"""The folder of the bundled databases, one SQL file each, and of the questions about them."""


@dataclass(frozen=True, slots=True)
class BundledDataset:
    """The bundled questions (the rows of ``questions.jsonl``), and the folder with the databases (``<db_id>.sqlite``)."""

    questions: tuple[Mapping[str, Any], ...]
    databases: Path


def bundled_dataset(cache_dir: Path | None = None, *, name: str = "nl2sql", data: Path = DATA) -> BundledDataset:
    """Return the bundled questions and databases; their content is the same on every machine.

    The first call writes them (a second, a few MB) to ``<cache_dir>/<name>-<digest of the data>``; later calls only read. Safe
    to call from several processes at once: the folder is created atomically and written again if a file is missing or
    truncated.

    Args:
        cache_dir: by default ``vinelm`` in the user's cache folder (``XDG_CACHE_HOME``, or ``~/.cache``).
        name: the beginning of the folder's name.
        data: the folder of the SQL files and ``questions.jsonl``.

    Raises:
        DatasetError: the cache folder cannot be written.
    """
    folder = (cache_dir or _user_cache()) / f"{name}-{digest_of(data)}"
    if not _is_whole(folder):
        try:
            _build(folder, data)
        except OSError as failure:
            raise DatasetError(
                f"{folder.parent}: cannot write the bundled databases: {failure.strerror}: "
                "set XDG_CACHE_HOME to a folder that you can write"
            ) from failure
    lines = (folder / QUESTIONS).read_text(encoding="utf-8").splitlines()
    return BundledDataset(tuple(json.loads(line) for line in lines), folder / DATABASES)


def digest_of(data: Path) -> str:
    """Return 12 hexadecimal digits that change with the data and with the code that writes it."""
    digest = hashlib.sha256()
    for source in (Path(build.__file__), *sorted(data.iterdir())):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def _user_cache() -> Path:
    named = Path(os.environ.get("XDG_CACHE_HOME") or "")
    try:
        return (named if named.is_absolute() else Path.home() / ".cache") / "vinelm"
    except RuntimeError as failure:
        raise DatasetError("no home folder for the bundled databases: set XDG_CACHE_HOME to a folder") from failure


def _is_whole(folder: Path) -> bool:
    """Return whether each file that the manifest lists exists in ``folder`` with the size that the manifest states."""
    try:
        sizes: dict[str, int] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False


def _build(folder: Path, data: Path) -> None:
    """Write the databases of ``data`` to a temporary folder, then rename it to ``folder``.

    If two processes do this at the same time, the folder of the process that finishes first stays.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    _sweep(folder.parent)
    beside = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=folder.parent))
    try:
        build.write_all(beside, data)
        beside.chmod(0o755)
        _put_in_place(beside, folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _put_in_place(beside: Path, folder: Path) -> None:
    try:
        beside.rename(folder)
    except OSError:
        if _is_whole(folder):
            return  # another process was faster
        damaged = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=folder.parent))
        folder.rename(damaged / folder.name)
        shutil.rmtree(damaged, ignore_errors=True)
        beside.rename(folder)


def _sweep(parent: Path) -> None:
    """Delete the temporary folders, in ``parent``, of builds that were killed."""
    for leftover in parent.glob(f"{_UNFINISHED}*"):
        try:
            if time.time() - leftover.stat().st_mtime > _LEFTOVER_S:
                shutil.rmtree(leftover, ignore_errors=True)
        except OSError:
            continue  # another process removed it
