"""Writes the bundled databases and their questions into an empty folder."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import zip_longest
from pathlib import Path

from vinelm.io.atomic import write_atomic
from vinelm.workflows.nl2sql.bundled.domain import Domain
from vinelm.workflows.nl2sql.bundled.files import DATABASES, MANIFEST, QUESTIONS
from vinelm.workflows.nl2sql.bundled.questions import Question, questions_of
from vinelm.workflows.nl2sql.bundled.seeded_random import Dice

SEED = "vinelm-nl2sql-1"
_WRITTEN_BY = (3_040_000).to_bytes(4, "big")
"""The header of a SQLite file names the version that wrote it, and nothing reads that; with one value for all, the files are
the same wherever they are made."""
_PAGE_BYTES = 4096
_LEAF_PAGES = (10, 13)
"""First byte of the B-tree pages without children. Our rows are short: there are no other kinds of page than B-tree pages."""


def write_all(folder: Path, domains: Sequence[Domain], seed: str = SEED) -> None:
    """Write the databases, ``questions.jsonl`` and ``manifest.json`` (file sizes) to ``folder``, synced to disk."""
    (folder / DATABASES).mkdir()
    asked: list[list[dict[str, str]]] = []
    for domain in domains:
        path = folder / DATABASES / f"{domain.db_id}.sqlite"
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            write_database(connection, domain, seed)
            asked.append(_numbered(domain.db_id, questions_of(domain, connection, seed)))
        _seal(path)
    lines = [json.dumps(row) for rank in zip_longest(*asked) for row in rank if row is not None]
    write_atomic(folder / QUESTIONS, "".join(f"{line}\n" for line in lines).encode())
    sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in sorted(folder.rglob("*.*"))}
    write_atomic(folder / MANIFEST, json.dumps(sizes, indent=1).encode())


def write_database(connection: sqlite3.Connection, domain: Domain, seed: str = SEED) -> None:
    """Write the domain's schema and rows to an empty database in one transaction, with foreign keys checked."""
    for pragma in (
        f"page_size = {_PAGE_BYTES}",
        "auto_vacuum = NONE",
        "encoding = 'UTF-8'",
        "secure_delete = ON",
        "foreign_keys = ON",
    ):
        connection.execute(f"PRAGMA {pragma}")
    connection.execute("BEGIN")
    for statement in filter(str.strip, domain.schema.split(";")):
        connection.execute(_tidied(statement))
    for table, rows in domain.fill(Dice(f"{seed}/{domain.db_id}")).items():
        places = ", ".join("?" * len(rows[0]))
        connection.executemany(f"INSERT INTO {table} VALUES ({places})", rows)  # noqa: S608 - our own table names
    for statement in list(_indexes(connection)):
        connection.execute(statement)
    connection.execute("COMMIT")


def _indexes(connection: sqlite3.Connection) -> Iterator[str]:
    """One index per referring column, so that joins and correlated subqueries are fast from either side."""
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY rowid").fetchall()
    for (table,) in tables:
        links = connection.execute('SELECT DISTINCT "from" FROM pragma_foreign_key_list(?) ORDER BY id DESC', (table,))
        for (column,) in links.fetchall():
            yield f"CREATE INDEX {table}_by_{column} ON {table} ({column})"


def _tidied(statement: str) -> str:
    return "\n".join(line.strip() for line in statement.strip().splitlines())


def _numbered(db_id: str, questions: Sequence[Question]) -> list[dict[str, str]]:
    """Rows of ``questions.jsonl``. Databases take turns in the file, so that its first n lines are a fair sample."""
    return [
        {"question_id": f"{db_id}-{number:03d}", "db_id": db_id, "question": question.text, "gold_sql": question.gold_sql}
        for number, question in enumerate(questions, start=1)
    ]


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
