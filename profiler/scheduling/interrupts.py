"""Signals that end a profile: the first one lets the units in flight finish, the second does not wait."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

from vinelm.io.operating_system import ENDING


class Interrupts:
    """Counts :data:`~vinelm.io.ENDING` signals instead of raising, on the main thread; Python delivers none to other threads.

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
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._previous = _installed(self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        _restore(self._previous)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Raise nothing inside the block; a second signal is raised at its end."""
        self._is_deferred = True
        try:
            yield
        finally:
            self._is_deferred = False
        # Only now: the transaction is written as a whole, or undone as a whole.
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


@contextmanager
def raised() -> Iterator[None]:
    """Every :data:`~vinelm.io.ENDING` signal inside the block is a ``KeyboardInterrupt``, as Ctrl-C is."""
    previous = _installed(_raise)
    try:
        yield
    finally:
        _restore(previous)


def _raise(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _installed(handler: Callable[[int, FrameType | None], None]) -> dict[int, Any]:
    """Install the handler and return the previous ones. Signals that are ignored (``nohup``), or that the application handles
    itself, are left alone, except Ctrl-C.
    """
    if threading.current_thread() is not threading.main_thread():
        return {}
    free = [signal.SIG_DFL, _raise]
    numbers = [number for number in ENDING if number == signal.SIGINT or signal.getsignal(number) in free]
    return {number: signal.signal(number, handler) for number in numbers}


def _restore(previous: dict[int, Any]) -> None:
    for number, handler in previous.items():
        signal.signal(number, handler)
