"""The loop of a profile: write finished units, commit them in order, start units that are sure to be admitted, wait."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from vinelm.profiler.execution.job import Job, UnitFinished, Worker, run_job
from vinelm.profiler.scheduling.admission import Admission
from vinelm.profiler.scheduling.commit import CanonicalCommit
from vinelm.profiler.scheduling.interrupts import Interrupts
from vinelm.profiler.scheduling.request_paths import ActivePaths
from vinelm.profiler.scheduling.results import Progress
from vinelm.profiler.scheduling.run_state import RunState
from vinelm.profiler.scheduling.settings import ProfileSettings
from vinelm.profiler.scheduling.threads import Threads, TopUpRequest
from vinelm.requests.protocols import Sampler

_WAIT_S = 0.2  # how long a Ctrl-C may go unnoticed


class Scheduler:
    """Runs a sampler's request paths from the calling thread. After :meth:`run` the state says how the run ended.

    Args:
        worker: runs the units.
        sampler: proposes the request paths.
        state: of the run.
        settings: how many units run at a time and where, and who is told of each row, on the calling thread.
        may_go_on: whether the workflow can go on below an answer that its own check passed.
    """

    def __init__(
        self,
        worker: Worker,
        sampler: Sampler,
        state: RunState,
        settings: ProfileSettings,
        *,
        may_go_on: bool = True,
    ) -> None:
        paths = ActivePaths(sampler, state.template, may_go_on=may_go_on)
        self.state = state
        self._commit = CanonicalCommit(state, paths)
        self._admission = Admission(state, paths, settings.execution.workers)
        self._reporter = ProgressReporter(state, settings.on_progress)
        self._worker = worker
        self._threads = None if settings.execution.isolation == "inline" else Threads(worker)

    def run(self) -> None:
        """Run until the state is stopped. Raises what a unit raised, after the units in flight are written."""
        state = self.state
        # Before anything is paid for: the rows that are there may be enough.
        self._commit.stop_if_done()
        finished: list[UnitFinished] = []
        with Interrupts(is_inline=self._threads is None) as interrupts:
            try:
                while state.stopped_by is None or state.running:
                    if interrupts.count and state.stopped_by is None:
                        state.stop("interrupted")
                        self._reporter.report()
                    # An exception inside would undo the transaction and leave what this process has noted about it.
                    with interrupts.deferred():
                        with state.records.together():
                            jobs = self._write_and_admit(finished)
                        self._admission.answer()
                    self._reporter.report_rows()
                    finished = self._dispatch(jobs, interrupts) or self._collect(interrupts)
                    if not state.running and not finished and state.elsewhere:
                        time.sleep(_WAIT_S)  # other runs execute what is left
            except KeyboardInterrupt:
                self._abandon()
            finally:
                if self._threads is not None:
                    self._threads.close()
        if state.problem is not None:
            raise state.problem

    def _write_and_admit(self, finished: list[UnitFinished]) -> list[Job]:
        """One transaction: the rows of finished units, and the reservations of those to start."""
        for message in finished:
            self.state.finish(message)
        self.state.read_others()
        self._commit.advance()
        return self._admission.jobs()

    def _dispatch(self, jobs: list[Job], interrupts: Interrupts) -> list[UnitFinished]:
        """Run the units, whose reservations are durable; returns those that ran inline and are over."""
        if self._threads is not None:
            for job in jobs:
                self._threads.start(job)
            return []
        with interrupts.allowed():
            return [run_job(self._worker, job, partial(self.state.top_up_cell, job.cell)) for job in jobs]

    def _collect(self, interrupts: Interrupts) -> list[UnitFinished]:
        """Wait for a message, then take all that have arrived."""
        finished: list[UnitFinished] = []
        while self._threads is not None and self.state.running:
            try:
                message = self._threads.messages.get(timeout=_WAIT_S) if not finished else self._threads.messages.get_nowait()
            except queue.Empty:
                if finished or self.state.shared or (interrupts.count and self.state.stopped_by is None):
                    break
                continue
            # Back to the loop at once: this unit holds its worker until it has an answer.
            if isinstance(message, TopUpRequest):
                self._admission.waiting.append(message)
                break
            self._threads.release()
            finished.append(message)
        return finished

    def _abandon(self) -> None:
        """A second Ctrl-C: do not wait for the units in flight."""
        self.state.stopped_by = "interrupted"  # in place of any other reason
        self._worker.close()
        self._admission.refuse_all()
        self.state.abandon()


class ProgressReporter:
    """Calls ``on_progress`` once for each row; does nothing without one."""

    def __init__(self, state: RunState, on_progress: Callable[[Progress], None] | None) -> None:
        self._state = state
        self._on_progress = on_progress
        self._reported = 0

    def report_rows(self) -> None:
        """Report the rows since the last call, one by one."""
        first, self._reported = self._reported + 1, self._state.executed
        for executed in range(first, self._reported + 1):
            self.report(executed)

    def report(self, executed: int | None = None) -> None:
        """Report the current state, as of ``executed`` rows (default: all)."""
        if self._on_progress is not None:
            progress = self._state.progress()
            self._on_progress(progress if executed is None else replace(progress, executed=executed))
