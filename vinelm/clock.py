"""Clocks of a request: real time, virtual time that only passes in :meth:`Clock.sleep`, and clocks that cannot fail."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol


class Clock(Protocol):
    """A clock in seconds: real time for real models, virtual time for simulated ones."""

    def now(self) -> float:
        """Return the seconds since an arbitrary start; they never decrease."""

    def sleep(self, seconds: float) -> None:
        """Wait for this many seconds."""


class WallClock:
    """The real time of the system's monotonic clock."""

    def now(self) -> float:
        """Return the seconds of the monotonic system clock."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Block the thread for this number of seconds."""
        time.sleep(seconds)


@dataclass(slots=True)
class VirtualClock:
    """A clock that advances only in :meth:`sleep`: a simulated hour takes no time and is reproducible."""

    seconds: float = 0.0

    def now(self) -> float:
        """Return the virtual seconds so far."""
        return self.seconds

    def sleep(self, seconds: float) -> None:
        """Advance the clock, without waiting."""
        self.seconds += seconds


class WorkClock:
    """Real time plus virtual seconds for simulated waiting. Used for simulated models with real tools."""

    def __init__(self) -> None:
        self._began_s, self._slept_s = time.monotonic(), 0.0

    def now(self) -> float:
        """Return the real seconds since the clock was made plus the virtual seconds."""
        return time.monotonic() - self._began_s + self._slept_s

    def sleep(self, seconds: float) -> None:
        """Advance the clock, without waiting."""
        self._slept_s += seconds


class SteadyClock:
    """Reads ``clock``; after its first failure, continues with real time. Never raises."""

    __slots__ = ("_clock", "_last_s", "_lost_at_s")

    def __init__(self, clock: Clock) -> None:
        self._clock: Clock | None = clock
        self._last_s = 0.0
        self._lost_at_s = 0.0

    def now(self) -> float:
        """Return the current time in seconds. If the clock fails, real time continues from the clock's last value."""
        clock = self._clock
        if clock is not None:
            try:
                self._last_s = clock.now()
                return self._last_s
            except Exception:  # the clock may be the application's
                self._clock, self._lost_at_s = None, time.monotonic()
        return self._last_s + time.monotonic() - self._lost_at_s

    def sleep(self, seconds: float) -> None:
        """Wait for this many seconds of the clock."""
        try:
            if self._clock is not None:
                return self._clock.sleep(seconds)
        except Exception:  # the same
            self._clock, self._lost_at_s = None, time.monotonic()
        return time.sleep(seconds)


class SteadyWallClock(SteadyClock, WallClock):
    """A clock of real time that cannot fail. As with any :class:`WallClock`, backends wait without blocking the event loop."""

    __slots__ = ()


def steady(clock: Clock) -> Clock:
    """Return a clock that reads ``clock`` and never raises an exception."""
    return SteadyWallClock(clock) if isinstance(clock, WallClock) else SteadyClock(clock)
