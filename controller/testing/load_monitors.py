"""The contract of load monitors, written as tests."""

from __future__ import annotations

import math

import pytest

from vinelm.requests.protocols import LoadMonitor
from vinelm.threads import beside

THREADS, CALLS = 8, 100


class LoadMonitorContract:
    """Tests the contract of every :class:`~vinelm.requests.protocols.LoadMonitor`.

    To test a monitor, derive a test class from this class and override :meth:`make`.
    """

    engine = "east"
    """An engine whose load the monitor made by :meth:`make` can report."""

    def make(self) -> LoadMonitor:
        """Return a new monitor that is ready to use."""
        raise NotImplementedError

    def extra_s(self, monitor: LoadMonitor) -> float:
        """Return the delay of :attr:`engine` in seconds; 0 if the monitor reports no delay."""
        delay = monitor.delays().get(self.engine)
        return 0.0 if delay is None else delay.extra_s

    def test_delays_are_finite_seconds_by_engine(self) -> None:
        """Check that delays are finite numbers of seconds, with calls in flight and with finished calls."""
        monitor = self.make()
        for _ in range(10):
            monitor.dispatched(self.engine)
            monitor.dispatched(self.engine)
            monitor.finished(self.engine, 1.0)
            for engine, delay in monitor.delays().items():
                assert isinstance(engine, str)
                assert math.isfinite(delay.extra_s)
                assert delay.extra_s >= 0.0
                assert isinstance(delay.is_stale, bool)

    def test_a_call_in_flight_never_lowers_the_delay_and_leaves_no_trace_when_it_failed(self) -> None:
        """Check that a call in flight never lowers the delay, and that a failed call, without latency, leaves it unchanged."""
        monitor = self.make()
        before = self.extra_s(monitor)
        monitor.dispatched(self.engine)
        during = self.extra_s(monitor)
        monitor.finished(self.engine, None)
        assert during >= before
        assert self.extra_s(monitor) == before

    def test_calls_that_were_not_dispatched_may_finish(self) -> None:
        """Check that the end of calls that were not dispatched never makes the delay negative."""
        monitor = self.make()
        for _ in range(5):
            monitor.finished(self.engine, None)
        assert self.extra_s(monitor) >= 0.0
        idle = self.extra_s(monitor)
        monitor.dispatched(self.engine)
        assert self.extra_s(monitor) >= idle

    @pytest.mark.parametrize("excess_s", [0.0, -3.0, math.nan, math.inf, -math.inf])
    def test_any_latency_is_accepted(self, excess_s: float) -> None:
        """Check that any latency is accepted, because clocks may jump."""
        monitor = self.make()
        for _ in range(10):
            monitor.dispatched(self.engine)
            monitor.finished(self.engine, excess_s)
        assert 0.0 <= self.extra_s(monitor) < math.inf

    def test_an_unknown_engine_is_accepted_and_changes_no_other(self) -> None:
        """Check that calls to an engine unknown to the monitor are accepted and do not change another engine's delay."""
        monitor = self.make()
        before = self.extra_s(monitor)
        monitor.dispatched("elsewhere")
        monitor.finished("elsewhere", 1.0)
        monitor.finished("nowhere", None)
        assert self.extra_s(monitor) == before

    def test_delays_are_a_snapshot(self) -> None:
        """Check that returned delays do not change later: a plan may read them while other requests continue."""
        monitor = self.make()
        snapshot = monitor.delays()
        copied = dict(snapshot)
        for _ in range(3):
            monitor.dispatched(self.engine)
            monitor.dispatched("elsewhere")
            monitor.delays()
        assert dict(snapshot) == copied

    def test_many_threads_share_a_monitor(self) -> None:
        """Check that no call is lost between threads: afterwards the delay is back at its initial value."""
        monitor = self.make()
        before = self.extra_s(monitor)

        def calls() -> None:
            for _ in range(CALLS):
                monitor.dispatched(self.engine)
                monitor.delays()
                monitor.finished(self.engine, None)

        for done in [beside(calls, name="calls") for _ in range(THREADS)]:
            done.result()
        assert self.extra_s(monitor) == before
