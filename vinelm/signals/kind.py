"""The type of a request (*kind*): a label that is known from its inputs before its first call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from vinelm.errors import WorkflowError, is_of_code

Kind: TypeAlias = Callable[[Mapping[str, Any]], object] | str
LONGEST = 64
"""The most characters of a kind."""


def kind_of(kind: Kind, inputs: Mapping[str, Any], row: Mapping[str, Any] | None = None) -> str:
    """Return the type of a request as a text that is not empty.

    Args:
        kind: A function ``kind(inputs)`` that returns a text, a bool or a whole number; or the name of the field that holds
            such a value.
        inputs: The graph's inputs.
        row: The request's row of the dataset, which is searched for fields that the inputs lack; None in an ordinary served
            call.

    Raises:
        WorkflowError: The function raised or returned something that is not a label, or the field is missing.
    """
    if isinstance(kind, str):
        where = f"kind={kind!r}"
        if kind not in inputs and kind not in (row or {}):
            raise WorkflowError(f"{where}: the request has no such field: name one of its inputs or a column of the dataset")
        value = inputs[kind] if kind in inputs else (row or {})[kind]
    else:
        where = "kind(inputs)"
        try:
            value = kind(inputs)
        except BaseException as error:
            if not is_of_code(error):
                raise
            raise WorkflowError(f"{where} raised {type(error).__name__}: it must return a label for every request") from error
    if not isinstance(value, str | bool | int) or not str(value).strip() or len(str(value)) > LONGEST or "\n" in str(value):
        what = f"a text of {len(value)} characters" if isinstance(value, str) else f"a {type(value).__name__}"
        raise WorkflowError(f"{where} gives {what}: return one line of 1 to {LONGEST} characters, a bool or a whole number")
    return str(value).strip()
