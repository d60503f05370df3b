"""Ctrl-C and the other signals that end a process: raised as ``KeyboardInterrupt``, or counted until it is safe to raise."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

from vinelm.io.operating_system import ENDING


class Interrupts:
    """Counts signals that would end the process, instead of raising at once. Works only on the main thread, where Python
    delivers signals.

    The second signal raises ``KeyboardInterrupt``; if jobs run on this thread, so does every signal inside :meth:`allowed`.
    Nothing is raised inside :meth:`deferred`, where a transaction is written.

    Attributes:
        count: how many signals have arrived.

    Args:
        is_inline: whether jobs run on this thread.
        numbers: the signals to count.
    """

    def __init__(self, *, is_inline: bool, numbers: Sequence[int] = ENDING) -> None:
        self.count = 0
        self._is_inline, self._numbers = is_inline, numbers
        self._is_allowed = False
        self._is_deferred = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._previous = _installed(self._on_signal, self._numbers)
        return self

    def __exit__(self, *_: object) -> None:
        _restore(self._previous)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Inside the block, a second signal raises nothing; ``KeyboardInterrupt`` is raised at the end of the block instead."""
        self._is_deferred = True
        try:
            yield
        finally:
            self._is_deferred = False
        self.check()  # only now, so that the transaction is written or undone as a whole

    def check(self) -> None:
        """Raise if a second signal has arrived. Needed because a signal that arrives inside a finalizer cannot raise there."""
        if self.count > 1:
            raise KeyboardInterrupt

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Inside the block, let every signal raise ``KeyboardInterrupt`` if jobs run on this thread."""
        self._is_allowed = self._is_inline
        try:
            yield
        finally:
            self._is_allowed = False

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if not self._is_deferred and (self._is_allowed or self.count > 1):
            raise KeyboardInterrupt


def ctrl_c() -> tuple[int, ...]:
    """Return Ctrl-C's signal as the only element of a tuple; an empty tuple if it is ignored or the application handles it."""
    return (signal.SIGINT,) if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, _raise) else ()


@contextmanager
def interrupts_raised() -> Iterator[None]:
    """Inside the block, raise ``KeyboardInterrupt`` for every :data:`~vinelm.io.ENDING` signal, as Python does for Ctrl-C."""
    previous = _installed(_raise, ENDING)
    try:
        yield
    finally:
        _restore(previous)


def _raise(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _installed(handler: Callable[[int, FrameType | None], None], wanted: Sequence[int]) -> dict[int, Any]:
    """Install the handler for the wanted signals, and return the handlers that it replaced, by signal number.

    Except for Ctrl-C, a signal keeps its handler if it is ignored (``nohup``) or the application handles it. Outside of the
    main thread nothing is installed, and the result is empty.
    """
    if threading.current_thread() is not threading.main_thread():
        return {}
    free = [signal.SIG_DFL, _raise]
    numbers = [number for number in wanted if number == signal.SIGINT or signal.getsignal(number) in free]
    return {number: signal.signal(number, handler) for number in numbers}


def _restore(previous: dict[int, Any]) -> None:
    for number, handler in previous.items():
        signal.signal(number, handler)
