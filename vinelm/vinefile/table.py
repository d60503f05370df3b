"""The nodes of an annotated trie as a table for other tools: CSV, Parquet or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vinelm.errors import TrieFileError
from vinelm.io.arrow_tables import write_parquet
from vinelm.io.atomic import atomic_path
from vinelm.io.tables import kind_of, write_csv
from vinelm.trie.annotated_trie import AnnotatedTrie

TABLE_KINDS = ("csv", "json", "parquet")
NOTE = "vinelm.trie"


def export_trie(annotated: AnnotatedTrie, path: Path) -> int:
    """Write a table with a row for each node except the root to ``path``, replacing the file, and return the number of
    rows.

    The first column is the node's number, followed by the columns of :meth:`AnnotatedTrie.to_pandas`. A prefix is a list of
    model names; in CSV, it is compact JSON text. Unknown values are empty fields in CSV, and null elsewhere. JSON is one
    object with ``meta``, ``catalog`` and ``nodes``; a Parquet file has ``meta`` and ``catalog`` in its metadata, CSV has
    neither.

    Args:
        annotated: The trie.
        path: Ends in ``.csv``, ``.csv.gz``, ``.json`` or ``.parquet``.

    Raises:
        ConfigError: The path has another extension, or pyarrow is not installed.
        TrieFileError: The file cannot be written; an older file stays.
    """
    kind = kind_of(path, TABLE_KINDS)
    columns = {"node": list(range(1, len(annotated.trie)))} | {
        name: _plain(values) for name, values in annotated.columns().items()
    }
    about = {"meta": dict(annotated.meta), "catalog": annotated.catalog.to_dict()}
    try:
        with atomic_path(path) as draft:
            if kind == "csv":
                write_csv(draft, list(columns), map(_flat, _rows(columns)), is_gzipped=path.suffix == ".gz")
            elif kind == "parquet":
                types = {name: _type(values) for name, values in columns.items()}
                write_parquet(draft, types, _rows(columns), notes={NOTE: json.dumps(about, default=str)}, shown_as=path)
            else:
                nodes = [dict(zip(columns, row, strict=True)) for row in _rows(columns)]
                text = json.dumps({**about, "nodes": nodes}, indent=1, default=str)
                draft.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise TrieFileError(
            f"{path}: cannot write the table: {error.strerror}: choose a folder with room that exists"
        ) from error
    return annotated.trie.n_nodes


def _rows(columns: Mapping[str, list[Any]]) -> Iterator[tuple[Any, ...]]:
    return zip(*columns.values(), strict=True)


def _plain(values: Any) -> list[Any]:
    """Return the values as a list of plain Python types, in which None stands for NaN."""
    found = values.tolist() if isinstance(values, np.ndarray) else list(values)
    return [None if isinstance(value, float) and value != value else _listed(value) for value in found]  # noqa: PLR0124


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _flat(row: tuple[Any, ...]) -> list[Any]:
    return [
        json.dumps(value, ensure_ascii=False, separators=(",", ":")) if isinstance(value, list) else _number(value)
        for value in row
    ]


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, bool) else value


def _type(values: list[Any]) -> str:
    """Return the name of a column's type, such as ``int``, for :func:`write_parquet`; it follows from the first value that
    is not None.
    """
    kinds = {bool: "bool", int: "int", float: "float", str: "string", list: "list"}
    return next((kinds[type(value)] for value in values if value is not None), "float")
