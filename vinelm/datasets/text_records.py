"""Reads CSV, JSON lines and JSON files as a stream; errors name the file and the line."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, cast

from vinelm.errors import DatasetError
from vinelm.io.file_kinds import unread
from vinelm.io.reading import open_regular

Record = tuple[str, Mapping[str, Any]]
"""(place for errors, as ``FILE:LINE``; values by column)."""

MAX_LINE_BYTES = 2**26
"""The longest line (64 MiB) that is read: a longer one cannot be a row, and must not fill the memory."""
MAX_JSON_BYTES = 2**28
"""The largest JSON document (256 MiB), which cannot be read row by row."""
_DELIMITERS = ",;\t|"


def csv_records(path: Path) -> Iterator[Record]:
    """Yield the rows of a CSV file with a header, plain or gzipped. Every value is text; an empty field is None.

    The delimiter is the most frequent of ``, ; TAB |`` in the header.

    Raises:
        DatasetError: A line is not CSV or has another number of fields than the header, or a column's name is empty or occurs
            twice.
    """
    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE_BYTES))
    lines = _lines(path)
    first = next((line for _, line in lines), "")
    delimiter = max(_DELIMITERS, key=first.count)
    reader = csv.reader(chain([first], (line for _, line in lines)), delimiter=delimiter, strict=True)
    begins = 1
    try:
        names = next(reader, [])
        _check_header(names, path)
        begins = reader.line_num + 1
        for fields in reader:
            if fields:
                if len(fields) != len(names):
                    raise DatasetError(
                        f"{path}:{begins}: the row has {len(fields)} fields and the header {len(names)}: quote a value that "
                        f"holds {delimiter!r} or a line break"
                    )
                yield f"{path}:{begins}", {name: value or None for name, value in zip(names, fields, strict=True)}
            begins = reader.line_num + 1
    except csv.Error as error:
        raise DatasetError(f"{path}:{begins}: not valid CSV: {error}: look for a quote that is not closed") from error


def _check_header(names: list[str], path: Path) -> None:
    for number, name in enumerate(names, start=1):
        if not name.strip():
            raise DatasetError(f"{path}:1: column {number} has no name: the first line must name every column")
        if names.index(name) != number - 1:
            raise DatasetError(f"{path}:1: the column {_short(name)} repeats: give every column a name of its own")


def json_line_records(path: Path) -> Iterator[Record]:
    """Yield the objects of a file of JSON lines, plain or gzipped. Blank lines are left out.

    Raises:
        DatasetError: A line is not a JSON object.
    """
    for number, line in _lines(path):
        if line.strip():
            yield _record(_parsed(line, f"{path}:{number}", has_lines=False), f"{path}:{number}")


def json_records(path: Path) -> Iterator[Record]:
    """Yield the objects of a JSON file that contains a list of objects, or an object with a single list of objects
    (``examples``, ``data`` ...).

    A file whose first line is a whole object is read as JSON lines.

    Raises:
        DatasetError: The file is not JSON, has no such list, or is larger than 256 MiB.
    """
    if _begins_json_lines(path):
        yield from json_line_records(path)
        return
    with _opened(path) as file:
        content = file.read(MAX_JSON_BYTES + 1)
    if len(content) > MAX_JSON_BYTES:
        raise DatasetError(
            f"{path}: larger than {MAX_JSON_BYTES >> 20} MiB: give JSON lines (.jsonl), which are read as a stream"
        )
    found = _parsed(_decoded(content, f"{path}"), f"{path}", has_lines=True)
    if isinstance(found, dict):
        lists = [value for value in found.values() if isinstance(value, list)]
        found = lists[0] if len(lists) == 1 else None
    if not isinstance(found, list):
        raise DatasetError(f"{path}: holds no list of rows: give a list of JSON objects, or one object per line (.jsonl)")
    for number, row in enumerate(found, start=1):
        yield _record(row, f"{path}, item {number}")


def _begins_json_lines(path: Path) -> bool:
    with _opened(path) as file:
        line = file.readline(MAX_LINE_BYTES)
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _parsed(text: str, where: str, *, has_lines: bool) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}" if has_lines else f"column {error.colno}"
        raise DatasetError(f"{where}: not valid JSON: {error.msg} at {place}") from error
    except (RecursionError, ValueError) as error:  # nested thousands of levels deep, or a number with thousands of digits
        raise DatasetError(f"{where}: not JSON that can be read: {str(error).splitlines()[0]}") from error


def _record(row: Any, where: str) -> Record:
    if not isinstance(row, dict):
        raise DatasetError(f"{where}: expected a JSON object, found {type(row).__name__}")
    return where, row


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (number, text) for each line of a text file, without a byte order mark. Numbers begin at 1; the text includes the
    line break.
    """
    with _opened(path) as file:
        number = 0
        while line := _read_line(file, path, number + 1):
            number += 1
            yield number, _decoded(line, f"{path}:{number}")


def _read_line(file: BinaryIO, path: Path, number: int) -> bytes:
    try:
        line = file.readline(MAX_LINE_BYTES + 1)
    except (OSError, EOFError) as error:  # raised by gzip for a truncated file
        raise DatasetError(f"{path}:{number}: cannot read the dataset: {error}") from error
    if len(line) > MAX_LINE_BYTES:
        raise DatasetError(f"{path}:{number}: the line is longer than {MAX_LINE_BYTES >> 20} MiB: is this a dataset?")
    return line


def _decoded(content: bytes, where: str) -> str:
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise DatasetError(f"{where}: the file is UTF-16: save it as UTF-8")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DatasetError(f"{where}: not UTF-8 at byte {error.start + 1}: save the file as UTF-8") from error


def _opened(path: Path) -> BinaryIO:
    try:
        file = open_regular(path)
    except OSError as error:
        raise DatasetError(f"{path}: cannot read the dataset: {unread(path, error)}") from error
    return cast("BinaryIO", _ClosingGzip(file)) if path.suffix == ".gz" else file


class _ClosingGzip(gzip.GzipFile):
    """A gzipped file that also closes the underlying file; :class:`gzip.GzipFile` only does so if it opened the file by
    name.
    """

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(fileobj=file, mode="rb")
        self._below = file

    def close(self) -> None:
        try:
            super().close()
        finally:
            self._below.close()


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:60]}...")
