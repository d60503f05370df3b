"""Reads the engines' load for one request, and reports the request's calls to the load source."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from vinelm.controller.planner import Planner
from vinelm.controller.planning.decision import Decision
from vinelm.controller.planning.plan_request import load_array
from vinelm.errors import VineLMError
from vinelm.requests.protocols import Invocation, LoadMonitor
from vinelm.trie.arrays import FloatArray

LoadSource = Callable[[], Mapping[str, float]]
"""Returns the extra seconds per invocation of each engine whose load is known. Must not block."""


class SessionLoad:
    """Reads a load source for a session, and tells it of the session's calls. If the source fails, plans are made without load.

    Args:
        source: a function that returns the extra seconds per call of each engine, or a monitor, which is also told of calls.
        planner: gives the engines of the trie, and the engine of each model.
    """

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
        """Return the extra seconds per call on each engine of the trie (None without load), and a note for the trace.

        The note names engines with an old load report, or says why the load is unknown; otherwise it is empty.
        """
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
        except Exception as error:  # a monitor may be the application's
            why = str(error) if isinstance(error, VineLMError) else type(error).__name__
            return None, f"no load known ({why}): planned without"

    def began(self, stage: str, path: tuple[str, ...], elapsed_s: float, decision: Decision | None) -> None:
        """Report to a load monitor that a call to the last model of ``path`` begins; the other arguments are ignored."""
        engine, monitor = self._engine_of.get(path[-1]), self._monitor
        if monitor is None or engine is None:
            return
        monitor.dispatched(engine)
        self._in_flight.append((path, engine))

    def ended(self, invocation: Invocation, excess_s: float | None) -> None:
        """Report that the call ended, ``excess_s`` seconds slower than at zero load.

        ``excess_s`` is None if the call failed or if the excess is unknown.
        """
        self._finished(invocation.prefix, excess_s)

    def interrupted(self, path: tuple[str, ...]) -> None:
        """Report that the call to the last model of ``path`` was interrupted and is no longer in flight."""
        self._finished(path, None)

    def _finished(self, path: tuple[str, ...], excess_s: float | None) -> None:
        """Report the end of the call to the load source, if its start was reported.

        Parallel calls of a fan-out count as a single call, so that only one of their ends is reported.
        """
        engine, monitor = self._engine_of.get(path[-1]), self._monitor
        if monitor is None or engine is None:
            return
        try:
            self._in_flight.remove((path, engine))
        except ValueError:
            return
        try:
            monitor.finished(engine, excess_s)
        except BaseException:
            self._in_flight.append((path, engine))  # the excess may be at fault: the end is reported again as an interruption
            raise
