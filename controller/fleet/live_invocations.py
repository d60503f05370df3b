"""The live invocations of this process: a table that invocations enter and leave, and that is copied as a snapshot."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from hashlib import blake2b
from threading import Lock
from typing import NamedTuple

import numpy as np

from vinelm.controller.fleet.columns import COLUMNS, MOST_NAMES, VOCABULARIES, LiveState
from vinelm.controller.fleet.snapshot import Snapshot

_ROW = np.dtype(
    [
        *((name, kind) for name, kind in COLUMNS.items() if name not in ("waited_s", "elapsed_s")),
        ("arrived_at", "<f8"),
        ("queued_at", "<f8"),
        ("waited", "<f8"),
        ("is_live", "?"),
    ]
)
_FIRST_ROWS = 64
_NONE = math.nan


class InvocationStart(NamedTuple):
    """What is known of an invocation when it begins; see :class:`~vinelm.controller.fleet.view.FleetView` for the units."""

    session: int
    tenant: str
    stage: str
    node: int
    engine: str
    elapsed_s: float
    deadline_s: float = _NONE
    rest_s: float = _NONE
    rest_usd: float = _NONE


class LiveInvocations:
    """The live invocations of this process. Thread-safe; beginning and ending one takes a few microseconds.

    Args:
        process: the name of the process, unique in the fleet.
        now: returns seconds that never decrease; the monotonic clock by default.
    """

    def __init__(self, process: str, now: Callable[[], float] = time.monotonic) -> None:
        self.process = process
        self._now = now
        self._lock = Lock()
        self._rows = np.zeros(_FIRST_ROWS, _ROW)
        self._free = list(range(_FIRST_ROWS - 1, -1, -1))
        self._names: dict[str, dict[str, int]] = {column: {} for column in VOCABULARIES}

    def __len__(self) -> int:
        with self._lock:
            return len(self._rows) - len(self._free)

    def begin(self, start: InvocationStart) -> int:
        """Enter an invocation that runs from now on, and return its place in the table."""
        now = self._now()
        with self._lock:
            if not self._free:
                self._grow()
            slot = self._free.pop()
            self._rows[slot] = (
                start.session,
                start.node,
                self._place("tenant", start.tenant),
                self._place("stage", start.stage),
                self._place("engine", start.engine),
                LiveState.RUNNING,
                start.deadline_s,
                start.rest_s,
                start.rest_usd,
                now - start.elapsed_s,
                now,
                0.0,
                True,
            )
        return slot

    def queue(self, slot: int) -> None:
        """Note that the invocation waits for rate limits from now on."""
        with self._lock:
            row = self._rows[slot]
            if row["state"] != LiveState.QUEUED:
                row["state"], row["queued_at"] = LiveState.QUEUED, self._now()

    def run(self, slot: int) -> None:
        """Note that the invocation was sent."""
        with self._lock:
            row = self._rows[slot]
            if row["state"] == LiveState.QUEUED:
                row["state"] = LiveState.RUNNING
                row["waited"] += self._now() - row["queued_at"]

    def end(self, slot: int) -> None:
        """Take the invocation out of the table; its place is given to another."""
        with self._lock:
            if self._rows[slot]["is_live"]:
                self._rows[slot]["is_live"] = False
                self._free.append(slot)

    def snapshot(self) -> Snapshot:
        """Return the invocations that are live now."""
        now = self._now()
        with self._lock:
            rows = self._rows[self._rows["is_live"]]  # a copy
            names = {column: tuple(known) for column, known in self._names.items()}
        queued = rows["state"] == LiveState.QUEUED
        columns = {name: rows[name] for name in COLUMNS if name not in ("waited_s", "elapsed_s")}
        columns["waited_s"] = rows["waited"] + np.where(queued, now - rows["queued_at"], 0.0)
        columns["elapsed_s"] = now - rows["arrived_at"]
        return Snapshot(self.process, columns, names)

    def _place(self, column: str, name: str) -> int:
        """The place of a name in its vocabulary. Names beyond what the column can count share the last place."""
        known = self._names[column]
        place = known.get(name)
        if place is None:
            if len(known) == MOST_NAMES:
                return MOST_NAMES - 1
            place = known[name] = len(known)
        return place

    def _grow(self) -> None:
        n = len(self._rows)
        self._rows = np.concatenate([self._rows, np.zeros(n, _ROW)])
        self._free.extend(range(2 * n - 1, n - 1, -1))


def session_number(conversation: str) -> int:
    """Return the number by which the fleet knows a conversation: 64 bits of a hash, so that no text leaves the process."""
    return int.from_bytes(blake2b(conversation.encode(), digest_size=8).digest(), "little")
