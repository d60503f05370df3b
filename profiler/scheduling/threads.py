"""The threads that run jobs and return messages. The worker decides where a job runs."""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass, field

from vinelm.profiler.execution.job import Job, TopUp, UnitFinished, Worker, run_job
from vinelm.rows.observation import Cell
from vinelm.threads import started


@dataclass(slots=True)
class TopUpRequest:
    """A job's request for a higher reservation; the job blocks until :meth:`answer`."""

    cell: Cell
    upper_usd: float
    is_granted: bool = False
    _answered: threading.Event = field(default_factory=threading.Event)

    def answer(self, is_granted: bool) -> None:
        """Grant or refuse the request, so that :meth:`wait` returns."""
        self.is_granted = is_granted
        self._answered.set()

    def wait(self) -> bool:
        """Block until the request is answered; return whether it was granted."""
        self._answered.wait()
        return self.is_granted


class Threads:
    """Runs jobs on daemon threads, and puts their messages into the queue ``messages``.

    A message reports that a job has ended (:class:`UnitFinished`), or requests a higher reservation for it
    (:class:`TopUpRequest`).
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self.messages: queue.SimpleQueue[UnitFinished | TopUpRequest] = queue.SimpleQueue()
        self._threads = 0
        self._busy = 0

    def start(self, job: Job) -> None:
        """Run a job on an idle thread, or on a new thread. Must always be called from the same thread."""
        self._busy += 1
        if self._busy > self._threads:
            self._threads += 1
            # A daemon, so that an abandoned run does not wait for the calls in flight.
            started(self._work, f"vinelm unit {self._threads}")
        self._jobs.put(job)

    def release(self) -> None:
        """Count one thread as idle; call this after the final message of its job was received."""
        self._busy -= 1

    def close(self) -> None:
        """End idle threads now, and busy threads after their jobs."""
        for _ in range(self._threads):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self.messages.put(run_job(self._worker, job, self._top_up_of(job)))

    def _top_up_of(self, job: Job) -> TopUp:
        def top_up(upper_usd: float) -> bool:
            request = TopUpRequest(job.cell, upper_usd)
            self.messages.put(request)
            return request.wait()

        return top_up
