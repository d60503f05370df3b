"""A folder of SQLite databases: gives their paths and schemas, and caches results of statements."""

from __future__ import annotations

import hashlib
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from vinelm.errors import DatasetError
from vinelm.workflows.nl2sql.limited_sql import run_limited
from vinelm.workflows.nl2sql.schema import read_schema
from vinelm.workflows.nl2sql.sql import SqlResult, open_reading

MEMO_CELLS = 5_000_000
"""The maximum number of cells of results that a :class:`Databases` caches; the least recently used results are dropped."""


class Databases:
    """The databases ``<folder>/<db_id>.sqlite``, assumed not to change during the object's lifetime.

    Caches schema texts and results, so that scoring an answer again is fast. Thread-safe; unpickles with an empty cache.

    Args:
        folder: the folder.
        max_steps: the maximum steps of SQLite's virtual machine for a statement, in addition to the limit in seconds; None
            sets no such limit.
    """

    def __init__(self, folder: Path, max_steps: int | None = None) -> None:
        self.folder = Path(folder)
        self._max_steps = max_steps
        self._schemas: dict[str, str] = {}
        self._results: OrderedDict[tuple[str, str], SqlResult] = OrderedDict()
        self._cells = 0
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[Databases], tuple[Path, int | None]]:
        return type(self), (self.folder, self._max_steps)

    def __repr__(self) -> str:
        return f"Databases({str(self.folder)!r})"

    def path(self, db_id: str) -> Path:
        """Return the path of the database with the id ``db_id``.

        Raises:
            DatasetError: there is no such database, or the id points outside the folder.
        """
        path = self.folder / f"{db_id}.sqlite"
        if not db_id or path.parent != self.folder or "\0" in db_id:
            raise DatasetError(f"db_id {db_id!r} is not the name of a file in {self.folder}: use the name without its folder")
        if not path.is_file():
            raise DatasetError(f"db_id {db_id!r} has no database: put it at {path}")
        return path

    def run(self, db_id: str, sql: str) -> SqlResult:
        """Execute the statement in a limited process, cache the result and return it.

        Raises:
            DatasetError: the database cannot be read.
        """
        result = run_limited(self.path(db_id), sql, max_steps=self._max_steps)
        self._remember((db_id, sql), result)
        return result

    def recall(self, db_id: str, sql: str) -> SqlResult:
        """Return the cached result of the statement; execute the statement if no result is cached.

        ``elapsed_s`` of a cached result is the duration of the execution that was cached.
        """
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
        """Return the schema of the database as compact ``CREATE TABLE`` lines, for prompts."""
        text = self._schemas.get(db_id)
        if text is None:
            text = self._schemas[db_id] = schema_text(self.path(db_id))
        return text

    def digests(self, db_ids: Iterable[str]) -> dict[str, str]:
        """Return the SHA-256 of each database file; the keys are ``database:<db_id>``."""
        return {f"database:{db_id}": _digest(self.path(db_id)) for db_id in sorted(set(db_ids))}


def schema_text(database: Path) -> str:
    """Return the schema of a database file, one ``CREATE TABLE`` line per table or view, with keys.

    Raises:
        DatasetError: the file is missing or is not SQLite.
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
