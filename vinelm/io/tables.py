"""Read and write tables: CSV and JSON lines (plain or gzip) and Parquet, chosen by the file name's extension."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO, cast

from vinelm.dataset import json_objects
from vinelm.errors import ConfigError, DatasetError
from vinelm.extras import required_extra

Row = Mapping[str, Any]
_MAX_FIELD_CHARS = 2**24
_BATCH = 20_000


def kind_of(path: Path, allowed: Sequence[str] = ("csv", "jsonl", "parquet")) -> str:
    """Return the table format by the file's extension: ``csv``, ``jsonl`` or ``parquet``; :class:`ConfigError` for another."""
    kind = path.name.removesuffix(".gz").rpartition(".")[2].lower()
    if kind not in allowed or (kind in ("parquet", "json") and path.suffix == ".gz"):
        raise ConfigError(f"{path}: unknown table format: the file name must end in .{', .'.join(allowed)} or .csv.gz")
    return kind


def read_table(path: Path, columns: Sequence[str] = ()) -> Iterator[tuple[int, Row]]:
    """Yield (line number, row) of each row; Parquet rows are numbered from 1.

    CSV values are text. Missing and empty values are None.

    Args:
        path: the table; its extension says the format (:func:`kind_of`).
        columns: names that each row must have; other columns are returned too.

    Raises:
        ConfigError: the extension is unknown, or pyarrow is not installed.
        DatasetError: the file cannot be read or a column is missing; names file and line.
    """
    kind = kind_of(path)
    if kind == "parquet":
        yield from _with_columns(_read_parquet(path), columns, path)
        return
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8-sig", newline="") as opened:
            text = cast("TextIO", opened)
            rows = _read_csv(text, path, columns) if kind == "csv" else json_objects(text, path)
            yield from _with_columns(rows, columns, path)
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise DatasetError(f"{path}: cannot read the table: {error}") from error


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


def _read_parquet(path: Path) -> Iterator[tuple[int, Row]]:
    arrow, parquet = require_pyarrow(path)
    try:
        number = 0
        for batch in parquet.ParquetFile(path).iter_batches(_BATCH):
            for row in batch.to_pylist():
                number += 1
                yield number, row
    except (OSError, arrow.ArrowException) as error:
        raise DatasetError(f"{path}: cannot read the table: {_first_line(error)}") from error


def parquet_note(path: Path, key: str) -> str | None:
    """Return the text that the file's metadata holds under ``key`` (see :func:`write_parquet`); None if there is none."""
    arrow, parquet = require_pyarrow(path)
    try:
        found = (parquet.read_schema(path).metadata or {}).get(key.encode())
    except (OSError, arrow.ArrowException) as error:
        raise DatasetError(f"{path}: cannot read the table: {_first_line(error)}") from error
    return None if found is None else str(found, "utf-8")


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, is_gzipped: bool) -> None:
    """Write rows as CSV with a header; None is an empty field, numbers round-trip exactly, equal rows give equal bytes."""
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
    writer = csv.writer(line)  # CRLF: with LF alone, a carriage return inside a field is not quoted
    writer.writerow(columns)
    yield line.text
    for row in rows:
        writer.writerow(row)
        yield line.text


def write_parquet(
    path: Path, columns: Mapping[str, str], rows: Iterable[Sequence[Any]], *, notes: Mapping[str, str], shown_as: Path
) -> None:
    """Write rows as Parquet.

    Args:
        path: the file to write.
        columns: name to type: ``string``, ``list`` (of strings), ``bool``, ``int`` or ``float``.
        rows: one sequence of values per row, in the order of ``columns``.
        notes: text for the file's metadata, by key.
        shown_as: the path that errors name.

    Raises:
        ConfigError: pyarrow is not installed.
    """
    arrow, parquet = require_pyarrow(shown_as)
    kinds = {
        "string": arrow.string(),
        "list": arrow.list_(arrow.string()),
        "bool": arrow.bool_(),
        "int": arrow.int64(),
        "float": arrow.float64(),
    }
    schema = arrow.schema([(name, kinds[kind]) for name, kind in columns.items()], metadata=dict(notes))
    with parquet.ParquetWriter(path, schema) as writer:
        for batch in _batches(rows):
            arrays = [
                arrow.array(values, type=field.type) for values, field in zip(zip(*batch, strict=True), schema, strict=True)
            ]
            writer.write_table(arrow.Table.from_arrays(arrays, schema=schema))


def _batches(rows: Iterable[Sequence[Any]]) -> Iterator[list[Sequence[Any]]]:
    batch: list[Sequence[Any]] = []
    for row in rows:
        batch.append(row)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def require_pyarrow(path: Path) -> tuple[Any, Any]:
    """Import ``pyarrow`` and ``pyarrow.parquet``; :class:`ConfigError` if they are not installed."""
    with required_extra("parquet", f"{path}: a table of this format"):
        import pyarrow
        import pyarrow.parquet
    return pyarrow, pyarrow.parquet


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
