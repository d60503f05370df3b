"""A folder of SQLite databases: where each lies, what its schema says, what a statement gives there."""

from __future__ import annotations

import hashlib
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from vinelm.errors import DatasetError
from vinelm.workflows.nl2sql.schema import read_schema
from vinelm.workflows.nl2sql.sql import SqlResult, open_reading, run_sql

MEMO_CELLS = 5_000_000
"""How many cells of results one :class:`Databases` remembers before it forgets the least recently used."""


class Databases:
    """The databases ``<folder>/<db_id>.sqlite``, taken as unchanging while this object lives.

    It remembers schema texts and results, so that scoring an answer again costs nothing. Threads may share it; a process that
    unpickles it starts with an empty memory.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self._schemas: dict[str, str] = {}
        self._results: OrderedDict[tuple[str, str], SqlResult] = OrderedDict()
        self._cells = 0
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[Databases], tuple[Path]]:
        return type(self), (self.folder,)

    def __repr__(self) -> str:
        return f"Databases({str(self.folder)!r})"

    def path(self, db_id: str) -> Path:
        """The database's file; :class:`DatasetError` if there is none, or if the id would lead out of the folder."""
        path = self.folder / f"{db_id}.sqlite"
        if not db_id or path.parent != self.folder or "\0" in db_id:
            raise DatasetError(f"db_id {db_id!r} is not the name of a file in {self.folder}: use the name without its folder")
        if not path.is_file():
            raise DatasetError(f"db_id {db_id!r} has no database: put it at {path}")
        return path

    def run(self, db_id: str, sql: str) -> SqlResult:
        """Execute now, and remember the result. :class:`DatasetError` if the database is at fault."""
        result = run_sql(self.path(db_id), sql)
        self._remember((db_id, sql), result)
        return result

    def recall(self, db_id: str, sql: str) -> SqlResult:
        """The remembered result of this statement, or that of running it. ``elapsed_s`` is that of the real execution."""
        with self._lock:
            result = self._results.get((db_id, sql))
            if result is not None:
                self._results.move_to_end((db_id, sql))
                return result
        return self.run(db_id, sql)

    def _remember(self, key: tuple[str, str], result: SqlResult) -> None:
        with self._lock:
            self._forget(self._results.pop(key, None))
            self._results[key] = result
            self._cells += _cells(result)
            while self._cells > MEMO_CELLS and len(self._results) > 1:
                self._forget(self._results.popitem(last=False)[1])

    def _forget(self, result: SqlResult | None) -> None:
        self._cells -= 0 if result is None else _cells(result)

    def schema_text(self, db_id: str) -> str:
        """The schema as compact ``CREATE TABLE`` lines, for prompts."""
        text = self._schemas.get(db_id)
        if text is None:
            text = self._schemas[db_id] = schema_text(self.path(db_id))
        return text

    def digests(self, db_ids: Iterable[str]) -> dict[str, str]:
        """SHA-256 of each database's file, by ``database:<db_id>``."""
        return {f"database:{db_id}": _digest(self.path(db_id)) for db_id in sorted(set(db_ids))}


def schema_text(database: Path) -> str:
    """The schema of a database file, one ``CREATE TABLE`` line per table, keys included; views are named as tables.

    :class:`DatasetError` if the file is missing or is not SQLite.
    """
    try:
        with closing(open_reading(database)) as connection:
            return read_schema(connection)
    except sqlite3.Error as failure:
        raise DatasetError(f"{database}: cannot read the schema: {failure}: restore the file") from failure


def _cells(result: SqlResult) -> int:
    return 20 + len(result.rows) * len(result.columns)


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
