"""Tables of answers that were recorded elsewhere, as complete outcome tables."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vinelm.catalog import Catalog
from vinelm.errors import DatasetError
from vinelm.recorded_table import RecordedTable
from vinelm.template import Template
from vinelm.trie import BoolArray, FloatArray

AmountOf = Callable[[Sequence[str], Sequence[str]], FloatArray]
"""(request ids, models) to an array of shape (requests, models)."""


@dataclass(frozen=True, kw_only=True)
class AnswerColumns:
    """Which columns of a CSV file hold what. ``status`` equals ``ok`` where the answer ran; ``rows`` is how many rows it gave.

    The workflow's own check passes an answer that ran and gave at least one row; a part set to None is not looked at.
    """

    request: str = "question_id"
    model: str = "model"
    correct: str = "correct"
    status: str | None = "exec_status"
    ok: str = "ok"
    rows: str | None = "result_rows"


@dataclass(frozen=True, eq=False)
class Answers:
    """One answer per (request, model): ``correct`` and ``accepted`` (by the workflow's own check), shape (requests, models)."""

    request_ids: tuple[str, ...]
    models: tuple[str, ...]
    correct: BoolArray
    accepted: BoolArray


def read_answers(path: str | Path, models: Sequence[str], columns: AnswerColumns | None = None) -> Answers:
    """The answers of these models, from CSV, plain or gzip; requests in order of first mention, other models' rows skipped.

    :class:`DatasetError` names file and line: a column that is missing, a value that is not one, a cell given twice or not at
    all.
    """
    columns = columns or AnswerColumns()
    path = Path(path)
    cells: dict[tuple[str, str], tuple[bool, bool]] = {}
    requests: dict[str, int] = {}
    for line, row in _rows(path, columns):
        request, model = row[columns.request], row[columns.model]
        if model not in models:
            continue
        if (request, model) in cells:
            raise DatasetError(f"{path}:{line}: request {request!r} has a second answer of {model!r}: keep one")
        requests.setdefault(request, line)
        where = f"{path}:{line}"
        cells[request, model] = (_flag(row[columns.correct], columns.correct, where), _accepted(row, columns, where))
    found = {model for _, model in cells}
    for model in models:
        if model not in found:
            raise DatasetError(f"{path}: no answer of the model {model!r} in column {columns.model!r}")
    for request, line in requests.items():
        for model in models:
            if (request, model) not in cells:
                raise DatasetError(f"{path}:{line}: request {request!r} has no answer of {model!r}: the table must be complete")
    both = np.array([[cells[request, model] for model in models] for request in requests], dtype=np.bool_)
    return Answers(tuple(requests), tuple(models), both[:, :, 0], both[:, :, 1])


def answers_table(
    path: str | Path,
    template: Template,
    catalog: Catalog,
    cost_usd: AmountOf,
    *,
    latency_s: AmountOf | None = None,
    columns: AnswerColumns | None = None,
) -> RecordedTable:
    """A retry cascade over independent first answers: each node's answer is its own model's, whatever came before.

    ``template`` is bound to ``catalog``, whose names are those in the file. Exact at every depth, because a model that is asked
    again repeats its answer; it says nothing of feedback. ``cost_usd`` prices each (request, model). Without ``latency_s`` all
    latencies are zero, because annotations must be finite: say with any figure that latency is unknown.
    """
    models = template.models
    answers = read_answers(path, models, columns)
    cost = _amounts(cost_usd, answers, "cost_usd")
    latency = np.zeros_like(cost) if latency_s is None else _amounts(latency_s, answers, "latency_s")
    return RecordedTable.from_answers(
        template,
        catalog,
        answers.request_ids,
        success=answers.correct,
        stopped=answers.accepted,
        cost_usd=cost,
        latency_s=latency,
    )


def _amounts(of: AmountOf, answers: Answers, name: str) -> FloatArray:
    amounts = np.asarray(of(answers.request_ids, answers.models), dtype=np.float64)
    if amounts.shape != answers.correct.shape or not np.all(np.isfinite(amounts) & (amounts >= 0)):
        raise ValueError(f"{name} must give finite numbers >= 0 of shape {answers.correct.shape}, not {amounts.shape}")
    return amounts


def _rows(path: Path, columns: AnswerColumns) -> Iterator[tuple[int, dict[str, str]]]:
    wanted = [columns.request, columns.model, columns.correct, columns.status, columns.rows]
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8", newline="") as text:
            reader = csv.DictReader(text)
            for name in wanted:
                if name is not None and name not in (reader.fieldnames or ()):
                    raise DatasetError(f"{path}:1: no column {name!r}: the file has {', '.join(reader.fieldnames or ())}")
            for row in reader:
                if any(name is not None and row[name] is None for name in wanted):
                    raise DatasetError(
                        f"{path}:{reader.line_num}: the line is too short: it needs {len(reader.fieldnames or ())}"
                    )
                yield reader.line_num, row
    except (OSError, UnicodeDecodeError, EOFError, csv.Error) as error:
        raise DatasetError(f"{path}: cannot read the table: {error}") from error


def _accepted(row: dict[str, str], columns: AnswerColumns, where: str) -> bool:
    if columns.status is not None and row[columns.status] != columns.ok:
        return False
    if columns.rows is None:
        return True
    try:
        return int(row[columns.rows] or 0) > 0
    except ValueError:
        raise DatasetError(f"{where}: {columns.rows} is {row[columns.rows]!r}: it must be a whole number") from None


def _flag(text: str, name: str, where: str) -> bool:
    try:
        return {"1": True, "0": False, "true": True, "false": False}[text.lower()]
    except KeyError:
        raise DatasetError(f"{where}: {name} is {text!r}: it must be 0 or 1") from None
