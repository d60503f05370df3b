"""Reads what other processes have published. The age of data counts from when this reader first saw the data."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType

import numpy as np

from vinelm.controller.fleet.redis_link import RedisLink
from vinelm.controller.fleet.snapshot import LiveState, Snapshot
from vinelm.controller.fleet.view import FleetView, merge
from vinelm.errors import VineLMError

GONE_AFTER_S = 3.0
"""A process that has published nothing new for this long counts as dead."""


def load_summary(snapshot: Snapshot, catalog: str = "") -> bytes:
    """Return, as bytes, the short summary of this process that every other process reads.

    It has the numbers of live calls and of waiting calls by engine, and the digest ``catalog``.
    """
    engines, columns = snapshot.vocabularies["engine"], snapshot.columns
    counts = np.bincount(columns["engine"], minlength=len(engines))
    queued = np.bincount(columns["engine"][columns["state"] == LiveState.QUEUED], minlength=len(engines))
    live = {name: [int(counts[i]), int(queued[i])] for i, name in enumerate(engines) if counts[i]}
    return json.dumps({"live": live, "catalog": catalog}, separators=(",", ":")).encode()


@dataclass(slots=True)
class _Seen:
    """The data that a process of the fleet has published last.

    Attributes:
        version: the version of the data.
        at: the time at which this version was first seen, in seconds of this process's monotonic clock.
        live: the number of the process's live calls, by engine.
        catalog: the digest of the process's settings; "" if unknown.
    """

    version: int
    at: float
    live: Mapping[str, int] = field(default_factory=dict)
    catalog: str = ""


class Neighbours:
    """The live processes of the fleet. One thread may update this object; any thread may read :attr:`live`.

    Times are seconds of this process's monotonic clock.
    """

    def __init__(self) -> None:
        self.live: Mapping[str, int] = MappingProxyType({})
        """Engine to the live invocations of all processes seen. Replaced as a whole, never changed."""
        self._seen: dict[str, _Seen] = {}

    def update(self, found: Mapping[str, tuple[int, bytes]], now: float) -> None:
        """Replace the stored data of all processes by ``found``, which maps each process name to (version, summary).

        ``now`` is the time at which ``found`` was read. Processes that are not in ``found`` are removed. Old versions and
        damaged summaries are ignored.
        """
        for name, (version, load) in found.items():
            known = self._seen.get(name)
            if known is None or version > known.version:
                summary = _summary(load)
                if summary is not None:
                    self._seen[name] = _Seen(version, now, *summary)
        self._seen = {name: seen for name, seen in self._seen.items() if name in found}
        self.expire(now)

    def expire(self, now: float) -> None:
        """Remove processes that have published nothing new for ``GONE_AFTER_S`` seconds."""
        self._seen = {name: seen for name, seen in self._seen.items() if now - seen.at < GONE_AFTER_S}
        total: dict[str, int] = {}
        for seen in self._seen.values():
            for engine, count in seen.live.items():
                total[engine] = total.get(engine, 0) + count
        self.live = MappingProxyType(total)

    def versions(self) -> dict[str, tuple[int, float]]:
        """Return (version, time) for each live process, keyed by its name.

        The version is that of the newest data that the process has published. The time is when this version was first seen, in
        seconds of this process's monotonic clock.
        """
        return {name: (seen.version, seen.at) for name, seen in self._seen.items()}

    def catalogs(self) -> dict[str, str]:
        """Return the digest of each live process's catalog, by process name; "" if the process has not published any."""
        return {name: seen.catalog for name, seen in self._seen.items()}

    def __len__(self) -> int:
        return len(self._seen)

    def __contains__(self, name: object) -> bool:
        return name in self._seen

    def names(self) -> Collection[str]:
        """Return the names of the live processes."""
        return tuple(self._seen)


class FleetReader:
    """Reads what all processes of a fleet have published; publishes nothing itself. For one thread.

    Args:
        link: the connection; used only by this reader.
        now: returns seconds that never decrease; the monotonic clock by default.
    """

    def __init__(self, link: RedisLink, now: Callable[[], float] = time.monotonic) -> None:
        self._link, self._now = link, now
        self._neighbours = Neighbours()
        self._snapshots: dict[str, tuple[int, Snapshot]] = {}
        self.damaged: set[str] = set()
        """Processes whose last snapshot could not be read: of another version of VineLM, for example."""

    def view(self) -> FleetView:
        """Return the live calls of all live processes. Blocks until Redis answers.

        Only snapshots that have changed since the last view are transferred. Processes are ordered by name.

        Raises:
            FleetUnreachable: Redis does not answer.
        """
        self._neighbours.update(self._link.loads(), self._now())
        versions = self._neighbours.versions()
        changed = [name for name, (version, _) in versions.items() if self._version(name) != version]
        for name, raw in self._link.rows(changed).items():
            try:
                self._snapshots[name] = versions[name][0], Snapshot.from_bytes(raw)
                self.damaged.discard(name)
            except VineLMError:
                self.damaged.add(name)
        self._snapshots = {name: found for name, found in self._snapshots.items() if name in versions}
        now = self._now()
        return merge([(self._snapshots[name][1], now - versions[name][1]) for name in sorted(self._snapshots)])

    def _version(self, name: str) -> int:
        return self._snapshots[name][0] if name in self._snapshots else -1

    def catalogs(self) -> int:
        """Return how many different catalogs the fleet's processes had published at the last reading; 0 if none."""
        return len({digest for digest in self._neighbours.catalogs().values() if digest})

    def close(self) -> None:
        """Close the connection."""
        self._link.close()


@lru_cache(maxsize=256)  # a process whose calls have not changed publishes the same again
def _summary(load: bytes) -> tuple[Mapping[str, int], str] | None:
    """Decode a summary: return live calls by engine and the catalog's digest; None if the bytes are invalid."""
    try:
        found = json.loads(load)
        live = {str(engine): max(int(counts[0]), 0) for engine, counts in found["live"].items()}
        return live, str(found.get("catalog", ""))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return None
