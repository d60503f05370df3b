"""How the rows of a dataset meet the state of a graph: what becomes its input, and where its answer is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vinelm.datasets import RequestSet
from vinelm.errors import ConfigError

MESSAGES = "messages"
_ASKED = ("question", "input", "query", "prompt", "text", "message", "user_input", "request", "topic", "problem", "task")
_ANSWERED = (
    "answer", "final_answer", "output", "result", "response", "generation", "final", "final_output", "final_response",
    "prediction", "reply", "label", "category", "sql", "code", "report", "summary", "draft", "text",
)  # fmt: skip
_LABELS = ("label", "expected", "expected_answer", "expected_output", "gold", "target", "ground_truth", "answer")
"""Names that people give to the question the answer and the right answer, the most telling first."""


@dataclass(frozen=True, kw_only=True)
class RequestKeys:
    """The keys of a project.

    Attributes:
        inputs: (key of the state, column) of each input.
        label: The column with the right answer; None without one.
        answer: The key of the state that holds the answer; None where no name says it.
        is_sure: Whether the names of columns and keys agree; else they were guessed.
    """

    inputs: tuple[tuple[str, str], ...]
    label: str | None
    answer: str | None
    is_sure: bool


def request_keys(
    input_keys: Sequence[str], output_keys: Sequence[str], dataset: RequestSet | None, label: str | None
) -> RequestKeys:
    """Return the keys for a graph and its dataset.

    Args:
        input_keys: Keys of the state that an input may have.
        output_keys: Keys that the final state may have.
        dataset: The requests; None if they do not exist yet.
        label: The column with the right answer; None to look for it.

    Raises:
        ConfigError: The dataset has no such column; the message names those that it has.
    """
    columns = () if dataset is None else tuple(dict.fromkeys(dataset.requests[0].data))
    if label is not None and columns and label not in columns:
        raise ConfigError(f"the dataset has no column {label!r}: it has {', '.join(columns)}")
    label = label or (None if dataset is None else label_of(dataset))
    given = tuple(column for column in columns if column not in (label, "id") and column not in _hidden(dataset))
    inputs, is_sure = _inputs(input_keys, given, is_known=dataset is not None)
    answer = _answer([key for key in output_keys if key not in dict(inputs) or key == MESSAGES], label)
    return RequestKeys(inputs=inputs, label=label, answer=answer, is_sure=is_sure and answer is not None)


def _hidden(dataset: RequestSet | None) -> tuple[str, ...]:
    return () if dataset is None else dataset.labels


def label_of(dataset: RequestSet) -> str | None:
    """Return the column that has the right answer by its name; None if no name says it."""
    columns = dataset.requests[0].data
    return next((name for name in (*dataset.labels, *_LABELS) if name in columns), None)


def _inputs(keys: Sequence[str], columns: Sequence[str], *, is_known: bool) -> tuple[tuple[tuple[str, str], ...], bool]:
    """Pairs of key and column, and whether names decide them."""
    same = tuple((key, key) for key in keys if key in columns)
    if same:
        return same, True
    asked = [name for name in (*_ASKED, *columns) if name in columns]
    column = asked[0] if asked else _ASKED[0]
    if MESSAGES in keys:
        return ((MESSAGES, column),), bool(asked) or not is_known
    named = [name for name in (*_ASKED, *keys) if name in keys]
    return (((named[0], column),), False) if named else ((), False)


def _answer(keys: Sequence[str], label: str | None) -> str | None:
    wanted = (label, *_ANSWERED, MESSAGES)
    return next((name for name in wanted if name in keys), None)
