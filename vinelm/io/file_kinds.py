"""For error messages: describes files of the wrong type, and suggests a similar path if a file is missing."""

from __future__ import annotations

import os
import stat
from contextlib import closing, suppress
from difflib import get_close_matches
from pathlib import Path

_SQLITE, _ZIP, _PARQUET = b"SQLite format 3\x00", b"PK", b"PAR1"
_TEXTS = {
    ".csv": "a table in CSV",
    ".tsv": "a table in TSV",
    ".json": "a JSON file",
    ".jsonl": "a file of JSON lines",
    ".toml": "a TOML file",
    ".yaml": "a YAML file",
    ".yml": "a YAML file",
    ".py": "Python code",
    ".html": "a page in HTML",
    ".ipynb": "a notebook",
}
_MOST_LISTED = 10_000
"""How many names in a folder are compared to find a similar one."""
TRIE, STORE = "a trie", "a store"
READERS = {TRIE: "`vinelm plan` reads it", STORE: "`vinelm estimate` and `store info` read it"}
"""The commands that read each kind of VineLM's files."""


def what_is(path: str | Path) -> str | None:
    """Return the type of a file in words that follow "is": ``a folder``, ``an empty file``, ``a trie``; None if unknown.

    Reads the file's first bytes. Never blocks on a pipe or a device.
    """
    path = Path(path)
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            return "a folder"
        if not stat.S_ISREG(mode):
            return "no regular file"
        with path.open("rb") as file:
            head = file.read(len(_SQLITE))
    except (OSError, ValueError):
        return None
    if not head:
        return "an empty file"
    if head == _SQLITE:
        return STORE if _has_table(path, "meta") else "a SQLite database that is no store"
    if head.startswith(_ZIP):
        return TRIE if path.suffix == ".vine" else "a zip file"
    if head.startswith(_PARQUET):
        return "a table in Parquet"
    return _TEXTS.get(path.suffix.lower())


def _has_table(database: Path, name: str) -> bool:
    import sqlite3  # not needed by most commands

    address = f"{database.resolve().as_uri()}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(address, uri=True)) as connection:
            return connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)).fetchone() is not None
    except (sqlite3.Error, UnicodeDecodeError):
        return False


def instead_of(path: str | Path, wanted: str, made_by: str) -> str | None:
    """Return text such as ``this is a store, not a trie file: ...`` if a file has a known type other than ``wanted``;
    otherwise None.

    Args:
        path: The file.
        wanted: The expected type: ``a trie file``, ``a store``.
        made_by: The command that makes a file of the expected type: ```vinelm estimate` ``.
    """
    found = what_is(path)
    if found is None or wanted.startswith(found):
        return None
    readers = f" ({READERS[found]})" if found in READERS else ""
    return f"this is {found}{readers}, not {wanted}: {made_by} makes one"


def near(path: str | Path) -> str:
    """Return a hint about a missing path, such as `` (did you mean runs/app.db?)`` or `` (there is no folder runs)``;
    "" without a hint.
    """
    path = Path(path)
    folder = path.parent
    with suppress(OSError, ValueError):
        if not folder.is_dir():
            return f" (there is no folder {folder})"
        with os.scandir(folder) as entries:
            names = [entry.name for entry, _ in zip(entries, range(_MOST_LISTED), strict=False)]
        alike = get_close_matches(path.name, names, n=1, cutoff=0.7)
        if alike and alike[0] != path.name:
            return f" (did you mean {folder / alike[0]}?)"
    return ""


def unread(path: str | Path, error: Exception) -> str:
    """Return the reason why reading a file failed with ``error``, as text without the file's name."""
    if isinstance(error, FileNotFoundError):
        return f"no such file{near(path)}"
    if isinstance(error, IsADirectoryError):
        return "it is a folder, and a file is wanted here"
    return str(getattr(error, "strerror", None) or error)
