"""Recorded answers of real systems, replayed from a table. Needs no key and no network, and spends no money."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from langchain_core.language_models import BaseChatModel

from vinelm.backends.base import estimate_tokens, model_options
from vinelm.backends.offline.chat_model import OfflineChatModel, request_of
from vinelm.backends.settings import ProviderSettings
from vinelm.catalog import Model
from vinelm.errors import ConfigError, DatasetError
from vinelm.io.fields import as_amount, as_count, as_text
from vinelm.io.tables import Row, read_table
from vinelm.requests.protocols import CallContext
from vinelm.rows.observation import Usage


class _Columns(NamedTuple):
    """The names of a table's columns; see the arguments of :class:`RecordedBackend`."""

    id: str
    model: str
    answer: str
    cost: str | None
    latency: str | None
    round: str | None
    tokens_in: str | None = None
    tokens_out: str | None = None
    chars: str | None = None

    @property
    def needed(self) -> list[str]:
        return [*self.id.split("/"), *(name for name in self[1:] if name is not None)]


class _Answer(NamedTuple):
    text: str
    cost_usd: float | None
    latency_s: float
    tokens_in: int | None
    tokens_out: int | None
    chars: int


class RecordedBackend:
    """Answers with the text recorded for (request id, model id). The step and the models called before do not matter.

    If a request calls a model again, the model repeats its answer. If the table has several answers of the model
    (``round_column``), each further call gets the next answer; after the last one, the last answer is repeated. The answers are
    real, so ``is_simulated`` is False. Token counts that the table does not have are estimated from the length of the text, and
    marked as estimates.

    The table need not contain the texts of the answers. Instead, ``answer_column`` may be any column that distinguishes a
    request's answers, with ``chars_column`` for their length. Set ``prompt_tokens`` if
    the recorded calls had other prompts than the calls of this application.

    Args:
        table: CSV with a header or JSON lines (plain or gzip), or Parquet. One row per request and model; other columns are
            ignored.
        id_column: Column with the request's id, or several whose values are joined by ``/``, like ``dataset/question_id``.
        model_column: Column with the model id.
        answer_column: Column with the text.
        cost_column: Column with the cost of each call in dollars. None computes it from the catalog's price and the estimated
            tokens.
        latency_column: Column with the latency of each call in seconds. If it is None, or the cell is empty, the call takes no
            time.
        round_column: Column with the number of the answer, from 1. None means that the table has one row per request and model.
        tokens_in_column: Column with the tokens of the prompt. If it is None, or the cell is empty, the count is not recorded.
        tokens_out_column: Column with the tokens of the answer, like ``tokens_in_column``.
        chars_column: Column with the number of characters of the recorded answer. None counts the characters of the text.
        prompt_tokens: Number of tokens of each prompt without a recorded count. None estimates it from the prompt that is sent.
        real_time: Whether calls really take their recorded latency, on a wall clock.

    Raises:
        ConfigError: ``prompt_tokens`` is negative.
        DatasetError: The table is missing or malformed. The message names the file and the line.
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
        round_column: str | None = None,
        tokens_in_column: str | None = None,
        tokens_out_column: str | None = None,
        chars_column: str | None = None,
        prompt_tokens: int | None = None,
        real_time: bool = False,
    ) -> None:
        if prompt_tokens is not None and prompt_tokens < 0:
            raise ConfigError(f"prompt_tokens is {prompt_tokens}: it must be a number of tokens >= 0")
        self.is_virtual_time = not real_time
        self._table = Path(table)
        self._prompt_tokens = prompt_tokens
        self._answers: dict[tuple[str, str, int], _Answer] = {}
        columns = _Columns(
            id_column, model_column, answer_column, cost_column, latency_column, round_column, tokens_in_column,
            tokens_out_column, chars_column,
        )  # fmt: skip
        for line, row in read_table(self._table, columns.needed):
            self._add(f"{self._table}:{line}", row, columns)
        self._models = tuple(dict.fromkeys(model for model, *_ in self._answers))
        if not self._answers:
            raise DatasetError(f"{self._table}: the table is empty: it needs one row per request and model")

    def chat_model(self, model: Model, call: CallContext) -> BaseChatModel:
        """Return a chat model for one execution of a step. Raise :class:`ConfigError` if the table lacks the model, or if the
        call has no request.
        """
        self.check(model)
        request_of(call, "recorded")
        return OfflineChatModel.bound(self, model, call)

    def check(self, model: Model) -> None:
        """Raise :class:`ConfigError` if the table has no answers of the model."""
        if model.model_id not in self._models:
            known = ", ".join(self._models[:20]) + (", ..." if len(self._models) > 20 else "")
            raise ConfigError(f"model {model.name!r}: {self._table} has no system {model.model_id!r}: it has {known}")

    def answer(self, model: Model, call: CallContext, prompt_chars: int) -> tuple[str, Usage]:
        """Return the recorded text and its usage. Raise :class:`DatasetError` if the table lacks the request."""
        request = request_of(call, "recorded")
        found = self._recorded(model, request.id, call.prefix[:-1].count(model.name) + 1)
        assumed = estimate_tokens(prompt_chars) if self._prompt_tokens is None else self._prompt_tokens
        tokens_in = assumed if found.tokens_in is None else found.tokens_in
        tokens_out = estimate_tokens(found.chars) if found.tokens_out is None else found.tokens_out
        return found.text, Usage(
            model=model.name,
            cost_usd=model.price.cost_usd(tokens_in, tokens_out) if found.cost_usd is None else found.cost_usd,
            latency_s=found.latency_s,
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            tokens_estimated=found.tokens_in is None or found.tokens_out is None,
            finish_reason="stop",
            price_id=model.price_id,
        )

    def _recorded(self, model: Model, request_id: str, number: int) -> _Answer:
        """Return the recorded answer with this number, counted from 1, or the last answer if there are fewer."""
        for earlier in range(number, 0, -1):
            found = self._answers.get((model.model_id, request_id, earlier))
            if found is not None:
                return found
        raise DatasetError(
            f"{self._table}: no answer of {model.model_id!r} to request {request_id!r}: is the table of another dataset?"
        )

    def _add(self, where: str, row: Row, columns: _Columns) -> None:
        request_id = "/".join(as_text(row[name]) for name in columns.id.split("/"))
        number = 1 if columns.round is None else as_count(row[columns.round], columns.round, where)
        key = (as_text(row[columns.model]), request_id, number)
        if number < 1:
            raise DatasetError(f"{where}: {columns.round} is {number}: answers are numbered from 1")
        if key in self._answers:
            of_round = "" if columns.round is None else f" in round {number}"
            raise DatasetError(f"{where}: a second answer of {key[0]!r} to request {key[1]!r}{of_round}: keep one row per pair")
        cost_usd = None if columns.cost is None else as_amount(row[columns.cost], columns.cost, where)
        latency_s = 0.0 if columns.latency is None else as_amount(row[columns.latency] or 0.0, columns.latency, where)
        text = str(row[columns.answer] or "")
        self._answers[key] = _Answer(
            text=text,
            cost_usd=cost_usd,
            latency_s=latency_s,
            tokens_in=_count(row, columns.tokens_in, where),
            tokens_out=_count(row, columns.tokens_out, where),
            chars=len(text) if columns.chars is None else as_count(row[columns.chars], columns.chars, where),
        )


def _count(row: Row, column: str | None, where: str) -> int | None:
    """Return the token count in a column of the row; None without a column, or if the row's value is empty. ``where`` names the
    row in errors.
    """
    return None if column is None or row[column] is None else as_count(row[column], column, where)


_DEFAULTS = {"id_column": "question_id", "model_column": "model", "answer_column": "prediction"}
_OPTIONAL = ("cost_column", "latency_column", "round_column", "tokens_in_column", "tokens_out_column", "chars_column")


def create(settings: ProviderSettings) -> RecordedBackend:
    """Create the backend of the catalog's recorded models.

    Settings: ``table`` (required), and the arguments of :class:`RecordedBackend` by name.

    Raises:
        ConfigError: A setting is invalid, or the table lacks a model.
        DatasetError: The table is missing or malformed.
    """
    settings.refuse_unknown("table", *_DEFAULTS, *_OPTIONAL, "prompt_tokens", "real_time")
    if "table" not in settings.table:
        raise ConfigError('[backend.recorded]: no table: add table = "answers.csv"')
    columns: dict[str, Any] = {name: settings.setting(name, str, default) for name, default in _DEFAULTS.items()}
    columns |= {name: settings.setting(name, str, "") or None for name in _OPTIONAL}
    prompt_tokens = settings.setting("prompt_tokens", int, 0) if "prompt_tokens" in settings.table else None
    backend = RecordedBackend(
        settings.setting("table", str, ""),
        **columns,
        prompt_tokens=prompt_tokens,
        real_time=settings.setting("real_time", bool, settings.real_time),
    )
    for model in settings.models:
        backend.check(model)
        model_options(model)
    return backend
