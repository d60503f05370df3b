"""How loaded the engines are, from our own calls and from what engines report (§4.3). Nothing here makes a decision wait."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isfinite

from vinelm.clock import Clock, WallClock
from vinelm.controller.load.slowdown import SlowdownCurve
from vinelm.errors import VineLMError
from vinelm.protocols import EngineDelay

WINDOW_S = 30.0
"""How far back finished calls tell about the present."""
LEAST_CALLS, MOST_CALLS = 5, 64
"""Fewer finished calls in the window say nothing; more are not kept."""


@dataclass(slots=True)
class _Own:
    """Our own calls on one engine: how many are under way, and what the last ones took beyond zero load."""

    in_flight: int = 0
    recent: deque[tuple[float, float]] = field(default_factory=deque)
    total_s: float = 0.0
    squares: float = 0.0
    last_s: float = 0.0
    seen_s: float = 0.0

    def add(self, now_s: float, excess_s: float) -> None:
        """One more call; what the window's calls show is worked out here, so that reading it costs a plan nothing."""
        self.recent.append((now_s, excess_s))
        self._count(excess_s, 1)
        while now_s - self.recent[0][0] > WINDOW_S or len(self.recent) > MOST_CALLS:
            self._count(self.recent.popleft()[1], -1)
        self.last_s, self.seen_s = now_s, 0.0
        n = len(self.recent)
        if n >= LEAST_CALLS:
            mean = self.total_s / n
            variance = max(self.squares - n * mean**2, 0.0) / (n - 1)
            self.seen_s = max(mean - (variance / n) ** 0.5, 0.0)

    def _count(self, excess_s: float, times: int) -> None:
        self.total_s += times * excess_s
        self.squares += times * excess_s**2


class InFlightLoadMonitor:
    """A :class:`~vinelm.protocols.LoadMonitor` from our own calls alone: always on, never stale, blind to others' traffic
    until it shows in our latencies.

    With an engine's curve the delay is what it says for our calls in flight; without, and never below that, the mean excess
    of the calls that finished in the last ``WINDOW_S`` seconds, less its standard error: latency varies without load, too.
    """

    def __init__(self, curves: Mapping[str, SlowdownCurve] | None = None, *, clock: Clock | None = None) -> None:
        self._curves = dict(curves or {})
        self._clock: Clock = clock or WallClock()
        self._own: dict[str, _Own] = {}
        self._lock = threading.Lock()

    def delays(self) -> Mapping[str, EngineDelay]:
        """By engine that we ever called."""
        now = self._clock.now()
        with self._lock:
            return {engine: EngineDelay(self._extra_s(engine, own, now)) for engine, own in self._own.items()}

    def dispatched(self, engine: str) -> None:
        """One more in flight."""
        with self._lock:
            self._own.setdefault(engine, _Own()).in_flight += 1

    def finished(self, engine: str, excess_s: float | None) -> None:
        """One fewer, and what it took."""
        with self._lock:
            own = self._own.setdefault(engine, _Own())
            own.in_flight = max(own.in_flight - 1, 0)
            if excess_s is not None and isfinite(excess_s):  # a NaN would stay in the sums for good
                own.add(self._clock.now(), excess_s)

    def _extra_s(self, engine: str, own: _Own, now: float) -> float:
        curve = self._curves.get(engine)
        expected = curve.at(own.in_flight) if curve else 0.0
        return max(expected, own.seen_s if now - own.last_s <= WINDOW_S else 0.0)


@dataclass(slots=True)
class _Report:
    """What an engine last said, and what we have sent to it and got back since."""

    requests: float
    at_s: float
    balance: int = 0


class ReportedLoadMonitor:
    """A :class:`~vinelm.protocols.LoadMonitor` from engines' own reports, corrected by our own calls since.

    An old report misses what we have sent in the meantime; so the number of requests is the reported one, plus our dispatches
    and minus our returns since. A report older than ``stale_after_s``, or from a time that has not come yet (the clock jumped
    back), is marked stale, one older than ``gone_after_s`` dropped. Reports come from :meth:`report`; an :class:`EnginePoller`
    calls it.
    """

    def __init__(
        self,
        curves: Mapping[str, SlowdownCurve],
        *,
        stale_after_s: float = 5.0,
        gone_after_s: float = 60.0,
        clock: Clock | None = None,
        has_correction: bool = True,
    ) -> None:
        self._curves = dict(curves)
        self._stale_after_s, self._gone_after_s = stale_after_s, gone_after_s
        self._clock: Clock = clock or WallClock()
        self._has_correction = has_correction
        self._reports: dict[str, _Report] = {}
        self._lock = threading.Lock()

    def report(self, engine: str, requests: float) -> None:
        """The engine holds so many requests now, waiting ones included. :class:`VineLMError` for what is no such number."""
        if not (requests >= 0 and isfinite(requests)):
            raise VineLMError(f"engine {engine!r} cannot hold {requests} requests: report a finite number >= 0")
        with self._lock:
            self._reports[engine] = _Report(requests, self._clock.now())

    def delays(self) -> Mapping[str, EngineDelay]:
        """By engine whose report is not too old and whose curve is known."""
        now = self._clock.now()
        with self._lock:
            return {
                engine: EngineDelay(
                    self._curves[engine].at(self._requests(known)), not 0.0 <= now - known.at_s <= self._stale_after_s
                )
                for engine, known in self._reports.items()
                if engine in self._curves and now - known.at_s <= self._gone_after_s
            }

    def dispatched(self, engine: str) -> None:
        """One more since the report."""
        self._add(engine, 1)

    def finished(self, engine: str, excess_s: float | None) -> None:
        """One fewer."""
        self._add(engine, -1)

    def _requests(self, known: _Report) -> float:
        return max(known.requests + (known.balance if self._has_correction else 0), 0.0)

    def _add(self, engine: str, calls: int) -> None:
        with self._lock:
            if engine in self._reports:
                self._reports[engine].balance += calls


class EnginePoller:
    """Asks each engine for its number of requests, every ``every_s`` seconds, in a daemon thread of its own.

    ``sources`` maps an engine to a function that may block or raise
    (:mod:`vinelm.controller.load.engine_metrics` has them for SGLang and vLLM): a slow engine delays nobody, a failing one
    grows stale. Start it once; ``with`` stops it.
    """

    def __init__(self, sources: Mapping[str, Callable[[], float]], sink: ReportedLoadMonitor, *, every_s: float = 1.0) -> None:
        self._sources = dict(sources)
        self._sink = sink
        self._every_s = every_s
        self._stopped = threading.Event()
        self.failures: dict[str, str] = {}
        """Engine to how its last question failed; an engine that answers is not in it."""

    def __enter__(self) -> EnginePoller:
        self.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start asking."""
        for engine in self._sources:
            threading.Thread(target=self._ask, args=(engine,), name=f"vinelm-load-{engine}", daemon=True).start()

    def stop(self) -> None:
        """Stop after the requests under way."""
        self._stopped.set()

    def _ask(self, engine: str) -> None:
        while not self._stopped.is_set():
            try:
                self._sink.report(engine, self._sources[engine]())
                self.failures.pop(engine, None)
            except Exception as error:  # the text of foreign ones may hold an address with a key
                self.failures[engine] = str(error) if isinstance(error, VineLMError) else type(error).__name__
            self._stopped.wait(self._every_s)
