"""Recorded answers of real systems, replayed from a table. Needs no key and no network, and spends no money."""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO, cast

from langchain_core.language_models import BaseChatModel

from vinelm.backends.base import estimate_tokens
from vinelm.backends.offline.chat_model import OfflineChatModel, request_of
from vinelm.backends.settings import ProviderSettings, model_options
from vinelm.catalog import Model
from vinelm.dataset import json_objects
from vinelm.errors import ConfigError, DatasetError
from vinelm.observation import Usage
from vinelm.protocols import CallContext

MAX_FIELD_CHARS = 2**24


class RecordedBackend:
    """Answers with the text recorded for (request id, model id), whatever the stage and the prefix.

    A model that is called again repeats its answer. The answers are real, so ``is_simulated`` is False; token counts are
    estimated from the length of the text, and marked as estimates.

    Args:
        table: CSV file with a header, or JSON lines, optionally gzipped. One row per pair; other columns are ignored.
        cost_column: Column with dollars per call; None: computed from the catalog's price and the estimated tokens.
        latency_column: Column with seconds per call; None or an empty cell: the call takes no time.

    Raises:
        DatasetError: The table is missing or malformed; names the file and the line.
    """

    is_simulated = False

    def __init__(
        self,
        table: str | Path,
        *,
        id_column: str = "question_id",
        model_column: str = "model",
        answer_column: str = "prediction",
        cost_column: str | None = None,
        latency_column: str | None = None,
        real_time: bool = False,
    ) -> None:
        self.is_virtual_time = not real_time
        self._table = Path(table)
        self._answers: dict[tuple[str, str], tuple[str, float | None, float]] = {}
        columns = (id_column, model_column, answer_column, cost_column, latency_column)
        for number, row in _rows(self._table):
            self._add(number, row, columns)
        self._models = tuple(dict.fromkeys(model for model, _ in self._answers))
        if not self._answers:
            raise DatasetError(f"{self._table}: the table is empty: it needs one row per request and model")

    def chat_model(self, model: Model, call: CallContext) -> BaseChatModel:
        """Return a chat model for one invocation; :class:`ConfigError` if the table lacks the model, or the call a request."""
        self.check(model)
        request_of(call, "recorded")
        return OfflineChatModel.bound(self, model, call)

    def check(self, model: Model) -> None:
        """Raise :class:`ConfigError` if the table has no answers of the model."""
        if model.model_id not in self._models:
            known = ", ".join(self._models[:20]) + (", ..." if len(self._models) > 20 else "")
            raise ConfigError(f"model {model.name!r}: {self._table} has no system {model.model_id!r}: it has {known}")

    def answer(self, model: Model, call: CallContext, prompt_chars: int) -> tuple[str, Usage]:
        """Return the recorded text and its usage; :class:`DatasetError` if the table has no row for the request."""
        request = request_of(call, "recorded")
        try:
            text, cost_usd, latency_s = self._answers[model.model_id, request.id]
        except KeyError:
            raise DatasetError(
                f"{self._table}: no answer of {model.model_id!r} to request {request.id!r}: is the table of another dataset?"
            ) from None
        tokens_in, tokens_out = estimate_tokens(prompt_chars), estimate_tokens(len(text))
        return text, Usage(
            model=model.name,
            cost_usd=model.price.cost_usd(tokens_in, tokens_out) if cost_usd is None else cost_usd,
            latency_s=latency_s,
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            tokens_estimated=True,
            finish_reason="stop",
            price_id=model.price_id,
        )

    def _add(self, number: int, row: Mapping[str, Any], columns: tuple[str, str, str, str | None, str | None]) -> None:
        where = f"{self._table}:{number}"
        for column in columns:
            if column is not None and row.get(column) is None:
                raise DatasetError(f"{where}: no column {column!r}: the row has {', '.join(map(str, row))}")
        id_column, model_column, answer_column, cost_column, latency_column = columns
        key = (str(row[model_column]), str(row[id_column]))
        if key in self._answers:
            raise DatasetError(f"{where}: a second answer of {key[0]!r} to request {key[1]!r}: keep one row per pair")
        cost_usd = None if cost_column is None else _amount(row[cost_column], where, cost_column)
        latency_s = 0.0 if latency_column is None else _amount(row[latency_column] or 0.0, where, latency_column)
        self._answers[key] = (str(row[answer_column]), cost_usd, latency_s)


def _amount(value: Any, where: str, column: str) -> float:
    try:
        amount = float(value)
    except (TypeError, ValueError):
        amount = math.nan
    if not (amount >= 0.0 and math.isfinite(amount)):
        raise DatasetError(f"{where}: {column} is {value!r}: expected a finite number >= 0")
    return amount


def _rows(table: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield (line number, row) of a ``.csv`` or ``.jsonl`` table, with or without ``.gz``."""
    suffix = table.name.removesuffix(".gz").rsplit(".", 1)[-1].lower()
    if suffix not in ("csv", "jsonl"):
        raise DatasetError(f"{table}: expected a .csv or .jsonl file, plain or .gz")
    opener = gzip.open if table.name.endswith(".gz") else open
    try:
        with opener(table, "rt", encoding="utf-8", newline="") as opened:
            lines = cast("TextIO", opened)
            yield from _csv_rows(lines, table) if suffix == "csv" else json_objects(lines, table)
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise DatasetError(f"{table}: cannot read the table of recorded answers: {error}") from error


def _csv_rows(lines: TextIO, table: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    csv.field_size_limit(max(csv.field_size_limit(), MAX_FIELD_CHARS))
    reader = csv.DictReader(lines)
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise DatasetError(f"{table}:{reader.line_num}: not valid CSV: {error}") from error


def create(settings: ProviderSettings) -> RecordedBackend:
    """Create the backend of the catalog's recorded models.

    Settings: ``table`` (required), ``id_column``, ``model_column``, ``answer_column``, ``cost_column``, ``latency_column``,
    ``real_time``.

    Raises:
        ConfigError: A setting is invalid, or the table lacks a model.
        DatasetError: The table is missing or malformed.
    """
    settings.refuse_unknown("table", "id_column", "model_column", "answer_column", "cost_column", "latency_column", "real_time")
    if "table" not in settings.table:
        raise ConfigError('[backend.recorded]: no table: add table = "answers.csv"')
    backend = RecordedBackend(
        settings.setting("table", str, ""),
        id_column=settings.setting("id_column", str, "question_id"),
        model_column=settings.setting("model_column", str, "model"),
        answer_column=settings.setting("answer_column", str, "prediction"),
        cost_column=settings.setting("cost_column", str, "") or None,
        latency_column=settings.setting("latency_column", str, "") or None,
        real_time=settings.setting("real_time", bool, settings.real_time),
    )
    for model in settings.models:
        backend.check(model)
        model_options(model)
    return backend
