"""Parquet and Arrow files, through pyarrow (extra ``parquet``). Only this module imports pyarrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from vinelm.errors import DatasetError
from vinelm.extras import required_extra

_READ_ROWS = 256
"""Rows read at a time: a single row of a dataset may hold a long document."""
_WRITTEN_ROWS = 20_000


def read_parquet(path: Path, *, called: str = "table") -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (number, row) of each row of a Parquet file, numbered from 1, read batch by batch.

    Args:
        path: The file.
        called: What errors call the file, such as ``table``.

    Raises:
        DatasetError: The file is not Parquet, or damaged.
        MissingExtra: pyarrow is not installed.
    """
    arrow, parquet = _pyarrow(path)
    with _translated(arrow, path, called), parquet.ParquetFile(path) as file:
        yield from _numbered(file.iter_batches(_READ_ROWS))


def read_arrow(path: Path, *, called: str = "table") -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (number, row) of each row of an Arrow IPC stream or file. Takes the same arguments and raises the same
    errors as :func:`read_parquet`.
    """
    arrow, _ = _pyarrow(path)
    with _translated(arrow, path, called), arrow.memory_map(str(path)) as source:
        yield from _numbered(_slices(_batches(arrow, source)))


def _numbered(batches: Iterable[Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    number = 0
    for batch in batches:
        for row in batch.to_pylist():
            number += 1
            yield number, row


def _slices(batches: Iterable[Any]) -> Iterator[Any]:
    for batch in batches:
        for start in range(0, batch.num_rows, _READ_ROWS):
            yield batch.slice(start, _READ_ROWS)


def _batches(arrow: Any, source: Any) -> Iterator[Any]:
    is_file = source.read(6) == b"ARROW1"
    source.seek(0)
    if is_file:
        reader = arrow.ipc.open_file(source)
        yield from (reader.get_batch(index) for index in range(reader.num_record_batches))
    else:
        yield from arrow.ipc.open_stream(source)


def parquet_note(path: Path, key: str) -> str | None:
    """Return the text stored under ``key`` in the file's metadata (see :func:`write_parquet`), or None if it is missing."""
    arrow, parquet = _pyarrow(path)
    with _translated(arrow, path, "table"):
        found = (parquet.read_schema(path).metadata or {}).get(key.encode())
    return None if found is None else str(found, "utf-8")


def write_parquet(
    path: Path, columns: Mapping[str, str], rows: Iterable[Sequence[Any]], *, notes: Mapping[str, str], shown_as: Path
) -> None:
    """Write rows as Parquet.

    Args:
        path: the file to write.
        columns: the type of each column, by column name: ``string``, ``list`` (of strings), ``bool``, ``int`` or
            ``float``.
        rows: one sequence of values per row, in the order of ``columns``.
        notes: text for the file's metadata, by key.
        shown_as: the path that errors name.

    Raises:
        MissingExtra: pyarrow is not installed.
    """
    arrow, parquet = _pyarrow(shown_as)
    kinds = {
        "string": arrow.string(),
        "list": arrow.list_(arrow.string()),
        "bool": arrow.bool_(),
        "int": arrow.int64(),
        "float": arrow.float64(),
    }
    schema = arrow.schema([(name, kinds[kind]) for name, kind in columns.items()], metadata=dict(notes))
    with parquet.ParquetWriter(path, schema) as writer:
        source = iter(rows)
        while batch := list(islice(source, _WRITTEN_ROWS)):
            arrays = [
                arrow.array(values, type=field.type) for values, field in zip(zip(*batch, strict=True), schema, strict=True)
            ]
            writer.write_table(arrow.Table.from_arrays(arrays, schema=schema))


def _pyarrow(path: Path) -> tuple[Any, Any]:
    with required_extra("parquet", f"{path}: a table of this format"):
        import pyarrow
        import pyarrow.parquet
    return pyarrow, pyarrow.parquet


@contextmanager
def _translated(arrow: Any, path: Path, called: str) -> Iterator[None]:
    try:
        yield
    except (OSError, arrow.ArrowException) as error:
        text = str(error).strip() or type(error).__name__
        raise DatasetError(f"{path}: cannot read the {called}: {text.splitlines()[0]}") from error
