"""The columns that describe live invocations, and the one form in which a fleet sends columns: a JSON header and raw arrays."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any

import numpy as np


class LiveState(IntEnum):
    """Where a live invocation is."""

    QUEUED = 0
    """It waits for its engine's rate limits: nothing was sent."""
    RUNNING = 1
    """It was sent, or runs on a backend without rate limits."""


COLUMNS: dict[str, np.dtype[np.generic]] = {
    "session": np.dtype("<u8"),
    "node": np.dtype("<i4"),
    "tenant": np.dtype("<u2"),
    "stage": np.dtype("<u2"),
    "engine": np.dtype("<u2"),
    "state": np.dtype("u1"),
    "waited_s": np.dtype("<f4"),
    "running_s": np.dtype("<f4"),
    "elapsed_s": np.dtype("<f4"),
    "deadline_s": np.dtype("<f4"),
    "rest_s": np.dtype("<f4"),
    "rest_usd": np.dtype("<f4"),
}
"""Name to type on the wire. ``tenant``, ``stage`` and ``engine`` are places in the vocabulary of that name."""

VOCABULARIES = {"tenant": "tenants", "stage": "stages", "engine": "engines"}
"""Column to the name of its vocabulary."""
MOST_NAMES = 65_536
"""Names that a vocabulary of one process may have; see the type of the columns."""
_LENGTH = 4
"""Bytes of the header's length, which follows the magic."""


def to_bytes(about: Mapping[str, Any], columns: Iterable[np.ndarray[Any, Any]], magic: bytes = b"") -> bytes:
    """Return a header and columns of equal length as bytes, so that nothing is done by row."""
    header = json.dumps(about, separators=(",", ":")).encode()
    raw = (np.ascontiguousarray(column).tobytes() for column in columns)
    return b"".join([magic, len(header).to_bytes(_LENGTH, "little"), header, *raw])


def from_bytes(
    raw: bytes, rows: str, kinds: Iterable[np.dtype[np.generic]], magic: bytes = b""
) -> tuple[dict[str, Any], list[np.ndarray[Any, Any]]]:
    """Read what :func:`to_bytes` wrote; the arrays are read-only windows on ``raw``.

    Args:
        raw: the bytes.
        rows: the key of the header that says how long the columns are.
        kinds: their types, in order.
        magic: how the bytes begin.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: these are no such bytes.
    """
    if not raw.startswith(magic):
        raise ValueError("it begins otherwise")
    at = len(magic) + _LENGTH
    end = at + int.from_bytes(raw[len(magic) : at], "little")
    about, kinds = json.loads(raw[at:end]), list(kinds)
    count = int(about[rows])
    if count < 0 or len(raw) - end != count * sum(kind.itemsize for kind in kinds):
        raise ValueError(f"{len(raw) - end} bytes cannot hold {count} {rows}")
    columns: list[np.ndarray[Any, Any]] = []
    for kind in kinds:
        columns.append(np.frombuffer(raw, kind, count, end))
        end += count * kind.itemsize
    return about, columns
