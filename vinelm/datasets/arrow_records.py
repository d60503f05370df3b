"""Reads Parquet and Arrow files and Hugging Face ``datasets`` folders, batch by batch (extra ``parquet``)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

from vinelm.datasets.text_records import Record
from vinelm.errors import DatasetError
from vinelm.io.arrow_tables import read_arrow, read_parquet
from vinelm.io.reading import read_text

_SPLIT = re.compile(r"(.+?)-\d+-of-\d+")
"""File name pattern of a split, as ``datasets`` writes it: ``train-00000-of-00002``."""


def parquet_records(path: Path) -> Iterator[Record]:
    """Yield the rows of a Parquet file.

    Raises:
        DatasetError: The file is not Parquet, or damaged.
        MissingExtra: pyarrow is not installed.
    """
    yield from _records(path, read_parquet(path, called="dataset"))


def arrow_records(path: Path) -> Iterator[Record]:
    """Yield the rows of an Arrow IPC stream or file, as ``datasets`` saves it. Raises the same errors as
    :func:`parquet_records`.
    """
    yield from _records(path, read_arrow(path, called="dataset"))


def _records(path: Path, rows: Iterable[tuple[int, Mapping[str, Any]]]) -> Iterator[Record]:
    for number, row in rows:
        yield f"{path}, row {number}", _plain(row)


def folder_records(path: Path) -> Iterator[Record]:
    """Yield the rows of a Hugging Face ``datasets`` folder, which was saved by ``save_to_disk`` or downloaded with Parquet
    files.

    Raises:
        DatasetError: The path is not such a folder, or the folder contains several splits, which the message names.
    """
    splits = _splits(path)
    if not splits:
        raise DatasetError(
            f"{path}: a folder without a dataset: give a file, or a folder that `datasets` saved (state.json, *.parquet)"
        )
    if len(splits) > 1:
        name = next(iter(splits))
        place = path / name if (path / name).is_dir() else splits[name][0]
        raise DatasetError(f"{path}: holds the splits {', '.join(splits)}: name one of them, for example {place}")
    for file in next(iter(splits.values())):
        yield from arrow_records(file) if file.suffix == ".arrow" else parquet_records(file)


def _splits(path: Path) -> dict[str, list[Path]]:
    """Return the files of each split, in order, by the split's name. The name is "" if the folder has a single split."""
    state = path / "state.json"
    if state.is_file():
        names = [item["filename"] for item in _json(state).get("_data_files", [])]
        return {"": [path / Path(str(name)).name for name in names]}
    if (path / "dataset_dict.json").is_file():
        found = {str(name): _splits(path / str(name)) for name in _json(path / "dataset_dict.json").get("splits", [])}
        return {name: files for name, inner in found.items() for files in inner.values()}
    return _split_files(path) or _split_files(path / "data")


def _split_files(path: Path) -> dict[str, list[Path]]:
    splits: dict[str, list[Path]] = {}
    for file in sorted(path.glob("*.parquet")):
        match = _SPLIT.fullmatch(file.stem)
        splits.setdefault(match[1] if match else file.stem, []).append(file)
    return splits


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_text(path))
        return dict(found)
    except (OSError, ValueError, TypeError) as error:
        raise DatasetError(f"{path}: not the description of a dataset: {error}: save the dataset again") from error


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _plain_value(value) for name, value in row.items()}


def _plain_value(value: Any) -> Any:
    """Return the value as a JSON type. Times become ISO text, and decimals become the text of their digits."""
    if isinstance(value, Mapping):
        return _plain(value)
    if isinstance(value, (list, tuple)):
        return [_plain_value(item) for item in value]
    if isinstance(value, (date, datetime, time)):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else value
