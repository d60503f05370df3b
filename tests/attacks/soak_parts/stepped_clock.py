"""Wall clocks that step while processes run: by libfaketime where it is installed, else by replacing ``time.time``.

The offset stands in a file that all processes read. Monotonic clocks go on as they are, as on a machine whose date is set. With
libfaketime everything in a process sees the step; without it only callers of Python's ``time.time`` do. Redis, whose allocator
does not get along with libfaketime, keeps its clock.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

OFFSET = "VINELM_SOAK_CLOCK"
"""Environment variable: the file with the offset in seconds, for :func:`install`."""
SLEEPS = "VINELM_SOAK_SLEEPS"
"""Environment variable: libfaketime is loaded, whose 0.9.10 makes ``time.sleep`` of Python 3.11 and later fail now and then."""
LIBRARIES = ("/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/lib/faketime/libfaketimeMT.so.1")
READ_EVERY_S = 0.5


def library() -> Path | None:
    """The library of libfaketime for programs with threads; None if it is not installed (Debian: libfaketime)."""
    for pattern in LIBRARIES:
        for found in sorted(Path("/").glob(pattern.lstrip("/"))):
            return found
    return None


class SteppedClock:
    """The wall clock of the processes that are started with :attr:`environment`.

    Args:
        file: where the offset stands.

    Attributes:
        offset_s: where it was set to last, in seconds from the true time.
    """

    def __init__(self, file: Path) -> None:
        self._file, self.offset_s = file, 0.0
        self.library = library()
        self.step(0.0)

    @property
    def how(self) -> str:
        """What steps the clock."""
        return "libfaketime" if self.library else "time.time replaced"

    @property
    def environment(self) -> dict[str, str]:
        """What a process has to be started with."""
        if self.library is None:
            return {OFFSET: str(self._file)}
        return {
            "LD_PRELOAD": str(self.library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_RESET": "1",
            "NO_FAKE_STAT": "1",
            SLEEPS: "1",
        }

    def step(self, offset_s: float) -> None:
        """Set the clock to so many seconds from the true time."""
        draft = self._file.with_suffix(".new")
        draft.write_text(f"{offset_s:+.0f}\n", encoding="utf-8")
        draft.replace(self._file)
        self.offset_s = offset_s


def _sleep(seconds: float) -> None:
    threading.Event().wait(seconds)


def install() -> None:
    """Let ``time.time`` and ``time.time_ns`` of this process follow the file, where :data:`OFFSET` names one."""
    if SLEEPS in os.environ:
        time.sleep = _sleep
    file = os.environ.get(OFFSET)
    if not file:
        return
    true_time, true_ns, monotonic = time.time, time.time_ns, time.monotonic
    known = {"offset": 0.0, "until": -1.0}

    def offset_s() -> float:
        if monotonic() >= known["until"]:
            known["offset"] = float(Path(file).read_text(encoding="utf-8"))
            known["until"] = monotonic() + READ_EVERY_S
        return known["offset"]

    time.time = lambda: true_time() + offset_s()
    time.time_ns = lambda: true_ns() + int(offset_s() * 1e9)
