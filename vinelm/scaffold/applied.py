"""Writes all files of a project and changes to the application's files, or none, even if the process is killed.

A journal of all changes is written next to the project first. Before it exists, no file has changed. Once it exists, all
changes are certain: if this process is killed, the next process completes them.
"""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from vinelm.errors import ConfigError
from vinelm.io.atomic import write_atomic

JOURNAL = ".vinelm-init.json"
WRITTEN = (".py", ".toml")
"""Suffixes of the files that a project consists of."""


def write_all(folder: Path, files: Mapping[Path, str]) -> None:
    """Write all files, or none if one of them cannot be written.

    Args:
        folder: the project's folder; it is created if it is missing.
        files: The new text of each file, keyed by path. A file that exists is replaced, and keeps its permissions.

    Raises:
        ConfigError: A file is read-only, or cannot be written; then nothing has changed.
    """
    for path in files:
        if path.is_file() and not path.stat().st_mode & stat.S_IWUSR:
            raise ConfigError(f"{path}: is read-only: make it writable, or change it yourself as `vinelm init` says")
    entries = [{"path": str(path.resolve()), "text": text, "before": _digest(path)} for path, text in files.items()]
    before = contents(files)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / JOURNAL, json.dumps({"files": entries}).encode())
        for path, text in files.items():
            write_atomic(path, text.encode())
    except OSError as error:
        restore(before)
        (folder / JOURNAL).unlink(missing_ok=True)
        raise ConfigError(f"{error.filename or folder}: cannot be written: {error.strerror}") from error
    (folder / JOURNAL).unlink()


def contents(paths: Iterable[Path]) -> dict[Path, bytes | None]:
    """Return the content of each file; None for a missing file."""
    return {path: path.read_bytes() if path.is_file() else None for path in paths}


def finish(folder: Path) -> list[Path]:
    """Complete the changes that a killed process began in a folder; return the written files, empty if there was nothing to
    complete.

    Raises:
        ConfigError: A file was changed after that process was killed, or cannot be written. Or the journal, the list of the
            changes, cannot be read or names a file outside of the project; such a journal may be forged.
    """
    journal = folder / JOURNAL
    try:
        entries = json.loads(journal.read_text(encoding="utf-8"))["files"]
        waiting = [(Path(one["path"]), str(one["text"]), one["before"]) for one in entries]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{journal}: cannot be read ({type(error).__name__}): remove it") from error
    for path, text, before in waiting:
        _require_of_project(path, folder, journal)
        if _digest(path) not in (before, _of(text.encode())):
            raise ConfigError(
                f"{path}: was changed after a run that was killed while it changed it: undo that, or remove {journal} and the "
                "files that it has written"
            )
    try:
        for path, text, _ in waiting:
            write_atomic(path, text.encode())
        journal.unlink()
    except OSError as error:
        raise ConfigError(f"{error.filename or folder}: cannot be written: {error.strerror}") from error
    return [path for path, _, _ in waiting]


def _require_of_project(path: Path, folder: Path, journal: Path) -> None:
    """Raise :class:`ConfigError` unless ``path`` is a code or settings file in the project's folder or the working folder.

    ``journal`` is the file that names ``path``.
    """
    real = path.resolve()
    roots = [root.resolve() for root in (folder, Path.cwd()) if real.is_relative_to(root.resolve())]
    if real.suffix not in WRITTEN or not any(
        not any(part.startswith(".") for part in real.relative_to(root).parts) for root in roots
    ):
        raise ConfigError(f"{journal}: names {path}, which is no file of this project: remove it, vinelm has not written it")


def restore(before: Mapping[Path, bytes | None]) -> None:
    """Restore the previous content of each file, given by path; delete a file if its previous content is None."""
    for path, content in before.items():
        with suppress(OSError):
            if content is None:
                path.unlink(missing_ok=True)
            elif path.read_bytes() != content:
                write_atomic(path, content)


def _digest(path: Path) -> str | None:
    return _of(path.read_bytes()) if path.is_file() else None


def _of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
