"""Reads ``questions.jsonl[.gz]`` with ``databases/<db_id>.sqlite`` next to it, and caches the gold results."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vinelm.errors import DatasetError
from vinelm.requests.dataset import read_jsonl
from vinelm.requests.workflow import Request
from vinelm.workflows.nl2sql.databases import Databases
from vinelm.workflows.nl2sql.result_comparison import orders_rows, same_result
from vinelm.workflows.nl2sql.sql import SqlResult, open_reading, run_sql

KEYS = ("question_id", "db_id", "question", "gold_sql")
GOLD_TIMEOUT_S = 60.0
GOLD_MAX_ROWS = 10_000
"""The maximum number of rows of a gold result: the row cap of :func:`run_sql`, at which longer results are cut."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """Requests with ``question``, ``db_id`` and ``gold_sql``, their databases, and the file they were read from."""

    requests: tuple[Request, ...]
    databases: Databases
    source: Path | None = None


def load_dataset(path: str | Path, *, validate: bool = True) -> Dataset:
    """Load the questions and the databases of a dataset.

    Args:
        path: a folder with ``questions.jsonl`` or ``questions.jsonl.gz``, or the questions file.
        validate: run every gold query once (about 0.2 ms each).

    Raises:
        DatasetError: a row is malformed, its database is missing or not SQLite, or its gold query fails; the message
            names file and line.
    """
    questions = _questions_file(Path(path))
    rows = read_jsonl(questions, required=KEYS, id_key="question_id")
    for row in rows:
        for key in KEYS[1:]:
            if not isinstance(row.data[key], str) or not row.data[key].strip():
                raise DatasetError(f"{_where(questions, row.id)}: {key!r} must be a text that is not empty")
    databases = Databases(questions.parent / "databases")
    if not databases.folder.is_dir():
        raise DatasetError(f"{databases.folder}: no such folder: the databases lie there as <db_id>.sqlite")
    _check_databases(rows, databases, questions)
    requests = tuple(Request(row.id, {key: row.data[key] for key in KEYS[1:]}) for row in rows)
    dataset = Dataset(requests, databases, questions)
    if validate:
        gold = GoldResults(dataset)
        for request in requests:
            gold.of(request)
    return dataset


def _questions_file(path: Path) -> Path:
    if not path.is_dir():
        return path  # read_jsonl reports what is wrong with it
    for name in ("questions.jsonl", "questions.jsonl.gz"):
        if (path / name).is_file():
            return path / name
    raise DatasetError(f"{path}: no questions.jsonl or questions.jsonl.gz in this folder: put one there, or name the file")


def _check_databases(rows: list[Request], databases: Databases, questions: Path) -> None:
    first = {row.data["db_id"]: row.id for row in reversed(rows)}
    for db_id, request_id in first.items():
        try:
            database = databases.path(db_id)
        except DatasetError as error:
            raise DatasetError(f"{_where(questions, request_id)}: {error}") from error
        open_reading(database).close()


def _where(source: Path | None, request_id: str) -> str:
    """Return the ``FILE:LINE`` of a request, found by reading the file again; its id if it was not read from a file."""
    if source is None:
        return f"request {request_id!r}"
    opener = gzip.open if source.suffix == ".gz" else open
    with opener(source, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip() and str(json.loads(line)["question_id"]) == request_id:
                return f"{source}:{number}"
    return f"{source}: request {request_id!r}"


@dataclass(frozen=True, slots=True)
class Gold:
    """The result of a request's gold query.

    Attributes:
        rows: the rows.
        is_ordered: whether their order counts, because the query sorts them.
    """

    rows: tuple[tuple[Any, ...], ...]
    is_ordered: bool


class GoldResults:
    """The gold results of a dataset; each query runs once, on first use. Thread-safe."""

    def __init__(self, dataset: Dataset) -> None:
        self._databases = dataset.databases
        self._source = dataset.source
        self._known: dict[tuple[str, str], Gold] = {}

    def of(self, request: Request) -> Gold:
        """Return the request's gold result.

        Raises:
            DatasetError: the gold query fails; the message has file, line and SQLite's message.
        """
        key = (request.data["db_id"], request.data["gold_sql"])
        gold = self._known.get(key)
        if gold is None:
            gold = self._known.setdefault(key, self._execute(request, *key))
        return gold

    def is_right(self, request: Request, result: SqlResult) -> bool:
        """Return whether ``result`` is a complete result equal to that of the request's gold query."""
        if result.status != "ok" or result.is_truncated:  # a gold result is never cut, so a cut one is longer
            return False
        gold = self.of(request)
        return same_result(gold.rows, result.rows, is_ordered=gold.is_ordered)

    def _execute(self, request: Request, db_id: str, sql: str) -> Gold:
        result = run_sql(self._databases.path(db_id), sql, timeout_s=GOLD_TIMEOUT_S, max_rows=GOLD_MAX_ROWS)
        if result.status != "ok":
            raise DatasetError(f"{self._at(request)}: the gold SQL fails: {result.error}: mend the query or the database")
        if result.is_truncated:
            raise DatasetError(
                f"{self._at(request)}: the gold SQL gives more than {GOLD_MAX_ROWS:,} rows or 64 MB: make it more selective"
            )
        return Gold(result.rows, orders_rows(sql))

    def _at(self, request: Request) -> str:
        return _where(self._source, request.id)


def answer_sql(state: Mapping[str, Any]) -> str:
    """Return the SQL of a workflow state; empty if there is none."""
    sql = state.get("sql")
    return sql if isinstance(sql, str) else ""
