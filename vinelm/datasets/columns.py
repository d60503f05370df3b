"""The columns of a dataset that a request takes, and their names there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from vinelm.errors import ConfigError, DatasetError

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns that become the input and the labels of a request. Left out, the format decides (docs/datasets.md).

    Args:
        inputs: (key of the request, column) of each input. Columns that are not named are then left out.
        labels: (key of the request, column) of each label, which the graph never sees.
        id: The column of the request's id; None takes ``id`` where there is one, else a digest of the row.

    A column may be a path into nested values, such as ``outputs.answer``.

    Raises:
        ConfigError: A name is empty, or two columns have one key.
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
        """Return the columns that these texts name: ``input.KEY=COLUMN``, ``label.KEY=COLUMN`` and ``id=COLUMN``.

        Raises:
            ConfigError: A text has another form (``dataset-column-text``), or see :class:`Columns`.
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
        """True if nothing is chosen."""
        return self == Columns()


def value_at(row: Mapping[str, Any], column: str, where: str) -> Any:
    """Return a row's value of a column, or of a path into nested values; :class:`DatasetError` if it has none."""
    if column in row:
        return row[column]
    found: Any = row
    for name in column.split("."):
        if not isinstance(found, Mapping) or name not in found:
            raise DatasetError(f"{where}: no column {column!r}: the row has {names_of(row)}", code="dataset-column")
        found = found[name]
    return found


def names_of(row: Mapping[str, Any]) -> str:
    """Return the columns of a row for an error, shortened."""
    names = [str(name)[:60] for name in row]
    return ", ".join(map(repr, names[:12])) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
