"""The threads that wait for units: jobs in, messages out. Where a unit really runs is its worker's affair."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from vinelm.profiler.execution.job import Cell, Done, Job, Refused, Worker


@dataclass(frozen=True, slots=True)
class UnitFinished:
    """A unit came to its end; ``problem`` is what its worker raised instead."""

    job: Job
    outcome: Done | Refused | None
    problem: BaseException | None = None


@dataclass(slots=True)
class TopUpRequest:
    """A unit waits for more money. :meth:`answer` lets it go on."""

    cell: Cell
    upper_usd: float
    is_granted: bool = False
    _answered: threading.Event = field(default_factory=threading.Event)

    def answer(self, is_granted: bool) -> None:
        """Yes or no."""
        self.is_granted = is_granted
        self._answered.set()

    def wait(self) -> bool:
        """Until there is an answer."""
        self._answered.wait()
        return self.is_granted


class Threads:
    """As many daemon threads as were needed at once. :class:`UnitFinished` and :class:`TopUpRequest` arrive in ``messages``."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self.messages: queue.SimpleQueue[UnitFinished | TopUpRequest] = queue.SimpleQueue()
        self._threads = 0
        self._busy = 0

    def start(self, job: Job) -> None:
        """Run it on a free thread, or a new one. Called from one thread only."""
        self._busy += 1
        if self._busy > self._threads:
            self._threads += 1
            threading.Thread(target=self._work, daemon=True, name=f"vinelm unit {self._threads}").start()
        self._jobs.put(job)

    def ended(self) -> None:
        """One of the units is over and taken note of."""
        self._busy -= 1

    def close(self) -> None:
        """Let idle threads go; busy ones follow when their unit is over."""
        for _ in range(self._threads):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self.messages.put(run_job(self._worker, job, self._asker(job)))

    def _asker(self, job: Job) -> Callable[[float], bool]:
        def top_up(upper_usd: float) -> bool:
            asked = TopUpRequest(job.cell, upper_usd)
            self.messages.put(asked)
            return asked.wait()

        return top_up


def run_job(worker: Worker, job: Job, top_up: Callable[[float], bool]) -> UnitFinished:
    """Run it here; what it raises is a part of the message, but for an interrupt."""
    try:
        return UnitFinished(job, worker.run(job, top_up))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return UnitFinished(job, None, error)
