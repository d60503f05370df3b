"""A load source that may block, read in a thread of its own: no decision waits for it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from queue import SimpleQueue
from threading import Event, Lock, Thread

from vinelm.clock import Clock, WallClock
from vinelm.errors import VineLMError
from vinelm.protocols import EngineDelay, LoadMonitor

PATIENCE_S = 0.002
"""A decision waits so long for a fresh answer, and not at all while an older question is still open."""
QUEUE = 10_000
"""So many dispatches and returns are kept for a monitor that hangs; more are dropped."""


class BackgroundLoadMonitor:
    """A :class:`~vinelm.protocols.LoadMonitor` around another one, or around a function that gives extra seconds by engine.

    An answer older than ``stale_after_s`` is marked stale; one older than ``gone_after_s``, or none at all, is a
    :class:`~vinelm.errors.VineLMError`, as is a source that raises before it ever answered. The thread is a daemon, asks only
    when a plan is made, and ends with this object.
    """

    def __init__(
        self,
        source: Callable[[], Mapping[str, float]] | LoadMonitor,
        *,
        patience_s: float = PATIENCE_S,
        stale_after_s: float = 5.0,
        gone_after_s: float = 60.0,
        clock: Clock | None = None,
    ) -> None:
        self._source = source
        self._patience_s, self._stale_after_s, self._gone_after_s = patience_s, stale_after_s, gone_after_s
        self._clock: Clock = clock or WallClock()
        self._reading = _Reading()
        self._lock = Lock()
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        Thread(target=_work, args=(self._jobs,), name="vinelm-load", daemon=True).start()
        weakref.finalize(self, self._jobs.put, None)

    def delays(self) -> Mapping[str, EngineDelay]:
        """What the source said last, by engine."""
        reading, source, clock = self._reading, self._source, self._clock
        with self._lock:
            is_asking = reading.is_answered.is_set()
            if is_asking:
                reading.is_answered.clear()
                self._jobs.put(lambda: reading.read(source, clock))
        if is_asking:
            reading.is_answered.wait(self._patience_s)
        age_s = self._clock.now() - reading.at_s
        if age_s > self._gone_after_s:
            raise VineLMError(reading.failure or "the load source has not answered")
        if age_s <= self._stale_after_s:
            return reading.delays
        return {engine: replace(delay, is_stale=True) for engine, delay in reading.delays.items()}

    def dispatched(self, engine: str) -> None:
        """Passed on."""
        if not callable(self._source) and self._jobs.qsize() < QUEUE:
            source = self._source
            self._jobs.put(lambda: source.dispatched(engine))

    def finished(self, engine: str, excess_s: float | None) -> None:
        """Passed on."""
        if not callable(self._source) and self._jobs.qsize() < QUEUE:
            source = self._source
            self._jobs.put(lambda: source.finished(engine, excess_s))


class _Reading:
    """The last answer of a source. ``is_answered``: no question is open."""

    def __init__(self) -> None:
        self.is_answered = Event()
        self.is_answered.set()
        self.at_s = -float("inf")
        self.delays: Mapping[str, EngineDelay] = {}
        self.failure = ""

    def read(self, source: Callable[[], Mapping[str, float]] | LoadMonitor, clock: Clock) -> None:
        try:
            if callable(source):
                self.delays = {engine: EngineDelay(extra_s) for engine, extra_s in source().items()}
            else:
                self.delays = dict(source.delays())
            self.at_s = clock.now()
        except Exception as error:  # its text may hold an address with a key
            self.failure = f"the load source failed: {type(error).__name__}"
        finally:
            self.is_answered.set()


def _work(jobs: SimpleQueue[Callable[[], None] | None]) -> None:
    while (job := jobs.get()) is not None:
        try:
            job()
        except Exception:  # a monitor that cannot count costs nothing
            continue
