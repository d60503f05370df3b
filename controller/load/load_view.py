"""What one request sees of the engines' load, and tells of its own calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from vinelm.controller.planning.plan_request import load_array
from vinelm.controller.planning.planner import Planner
from vinelm.errors import VineLMError
from vinelm.protocols import LoadMonitor
from vinelm.trie import FloatArray

LoadSource = Callable[[], Mapping[str, float]]
"""Extra seconds per invocation by engine, as far as they are known now. Must not block."""


class SessionLoad:
    """A source of load as a session uses it. One that fails costs the plan its load and nothing else."""

    __slots__ = ("_engine_of", "_engines", "_monitor", "_read", "_under_way")

    def __init__(self, source: LoadSource | LoadMonitor, planner: Planner) -> None:
        self._engines = planner.annotated.engines
        self._engine_of = planner.engine_of
        self._read: LoadSource | None = None
        self._monitor: LoadMonitor | None = None
        self._under_way: list[str] = []  # append and remove are atomic
        if callable(source):
            self._read = source
        else:
            self._monitor = source

    def read(self) -> tuple[FloatArray | None, str]:
        """Extra seconds by engine, in the order of the trie's engines (None: no load), and what to note about them."""
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

    def dispatched(self, model: str) -> None:
        """An invocation on that model begins."""
        engine, monitor = self._engine_of.get(model), self._monitor
        if monitor is None or engine is None:
            return
        self._under_way.append(engine)
        try:
            monitor.dispatched(engine)
        except Exception:
            return

    def finished(self, model: str, excess_s: float | None) -> None:
        """It is over, after ``excess_s`` more than at zero load (None: failed, or not known). What did not begin here is not
        told: the branches of a fan-out are one invocation, and other requests' calls are not ours to take back.
        """
        engine, monitor = self._engine_of.get(model), self._monitor
        if monitor is None or engine not in self._under_way:
            return
        try:
            self._under_way.remove(engine)
            monitor.finished(engine, excess_s)
        except Exception:
            return
