"""Converts table fields to typed values: text, flags, numbers and amounts. Errors name the line and the column.

``where`` is ``FILE:LINE``, for error messages. The ``as_`` functions raise :class:`~vinelm.errors.DatasetError` for a value of
another type.
"""

from __future__ import annotations

import json
import math
from typing import Any

from vinelm.errors import DatasetError
from vinelm.io.tables import Row

_FLAGS = {"1": True, "0": False, "true": True, "false": False, "yes": True, "no": False, "1.0": True, "0.0": False}


def field_of(row: Row, column: str, where: str) -> Any:
    """Return the value of ``column``; None if it is empty or NaN. Raise :class:`DatasetError` if the row lacks the column."""
    if column not in row:
        raise DatasetError(f"{where}: no column {column!r}: the table has {', '.join(map(str, row))}")
    value = row[column]
    return None if value == "" or (isinstance(value, float) and math.isnan(value)) else value


def as_text(value: Any) -> str:
    """Return the value as text. None becomes ``""``, and whole floats are written without a fraction."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))  # pandas writes integer columns with gaps as floats
    return str(value)


def as_flag(value: Any, column: str, where: str) -> bool:
    """Return a table field as a flag: True for 1, true and yes, False for 0, false and no, in upper or lower case.

    Raise :class:`DatasetError` for any other value; its message names ``column`` and ``where``.
    """
    try:
        return _FLAGS[str(value).strip().lower()]
    except KeyError:
        raise DatasetError(f"{where}: {column} is {value!r}: it must be 0 or 1, true or false, yes or no") from None


def as_score(value: Any, column: str, where: str) -> bool | float:
    """Return a table field as a score: 0, 1, true, false, yes and no as a bool, a number between 0 and 1 as a float.

    Raise :class:`DatasetError` for any other value; its message names ``column`` and ``where``.
    """
    known = _FLAGS.get(str(value).strip().lower())
    if known is not None:
        return known
    try:
        score = float(value)
    except (ValueError, TypeError):
        score = math.nan
    if not 0.0 <= score <= 1.0:
        raise DatasetError(f"{where}: {column} is {value!r}: it must be 0 or 1, true or false, yes or no, or a score in [0, 1]")
    return score if 0.0 < score < 1.0 else score == 1.0


def as_number(value: Any, column: str, where: str) -> float:
    """Return the value as a float; raise :class:`DatasetError` if it is not a number."""
    try:
        return float(value)
    except (ValueError, TypeError):
        raise DatasetError(f"{where}: {column} is {value!r}: it must be a number") from None


def as_amount(value: Any, column: str, where: str) -> float:
    """Return the value as a finite number >= 0, such as dollars or seconds; raise :class:`DatasetError` for other
    values.
    """
    try:
        amount = float(value)
    except (ValueError, TypeError):
        amount = math.nan
    if not (amount >= 0.0 and math.isfinite(amount)):
        raise DatasetError(f"{where}: {column} is {value!r}: it must be a finite number >= 0")
    return amount


def as_count(value: Any, column: str, where: str, *, least: int = 0) -> int:
    """Return the value as a whole number >= ``least``; raise :class:`DatasetError` for other values."""
    number = as_number(value, column, where)
    if not number.is_integer() or number < least:
        raise DatasetError(f"{where}: {column} is {value!r}: it must be a whole number >= {least}")
    return int(number)


def json_in(value: Any) -> Any:
    """Return ``value`` parsed if it is text with a JSON object, list or string; return any other value unchanged."""
    if isinstance(value, str) and value[:1] in ("{", "[", '"'):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value
