"""The other processes' published state, as one of them sees it: its age counts from when *it* saw the change."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType

from vinelm.controller.fleet.columns import LiveState
from vinelm.controller.fleet.snapshot import Snapshot

GONE_AFTER_S = 3.0
"""A process that has published nothing new for so long counts as dead."""


def load_summary(snapshot: Snapshot, catalog: str = "") -> bytes:
    """Return the number of invocations by engine, and the digest of the process's catalog: what all processes read of each."""
    import numpy as np

    engines, columns = snapshot.vocabularies["engine"], snapshot.columns
    counts = np.bincount(columns["engine"], minlength=len(engines))
    queued = np.bincount(columns["engine"][columns["state"] == LiveState.QUEUED], minlength=len(engines))
    live = {name: [int(counts[i]), int(queued[i])] for i, name in enumerate(engines) if counts[i]}
    return json.dumps({"live": live, "catalog": catalog}, separators=(",", ":")).encode()


@dataclass(slots=True)
class _Seen:
    """One process: the version last seen, when it was first seen, its invocations by engine, and the digest of its catalog."""

    version: int
    at: float
    live: Mapping[str, int] = field(default_factory=dict)
    catalog: str = ""


class Neighbours:
    """The processes that live. Not thread-safe: one thread updates, :attr:`live` may be read by all.

    Times are seconds of one monotonic clock of this process.
    """

    def __init__(self) -> None:
        self.live: Mapping[str, int] = MappingProxyType({})
        """Engine to the live invocations of all processes seen. Replaced as a whole, never changed."""
        self._seen: dict[str, _Seen] = {}

    def update(self, found: Mapping[str, tuple[int, bytes]], now: float) -> None:
        """Note what was read at ``now``: version and summary by process. Old versions and damaged summaries change nothing."""
        for name, (version, load) in found.items():
            known = self._seen.get(name)
            if known is None or version > known.version:
                summary = _summary(load)
                if summary is not None:
                    self._seen[name] = _Seen(version, now, *summary)
        self._seen = {name: seen for name, seen in self._seen.items() if name in found}
        self.expire(now)

    def expire(self, now: float) -> None:
        """Forget those that have published nothing new for too long."""
        self._seen = {name: seen for name, seen in self._seen.items() if now - seen.at < GONE_AFTER_S}
        total: dict[str, int] = {}
        for seen in self._seen.values():
            for engine, count in seen.live.items():
                total[engine] = total.get(engine, 0) + count
        self.live = MappingProxyType(total)

    def versions(self) -> dict[str, tuple[int, float]]:
        """Return version and the time at which it was first seen, by process."""
        return {name: (seen.version, seen.at) for name, seen in self._seen.items()}

    def catalogs(self) -> dict[str, str]:
        """Return the digest of each process's catalog; empty for a process that has not said it."""
        return {name: seen.catalog for name, seen in self._seen.items()}

    def __len__(self) -> int:
        return len(self._seen)

    def __contains__(self, name: object) -> bool:
        return name in self._seen

    def names(self) -> Collection[str]:
        """Return the names of the processes that live."""
        return tuple(self._seen)


@lru_cache(maxsize=256)  # a process whose calls are where they were says the same again
def _summary(load: bytes) -> tuple[Mapping[str, int], str] | None:
    """Invocations by engine, and the digest of the catalog; None if these bytes do not say it."""
    try:
        found = json.loads(load)
        live = {str(engine): max(int(counts[0]), 0) for engine, counts in found["live"].items()}
        return live, str(found.get("catalog", ""))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return None
