"""JSON lines, with the file and line at fault in every error."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from vinelm.errors import DatasetError


def json_objects(lines: Iterable[str], path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number from 1, object) of every line that is not blank. :class:`DatasetError` names ``path`` and the line."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise DatasetError(f"{path}:{number}: not valid JSON: {error.msg} at column {error.colno}") from error
        if not isinstance(row, dict):
            raise DatasetError(f"{path}:{number}: expected a JSON object, found {type(row).__name__}")
        yield number, row
