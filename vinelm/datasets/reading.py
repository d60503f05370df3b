"""Reads a dataset of any known format as requests, and sets it as a workflow's dataset."""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vinelm.datasets.arrow_records import arrow_records, folder_records, parquet_records
from vinelm.datasets.text_records import Record, csv_records, json_line_records, json_records
from vinelm.errors import ConfigError, DatasetError
from vinelm.io.fields import json_in
from vinelm.io.file_kinds import unread
from vinelm.judging import AsToday, LLMJudge
from vinelm.requests.workflow import Request, Workflow

_LANGFUSE_OUTPUTS = ("expectedOutput", "expected_output")
METADATA = "metadata"


@dataclass(frozen=True, slots=True)
class Unfolded:
    """A row of a dataset, divided into inputs and labels (the right answer and other data that the application must not see).

    Attributes:
        inputs: What the graph may see.
        labels: What the graph must not see: references, and the example's metadata.
    """

    inputs: Mapping[str, Any]
    labels: Mapping[str, Any]


def unfolded(row: Mapping[str, Any], where: str) -> Unfolded | None:
    """Return the inputs and labels of a dataset's row; None if the row is an archived item of Langfuse.

    LangSmith's examples have ``inputs`` and ``outputs`` (as objects, as JSON text, or as columns ``inputs.KEY``). Langfuse's
    items have ``input`` and ``expectedOutput`` or ``expected_output``. If such a value is an object, each of its keys becomes
    an input or label. Any other value becomes an input or label under its column's name. In rows of other tables, all columns
    are inputs.

    Raises:
        DatasetError: A key is both in the input and in the reference.
    """
    row = _nested(row)
    output = next((name for name in _LANGFUSE_OUTPUTS if name in row), None)
    if "inputs" in row and isinstance(json_in(row["inputs"]), Mapping) and ("outputs" in row or "dataset_id" in row):
        return _parts(row, "inputs", "outputs", where)
    if "input" in row and output is not None:
        return None if row.get("status") == "ARCHIVED" else _parts(row, "input", output, where)
    return Unfolded(row, {})


def _parts(row: Mapping[str, Any], input_: str, output: str, where: str) -> Unfolded:
    inputs, labels = _keys(row[input_], input_), _keys(row.get(output), output)
    for key in inputs:
        if key in labels:
            raise DatasetError(
                f"{where}: the key {str(key)[:60]!r} is in {input_!r} and in {output!r}: name the label, such as "
                f"reference={output}.{str(key)[:60]}",
                code="dataset-collision",
            )
    if (about := json_in(row.get(METADATA))) is not None and METADATA not in inputs:
        labels = {METADATA: about, **labels}
    return Unfolded(inputs, labels)


def _keys(value: Any, name: str) -> dict[str, Any]:
    value = json_in(value)
    if value is None:
        return {}
    return dict(value) if isinstance(value, Mapping) else {name: value}


def _nested(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a row in which the columns ``inputs.KEY`` and ``outputs.KEY`` are grouped into two objects, ``inputs`` and
    ``outputs``.

    A row without such columns is returned unchanged.
    """
    if not any(isinstance(name, str) and name.startswith(("inputs.", "outputs.")) for name in row):
        return row
    found: dict[str, Any] = {}
    for name, value in row.items():
        part, dot, key = str(name).partition(".")
        if dot and part in ("inputs", "outputs"):
            if value is not None:
                found.setdefault(part, {})[key] = value
        else:
            found[name] = value
    return {"outputs": {}, **found}


def decoded(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of an export, with the JSON texts in its cells parsed. So a path such as ``outputs.answer`` can select a
    value.
    """
    nested = _nested(row)
    parts = ("inputs", "outputs", "input", METADATA, *_LANGFUSE_OUTPUTS)
    return {name: json_in(value) if name in parts else value for name, value in nested.items()}


Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Which columns of a dataset become the inputs, the labels and the id of a request. What is left out follows from the
    format (docs/profiling.md).

    Args:
        inputs: (key of the request, column) of each input. If there are any, other columns are left out.
        labels: (key of the request, column) of each label, which the graph never sees.
        id: The column of the request's id. None uses the column ``id`` if it exists, otherwise a digest of the row.

    A column may be a path into nested values, such as ``outputs.answer``.

    Raises:
        ConfigError: A name is empty, or two columns have the same key.
    """

    inputs: Pairs = ()
    labels: Pairs = ()
    id: str | None = None

    def __post_init__(self) -> None:
        keys = [key for key, _ in (*self.inputs, *self.labels)]
        for key in keys:
            if keys.count(key) > 1:
                raise ConfigError(f"the key {key!r} is given two columns: name each key once", code="dataset-key-twice")
        if self.id == "":
            raise ConfigError("the column of the id has no name: leave it out, or name a column")

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Columns:
        """Return the columns that these texts name: ``input.KEY=COLUMN``, ``label.KEY=COLUMN`` or ``id=COLUMN``.

        Raises:
            ConfigError: A text has another form (``dataset-column-text``), or the columns are invalid (see :class:`Columns`).
        """
        found: dict[str, list[tuple[str, str]]] = {"input": [], "label": []}
        ids: list[str] = []
        for text in texts:
            field, _, column = text.partition("=")
            kind, _, key = field.partition(".")
            if column and key and kind in found:
                found[kind].append((key, column))
            elif column and field == "id":
                ids.append(column)
            else:
                forms = "input.KEY=COLUMN, label.KEY=COLUMN or id=COLUMN"
                raise ConfigError(f"{text!r} names no column: write {forms}", code="dataset-column-text")
        if len(ids) > 1:
            raise ConfigError(f"the id is given {len(ids)} columns: name one", code="dataset-key-twice")
        return cls(inputs=tuple(found["input"]), labels=tuple(found["label"]), id=ids[0] if ids else None)

    @property
    def is_default(self) -> bool:
        """Whether the user selected no columns, so that the format of the dataset decides."""
        return self == Columns()


def value_at(row: Mapping[str, Any], column: str, where: str) -> Any:
    """Return the row's value in a column, or at a path such as ``outputs.answer``. Raise :class:`DatasetError`, which names
    ``where``, if the row lacks it.
    """
    if column in row:
        return row[column]
    found: Any = row
    for name in column.split("."):
        if not isinstance(found, Mapping) or name not in found:
            raise DatasetError(f"{where}: no column {column!r}: the row has {names_of(row)}", code="dataset-column")
        found = found[name]
    return found


def names_of(row: Mapping[str, Any]) -> str:
    """Return the column names of a row for an error message, shortened."""
    names = [str(name)[:60] for name in row]
    return ", ".join(map(repr, names[:12])) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


MAX_CHARS = 2**30
"""How many characters of rows are kept at most, since a workflow's requests are held in memory."""
_READERS = {
    "csv": csv_records,
    "tsv": csv_records,
    "json": json_records,
    "jsonl": json_line_records,
    "ndjson": json_line_records,
    "parquet": parquet_records,
    "arrow": arrow_records,
}


@dataclass(frozen=True, slots=True)
class RequestSet:
    """The requests of a file, in the file's order. There is at least one request, and ids are unique.

    Attributes:
        path: The file or folder.
        requests: The requests.
        labels: Keys of the requests' data that the graph must not see.
        places: The position of each request in the file, such as ``row 12``, for error messages.
    """

    path: Path
    requests: tuple[Request, ...]
    labels: tuple[str, ...]
    places: tuple[str, ...]


def read_dataset(
    path: str | Path, columns: Columns | None = None, *, limit: int | None = None, may_repeat: bool = False
) -> RequestSet:
    """Read requests from CSV, JSON lines, JSON, Parquet, Arrow, a Hugging Face ``datasets`` folder, or an export.

    The format follows from the file's name (``.csv``, ``.tsv``, ``.json``, ``.jsonl``, ``.ndjson``, ``.parquet``, ``.arrow``;
    text also with ``.gz``); exports of LangSmith and Langfuse are recognized by their columns. See docs/profiling.md.

    Args:
        path: The file or folder.
        columns: The columns that become inputs, labels and ids. None lets the format decide.
        limit: Maximum number of requests to read; None reads all.
        may_repeat: The id of a row without an id is its position in the file, so that equal rows may occur more than once.

    Returns:
        The requests with their ids: the column ``id``, or a digest of the row, which does not depend on its position.

    Raises:
        DatasetError: The path is not a regular file, the format is unknown, a line is invalid, an id repeats, or there are no
            rows. The message names the file and the line.
        ConfigError: The format is Parquet or Arrow, but pyarrow is not installed.
    """
    path, columns = Path(path), columns or Columns()
    requests: list[Request] = []
    places: list[str] = []
    labels: dict[str, None] = {}
    seen: dict[str, int] = {}
    size = 0
    for where, row in _records(path):
        parts = unfolded(row, where) if not (columns.inputs and columns.labels) else Unfolded(decoded(row), {})
        if parts is None:
            continue
        request, hidden = _request(row, parts, columns, where, place_in(path, where) if may_repeat else None)
        if request.id in seen:
            raise DatasetError(_repeats(request.id, row, columns, where, places[seen[request.id]]))
        size += len(str(request.data))
        if size > MAX_CHARS:
            raise DatasetError(
                f"{where}: the rows before it fill {MAX_CHARS >> 30} GiB, and all of them are kept in memory: limit how many "
                "are read",
                code="dataset-too-large",
            )
        seen[request.id] = len(requests)
        requests.append(request)
        places.append(where)
        labels |= dict.fromkeys(hidden)
        if limit is not None and len(requests) >= limit:
            break
    if not requests:
        raise DatasetError(f"{path}: the dataset is empty: it needs at least one row")
    return RequestSet(path, tuple(requests), tuple(labels), tuple(places))


def _records(path: Path) -> Iterator[Record]:
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:  # for example a path with a zero byte
        raise DatasetError(f"{path}: cannot read the dataset: {unread(path, error)}") from error
    if stat.S_ISDIR(mode):
        return folder_records(path)
    if not stat.S_ISREG(mode):
        raise DatasetError(f"{path}: is not a regular file: save the dataset in a file first")
    name = path.name.removesuffix(".gz")
    reader = _READERS.get(name.rpartition(".")[2].lower())
    if reader is None or (reader in (parquet_records, arrow_records) and path.suffix == ".gz"):
        raise DatasetError(f"{path}: unknown format: the file name must end in .{', .'.join(_READERS)}")
    return reader(path)


def _request(
    row: Mapping[str, Any], parts: Unfolded, columns: Columns, where: str, place: str | None
) -> tuple[Request, tuple[str, ...]]:
    """Return the request in a row, and the keys that are hidden from the graph.

    Args:
        row: The row.
        parts: The inputs and labels that the row's format defines.
        columns: The columns that the user selected; they take precedence.
        where: The row's position in error messages.
        place: The request's id if the row has no id column; None uses a digest of the row.
    """
    whole: dict[str, Any] = {**decoded(row), **parts.inputs, **parts.labels}
    inputs = {str(key): value for key, value in parts.inputs.items()}
    labels = {str(key): value for key, value in parts.labels.items()}
    if columns.labels:
        named = {key: value_at(whole, column, where) for key, column in columns.labels}
        for _, column in columns.labels:  # the graph must not see the label under its old name either
            inputs.pop(column if column in inputs else column.partition(".")[0], None)
        labels = named
    if columns.inputs:
        inputs = {key: value_at(whole, column, where) for key, column in columns.inputs}
    data = {**inputs, **{key: value for key, value in labels.items() if columns.labels or key not in inputs}}
    name = columns.id or ("id" if "id" in whole else None)
    if name is None and place is not None:
        return Request(place, data), tuple(labels)
    return Request(_id(whole, name, data, where), data), tuple(labels)


def place_in(path: Path, where: str) -> str:
    """Return a row's position within the file or folder ``path``: ``where``, the position in error messages, without the path.

    For example ``12``, ``row 12``, ``item 12`` or ``part.parquet, row 12``.
    """
    return where.removeprefix(str(path)).lstrip(":,/\\ ")


def _id(whole: Mapping[str, Any], name: str | None, data: Mapping[str, Any], where: str) -> str:
    if name is None:
        text = json.dumps(dict(data), sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]
    value = value_at(whole, name, where)
    if value is None or str(value) == "":
        raise DatasetError(f"{where}: {name!r} is empty: give every row an id of its own")
    return str(value)


def _repeats(request_id: str, row: Mapping[str, Any], columns: Columns, where: str, first: str) -> str:
    if columns.id or "id" in row or where.endswith(request_id):
        return f"{where}: the id {request_id[:60]!r} repeats that of {first}: ids must be unique"
    return f"{where}: the same row as {first}: take it out, or give the rows ids"


def with_dataset(workflow: Workflow, dataset: RequestSet, *, labelled: bool = True) -> Workflow:
    """Return a copy of the workflow with the requests of ``dataset`` instead of its own requests.

    Args:
        workflow: A finished workflow. Every new request must have the keys that all requests of this workflow have, labels
            included. Labels are not needed if answers are scored by a judge or by comparison with the current setup.
        dataset: The requests.
        labelled: False if answers are not scored, so that no request needs a label.

    Raises:
        DatasetError: A request lacks a key or a label. The message names the file, the line and the key.
    """
    own = [set(request.data) for request in workflow.requests]
    wanted = set.intersection(*own) - {"id"}
    keys = [key for key in workflow.requests[0].data if key in wanted]
    if isinstance(workflow.score, LLMJudge | AsToday) or not labelled:
        keys = [key for key in keys if key not in workflow.labels]
    for request, where in zip(dataset.requests, dataset.places, strict=True):
        for key in keys:
            _require(request, key, where, is_label=key in workflow.labels)
    labels = tuple(dict.fromkeys((*workflow.labels, *dataset.labels)))
    return replace(workflow, requests=dataset.requests, labels=labels)


def _require(request: Request, key: str, where: str, *, is_label: bool) -> None:
    kind = "label" if is_label else "input"
    if key not in request.data:
        raise DatasetError(
            f"{where}: no {key!r}, which the workflow takes as {kind}: the row has {names_of(request.data)}: say which column "
            f"it is, {key}=COLUMN",
            code=f"dataset-{kind}",
        )
    if is_label and request.data[key] is None:
        raise DatasetError(f"{where}: the label {key!r} is empty: fill it in, or take the row out", code="dataset-no-label")
