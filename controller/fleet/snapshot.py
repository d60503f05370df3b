"""One process's live invocations, as it publishes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vinelm.controller.fleet.columns import COLUMNS, VOCABULARIES, from_bytes, to_bytes
from vinelm.errors import VineLMError

_MAGIC = b"VINE-FLEET-2"


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """The live invocations of one process at one moment.

    Attributes:
        process: the name of the process, unique in the fleet.
        columns: name to array, shape (n,), of the type in :data:`~vinelm.controller.fleet.columns.COLUMNS`.
        vocabularies: column to the names that its numbers are places in.
        groups: each engine of the process's catalog to the replica group that it belongs to; its own name if to none.
    """

    process: str
    columns: Mapping[str, np.ndarray[Any, Any]]
    vocabularies: Mapping[str, tuple[str, ...]]
    groups: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.columns["session"])

    def to_bytes(self) -> bytes:
        """Return the snapshot as bytes; 43 of them for each invocation."""
        names = {column: list(known) for column, known in self.vocabularies.items()}
        about = {"process": self.process, "rows": len(self), "names": names, "groups": dict(self.groups)}
        return to_bytes(about, (self.columns[name].astype(kind, copy=False) for name, kind in COLUMNS.items()), _MAGIC)

    @classmethod
    def from_bytes(cls, raw: bytes) -> Snapshot:
        """Read what :meth:`to_bytes` wrote; the arrays are read-only windows on ``raw``.

        Raises:
            VineLMError: these are no such bytes, or of another version of VineLM.
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
