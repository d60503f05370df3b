"""All calls in flight in the fleet at one moment: one row per live call, stored as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from vinelm.controller.fleet.snapshot import COLUMNS, VOCABULARIES, LiveState, Snapshot
from vinelm.trie.arrays import FloatArray

IntArray = np.ndarray[Any, np.dtype[np.int32]]


@dataclass(frozen=True, slots=True, eq=False)
class FleetView:
    """The live calls of all processes. Immutable: the arrays are read-only.

    Every column has shape (n,), with one item per live call. Times are durations in seconds at the moment of the view, by the
    clock of the process that reads it; clocks of different machines are never compared. NaN means unknown, except in
    ``deadline_s``, where it means that no deadline is set.

    Attributes:
        session: uint64, a hash of the conversation's id; equal for all calls of one conversation.
        tenant, stage, engine, process: int32, indices into ``tenants``, ``stages``, ``engines`` and ``processes``.
        node: int32, the call's node in the trie of its process; -1 if no plan was made for the call.
        state: uint8, a :class:`LiveState`.
        waited_s: seconds that the call has waited for rate limits.
        running_s: seconds since the call was sent; 0 if queued.
        elapsed_s: seconds since the request arrived.
        deadline_s: the request's ``max_latency_s``, counted from its arrival; NaN if it has none.
        rest_s: expected seconds from the start of this call to the end of the request, at zero load, according to the trie.
        rest_usd: expected dollars from the start of this call to the end of the request, according to the trie.
        tenants, stages, engines, processes: the names. Requests without a tenant have the name "". A call that waits in a
            replica group's queue counts for the engine with the group's name, a sent call for its replica.
        groups: the replica group of each of ``engines``, in that order; the engine's name if it has no group.
    """

    session: np.ndarray[Any, np.dtype[np.uint64]]
    tenant: IntArray
    stage: IntArray
    node: IntArray
    engine: IntArray
    process: IntArray
    state: np.ndarray[Any, np.dtype[np.uint8]]
    waited_s: FloatArray
    running_s: FloatArray
    elapsed_s: FloatArray
    deadline_s: FloatArray
    rest_s: FloatArray
    rest_usd: FloatArray
    tenants: tuple[str, ...]
    stages: tuple[str, ...]
    engines: tuple[str, ...]
    processes: tuple[str, ...]
    groups: tuple[str, ...]

    def __post_init__(self) -> None:
        for name in _ARRAYS:
            getattr(self, name).flags.writeable = False

    def __len__(self) -> int:
        return len(self.session)

    @property
    def slack_s(self) -> FloatArray:
        """For each live call, the seconds until the deadline minus the expected remaining seconds; infinite without a deadline.

        An unknown remaining time counts as zero.
        """
        left = self.deadline_s - self.elapsed_s - np.nan_to_num(self.left_s)
        return np.where(np.isnan(left), np.inf, left)

    @property
    def left_s(self) -> FloatArray:
        """For each live call, the expected seconds until its request ends; NaN if unknown.

        This is ``rest_s`` minus the time that the call has already run, but never below 0.
        """
        return np.maximum(self.rest_s - self.running_s, 0.0)

    @property
    def group(self) -> IntArray:
        """The index of each engine's replica group, shape (number of engines,); engines of one group have the same index."""
        places = {name: place for place, name in enumerate(dict.fromkeys(self.groups))}
        return np.array([places[name] for name in self.groups], np.int32)

    def count_by_engine(self, state: LiveState | None = None) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return the number of live calls on each of ``engines``, in that order; if ``state`` is given, only in that state."""
        chosen = self.engine if state is None else self.engine[self.state == state]
        return np.bincount(chosen, minlength=len(self.engines))

    def where(self, chosen: np.ndarray[Any, np.dtype[np.bool_]]) -> FleetView:
        """Return a view of only those live calls for which ``chosen``, shape (live calls,), is true.

        Names, such as those of engines, keep their indices.
        """
        return FleetView(**{f.name: _rows(getattr(self, f.name), chosen) for f in fields(self)})


_ARRAYS = ("process", *COLUMNS)


def _rows(value: Any, chosen: np.ndarray[Any, np.dtype[np.bool_]]) -> Any:
    return value[chosen] if isinstance(value, np.ndarray) else value


def merge(snapshots: Sequence[tuple[Snapshot, float]]) -> FleetView:
    """Return the fleet's view, which combines the snapshots of the processes.

    Args:
        snapshots: pairs of a process's snapshot and its age in seconds. The age is added to the times of the snapshot's calls.
    """
    rows = sum(len(snapshot) for snapshot, _ in snapshots)
    found: dict[str, Any] = {name: np.empty(rows, column_type(name)) for name in _ARRAYS}
    names: dict[str, dict[str, int]] = {column: {} for column in VOCABULARIES}
    groups = {engine: group for snapshot, _ in snapshots for engine, group in snapshot.groups.items()}
    start = 0
    for process, (snapshot, age_s) in enumerate(snapshots):
        part = slice(start, start + len(snapshot))
        start = part.stop
        columns = snapshot.columns
        for column, known in names.items():
            local = [known.setdefault(name, len(known)) for name in snapshot.vocabularies[column]]
            if local:  # a process without invocations may have no names
                # indices were checked when the snapshot was read; "clip" writes without a copy in between
                np.take(np.array(local, np.int32), columns[column], out=found[column][part], mode="clip")
        for column in _COPIED:  # each row is written once, in the view's type, which is most of the work for a large view
            found[column][part] = columns[column]
        queued = columns["state"] == LiveState.QUEUED
        found["process"][part] = process
        found["elapsed_s"][part] += age_s
        found["waited_s"][part] += age_s * queued
        found["running_s"][part] += age_s * ~queued
    for engine in groups:
        names["engine"].setdefault(engine, len(names["engine"]))
    found |= {VOCABULARIES[column]: tuple(known) for column, known in names.items()}
    return FleetView(
        **found,
        processes=tuple(snapshot.process for snapshot, _ in snapshots),
        groups=tuple(groups.get(engine, engine) for engine in names["engine"]),
    )


_COPIED = tuple(name for name in COLUMNS if name not in VOCABULARIES)


def column_type(name: str) -> Any:
    """Return the NumPy type of the view's column ``name``.

    Durations get float64, so that sums over a fleet are exact enough.
    """
    return {"session": np.uint64, "state": np.uint8}.get(name, np.float64 if name.endswith(("_s", "_usd")) else np.int32)
