"""Time as a request sees it: the machine's, or virtual seconds that pass only when somebody sleeps."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol


class Clock(Protocol):
    """Seconds of one request. Real time for real models, virtual time for simulated ones."""

    def now(self) -> float:
        """Seconds since an arbitrary start; never goes back."""

    def sleep(self, seconds: float) -> None:
        """Let that much time pass."""


class WallClock:
    """Real time."""

    def now(self) -> float:
        """Seconds of the machine's monotonic clock."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Block the thread."""
        time.sleep(seconds)


@dataclass(slots=True)
class VirtualClock:
    """Time that passes only when somebody sleeps: a simulated hour costs nothing and comes out the same everywhere."""

    seconds: float = 0.0

    def now(self) -> float:
        """Virtual seconds so far."""
        return self.seconds

    def sleep(self, seconds: float) -> None:
        """Advance at once."""
        self.seconds += seconds
