"""Reads and writes tables: CSV and JSON lines (plain or gzip) and Parquet, by the extension of the file name."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO, cast

from vinelm.errors import ConfigError, DatasetError
from vinelm.io.arrow_tables import read_parquet
from vinelm.io.file_kinds import unread
from vinelm.io.reading import json_objects

Row = Mapping[str, Any]
_MAX_FIELD_CHARS = 2**24


def kind_of(path: Path, allowed: Sequence[str] = ("csv", "jsonl", "parquet")) -> str:
    """Return the table format by the file's extension. Raise :class:`ConfigError` if it is not among ``allowed``."""
    kind = path.name.removesuffix(".gz").rpartition(".")[2].lower()
    if kind not in allowed or (kind in ("parquet", "json") and path.suffix == ".gz"):
        raise ConfigError(f"{path}: unknown table format: the file name must end in .{', .'.join(allowed)} or .csv.gz")
    return kind


def read_table(path: Path, columns: Sequence[str] = ()) -> Iterator[tuple[int, Row]]:
    """Yield (line number, row) of each row; Parquet rows are numbered from 1.

    CSV values are text. Missing and empty values are None.

    Args:
        path: the table; its extension determines the format (:func:`kind_of`).
        columns: names that each row must have; other columns are returned too.

    Raises:
        ConfigError: the extension is unknown, or pyarrow is not installed.
        DatasetError: the file cannot be read, or a column is missing. The message names the file and the line.
    """
    kind = kind_of(path)
    if kind == "parquet":
        yield from _with_columns(read_parquet(path), columns, path)
        return
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8-sig", newline="") as opened:
            text = cast("TextIO", opened)
            rows = _read_csv(text, path, columns) if kind == "csv" else json_objects(text, path)
            yield from _with_columns(rows, columns, path)
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise DatasetError(f"{path}: cannot read the table: {unread(path, error)}") from error


def _with_columns(rows: Iterable[tuple[int, Row]], columns: Sequence[str], path: Path) -> Iterator[tuple[int, Row]]:
    for line, row in rows:
        _require_columns(row, columns, f"{path}:{line}")
        yield line, row


def _require_columns(found: Collection[str], columns: Sequence[str], where: str) -> None:
    for name in columns:
        if name not in found:
            raise DatasetError(f"{where}: no column {name!r}: the table has {', '.join(map(str, found))}")


def _read_csv(text: TextIO, path: Path, columns: Sequence[str]) -> Iterator[tuple[int, Row]]:
    csv.field_size_limit(max(csv.field_size_limit(), _MAX_FIELD_CHARS))
    reader = csv.DictReader(text)
    try:
        names = reader.fieldnames or ()
        _require_columns(names, columns, f"{path}:1")
        for row in reader:
            if None in row or None in row.values():
                raise DatasetError(
                    f"{path}:{reader.line_num}: the line does not have the header's {len(names)} fields: fix the file"
                )
            yield reader.line_num, {name: value or None for name, value in row.items()}
    except csv.Error as error:
        raise DatasetError(f"{path}:{reader.line_num}: not valid CSV: {error}") from error


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, is_gzipped: bool) -> None:
    """Write rows as CSV with a header; None becomes an empty field, numbers round-trip exactly, and equal rows give
    equal bytes.
    """
    with path.open("wb") as raw:
        packed = gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) if is_gzipped else raw
        with packed:
            for text in _csv_text(columns, rows):
                packed.write(text.encode("utf-8"))


def _csv_text(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    class Line:
        text = ""

        def write(self, text: str) -> None:
            self.text = text

    line = Line()
    writer = csv.writer(line)  # CRLF: with LF, a carriage return inside a field would not be quoted
    writer.writerow(columns)
    yield line.text
    for row in rows:
        writer.writerow(row)
        yield line.text
