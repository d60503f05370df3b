"""Threads that run jobs, such as the requests of a verification, an evaluation or a batch."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Generic, TypeVar

from vinelm.io.interrupts import Interrupts, ctrl_c
from vinelm.threads import beside

Job = TypeVar("Job")

TICK_S = 0.2
"""Seconds between two checks for Ctrl-C, and between two reports of progress."""


class Crew(Generic[Job]):
    """Threads that run jobs until none is left, one fails, or they are stopped.

    Attributes:
        changed: The condition that guards the fields below and the fields of the job source; notified when the threads should
            stop.
        is_stopping: True if the threads begin no more jobs.
        is_left: True if :meth:`work` returns without waiting for running jobs.
        error: The first error of a job.
        failed_at_s: When that error occurred, in monotonic seconds.

    Args:
        take: Returns the next job; None if no job is left or none should begin. Called by several threads.
        run: Runs a job. An exception ends the work of the other threads, too.
        size: The maximum number of jobs that run at the same time, >= 1.
        name: Name of the threads.
        on_cut: Called when Ctrl-C or a failing job ends the work, before waiting for running jobs, which may take hours.
    """

    def __init__(
        self,
        take: Callable[[], Job | None],
        run: Callable[[Job], None],
        *,
        size: int,
        name: str,
        on_cut: Callable[[], None] = lambda: None,
    ) -> None:
        self._take, self._run, self._on_cut = take, run, on_cut
        self.changed = threading.Condition()
        self.is_stopping = self.is_left = False
        self.error: BaseException | None = None
        self.failed_at_s = 0.0
        self._names = [f"{name} {n}" for n in range(size)]
        self._under_way: list[Future[None]] = []

    def work(self, on_tick: Callable[[], None] = lambda: None) -> None:
        """Run jobs until none is left, and return when all have ended. Only a second Ctrl-C ends the wait for running jobs.

        Args:
            on_tick: Called from time to time, by the calling thread.

        Raises:
            BaseException: The error of a job or of ``on_tick``, or KeyboardInterrupt.
        """
        # Ctrl-C is raised only between two ticks. Elsewhere it might be raised in a finalizer, where it is lost, or just after
        # this thread took a lock that it shares with the others and would never release.
        with Interrupts(is_inline=False, numbers=ctrl_c()) as interrupts:

            def tick() -> None:
                if interrupts.count:
                    raise KeyboardInterrupt
                on_tick()

            try:
                for name in self._names:
                    self._under_way.append(beside(self._work, name=name))
                self._wait(tick)
            except BaseException:  # Ctrl-C, or a failure to report progress
                self.stop()
                self._on_cut()
                self._wait(interrupts.check)
                raise
        if self.error is not None:
            raise self.error

    def stop(self, *, leave: bool = False) -> None:
        """Start no more jobs; if ``leave``, :meth:`work` does not wait for running jobs."""
        with self.changed:
            self.is_stopping = True
            self.is_left = self.is_left or leave
            self.changed.notify_all()

    def _wait(self, on_tick: Callable[[], None] = lambda: None) -> None:
        while not self.is_left and wait(self._under_way, TICK_S).not_done:
            on_tick()
        on_tick()  # the threads may have ended before the first look

    def _work(self) -> None:
        try:
            while not self.is_stopping and (job := self._take()) is not None:
                self._run(job)
        except BaseException as error:
            with self.changed:
                if self.error is None and not self.is_left:
                    self.error, self.failed_at_s = error, time.monotonic()
            self.stop()
            self._on_cut()
