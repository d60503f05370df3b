"""One request's view of the engines' load, and the report of its own calls; and the source that an application names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path

from vinelm.controller.load.background import BackgroundLoadMonitor
from vinelm.controller.load.monitors import InFlightLoadMonitor, ReportedLoadMonitor
from vinelm.controller.load.slowdown import load_curves, spread_curve
from vinelm.controller.planner import Planner
from vinelm.controller.planning.decision import Decision
from vinelm.controller.planning.plan_request import load_array
from vinelm.errors import ConfigError, VineLMError
from vinelm.requests.protocols import Invocation, LoadMonitor
from vinelm.trie.arrays import FloatArray

NEVER_BLOCK = (InFlightLoadMonitor, ReportedLoadMonitor, BackgroundLoadMonitor)
"""Monitors whose reading takes no time worth speaking of, so that a decision may wait for it."""


def load_source(
    load: LoadSource | LoadMonitor | str | Path | None,
    engines: Collection[str],
    others: Callable[[], Mapping[str, int]] | None = None,
    groups: Mapping[str, Collection[str]] | None = None,
) -> LoadSource | LoadMonitor | None:
    """Return the source that is meant: a path is read as a file of slowdown curves, applied to our own calls in flight.

    Args:
        load: a function, a monitor, the path of a file that ``vinelm calibrate`` wrote, or None.
        engines: those of the catalog.
        others: returns the calls that other processes have in flight, by engine; they count beside our own where the source
            is our own calls. Functions and engines' reports see them already.
        groups: replica group to its engines. A group without a curve has that of its engines, if all have one.

    Raises:
        ConfigError: the file has curves of other engines only.
    """
    if isinstance(load, InFlightLoadMonitor):
        load.others = others or load.others
    if not isinstance(load, str | Path):
        return load
    curves = load_curves(load)
    for group, replicas in (groups or {}).items():
        if group not in curves and set(replicas) <= set(curves):
            curves[group] = spread_curve([curves[engine] for engine in replicas])
    if not set(engines) & set(curves):
        there, wanted = (", ".join(sorted(names)) or "no engine" for names in (curves, engines))
        raise ConfigError(f"{load}: has curves of {there}, the catalog's engines are {wanted}: calibrate one of them")
    monitor = InFlightLoadMonitor(curves)
    monitor.others = others
    return monitor


def never_blocks(source: LoadSource | LoadMonitor | None) -> bool:
    """Return whether it is a monitor of :data:`NEVER_BLOCK`."""
    return isinstance(source, NEVER_BLOCK)


def without_blocking(source: LoadSource | LoadMonitor | None) -> LoadSource | LoadMonitor:
    """Return a source with the same readings that is never waited for; for None the latencies of our own calls."""
    return InFlightLoadMonitor() if source is None else BackgroundLoadMonitor(source)


LoadSource = Callable[[], Mapping[str, float]]
"""Returns the extra seconds per invocation of each engine whose load is known. Must not block."""


class SessionLoad:
    """A session's access to a load source. If the source fails, plans are made without load."""

    __slots__ = ("_engine_of", "_engines", "_in_flight", "_monitor", "_read")

    def __init__(self, source: LoadSource | LoadMonitor, planner: Planner) -> None:
        self._engines = planner.annotated.engines
        self._engine_of = planner.engine_of
        self._read: LoadSource | None = None
        self._monitor: LoadMonitor | None = None
        self._in_flight: list[tuple[tuple[str, ...], str]] = []  # path and engine; append and remove are atomic
        if callable(source):
            self._read = source
        else:
            self._monitor = source

    def read(self) -> tuple[FloatArray | None, str]:
        """Return the extra seconds in the order of the trie's engines (None: no load), and a note for the trace."""
        try:
            if self._monitor is None:
                return load_array(self._read() if self._read else None, self._engines), ""
            extra_s, stale = {}, []
            for engine, delay in self._monitor.delays().items():
                if delay.extra_s:
                    extra_s[engine] = delay.extra_s
                if delay.is_stale:
                    stale.append(engine)
            note = f"old load report of {', '.join(sorted(stale))}" if stale else ""
            return (load_array(extra_s, self._engines) if extra_s else None), note
        except Exception as error:
            why = str(error) if isinstance(error, VineLMError) else type(error).__name__
            return None, f"no load known ({why}): planned without"

    def began(self, stage: str, path: tuple[str, ...], elapsed_s: float, decision: Decision | None) -> None:
        """Report that an invocation on the model at the end of ``path`` begins."""
        engine, monitor = self._engine_of.get(path[-1]), self._monitor
        if monitor is None or engine is None:
            return
        try:
            monitor.dispatched(engine)
        except Exception:
            return
        self._in_flight.append((path, engine))

    def ended(self, invocation: Invocation, excess_s: float | None) -> None:
        """Report that it ended, after ``excess_s`` seconds more than at zero load (None: it failed, or this is not known)."""
        self._finished(invocation.prefix, excess_s)

    def interrupted(self, path: tuple[str, ...]) -> None:
        """Report that its call is no longer in flight."""
        self._finished(path, None)

    def _finished(self, path: tuple[str, ...], excess_s: float | None) -> None:
        """A call whose start was not reported here is ignored: the branches of a fan-out are one invocation."""
        engine, monitor = self._engine_of.get(path[-1]), self._monitor
        if monitor is None or engine is None:
            return
        try:
            self._in_flight.remove((path, engine))
        except ValueError:
            return
        try:
            monitor.finished(engine, excess_s)
        except Exception:
            with suppress(Exception):
                monitor.finished(engine, None)  # perhaps it was the excess that it could not take
