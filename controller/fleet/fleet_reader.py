"""Reads the view of a whole fleet, as a policy for all of it needs it."""

from __future__ import annotations

import time
from collections.abc import Callable

from vinelm.controller.fleet.neighbours import Neighbours
from vinelm.controller.fleet.redis_link import RedisLink
from vinelm.controller.fleet.snapshot import Snapshot
from vinelm.controller.fleet.view import FleetView, merge
from vinelm.errors import VineLMError


class FleetReader:
    """Reads what all processes of a fleet have published. Publishes nothing. For one thread.

    Args:
        link: the connection; for this reader alone.
        now: returns seconds that never decrease; the monotonic clock by default.
    """

    def __init__(self, link: RedisLink, now: Callable[[], float] = time.monotonic) -> None:
        self._link, self._now = link, now
        self._neighbours = Neighbours()
        self._snapshots: dict[str, tuple[int, Snapshot]] = {}
        self.damaged: set[str] = set()
        """Processes whose last snapshot could not be read: of another version of VineLM, for example."""

    def view(self) -> FleetView:
        """Return the live invocations of all processes that live; blocks for the answers of Redis.

        Only snapshots that have changed since the last call are transferred. Processes are ordered by name.

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
        """Return how many different catalogs the processes of the last view have; 0 if none has said it."""
        return len({digest for digest in self._neighbours.catalogs().values() if digest})

    def close(self) -> None:
        """Close the connection."""
        self._link.close()
