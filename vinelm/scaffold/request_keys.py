"""Matches the columns of a dataset with the input keys and answer keys of a graph's state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as field_

from vinelm.datasets import RequestSet
from vinelm.errors import ConfigError
from vinelm.meant import did_you_mean
from vinelm.scaffold.plain_code import Fields

MESSAGES, STRUCTURED = "messages", "structured_response"
"""Keys of LangChain's agents: the conversation, and the object for ``response_format``."""
_ASKED = ("question", "input", "query", "prompt", "text", "message", "user_input", "request", "topic", "problem", "task")
_ANSWERED = (
    "answer", "final_answer", "output", "result", "response", "generation", "final", "final_output", "final_response",
    "prediction", "reply", "label", "category", "sql", "code", "report", "summary", "draft", "text",
)  # fmt: skip
_LABELS = ("label", "expected", "expected_answer", "expected_output", "gold", "target", "ground_truth", "answer")
_MADE = ("final_", "generated_")
"""Common names for the answer to a question and for the right answer, the most telling first."""


@dataclass(frozen=True, kw_only=True)
class RequestKeys:
    """How the columns of a dataset map to keys of the state.

    Attributes:
        inputs: Pairs (key of the state, column that fills it).
        labels: The columns with the right answer; empty without one.
        answer: The key of the state that holds the answer; None if no key has a typical name.
        shared: The label columns, if there are several and each has a key of the same name in the final state; otherwise
            empty.
        is_sure: Whether the pairs in ``inputs`` follow from names that agree; otherwise they were guessed.
        is_json: Whether the first label is a JSON object or list, so that right answers are equal to it as JSON.
        unlabelled: Whether some or all requests have no label, so that their answers are compared with the current setup's.
        field: The field of the structured response that is the answer; None if the answer is not such a response.
        fields: If inputs are dicts or objects: the name of the field that a column fills, keyed by column.
        lists: The input keys whose value is a list of such dicts or objects.
        missing: The fields of these dicts or objects that the code reads but no column provides. ``model of task`` means the
            field ``model`` of the key ``task``.
        is_read: Whether it is known which key or field holds the answer; otherwise ``answer`` and ``field`` are the most
            likely.
    """

    inputs: tuple[tuple[str, str], ...]
    labels: tuple[str, ...]
    answer: str | None
    is_sure: bool
    shared: tuple[str, ...] = ()
    is_json: bool = False
    unlabelled: bool = False
    field: str | None = None
    is_read: bool = True
    fields: Mapping[str, str] = field_(default_factory=dict)
    lists: frozenset[str] = frozenset()
    missing: tuple[str, ...] = ()

    @property
    def label(self) -> str | None:
        """The first of the label columns; None if there is none."""
        return self.labels[0] if self.labels else None


def request_keys(
    input_keys: Sequence[str],
    output_keys: Sequence[str],
    dataset: RequestSet | None,
    labels: Sequence[str] = (),
    *,
    structured: Sequence[str] = (),
    fields: Mapping[str, Fields] | None = None,
) -> RequestKeys:
    """Return how the columns of a dataset match the input keys and the answer keys of a graph's state.

    Args:
        input_keys: Keys of the state that an input may have.
        output_keys: Keys that the final state may have.
        dataset: The requests; None if they do not exist yet.
        labels: The columns with the right answer; empty to search for them.
        structured: The fields of the structured response that a LangChain agent must return; empty without one.
        fields: The fields of each input key whose value is a dict, an object or a list of them; None if there are none.

    Raises:
        ConfigError: The dataset lacks a label column; the message names the existing columns.
    """
    columns = () if dataset is None else tuple(dict.fromkeys(key for one in dataset.requests for key in one.data))
    unknown = [label for label in labels if columns and label not in columns]
    if unknown:
        raise ConfigError(
            f"the dataset has no column {unknown[0]!r}{did_you_mean(unknown[0], columns)}: it has {', '.join(columns)}"
        )
    likely = None if dataset is None else label_of(dataset)
    labels = tuple(dict.fromkeys(labels)) or (() if likely is None else (likely,))
    given = tuple(column for column in columns if column not in (*labels, "id") and column not in _hidden(dataset))
    inputs, is_sure = _inputs(input_keys, given, is_known=dataset is not None)
    inside: dict[str, str] = {}
    missing: tuple[str, ...] = ()
    within = None if set(input_keys) & set(given) else _inside(fields or {}, given)
    if within is not None and (within.is_same or not is_sure):
        inputs, inside, missing, is_sure = within.pairs, within.fields, within.missing, within.is_same and not within.missing
    asked = {key for key, _ in inputs} - {MESSAGES} if not inside else set()  # nodes write into a dict that they are given
    outputs = [key for key in output_keys if key not in asked and key != STRUCTURED]
    answer, is_read = _answer(outputs, labels), True
    made = [key for key in outputs if key.startswith(_MADE)]
    is_final = answer == MESSAGES and len(made) == 1 and not _alike(outputs, labels)  # a ``final_report``
    is_guessed = answer is None or is_final
    if is_guessed:  # by a part of the name: ``generated_email``, ``llm_output``
        made += [key for key in outputs if key.endswith(tuple(f"_{name}" for name in _ANSWERED))]
        answer = next(iter(made), None)
    field = None
    if answer == MESSAGES and STRUCTURED in output_keys and structured:
        wanted = [name for name in (*labels, *_ANSWERED) if name in structured]
        answer, field = STRUCTURED, (wanted or list(structured))[0]
        is_read = field in labels or len(structured) == 1
    elif answer == MESSAGES:
        is_read = (
            outputs == [MESSAGES] or STRUCTURED in output_keys
        )  # a LangChain agent; otherwise any of the state's own keys may hold the answer
    shared = labels if len(labels) > 1 and set(labels) <= set(outputs) else ()
    is_sure = is_sure and (bool(shared) or (answer is not None and not is_guessed and len(labels) < 2))
    told = [] if dataset is None else [one.data for one in dataset.requests if one.has(labels)]
    is_json = bool(labels) and bool(told) and isinstance(told[0][labels[0]], dict | list)
    return RequestKeys(
        inputs=inputs, labels=labels, answer=answer, is_sure=is_sure, shared=shared, is_json=is_json,
        field=field, is_read=is_read or bool(shared), fields=inside, missing=missing,
        unlabelled=dataset is not None and (not labels or len(told) < len(dataset.requests)),
        lists=frozenset(key for key, _ in inputs if inside and (fields or {})[key].is_list),
    )  # fmt: skip


def _hidden(dataset: RequestSet | None) -> tuple[str, ...]:
    return () if dataset is None else dataset.labels


def label_of(dataset: RequestSet) -> str | None:
    """Return the column that holds the right answer, according to its name; None if no column has a typical name."""
    columns = {key for one in dataset.requests for key in one.data}
    return next((name for name in (*dataset.labels, *_LABELS) if name in columns), None)


def _inputs(keys: Sequence[str], columns: Sequence[str], *, is_known: bool) -> tuple[tuple[tuple[str, str], ...], bool]:
    """Return the pairs (key, column that fills it), and whether the names determine these pairs; otherwise they are
    guessed.

    ``is_known`` is whether a dataset is given.
    """
    same = tuple((key, key) for key in keys if key in columns)
    if same:
        return same, True
    asked = [name for name in (*_ASKED, *columns) if name in columns]
    column = asked[0] if asked else _ASKED[0]
    if MESSAGES in keys:
        is_asked = column in _ASKED or (bool(asked) and set(keys) <= {MESSAGES, STRUCTURED})
        return ((MESSAGES, column),), is_asked or not is_known
    named = [name for name in (*_ASKED, *keys) if name in keys]
    return (((named[0], column),), False) if named else ((), False)


@dataclass(frozen=True, kw_only=True)
class _Inside:
    """How columns fill the fields of input keys whose values are dicts or objects.

    Attributes:
        pairs: (key, column) for each column that fills a field.
        fields: The field that each column fills, keyed by column.
        missing: The fields that the code needs and no column fills, as text: ``field of key``.
        is_same: Whether the columns have exactly the fields' names.
    """

    pairs: tuple[tuple[str, str], ...]
    fields: dict[str, str]
    missing: tuple[str, ...]
    is_same: bool


def _inside(fields: Mapping[str, Fields], columns: Sequence[str]) -> _Inside | None:
    """Return how columns fill the fields of input keys; None if no column fills any field.

    A column fills the field of the same name. If no column has a field's name, a column also fills the field with which its
    name ends: ``task_model`` fills ``model``.

    Args:
        fields: The fields of each input key.
        columns: The names of the dataset's columns.
    """
    for is_same in (True, False):
        found: dict[str, tuple[str, str]] = {}
        for key, held in fields.items():
            for column in columns:
                likely = [name for name in held.names if name == column or (not is_same and column.endswith(f"_{name}"))]
                if likely:
                    found.setdefault(column, (key, likely[0]))
        if found:
            keys, given = dict.fromkeys(key for key, _ in found.values()), set(found.values())
            return _Inside(
                pairs=tuple((key, column) for column, (key, _) in found.items()),
                fields={column: name for column, (_, name) in found.items()},
                missing=tuple(f"{name} of {key}" for key in keys for name in fields[key].needed if (key, name) not in given),
                is_same=is_same,
            )
    return None


def _answer(keys: Sequence[str], labels: Sequence[str]) -> str | None:
    """Return the key of the state that holds the answer, according to its name; None if no key has such a name.

    A key with the name of a label is preferred. Next comes a key whose name contains a label's name, if it is the only one;
    then a key with a typical name.
    """
    alike = _alike(keys, labels)
    wanted = (*labels, *(alike if len(alike) == 1 else ()), *_ANSWERED, MESSAGES)
    return next((name for name in wanted if name in keys), None)


def _alike(keys: Sequence[str], labels: Sequence[str]) -> list[str]:
    """Return the keys that contain a label's name, such as ``final_answer`` for ``answer``."""
    return [key for key in keys if any(f"_{label}_" in f"_{key}_" for label in labels)]
