"""Shows that a command without output is still working: a line that counts seconds on a terminal, or occasional lines in a log.

The line disappears whenever something is printed (:mod:`vinelm.cli.console` calls :func:`make_way`), and returns after
another silence.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from vinelm.threads import Repeated

SILENT_S = 0.5
"""Seconds of silence after which a terminal shows that the command is at work."""
FIRST_LOG_S, LONGEST_LOG_S = 30.0, 120.0
"""Seconds of silence until the first line in a log; each further line takes twice as long, up to the second figure."""
_REDRAWN_S = 0.2
_MARKS = "|/-\\"
_CLEARED = "\r\x1b[2K"


class AtWork:
    """The activity line of one command, which shows that a command without output is still working. Thread-safe.

    Args:
        title: The current work, such as ``vinelm estimate a.db``.
        show: Replaces the text of the activity line on a terminal; None if stderr is not a terminal.
        log: Writes a line to a log; used if ``show`` is None.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        title: str,
        show: Callable[[str], None] | None,
        log: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._title, self._show, self._log, self._clock = title, show, log, clock
        self._lock = threading.RLock()
        self._began_s = self._heard_s = clock()
        self._next_log_s, self._holds, self._is_shown = FIRST_LOG_S, 0, False

    def tick(self) -> None:
        """Redraw the activity line on a terminal, or write a line to the log, if nothing has been printed for long enough.

        Do nothing while a code block draws on the terminal. Lines in a log become rarer with time.
        """
        with self._lock:
            now_s = self._clock()
            silent_s, elapsed_s = now_s - self._heard_s, now_s - self._began_s
            if self._holds:
                return
            if self._show is not None and silent_s >= SILENT_S:
                self._is_shown = True
                self._show(f"{_MARKS[int(elapsed_s / _REDRAWN_S) % len(_MARKS)]} {self._title}: {elapsed_s:.0f} s")
            elif self._show is None and silent_s >= self._next_log_s:
                self._heard_s = now_s
                self._next_log_s = min(2.0 * self._next_log_s, LONGEST_LOG_S)
                self._log(f"{self._title}: at work for {elapsed_s:.0f} s")

    def make_way(self) -> None:
        """Clear the activity line, because something else is printed now."""
        with self._lock:
            self._heard_s = self._clock()
            if self._is_shown and self._show is not None:
                self._show("")
            self._is_shown = False

    def rename(self, title: str) -> None:
        """Change the title of the current work, and count the work's seconds from 0 again."""
        with self._lock:
            self._title, self._began_s, self._next_log_s = title, self._clock(), FIRST_LOG_S

    def hold(self, change: int) -> None:
        """Change the number of code blocks that currently draw on the terminal by ``change``: +1 when a block starts, -1 when
        it ends.

        The activity line is hidden while the number is above 0.
        """
        with self._lock:
            self.make_way()
            self._holds += change


_CURRENT: list[AtWork] = []
"""The signs of the running commands, the innermost last; empty outside of a command."""


def make_way() -> None:
    """Clear the activity line before another line is printed."""
    for one in _CURRENT[-1:]:
        one.make_way()


def now_at(title: str) -> None:
    """Show ``title`` as the current work of the running command."""
    for one in _CURRENT[-1:]:
        one.rename(title)


@contextmanager
def held() -> Iterator[None]:
    """Hide the activity line while the code in the block draws on the terminal or asks a question."""
    here = _CURRENT[-1:]
    for one in here:
        one.hold(1)
    try:
        yield
    finally:
        for one in here:
            one.hold(-1)


@contextmanager
def at_work(title: str) -> Iterator[None]:
    """Inside the block, show ``title`` as the current work whenever nothing has been printed for a while."""
    is_terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    one = AtWork(title, _show if is_terminal else None, _log)
    _CURRENT.append(one)
    ticking = Repeated(one.tick, _REDRAWN_S, name="vinelm at work")
    try:
        yield
    finally:
        ticking.stop()
        one.make_way()
        _CURRENT.remove(one)


def _show(text: str) -> None:
    """Replace the activity line, and leave the cursor at its beginning, so that an application's output overwrites the line."""
    with suppress(OSError, ValueError):
        width = os.get_terminal_size(sys.stderr.fileno()).columns or 80  # a pseudo-terminal without a size reports 0
        os.write(sys.stderr.fileno(), f"{_CLEARED}{text[: width - 1]}\r".encode("utf-8", "replace"))


def _log(line: str) -> None:
    with suppress(OSError, ValueError):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
