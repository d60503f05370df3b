"""Datasets of labelled requests in JSON lines, and their split into training and held-out requests."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator, Sequence
from io import BufferedReader, TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO, cast

from vinelm.errors import DatasetError
from vinelm.io.file_kinds import unread
from vinelm.io.reading import json_objects, open_regular
from vinelm.requests.workflow import Request


def read_jsonl(path: str | Path, *, required: Sequence[str] = (), id_key: str = "id") -> list[Request]:
    """Read labelled requests from a file of JSON lines, plain or gzipped (``.gz``).

    Args:
        path: The file. Each line that is not blank holds one JSON object.
        required: Keys that every object must have.
        id_key: The key of the request's id, which is converted to a string. Objects without it get their line number.

    Returns:
        The requests in file order; at least one request.

    Raises:
        DatasetError: The file cannot be read or is empty, a line is at fault, or an id repeats. The message names the
            file and the line.
    """
    requests: list[Request] = []
    first_line: dict[str, int] = {}
    for number, row in _rows(Path(path)):
        for key in required:
            if key not in row:
                raise DatasetError(f"{path}:{number}: the key {key!r} is missing: every line needs {', '.join(required)}")
        request_id = str(row.get(id_key, number))
        if not request_id:
            raise DatasetError(f"{path}:{number}: {id_key!r} is empty: give every line an id of its own")
        if request_id in first_line:
            raise DatasetError(
                f"{path}:{number}: the id {request_id!r} repeats line {first_line[request_id]}: ids must be unique"
            )
        first_line[request_id] = number
        requests.append(Request(request_id, row))
    if not requests:
        raise DatasetError(f"{path}: the dataset is empty: it needs one JSON object per line")
    return requests


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        with open_regular(path) as file, _unpacked(file, path) as raw, TextIOWrapper(raw, encoding="utf-8") as lines:
            yield from json_objects(lines, path)
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise DatasetError(f"{path}: cannot read the dataset: {unread(path, error)}") from error


def _unpacked(file: BufferedReader, path: Path) -> BinaryIO:
    return cast("BinaryIO", gzip.open(file)) if path.suffix == ".gz" else file


def split_requests(requests: Sequence[Request], held_out: float, seed: int) -> tuple[list[Request], list[Request]]:
    """Split requests into training and held-out requests, both in dataset order.

    The side of a request depends only on its id and the seed, so that it stays the same when the dataset grows.

    Args:
        requests: The dataset.
        held_out: The expected fraction of held-out requests, in [0, 1].
        seed: Decides the split.

    Returns:
        (training, held-out).
    """

    def share(request: Request) -> float:
        digest = hashlib.sha256(f"{seed}:{request.id}".encode()).digest()
        return int.from_bytes(digest[:8], "big") / 2**64

    training = [request for request in requests if share(request) >= held_out]
    return training, [request for request in requests if share(request) < held_out]
