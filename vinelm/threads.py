"""Daemon threads, which keep no process alive: for a single call, or for repeated ones."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Event, Thread
from typing import TypeVar

T = TypeVar("T")


def started(run: Callable[[], object], name: str) -> Thread:
    """Run a function in a separate thread, which ends with the process; return the thread."""
    thread = Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread


def beside(run: Callable[[], T], *, name: str) -> Future[T]:
    """Run a function in a separate thread that cannot be stopped; return the future of its result."""
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
        run: Ends the thread if it raises.
        every_s: Seconds from the end of one call to the next.
        name: The name of the thread.
        is_at_once: The first call does not wait.
    """

    def __init__(self, run: Callable[[], object], every_s: float, *, name: str, is_at_once: bool = False) -> None:
        self._run, self._every_s, self._is_at_once = run, every_s, is_at_once
        self._ended = Event()
        self._thread = started(self._work, name)

    def stop(self, *, waits: bool = True) -> None:
        """Stop calling, after the current call, which is waited for if ``waits``. Idempotent."""
        self._ended.set()
        if waits:
            self._thread.join()

    def _work(self) -> None:
        if self._is_at_once:
            self._run()
        while not self._ended.wait(self._every_s):
            self._run()
