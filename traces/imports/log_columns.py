"""Rows of somebody's own table of recorded outcomes, read by the names of their columns."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from vinelm.errors import ConfigError, DatasetError, FailureKind
from vinelm.io import Row, read_table

_CONDITION = re.compile(r"^(?P<column>[^=<>!]+?)\s*(?:(?P<sign>!=|>=|<=|=|>|<)\s*(?P<value>.*))?$", re.DOTALL)
_FLAGS = {"1": True, "0": False, "true": True, "false": False, "yes": True, "no": False, "1.0": True, "0.0": False}


@dataclass(frozen=True)
class Condition:
    """A claim about a row: ``COLUMN`` (a flag that is set), ``COLUMN=VALUE``, ``!=``, or ``>``, ``>=``, ``<``, ``<=`` a number.

    An empty value means an empty cell, which no comparison with a number accepts.
    """

    column: str
    sign: str | None = None
    value: str = ""

    @classmethod
    def parse(cls, text: str) -> Condition:
        """The condition as it is typed; :class:`ConfigError` if it is none."""
        found = _CONDITION.match(text)
        if not found:
            raise ConfigError(f"{text!r} is no condition: write COLUMN, COLUMN=VALUE, COLUMN!=VALUE or COLUMN>NUMBER")
        condition = cls(found["column"].strip(), found["sign"], (found["value"] or "").strip())
        if condition.sign in (">", ">=", "<", "<="):
            try:
                float(condition.value)
            except ValueError:
                raise ConfigError(f"{text!r}: {condition.value!r} is no number") from None
        return condition

    def holds(self, row: Row, where: str) -> bool:
        """Whether the row meets it. :class:`DatasetError` if the row lacks the column or its value cannot be compared."""
        value = _value(row, self.column, where)
        if self.sign is None:
            return value is not None and _flag(value, self.column, where)
        if self.sign in ("=", "!="):
            return (_text(value) == self.value) == (self.sign == "=")
        if value is None:
            return False
        found, bound = _number(value, self.column, where), float(self.value)
        return {">": found > bound, ">=": found >= bound, "<": found < bound, "<=": found <= bound}[self.sign]


@dataclass(frozen=True, kw_only=True)
class LogColumns:
    """Which columns hold what; None where the table has no such column.

    ``request``: the values of these columns, joined by ``/``, name a request. ``failure``: a kind of failure or any other text
    where the call failed, empty where it did not. ``round``: how often this model was asked this request so far, from 1; with
    ``run``, the position in the run. ``run`` names the execution of the application that an invocation belonged to. All of
    ``stopped_if`` hold where the workflow's own check ended; rows that do not meet all of ``where`` are skipped.
    """

    request: tuple[str, ...]
    model: str
    success: str
    cost_usd: str | None = None
    latency_s: str | None = None
    tokens_in: str | None = None
    tokens_out: str | None = None
    failure: str | None = None
    round: str | None = None
    run: str | None = None
    stage: str | None = None
    stopped_if: tuple[Condition, ...] = ()
    where: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedAnswer:
    """One recorded invocation. ``success`` None: not known. ``cost_usd`` None: the table does not say."""

    line: int
    request_id: str
    model: str
    success: bool | None
    stopped: bool | None
    cost_usd: float | None
    latency_s: float
    tokens_in: int | None
    tokens_out: int | None
    failure: FailureKind | None
    round: int | None
    run: str | None
    stage: str | None


def read_answers_of(path: Path, columns: LogColumns, models: Sequence[str] | None = None) -> Iterator[RecordedAnswer]:
    """The recorded invocations in the table's order; those of other ``models`` skipped.

    :class:`DatasetError` names file, line and column of what is missing or cannot be read.
    """
    for line, row in read_table(path):
        where = f"{path}:{line}"
        if not all(condition.holds(row, where) for condition in columns.where):
            continue
        model = _needed(row, columns.model, where)
        if models is None or model in models:
            yield _answer(row, line, model, columns, where)


def _answer(row: Row, line: int, model: str, columns: LogColumns, where: str) -> RecordedAnswer:
    failure = _failure(row, columns, where)
    success = None if failure else _optional(row, columns.success, where, _flag)
    stopped = all(condition.holds(row, where) for condition in columns.stopped_if) if columns.stopped_if else None
    latency = None if columns.latency_s is None else _needed(row, columns.latency_s, where)
    return RecordedAnswer(
        line=line,
        request_id="/".join(_needed(row, name, where) for name in columns.request),
        model=model,
        success=success,
        stopped=None if failure else stopped,
        cost_usd=None if columns.cost_usd is None else _amount(_needed(row, columns.cost_usd, where), columns.cost_usd, where),
        latency_s=0.0 if latency is None else _amount(latency, str(columns.latency_s), where),
        tokens_in=_optional(row, columns.tokens_in, where, _whole),
        tokens_out=_optional(row, columns.tokens_out, where, _whole),
        failure=failure,
        round=None if columns.round is None else _whole(_needed(row, columns.round, where), columns.round, where, least=1),
        run=None if columns.run is None else _needed(row, columns.run, where),
        stage=None if columns.stage is None else _needed(row, columns.stage, where),
    )


def _failure(row: Row, columns: LogColumns, where: str) -> FailureKind | None:
    """The kind, or ``unknown``: a recorded message may quote a prompt or a key, so it is not kept."""
    value = None if columns.failure is None else _text(_value(row, columns.failure, where))
    if not value:
        return None
    kinds: dict[str, FailureKind] = {kind: kind for kind in get_args(FailureKind)}
    return kinds.get(value, "unknown")


def _value(row: Row, column: str, where: str) -> Any:
    if column not in row:
        raise DatasetError(f"{where}: no column {column!r}: the table has {', '.join(map(str, row))}")
    value = row[column]
    return None if value == "" or (isinstance(value, float) and math.isnan(value)) else value


def _needed(row: Row, column: str, where: str) -> str:
    value = _value(row, column, where)
    if value is None:
        raise DatasetError(f"{where}: {column} is empty: mend the line, or leave such lines out with --where '{column}!='")
    return _text(value)


def _optional(row: Row, column: str | None, where: str, read: Any) -> Any:
    value = None if column is None else _value(row, column, where)
    return None if value is None else read(value, column, where)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))  # what a table library makes of whole numbers beside gaps
    return str(value)


def _flag(value: Any, column: str, where: str) -> bool:
    try:
        return _FLAGS[str(value).strip().lower()]
    except KeyError:
        raise DatasetError(f"{where}: {column} is {value!r}: it must be 0 or 1, true or false, yes or no") from None


def _number(value: Any, column: str, where: str) -> float:
    try:
        return float(value)
    except (ValueError, TypeError):
        raise DatasetError(f"{where}: {column} is {value!r}: it must be a number") from None


def _amount(value: Any, column: str, where: str) -> float:
    amount = _number(value, column, where)
    if not (amount >= 0.0 and math.isfinite(amount)):
        raise DatasetError(f"{where}: {column} is {value!r}: it must be a finite number >= 0")
    return amount


def _whole(value: Any, column: str, where: str, *, least: int = 0) -> int:
    number = _number(value, column, where)
    if not number.is_integer() or number < least:
        raise DatasetError(f"{where}: {column} is {value!r}: it must be a whole number >= {least}")
    return int(number)
