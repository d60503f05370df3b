"""Estimates the load of engines from our own calls and from engines' reports (VineLM paper §4.3)."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import isfinite

from vinelm.clock import Clock, WallClock
from vinelm.controller.load.slowdown import SlowdownCurve
from vinelm.errors import VineLMError
from vinelm.requests.protocols import EngineDelay
from vinelm.threads import Repeated

WINDOW_S = 30.0
"""Age up to which finished calls count."""
LEAST_CALLS, MOST_CALLS = 5, 64
"""How many finished calls in the window an estimate needs, and how many are kept at most."""


@dataclass(slots=True)
class _OwnCalls:
    """Our own calls on one engine: the number in flight, and how much slower recent calls were than at zero load.

    Attributes:
        in_flight: the number of calls that have not ended yet.
        recent: for each recent call, the time of its end and its extra seconds compared with zero load.
        total_s: the sum of these extra seconds.
        squares: the sum of the squares of these extra seconds.
        last_s: the time at which ``seen_s`` was computed.
        seen_s: the estimate of a call's extra seconds.
    """

    in_flight: int = 0
    recent: deque[tuple[float, float]] = field(default_factory=deque)
    total_s: float = 0.0
    squares: float = 0.0
    last_s: float = 0.0
    seen_s: float = 0.0

    def add(self, now_s: float, excess_s: float) -> None:
        """Add the excess latency of a call that finished at the time ``now_s``, and update the estimate ``seen_s``."""
        self.recent.append((now_s, excess_s))
        self._count(excess_s, 1)
        while now_s - self.recent[0][0] > WINDOW_S or len(self.recent) > MOST_CALLS:
            self._count(self.recent.popleft()[1], -1)
        # Sums are kept up to date, since decisions read the estimate more often than calls end.
        self.last_s, self.seen_s = now_s, 0.0
        n = len(self.recent)
        if n >= LEAST_CALLS:
            mean = self.total_s / n
            # Cancellation of digits can make it slightly negative.
            variance = max(self.squares - n * mean**2, 0.0) / (n - 1)
            # Minus one standard error: noise alone must not look like load, which would move requests away from an idle engine.
            self.seen_s = max(mean - (variance / n) ** 0.5, 0.0)

    def _count(self, excess_s: float, times: int) -> None:
        self.total_s += times * excess_s
        self.squares += times * excess_s**2


class InFlightLoadMonitor:
    """A :class:`~vinelm.requests.protocols.LoadMonitor` based on our own calls; their latencies also reflect other traffic.

    The delay of an engine is the larger of two estimates. One is the slowdown curve at the number of our calls in flight.
    The other is the mean excess latency of the calls that finished in the last ``WINDOW_S`` seconds, minus its standard
    error, because latency also varies without load.

    Args:
        curves: Slowdown curves by engine.
        clock: Measures ages; the wall clock by default.

    Attributes:
        others: A function that returns the number of calls that other processes have in flight, by engine. It must not block.
            The slowdown curves count these calls like our own. None if they are unknown.
    """

    def __init__(self, curves: Mapping[str, SlowdownCurve] | None = None, *, clock: Clock | None = None) -> None:
        self.others: Callable[[], Mapping[str, int]] | None = None
        self._curves = dict(curves or {})
        self._clock: Clock = clock or WallClock()
        self._own: dict[str, _OwnCalls] = {}
        self._lock = threading.Lock()

    def delays(self) -> Mapping[str, EngineDelay]:
        """Return the extra seconds of a call on each engine under the current load, keyed by the engine's name.

        The result contains the engines that this process has called. An engine that only other processes call is included if it
        has a slowdown curve.
        """
        now = self._clock.now()
        others = {} if self.others is None else self.others()
        with self._lock:
            for engine in others:
                if engine in self._curves:
                    self._own.setdefault(engine, _OwnCalls())
            return {
                engine: EngineDelay(self._extra_s(engine, own, now, others.get(engine, 0))) for engine, own in self._own.items()
            }

    def dispatched(self, engine: str) -> None:
        """Count a call to the engine as in flight."""
        with self._lock:
            self._own.setdefault(engine, _OwnCalls()).in_flight += 1

    def finished(self, engine: str, excess_s: float | None) -> None:
        """Count a call to the engine as finished, and record how many seconds longer it took than at zero load.

        ``excess_s`` is this number; None if unknown.
        """
        with self._lock:
            own = self._own.setdefault(engine, _OwnCalls())
            if excess_s is not None and isfinite(excess_s):  # a NaN would stay in the sums forever
                own.add(self._clock.now(), excess_s)
            own.in_flight = max(own.in_flight - 1, 0)  # last, since the caller tries again without the excess

    def _extra_s(self, engine: str, own: _OwnCalls, now: float, others: int) -> float:
        curve = self._curves.get(engine)
        expected = curve.at(own.in_flight + others) if curve else 0.0
        # The larger of the two: the curve sees our own calls at once, latencies see those of others. A sum would count ours
        # twice.
        return max(expected, own.seen_s if now - own.last_s <= WINDOW_S else 0.0)


@dataclass(slots=True)
class _Report:
    """The last report of one engine's load.

    Attributes:
        requests: the reported number of requests in the engine.
        at_s: the time of the report in seconds.
        balance: the number of our calls sent since the report, minus the number of our calls finished since then.
    """

    requests: float
    at_s: float
    balance: int = 0


class ReportedLoadMonitor:
    """A :class:`~vinelm.requests.protocols.LoadMonitor` based on engines' reports, corrected by our calls since a report.

    The number of requests in an engine is the reported number, plus our calls sent since the report, minus our calls finished
    since the report. An :class:`EnginePoller` passes reports to :meth:`report`.

    Args:
        curves: Slowdown curves by engine; engines without a curve are ignored.
        stale_after_s: The age in seconds from which a report is marked stale. A report from the future also counts as stale,
            because the clock was set back.
        gone_after_s: The age in seconds from which a report is ignored.
        clock: Measures ages; the wall clock by default.
        has_correction: Whether to correct reports by our own calls since the report.
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
        """Record that the engine now has ``requests`` requests, including waiting ones.

        Raises:
            VineLMError: ``requests`` is negative or not finite.
        """
        if not (requests >= 0 and isfinite(requests)):
            raise VineLMError(f"engine {engine!r} cannot hold {requests} requests: report a finite number >= 0")
        with self._lock:
            self._reports[engine] = _Report(requests, self._clock.now())

    def delays(self) -> Mapping[str, EngineDelay]:
        """Return the delay of each engine that has a slowdown curve and a report younger than ``gone_after_s`` seconds."""
        now = self._clock.now()
        with self._lock:
            return {
                engine: EngineDelay(
                    self._curves[engine].at(self._requests(last)), not 0.0 <= now - last.at_s <= self._stale_after_s
                )
                for engine, last in self._reports.items()
                if engine in self._curves and now - last.at_s <= self._gone_after_s
            }

    def dispatched(self, engine: str) -> None:
        """Count a call that was sent after the engine's last report."""
        self._add(engine, 1)

    def finished(self, engine: str, excess_s: float | None) -> None:
        """Count a call that finished after the engine's last report; ``excess_s`` is ignored."""
        self._add(engine, -1)

    def _requests(self, last: _Report) -> float:
        return max(last.requests + (last.balance if self._has_correction else 0), 0.0)

    def _add(self, engine: str, calls: int) -> None:
        with self._lock:
            if engine in self._reports:
                self._reports[engine].balance += calls


class EnginePoller:
    """Polls engines for their number of requests at regular intervals, each engine in a separate daemon thread.

    A slow engine does not delay the others; the reports of a failing engine become stale. Call :meth:`start` once, or use
    the poller as a context manager.

    Args:
        sources: For each engine, a function that returns the number of requests in the engine and may block or raise
            (:func:`~vinelm.controller.sglang_requests`, :func:`~vinelm.controller.vllm_requests`).
        sink: Receives the reports.
        every_s: Seconds between the end of one poll and the next.
    """

    def __init__(self, sources: Mapping[str, Callable[[], float]], sink: ReportedLoadMonitor, *, every_s: float = 1.0) -> None:
        self._sources = dict(sources)
        self._sink = sink
        self._every_s = every_s
        self._asking: list[Repeated] = []
        self.failures: dict[str, str] = {}
        """Engine to the reason why its last question failed; engines that answered are not in it."""

    def __enter__(self) -> EnginePoller:
        self.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start one polling thread per engine."""
        self._asking += [
            Repeated(partial(self._ask, engine), self._every_s, name=f"vinelm-load-{engine}", is_at_once=True)
            for engine in self._sources
        ]

    def stop(self) -> None:
        """Stop each polling thread after its current poll."""
        for one in self._asking:
            one.stop(waits=False)

    def _ask(self, engine: str) -> None:
        try:
            self._sink.report(engine, self._sources[engine]())
            self.failures.pop(engine, None)
        except Exception as error:  # messages of foreign errors may contain an address with a key
            self.failures[engine] = str(error) if isinstance(error, VineLMError) else type(error).__name__
