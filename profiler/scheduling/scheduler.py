"""The loop of a profile: write what came back, count it in order, start what is certain to be admitted, wait."""

from __future__ import annotations

import queue
from dataclasses import replace
from functools import partial

from vinelm.profiler.execution.job import Job, Worker
from vinelm.profiler.results import Progress
from vinelm.profiler.samplers import Sampler
from vinelm.profiler.scheduling.admission import Admission
from vinelm.profiler.scheduling.commit import CanonicalCommit
from vinelm.profiler.scheduling.interrupts import Interrupts
from vinelm.profiler.scheduling.run_state import Books
from vinelm.profiler.scheduling.threads import Threads, TopUpRequest, UnitFinished, run_job
from vinelm.profiler.scheduling.walks import ActivePaths

_WAIT_S = 0.2  # how long a Ctrl-C may go unnoticed


class Scheduler:
    """One run of a sampler's walks, on the calling thread. Its books say after :meth:`run` how it ended."""

    def __init__(self, worker: Worker, sampler: Sampler, books: Books) -> None:
        walks = ActivePaths(sampler)
        self.books = books
        self._counting = CanonicalCommit(self.books, walks)
        self._admission = Admission(self.books, walks)
        self._telling = ProgressReporter(self.books)
        self._worker = worker
        self._crew = None if books.terms.workers is None else Threads(worker)

    def run(self) -> None:
        """Until something stops it. Raises what a unit raised, after the units in flight are written."""
        books = self.books
        self._counting.stop_if_done()
        ended: list[UnitFinished] = []
        with Interrupts(is_inline=self._crew is None) as interrupts:
            try:
                while books.stopped_by is None or books.running:
                    if interrupts.count and books.stopped_by is None:
                        books.stop("interrupted")
                        self._telling.now()
                    with interrupts.deferred(), books.records.together():
                        jobs = self._turn(ended)
                    self._telling.rows()
                    ended = self._dispatch(jobs, interrupts) or self._collect(interrupts)
            except KeyboardInterrupt:
                self._give_up()
            finally:
                if self._crew is not None:
                    self._crew.close()
        if books.problem is not None:
            raise books.problem

    def _turn(self, ended: list[UnitFinished]) -> list[Job]:
        """What becomes durable together: the rows of the units that ended and the reservations of those to start."""
        for message in ended:
            self.books.write(message)
        self._counting.advance()
        return self._admission.jobs()

    def _dispatch(self, jobs: list[Job], interrupts: Interrupts) -> list[UnitFinished]:
        """Their reservations are durable: let them run. What came back already, if they run here."""
        if self._crew is not None:
            for job in jobs:
                self._crew.start(job)
            return []
        with interrupts.allowed():
            return [run_job(self._worker, job, partial(self.books.top_up, job.cell)) for job in jobs]

    def _collect(self, interrupts: Interrupts) -> list[UnitFinished]:
        """Wait for a message, then take all that are there."""
        ended: list[UnitFinished] = []
        while self._crew is not None and self.books.running:
            try:
                message = self._crew.messages.get(timeout=_WAIT_S) if not ended else self._crew.messages.get_nowait()
            except queue.Empty:
                if ended or (interrupts.count and self.books.stopped_by is None):
                    break
                continue
            if isinstance(message, TopUpRequest):
                self._admission.asking.append(message)
                break
            self._crew.ended()
            ended.append(message)
        return ended

    def _give_up(self) -> None:
        """The person does not want to wait for the units in flight."""
        self.books.stopped_by = "interrupted"  # whatever it was about to end by
        self._worker.close()
        self._admission.refuse_all()
        self.books.abandon()


class ProgressReporter:
    """Silent where nobody asked for it."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._tell = books.terms.on_progress

    def rows(self) -> None:
        """The rows since the last time, one by one."""
        told, self._books.new_rows = self._books.new_rows, 0
        for left in range(told - 1, -1, -1):
            self.now(left)

    def now(self, left: int = 0) -> None:
        """How it stands, but for the last ``left`` rows."""
        if self._tell is not None:
            self._tell(replace(self._progress(), executed=self._books.executed - left))

    def _progress(self) -> Progress:
        books, coverage = self._books, self._books.account.coverage
        return Progress(
            executed=books.executed,
            failures=dict(books.failures),
            coverage=coverage.fraction,
            target=books.terms.target,
            spent_usd=coverage.spent_usd,
            budget_usd=books.ledger.budget_usd,
            committed_usd=books.ledger.committed_usd,
            calls=books.calls,
            in_flight=len(books.running),
            interval=books.account.interval(),
            is_draining=books.stopped_by is not None and bool(books.running),
        )
