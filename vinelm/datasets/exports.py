"""Rows of LangSmith's and Langfuse's exports: which part is the input, and which the reference."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vinelm.errors import DatasetError

_LANGFUSE_OUTPUTS = ("expectedOutput", "expected_output")
METADATA = "metadata"


@dataclass(frozen=True, slots=True)
class Unfolded:
    """A row by its parts.

    Attributes:
        inputs: What the graph may see.
        labels: What it must not: references, and the example's metadata.
    """

    inputs: Mapping[str, Any]
    labels: Mapping[str, Any]


def unfolded(row: Mapping[str, Any], where: str) -> Unfolded | None:
    """Return the parts of a row of an export; None if the item is archived. A row of any other table is all input.

    LangSmith's examples have ``inputs`` and ``outputs`` (as objects, as JSON text, or as columns ``inputs.KEY``), Langfuse's
    items ``input`` and ``expectedOutput`` or ``expected_output``. Objects give their keys, anything else the name of its part.

    Raises:
        DatasetError: A key is both in the input and in the reference.
    """
    row = _nested(row)
    output = next((name for name in _LANGFUSE_OUTPUTS if name in row), None)
    if "inputs" in row and isinstance(_value(row["inputs"]), Mapping) and ("outputs" in row or "dataset_id" in row):
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
    if (about := _value(row.get(METADATA))) is not None and METADATA not in inputs:
        labels = {METADATA: about, **labels}
    return Unfolded(inputs, labels)


def _keys(value: Any, name: str) -> dict[str, Any]:
    value = _value(value)
    if value is None:
        return {}
    return dict(value) if isinstance(value, Mapping) else {name: value}


def _nested(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row whose columns ``inputs.KEY`` and ``outputs.KEY`` are put together, as some exports flatten them."""
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


def _value(value: Any) -> Any:
    """The value; of a text cell that holds JSON, what it holds."""
    if isinstance(value, str) and value[:1] in ("{", "[", '"'):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def decoded(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of an export with its JSON cells as values, so that paths lead into them."""
    nested = _nested(row)
    parts = ("inputs", "outputs", "input", METADATA, *_LANGFUSE_OUTPUTS)
    return {name: _value(value) if name in parts else value for name, value in nested.items()}
