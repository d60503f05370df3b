"""Reads recorded calls from a user's table, given its column names."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from vinelm.errors import ConfigError, DatasetError, FailureKind
from vinelm.io.fields import as_amount, as_count, as_flag, as_number, as_score, as_text, field_of
from vinelm.io.tables import Row, read_table

_CONDITION = re.compile(r"^(?P<column>[^=<>!]+?)\s*(?:(?P<operator>!=|>=|<=|=|>|<)\s*(?P<value>.*))?$", re.DOTALL)


@dataclass(frozen=True)
class Condition:
    """A condition on one column of a table's row.

    Args:
        column: name of the column. Without an ``operator``, a row meets the condition if the column has a true flag (1, true,
            yes).
        operator: one of ``=``, ``!=``, ``>``, ``>=``, ``<``, ``<=``, or None.
        value: the text to compare with; a number for the ordering operators. ``""`` matches an empty field. An empty field
            fails every comparison with a number.
    """

    column: str
    operator: str | None = None
    value: str = ""

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Parse ``COLUMN``, ``COLUMN=VALUE``, ``COLUMN!=VALUE`` or a comparison such as ``COLUMN>=NUMBER``.

        Raises:
            ConfigError: ``text`` is not a condition, or an ordering operator is not followed by a number.
        """
        found = _CONDITION.match(text)
        if not found:
            raise ConfigError(f"{text!r} is not a condition: write COLUMN, COLUMN=VALUE, COLUMN!=VALUE or COLUMN>NUMBER")
        condition = cls(found["column"].strip(), found["operator"], (found["value"] or "").strip())
        if condition.operator in (">", ">=", "<", "<="):
            try:
                float(condition.value)
            except ValueError:
                raise ConfigError(f"{text!r}: {condition.value!r} is not a number") from None
        return condition

    def holds(self, row: Row, where: str) -> bool:
        """Return whether ``row`` satisfies the condition. ``where`` is the row's ``FILE:LINE``, for error messages.

        Raises:
            DatasetError: the row lacks the column, or its value cannot be compared.
        """
        value = field_of(row, self.column, where)
        if self.operator is None:
            return value is not None and as_flag(value, self.column, where)
        if self.operator in ("=", "!="):
            return (as_text(value) == self.value) == (self.operator == "=")
        if value is None:
            return False
        found, bound = as_number(value, self.column, where), float(self.value)
        return {">": found > bound, ">=": found >= bound, "<": found < bound, "<=": found <= bound}[self.operator]


@dataclass(frozen=True, kw_only=True)
class LogColumns:
    """The column names of a table of recorded calls; None for columns that the table lacks.

    Each argument is the name of a column; its description says what the column contains.

    Args:
        request: columns whose values, joined by ``/``, identify the request.
        model: the column with the model that was called.
        success: whether the answer was right (1/0, true/false, yes/no), or its score in [0, 1]; empty: unknown.
        cost_usd: cost of the call in dollars.
        latency_s: seconds of the call; empty means unknown.
        tokens_in: prompt tokens.
        tokens_out: generated tokens.
        failure: empty if the call succeeded, otherwise a failure kind or any other text.
        answer: the model's answer; equal texts are equal answers. Empty: no answer.
        round: the number of the call, from 1, among the request's calls of the same model. With ``run``, it is the position of
            the call in the run.
        run: the execution of the application to which the call belonged.
        stage: the stage of the call (only with ``run``).
        stopped_if: conditions under which (if all hold) the workflow's own check ended the request.
        where: conditions that a row must all satisfy; other rows are skipped.
    """

    request: tuple[str, ...]
    model: str
    success: str
    cost_usd: str | None = None
    latency_s: str | None = None
    tokens_in: str | None = None
    tokens_out: str | None = None
    failure: str | None = None
    answer: str | None = None
    round: str | None = None
    run: str | None = None
    stage: str | None = None
    stopped_if: tuple[Condition, ...] = ()
    where: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedAnswer:
    """One recorded call; ``line`` is its line in the table.

    Fields without a column in the table are None; missing seconds are NaN.
    """

    line: int
    request_id: str
    model: str
    success: bool | float | None
    stopped: bool | None
    cost_usd: float | None
    latency_s: float
    tokens_in: int | None
    tokens_out: int | None
    failure: FailureKind | None
    answer: str | None
    round: int | None
    run: str | None
    stage: str | None


def read_log(path: Path, columns: LogColumns, models: Sequence[str] | None = None) -> Iterator[RecordedAnswer]:
    """Yield the recorded calls in the table's order.

    Args:
        path: CSV, JSON lines or Parquet (see :func:`vinelm.io.read_table`).
        columns: the names of the table's columns.
        models: if given, rows of other models are skipped.

    Raises:
        DatasetError: a column is missing or a value cannot be read; names file, line and column.
    """
    for line, row in read_table(path):
        where = f"{path}:{line}"
        if not all(condition.holds(row, where) for condition in columns.where):
            continue
        model = _required(row, columns.model, where)
        if models is None or model in models:
            yield _answer(row, line, model, columns, where)


def _answer(row: Row, line: int, model: str, columns: LogColumns, where: str) -> RecordedAnswer:
    failure = _failure(row, columns, where)
    success = None if failure else _optional(row, columns.success, where, as_score)
    stopped = all(condition.holds(row, where) for condition in columns.stopped_if) if columns.stopped_if else None
    latency_s = _optional(row, columns.latency_s, where, as_amount)
    return RecordedAnswer(
        line=line,
        request_id="/".join(_required(row, name, where) for name in columns.request),
        model=model,
        success=success,
        stopped=None if failure else stopped,
        cost_usd=None
        if columns.cost_usd is None
        else as_amount(_required(row, columns.cost_usd, where), columns.cost_usd, where),
        latency_s=math.nan if latency_s is None else latency_s,
        tokens_in=_optional(row, columns.tokens_in, where, as_count),
        tokens_out=_optional(row, columns.tokens_out, where, as_count),
        failure=failure,
        answer=None if failure or columns.answer is None else as_text(field_of(row, columns.answer, where)) or None,
        round=None if columns.round is None else as_count(_required(row, columns.round, where), columns.round, where, least=1),
        run=None if columns.run is None else _required(row, columns.run, where),
        stage=None if columns.stage is None else _required(row, columns.stage, where),
    )


def _failure(row: Row, columns: LogColumns, where: str) -> FailureKind | None:
    """Return the row's failure kind; None if the call succeeded.

    A text that is not a failure kind becomes ``unknown``, because it may contain a prompt or a key.
    """
    value = None if columns.failure is None else as_text(field_of(row, columns.failure, where))
    if not value:
        return None
    kinds: dict[str, FailureKind] = {kind: kind for kind in get_args(FailureKind)}
    return kinds.get(value, "unknown")


def _required(row: Row, column: str, where: str) -> str:
    value = field_of(row, column, where)
    if value is None:
        raise DatasetError(f"{where}: {column} is empty: fix the row, or exclude such rows", code="log-empty-value")
    return as_text(value)


def _optional(row: Row, column: str | None, where: str, read: Any) -> Any:
    value = None if column is None else field_of(row, column, where)
    return None if value is None else read(value, column, where)
