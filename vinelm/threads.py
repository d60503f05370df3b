"""Daemon threads, which do not keep the process alive: for a single call, or for repeated calls."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Event, Thread
from typing import TypeVar

T = TypeVar("T")


def started(run: Callable[[], object], name: str) -> Thread:
    """Run a function in a separate daemon thread, which does not keep the process alive; return the thread."""
    thread = Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread


def beside(run: Callable[[], T], *, name: str) -> Future[T]:
    """Run a function in a separate daemon thread, which cannot be stopped; return the future of its result."""
    made: Future[T] = Future()

    def work() -> None:
        try:
            made.set_result(run())
        except BaseException as error:
            made.set_exception(error)

    started(work, name)
    return made


class Repeated:
    """Calls a function periodically in a separate thread, until stopped.

    Args:
        run: The function; the thread ends if it raises.
        every_s: Seconds from the end of one call to the next.
        name: The name of the thread.
        is_at_once: Whether the first call comes without waiting ``every_s`` seconds.
    """

    def __init__(self, run: Callable[[], object], every_s: float, *, name: str, is_at_once: bool = False) -> None:
        self._run, self._every_s, self._is_at_once = run, every_s, is_at_once
        self._ended = Event()
        self._thread = started(self._work, name)

    def stop(self, *, waits: bool = True) -> None:
        """Stop calling the function; with ``waits``, wait until the current call ends. Idempotent."""
        self._ended.set()
        if waits:
            self._thread.join()

    def _work(self) -> None:
        if self._is_at_once:
            self._run()
        while not self._ended.wait(self._every_s):
            self._run()
