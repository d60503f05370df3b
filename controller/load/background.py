"""Reads a load source in a background thread, so that planning never waits for a source that blocks."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from threading import Event, Lock

from vinelm.clock import Clock, WallClock
from vinelm.errors import VineLMError
from vinelm.foreign_code import answered
from vinelm.requests.protocols import EngineDelay, LoadMonitor
from vinelm.threads import beside

PATIENCE_S = 0.002
"""How long a plan waits for a new reading; it does not wait while an earlier reading is still running."""
QUEUE = 10_000
"""How many calls are queued for a hanging monitor; further ones are dropped."""


class BackgroundLoadMonitor:
    """A :class:`~vinelm.requests.protocols.LoadMonitor` that reads a load monitor or function in a background thread.

    The thread is a daemon; it reads the source when :meth:`delays` is called and ends with this object.

    Args:
        source: A function that returns the extra seconds per call, by engine, or a load monitor. It may block or raise.
        patience_s: The seconds that :meth:`delays` waits for a new reading before it returns the last reading.
        stale_after_s: The age in seconds from which a reading is marked stale.
        gone_after_s: The age in seconds from which a reading is no longer used.
        clock: Measures ages; the wall clock by default.
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
        beside(partial(_work, self._jobs), name="vinelm-load")
        weakref.finalize(self, self._jobs.put, None)

    def delays(self) -> Mapping[str, EngineDelay]:
        """Return the delay of each engine according to the last reading of the source.

        Raises:
            VineLMError: The last reading is older than ``gone_after_s``, because the source hangs or raises.
        """
        reading, source, clock = self._reading, self._source, self._clock
        with self._lock:
            starts_reading = reading.is_answered.is_set()
            if starts_reading:
                reading.is_answered.clear()
                self._jobs.put(lambda: reading.read(source, clock))
        if starts_reading:
            reading.is_answered.wait(self._patience_s)
        age_s = self._clock.now() - reading.at_s
        if age_s > self._gone_after_s:
            raise VineLMError(reading.failure or "the load source has not answered")
        if age_s <= self._stale_after_s:
            return reading.delays
        return {engine: replace(delay, is_stale=True) for engine, delay in reading.delays.items()}

    def dispatched(self, engine: str) -> None:
        """Tell the source, in the background, that a call was sent to ``engine``."""
        if not callable(self._source) and self._jobs.qsize() < QUEUE:
            source = self._source
            self._jobs.put(lambda: source.dispatched(engine))

    def finished(self, engine: str, excess_s: float | None) -> None:
        """Tell the source, in the background, that a call to ``engine`` ended.

        ``excess_s`` is the seconds that the call took beyond its time at zero load; None if unknown.
        """
        if not callable(self._source) and self._jobs.qsize() < QUEUE:
            source = self._source
            self._jobs.put(lambda: source.finished(engine, excess_s))


class _Reading:
    """The last reading of a source. Its event ``is_answered`` is cleared while the source is being read."""

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
        except Exception as error:  # its message may contain an address with a key
            self.failure = f"the load source failed: {type(error).__name__}"
        finally:
            self.is_answered.set()


def _work(jobs: SimpleQueue[Callable[[], None] | None]) -> None:
    while (job := jobs.get()) is not None:
        answered(job, None)  # a monitor that fails must not end the thread
