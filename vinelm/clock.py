"""The clock of a request: real time, or virtual seconds that pass only in :meth:`Clock.sleep`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol


class Clock(Protocol):
    """A clock in seconds: real time for real models, virtual time for simulated ones."""

    def now(self) -> float:
        """Return the seconds since an arbitrary start; they never decrease."""

    def sleep(self, seconds: float) -> None:
        """Wait that many seconds."""


class WallClock:
    """Real time."""

    def now(self) -> float:
        """Return the seconds of the monotonic system clock."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Block the thread."""
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
