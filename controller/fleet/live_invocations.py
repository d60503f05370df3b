"""The live calls of this process: a table to which calls are added, and which can be copied as a snapshot."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from hashlib import blake2b
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from vinelm.controller.fleet.snapshot import COLUMNS, MOST_NAMES, VOCABULARIES, LiveState, Snapshot
from vinelm.errors import VineLMError
from vinelm.requests.names import scoped

_DURATIONS = ("waited_s", "running_s", "elapsed_s")
"""Columns that grow with time, for which the table stores the start."""
_ROW = np.dtype(
    [
        *((name, kind) for name, kind in COLUMNS.items() if name not in _DURATIONS),
        ("arrived_at", "<f8"),
        ("queued_at", "<f8"),
        ("sent_at", "<f8"),
        ("waited", "<f8"),
        ("is_live", "?"),
    ]
)
_FIRST_ROWS = 64
_NONE = math.nan
_QUEUED, _RUNNING = int(LiveState.QUEUED), int(LiveState.RUNNING)


Rest = Callable[[], tuple[float, float]]
"""Returns the expected remaining seconds and dollars of a request."""


class InvocationStart(NamedTuple):
    """What is known of a call when it begins; for the units, see :class:`~vinelm.controller.fleet.view.FleetView`.

    ``session`` is the conversation's number, and ``node`` the call's node in the trie. ``rest_s`` and ``rest_usd`` are the
    expected seconds and dollars from the call's start to the request's end; NaN if unknown.
    """

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
    """The live calls of this process. Thread-safe. Adding or removing a call takes a few microseconds.

    Args:
        process: the name of the process, unique in the fleet.
        now: returns seconds that never decrease; the monotonic clock by default.
    """

    def __init__(self, process: str, now: Callable[[], float] = time.monotonic) -> None:
        self.process = process
        self.groups: Mapping[str, str] = {}
        """The replica group of each engine of the catalog; the engine's name if it has no group. Shown to the fleet."""
        self._now = now
        self._lock = Lock()
        self._use(np.zeros(_FIRST_ROWS, _ROW))
        self._free = list(range(_FIRST_ROWS - 1, -1, -1))
        self._unknown: dict[int, Rest] = {}
        self._names = {column: _Vocabulary() for column in VOCABULARIES}

    def __len__(self) -> int:
        with self._lock:
            return len(self._rows) - len(self._free)

    def begin(self, start: InvocationStart, rest: Rest | None = None) -> int:
        """Add a call that runs from now on, and return the index of its row in the table.

        If ``start`` lacks the expected remaining time and cost, the next :meth:`snapshot` calls ``rest`` to get both.
        """
        now = self._now()
        with self._lock:
            names = self._names
            tenant, stage = names["tenant"].place(start.tenant), names["stage"].place(start.stage)
            engine = names["engine"].place(start.engine)
            if not self._free:
                self._grow()
            slot = self._free[-1]
            self._rows[slot] = (
                start.session,
                start.node,
                tenant,
                stage,
                engine,
                _RUNNING,
                start.deadline_s,
                start.rest_s,
                start.rest_usd,
                now - start.elapsed_s,
                now,
                now,
                0.0,
                True,
            )
            if rest is not None:
                self._unknown[slot] = rest
            self._free.pop()  # last, so that a place that could not be filled stays free
        return slot

    def queue(self, slot: int, engine: str | None = None) -> None:
        """Record that the call in row ``slot`` waits for the rate limits of ``engine`` (None: of the same engine as before)."""
        with self._lock:
            if self._state[slot] != _QUEUED:
                self._state[slot], self._queued_at[slot] = _QUEUED, self._now()
                if engine is not None:
                    self._engine[slot] = self._names["engine"].place(engine)

    def run(self, slot: int, engine: str | None = None) -> None:
        """Record that the call in row ``slot`` was sent to ``engine`` (None: to the engine that it waited for)."""
        with self._lock:
            if engine is not None:
                self._engine[slot] = self._names["engine"].place(engine)
            if self._state[slot] == _QUEUED:
                now = self._now()
                self._state[slot], self._sent_at[slot] = _RUNNING, now
                self._waited[slot] += now - self._queued_at[slot]

    def end(self, slot: int) -> None:
        """Remove the call in row ``slot`` from the table, so that the row can be reused."""
        with self._lock:
            if self._is_live[slot]:
                self._is_live[slot] = False
                self._unknown.pop(slot, None)
                self._free.append(slot)

    def snapshot(self) -> Snapshot:
        """Return a copy of the table that holds the calls in flight now."""
        self._find_rests()
        now = self._now()
        with self._lock:
            rows = self._rows[self._rows["is_live"]]  # a copy
        queued = rows["state"] == _QUEUED
        columns = {name: rows[name] for name in COLUMNS if name not in _DURATIONS}
        columns["waited_s"] = rows["waited"] + np.where(queued, now - rows["queued_at"], 0.0)
        columns["running_s"] = np.where(queued, 0.0, now - rows["sent_at"])
        columns["elapsed_s"] = now - rows["arrived_at"]
        names = {}
        for column, vocabulary in self._names.items():  # only the names in use: a process may have seen many tenants
            places, columns[column] = np.unique(rows[column], return_inverse=True)
            names[column] = tuple(vocabulary.names[place] for place in places.tolist())
        return Snapshot(self.process, columns, names, self.groups)

    def _find_rests(self) -> None:
        """Compute the expected remaining time and cost of calls for which they are still unknown, and write them to the table.

        The lock is not held during the computation, because planning over a large trie may take long.
        """
        with self._lock:
            unknown = dict(self._unknown)
        found = {slot: _rest_of(rest) for slot, rest in unknown.items()}
        with self._lock:
            for slot, (rest_s, rest_usd) in found.items():
                if self._unknown.get(slot) is unknown[slot]:  # still the same invocation
                    del self._unknown[slot]
                    self._rows["rest_s"][slot], self._rows["rest_usd"][slot] = rest_s, rest_usd

    def _use(self, rows: np.ndarray[Any, np.dtype[np.void]]) -> None:
        """Make ``rows`` the table, and keep references to the columns that change with each call.

        Writing to a column through such a reference is ten times as fast as looking the column up in the table first.
        """
        self._rows = rows
        self._state, self._queued_at = rows["state"], rows["queued_at"]
        self._sent_at, self._engine = rows["sent_at"], rows["engine"]
        self._waited, self._is_live = rows["waited"], rows["is_live"]

    def _grow(self) -> None:
        n = len(self._rows)
        self._use(np.concatenate([self._rows, np.zeros(n, _ROW)]))
        self._free.extend(range(2 * n - 1, n - 1, -1))


def _rest_of(rest: Rest) -> tuple[float, float]:
    try:
        return rest()
    except VineLMError:  # a view with an unknown rest is better than none
        return _NONE, _NONE


class _Vocabulary:
    """Gives each name an index, which stands for the name in a column of the table.

    Once :data:`MOST_NAMES` indices are used, every new name gets index 0, which stands for the empty name.
    """

    def __init__(self) -> None:
        self.names = [""]
        self._places = {"": 0}

    def place(self, name: str) -> int:
        place = self._places.get(name)
        if place is None:
            if len(self.names) == MOST_NAMES:
                return 0
            place = self._places[name] = len(self.names)
            self.names.append(name)
        return place


def session_number(conversation: str, tenant: str = "") -> int:
    """Return the number by which the fleet identifies a tenant's conversation.

    It is a 64-bit hash, so that the conversation's id does not leave the process.
    """
    return int.from_bytes(blake2b(scoped(conversation, tenant).encode(), digest_size=8).digest(), "little")
