"""Tables in files: CSV, JSON lines and Parquet, by the name's ending; CSV and JSON lines also gzipped."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO, cast

from vinelm.dataset import json_objects
from vinelm.errors import ConfigError, DatasetError

Row = Mapping[str, Any]
_MAX_FIELD_CHARS = 2**24
_BATCH = 20_000


def kind_of(path: Path, allowed: Sequence[str] = ("csv", "jsonl", "parquet")) -> str:
    """``csv``, ``jsonl`` or ``parquet``; :class:`ConfigError` for another ending."""
    kind = path.name.removesuffix(".gz").rpartition(".")[2].lower()
    if kind not in allowed or (kind == "parquet" and path.suffix == ".gz"):
        raise ConfigError(f"{path}: unknown kind of table: name it with the ending .{', .'.join(allowed)} or .csv.gz")
    return kind


def read_table(path: Path) -> Iterator[tuple[int, Row]]:
    """(line number, row) of each row. Values of CSV are text; what is missing or empty is None.

    :class:`DatasetError` names file and line of what cannot be read.
    """
    kind = kind_of(path)
    if kind == "parquet":
        yield from _read_parquet(path)
        return
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8-sig", newline="") as opened:
            text = cast("TextIO", opened)
            yield from _read_csv(text, path) if kind == "csv" else json_objects(text, path)
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise DatasetError(f"{path}: cannot read the table: {error}") from error


def _read_csv(text: TextIO, path: Path) -> Iterator[tuple[int, Row]]:
    csv.field_size_limit(max(csv.field_size_limit(), _MAX_FIELD_CHARS))
    reader = csv.DictReader(text)
    try:
        names = reader.fieldnames or ()
        for row in reader:
            if None in row or None in row.values():
                raise DatasetError(
                    f"{path}:{reader.line_num}: the line has not the header's {len(names)} fields: mend the file"
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
    """The text that :func:`write_parquet` put into the file's metadata under that key; None if there is none."""
    arrow, parquet = require_pyarrow(path)
    try:
        found = (parquet.read_schema(path).metadata or {}).get(key.encode())
    except (OSError, arrow.ArrowException) as error:
        raise DatasetError(f"{path}: cannot read the table: {_first_line(error)}") from error
    return None if found is None else str(found, "utf-8")


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, is_gzipped: bool) -> None:
    """Rows as CSV with a header; None is empty. Numbers come back exactly; the same rows give the same bytes."""
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
    """Rows as Parquet; ``columns`` maps a name to ``string``, ``list`` (of strings), ``bool``, ``int`` or ``float``."""
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
    """``pyarrow`` and ``pyarrow.parquet``; :class:`ConfigError` says how to install them."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ConfigError(f"{path}: Parquet needs pyarrow: pip install 'vinelm[parquet]', or use .csv") from error
    return pyarrow, pyarrow.parquet


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
