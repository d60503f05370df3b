"""Writes databases from their SQL files into an empty folder, byte for byte the same with every version of SQLite."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from vinelm.io.atomic import write_atomic

DATABASES, QUESTIONS, MANIFEST = "databases", "questions.jsonl", "manifest.json"
_WRITTEN_BY = (3_040_000).to_bytes(4, "big")
"""The header of a SQLite file names the version that wrote it, which nothing reads; with one fixed value the files are
identical wherever they are made."""
_PAGE_BYTES = 4096
_LEAF_PAGES = (10, 13)
"""The first byte of B-tree pages without children. Our rows are short, so there are only B-tree pages."""


def write_all(folder: Path, data: Path) -> None:
    """Write the databases of ``data``, its questions and ``manifest.json`` (file sizes) to ``folder``, synced to disk."""
    (folder / DATABASES).mkdir()
    for source in sorted(data.glob("*.sql")):
        path = folder / DATABASES / f"{source.stem}.sqlite"
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            write_database(connection, source.read_text(encoding="utf-8"))
        _seal(path)
    write_atomic(folder / QUESTIONS, (data / QUESTIONS).read_bytes())
    sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in sorted(folder.rglob("*.*"))}
    write_atomic(folder / MANIFEST, json.dumps(sizes, indent=1).encode())


def write_database(connection: sqlite3.Connection, sql: str) -> None:
    """Write tables and rows to an empty database in one transaction, with foreign keys checked."""
    for pragma in (
        f"page_size = {_PAGE_BYTES}",
        "auto_vacuum = NONE",
        "encoding = 'UTF-8'",
        "secure_delete = ON",
        "foreign_keys = ON",
    ):
        connection.execute(f"PRAGMA {pragma}")
    connection.executescript(f"BEGIN;\n{sql}")
    for statement in list(_indexes(connection)):
        connection.execute(statement)
    connection.execute("COMMIT")


def _indexes(connection: sqlite3.Connection) -> Iterator[str]:
    """Yield one index per referring column, so that joins and correlated subqueries are fast from either side."""
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY rowid").fetchall()
    for (table,) in tables:
        links = connection.execute('SELECT DISTINCT "from" FROM pragma_foreign_key_list(?) ORDER BY id DESC', (table,))
        for (column,) in links.fetchall():
            yield f"CREATE INDEX {table}_by_{column} ON {table} ({column})"


def _seal(path: Path) -> None:
    """Make the file identical for all versions of SQLite, and read-only.

    Overwrites SQLite's version number and the unused bytes of B-tree pages, between the cell pointers and the cells.
    """
    content = bytearray(path.read_bytes())
    content[96:100] = _WRITTEN_BY
    for page in range(0, len(content), _PAGE_BYTES):
        head = page + (100 if page == 0 else 0)
        header_bytes = 8 if content[head] in _LEAF_PAGES else 12
        cells = int.from_bytes(content[head + 3 : head + 5], "big")
        gap = range(head + header_bytes + 2 * cells, page + int.from_bytes(content[head + 5 : head + 7], "big"))
        content[gap.start : gap.stop] = bytes(len(gap))
    write_atomic(path, bytes(content))
    path.chmod(0o444)
