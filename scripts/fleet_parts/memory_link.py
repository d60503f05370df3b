"""What a fleet's Redis holds, in memory: snapshots and orders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class MemoryLink:
    """Keeps what each process has published, without delay and without losing anything. One object for the whole fleet."""

    def __init__(self) -> None:
        self._published: dict[str, tuple[int, bytes, bytes]] = {}
        self._orders: Mapping[str, bytes] = {}

    def publish(self, process: str, version: int, load: bytes, rows: bytes, ttl_s: float) -> None:
        """See :class:`vinelm.controller.RedisLink`; nothing expires, as no process of the simulation dies."""
        self._published[process] = version, load, rows

    def loads(self) -> dict[str, tuple[int, bytes]]:
        """Return version and summary of each process."""
        return {name: (version, load) for name, (version, load, _) in self._published.items()}

    def rows(self, processes: Sequence[str]) -> dict[str, bytes]:
        """Return the snapshots of these processes."""
        return {name: self._published[name][2] for name in processes if name in self._published}

    def install(self, fields: Mapping[str, bytes]) -> None:
        """Replace the fleet's orders, under the next version."""
        version = int(self._orders.get("version", b"0")) + 1
        self._orders = {**fields, "epoch": b"one", "fence": b"1", "version": str(version).encode()}

    def fields(self, key: str, *names: str) -> list[bytes | None]:
        """Return these fields of the orders, which are the only hash."""
        return [self._orders.get(name) for name in names]
