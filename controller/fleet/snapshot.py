"""One process's live calls in the form in which they are published: a JSON header and raw arrays."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np

from vinelm.errors import VineLMError


class LiveState(IntEnum):
    """The state of a live call: it waits for its engine's rate limits (QUEUED), or it was sent (RUNNING)."""

    QUEUED = 0
    """It waits for its engine's rate limits, and nothing was sent yet."""
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
"""Columns with their types on the wire. ``tenant``, ``stage`` and ``engine`` are indices into the vocabulary of that name."""

VOCABULARIES = {"tenant": "tenants", "stage": "stages", "engine": "engines"}
"""The name of each column's vocabulary."""
MOST_NAMES = 65_536
"""The most names that a process's vocabulary may have; see the columns' types."""
_LENGTH = 4
"""Bytes of the header's length, which follows the magic."""


def to_bytes(about: Mapping[str, Any], columns: Iterable[np.ndarray[Any, Any]], magic: bytes = b"") -> bytes:
    """Encode ``magic``, a header (``about``) and columns of equal length as bytes, without a loop over the rows."""
    header = json.dumps(about, separators=(",", ":")).encode()
    raw = (np.ascontiguousarray(column).tobytes() for column in columns)
    return b"".join([magic, len(header).to_bytes(_LENGTH, "little"), header, *raw])


def from_bytes(
    raw: bytes, rows: str, kinds: Iterable[np.dtype[np.generic]], magic: bytes = b""
) -> tuple[dict[str, Any], list[np.ndarray[Any, Any]]]:
    """Decode the result of :func:`to_bytes` into header and columns; the arrays are read-only views of ``raw``.

    Args:
        raw: the bytes.
        rows: the header's key under which the length of the columns is stored.
        kinds: the types of the columns, in order.
        magic: the bytes with which ``raw`` must begin.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: the bytes are invalid.
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


_MAGIC = b"VINE-FLEET-2"


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """The live calls of one process at one moment.

    Attributes:
        process: the name of the process, unique in the fleet.
        columns: arrays with one item per live call, by column name, of the types in :data:`COLUMNS`.
        vocabularies: the lists of names, by column. A number in such a column is the index of a name in the column's list.
        groups: the replica group of each engine in the process's catalog; the engine's name if it has no group.
    """

    process: str
    columns: Mapping[str, np.ndarray[Any, Any]]
    vocabularies: Mapping[str, tuple[str, ...]]
    groups: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.columns["session"])

    def to_bytes(self) -> bytes:
        """Return the snapshot as bytes; each call takes 43 bytes."""
        names = {column: list(known) for column, known in self.vocabularies.items()}
        about = {"process": self.process, "rows": len(self), "names": names, "groups": dict(self.groups)}
        return to_bytes(about, (self.columns[name].astype(kind, copy=False) for name, kind in COLUMNS.items()), _MAGIC)

    @classmethod
    def from_bytes(cls, raw: bytes) -> Snapshot:
        """Decode the result of :meth:`to_bytes`; the arrays are read-only views of ``raw``.

        Raises:
            VineLMError: the bytes are invalid, or written by another version of VineLM.
        """
        try:
            return cls._read(raw)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise VineLMError(f"not a snapshot of this version of VineLM: {error}") from error

    @classmethod
    def _read(cls, raw: bytes) -> Snapshot:
        about, arrays = from_bytes(raw, "rows", COLUMNS.values(), _MAGIC)
        columns = dict(zip(COLUMNS, arrays, strict=True))
        vocabularies = {column: tuple(map(str, about["names"][column])) for column in VOCABULARIES}
        for column, known in vocabularies.items():
            if len(columns[column]) and int(columns[column].max()) >= len(known):
                raise ValueError(f"some {column} has no name")
        groups = {str(engine): str(group) for engine, group in about["groups"].items()}
        return cls(str(about["process"]), columns, vocabularies, groups)
