"""Ctrl-C during a profile: the first one lets the units in flight finish, the second does not wait."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self


class Interrupts:
    """Counts SIGINT instead of raising, on the main thread; Python delivers none to other threads.

    ``KeyboardInterrupt`` is still raised by the second one, and by every one inside :meth:`allowed` where units run on this
    thread. Never inside :meth:`deferred`, where a transaction is written.

    Args:
        is_inline: units run on this thread.
    """

    def __init__(self, *, is_inline: bool) -> None:
        self.count = 0
        self._is_inline = is_inline
        self._is_allowed = False
        self._is_deferred = False
        self._previous: Any = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Raise nothing inside the block; a second Ctrl-C is raised at its end."""
        self._is_deferred = True
        try:
            yield
        finally:
            self._is_deferred = False
        if self.count > 1:
            raise KeyboardInterrupt

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Units run inside the block and may be interrupted."""
        self._is_allowed = self._is_inline
        try:
            yield
        finally:
            self._is_allowed = False

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if not self._is_deferred and (self._is_allowed or self.count > 1):
            raise KeyboardInterrupt
