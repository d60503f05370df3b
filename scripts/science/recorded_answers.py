"""Build a complete :class:`RecordedTable` from a table of recorded answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from science.recorded_table import RecordedTable

from vinelm.catalog import Catalog
from vinelm.errors import DatasetError
from vinelm.io.fields import as_count, as_flag, as_text
from vinelm.io.tables import Row, read_table
from vinelm.template import Template
from vinelm.trie.arrays import BoolArray, FloatArray

AmountOf = Callable[[Sequence[str], Sequence[str]], FloatArray]
"""Maps (request ids, models) to an array of amounts of shape (requests, models)."""


@dataclass(frozen=True, kw_only=True)
class AnswerColumns:
    """Names of the columns of a table of recorded answers, one row per (request, model).

    The workflow's own check accepts an answer that executed (``status`` is ``ok``) and returned at least one row (``rows``).

    Args:
        request: id of the request.
        model: the model that answered.
        correct: whether the answer is right: 1/0 or true/false.
        status: execution status of the answer; None skips this part of the check.
        ok: the value of ``status`` that means success.
        rows: how many rows the answer returned; None skips this part of the check.
    """

    request: str = "question_id"
    model: str = "model"
    correct: str = "correct"
    status: str | None = "exec_status"
    ok: str = "ok"
    rows: str | None = "result_rows"


@dataclass(frozen=True, eq=False)
class Answers:
    """One answer per (request, model).

    ``correct`` and ``accepted`` (by the workflow's own check) have shape (requests, models).
    """

    request_ids: tuple[str, ...]
    models: tuple[str, ...]
    correct: BoolArray
    accepted: BoolArray


def read_answers(path: str | Path, models: Sequence[str], columns: AnswerColumns | None = None) -> Answers:
    """Read the answers of ``models`` from a table; requests are in order of first appearance, other models' rows are skipped.

    Raises:
        DatasetError: a column is missing, a value is invalid, or a (request, model) pair occurs twice or not at all; names
            file and line.
    """
    columns = columns or AnswerColumns()
    path = Path(path)
    cells: dict[tuple[str, str], tuple[bool, bool]] = {}
    requests: dict[str, int] = {}
    names = (columns.request, columns.model, columns.correct, columns.status, columns.rows)
    for line, row in read_table(path, [name for name in names if name is not None]):
        request, model = as_text(row[columns.request]), as_text(row[columns.model])
        if model not in models:
            continue
        if (request, model) in cells:
            raise DatasetError(f"{path}:{line}: request {request!r} has a second answer of {model!r}: keep one")
        requests.setdefault(request, line)
        where = f"{path}:{line}"
        cells[request, model] = (as_flag(row[columns.correct], columns.correct, where), _accepted(row, columns, where))
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
    """Expand independent first answers to a retry cascade: at each node the answer is that of the node's own model.

    Exact at every depth under the assumption that a repeated model repeats its answer. Feedback between models is not in the
    data.

    Args:
        path: the table of answers (see :func:`read_answers`).
        template: bound to ``catalog``, whose model names are those in the table.
        catalog: the models and their prices.
        cost_usd: dollars of each (request, model).
        latency_s: seconds of each (request, model). None: unknown; all latencies are 0, because annotations must be finite.
        columns: names of the table's columns.

    Raises:
        DatasetError: as :func:`read_answers`.
        ValueError: an amount is negative or not finite, or the array has another shape.
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


def _amounts(amount_of: AmountOf, answers: Answers, name: str) -> FloatArray:
    amounts = np.asarray(amount_of(answers.request_ids, answers.models), dtype=np.float64)
    if amounts.shape != answers.correct.shape or not np.all(np.isfinite(amounts) & (amounts >= 0)):
        raise ValueError(f"{name} must give finite numbers >= 0 of shape {answers.correct.shape}, not {amounts.shape}")
    return amounts


def _accepted(row: Row, columns: AnswerColumns, where: str) -> bool:
    if columns.status is not None and as_text(row[columns.status]) != columns.ok:
        return False
    return columns.rows is None or as_count(row[columns.rows] or 0, columns.rows, where) > 0
