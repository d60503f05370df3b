"""Stores views of a fleet as lines of JSON, so that a policy can be tried on recorded views."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import fields
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import numpy as np

from vinelm.controller.fleet.view import FleetView, column_type
from vinelm.errors import ConfigError, InputError
from vinelm.io.file_kinds import unread
from vinelm.io.reading import open_regular

EVERY_S = 1.0
"""At most one view is recorded in this number of seconds."""
_NAMES = ("tenants", "stages", "engines", "processes", "groups")
_DIGITS = 4


class ViewRecorder:
    """Appends views to a file, one line each, at most one a second. For one thread.

    Args:
        path: the file; created if missing.
        now: returns seconds that never decrease.

    Raises:
        ConfigError: the file cannot be written.
    """

    def __init__(self, path: Path, now: Callable[[], float] = time.monotonic) -> None:
        try:
            self._file = path.open("a", encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"views cannot be recorded in {str(path)!r}: {error.strerror}") from error
        self._now, self._last_s = now, -math.inf
        self.views = 0
        """Views recorded so far."""

    def __call__(self, view: FleetView) -> None:
        """Append a view to the file, unless another view was appended less than a second ago."""
        if self._now() - self._last_s >= EVERY_S:
            self._last_s = self._now()
            self._file.write(view_line(view) + "\n")
            self._file.flush()
            self.views += 1

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def view_line(view: FleetView) -> str:
    """Return a view as one line of JSON with its columns and names.

    NaN becomes null; seconds and dollars have four digits.
    """
    found: dict[str, Any] = {}
    for one in fields(view):
        value = getattr(view, one.name)
        if isinstance(value, np.ndarray):
            value = _plain(value)
        found[one.name] = value
    return json.dumps(found, separators=(",", ":"))


def recorded_views(path: Path) -> Iterator[FleetView]:
    """Yield the views of a file that :class:`ViewRecorder` wrote.

    Raises:
        InputError: the file does not exist, has no view, or has an invalid line; the message names the line.
    """
    number = 0
    try:
        with open_regular(path) as raw, TextIOWrapper(raw, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                yield _view(line, f"{str(path)!r}, line {number}")
    except (OSError, UnicodeDecodeError) as error:
        why = unread(path, error) if isinstance(error, OSError) else "it is no text"
        raise InputError(f"recorded views {str(path)!r} cannot be read: {why}") from error
    if not number:
        raise InputError(f"recorded views {str(path)!r} are empty: `vinelm fleet run --record FILE` writes one a second")


def _view(line: str, where: str) -> FleetView:
    try:
        given = json.loads(line)
        columns: dict[str, Any] = {}
        for one in fields(FleetView):
            value = given[one.name]
            columns[one.name] = tuple(map(str, value)) if one.name in _NAMES else _array(one.name, value)
        if len({len(array) for name, array in columns.items() if name not in _NAMES}) != 1:
            raise ValueError("its columns differ in length")
        if len(columns["groups"]) != len(columns["engines"]):
            raise ValueError("it has not one group for each engine")
        for column in ("tenant", "stage", "engine", "process"):
            names = columns["processes" if column == "process" else f"{column}s"]
            if len(columns[column]) and not 0 <= columns[column].min() <= columns[column].max() < len(names):
                raise ValueError(f"some {column} has no name")
        return FleetView(**columns)
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        what = f"it lacks {error}" if isinstance(error, KeyError) else error
        raise InputError(f"{where} is no recorded view: {what}") from error


def _array(name: str, values: list[Any]) -> Any:
    kind = column_type(name)
    if np.issubdtype(kind, np.floating):
        return np.array([math.nan if value is None else float(value) for value in values], kind)
    return np.array(values, kind) if values else np.empty(0, kind)


def _plain(values: Any) -> list[Any]:
    if np.issubdtype(values.dtype, np.floating):
        return [None if math.isnan(value) else value for value in np.round(values, _DIGITS).tolist()]
    plain: list[Any] = values.tolist()
    return plain
