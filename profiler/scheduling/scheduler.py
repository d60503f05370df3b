"""The main loop of a profile: writes finished jobs, commits them in order, starts jobs that are sure to be admitted, waits.

The first termination signal lets running jobs finish; the second ends the run without waiting for them.
"""

from __future__ import annotations

import queue
from collections import Counter
from dataclasses import replace
from functools import partial

from vinelm.errors import WorkflowError
from vinelm.io.interrupts import Interrupts
from vinelm.profiler.execution.job import Job, UnitFinished, Worker, run_job
from vinelm.profiler.sampling.deciding_sampler import DecidingSampler
from vinelm.profiler.sampling.runs import Run, run_of, whole_path
from vinelm.profiler.scheduling.admission import Admission
from vinelm.profiler.scheduling.request_paths import ActivePath, ActivePaths, TimedPaths
from vinelm.profiler.scheduling.results import StoppedBy
from vinelm.profiler.scheduling.run_state import RunState
from vinelm.profiler.scheduling.settings import ProfileSettings
from vinelm.profiler.scheduling.threads import Threads, TopUpRequest
from vinelm.requests.protocols import Sampler
from vinelm.rows.observation import Cell, Observation
from vinelm.signals.classes import answer_classes

_WAIT_S = 0.2  # how long a Ctrl-C may go unnoticed, in seconds
_GOES_ON = (None, "look", "coverage")  # after these a profile buys on, unless Ctrl-C has come


class Scheduler:
    """Runs a sampler's request paths from the calling thread. After :meth:`run`, the state records how the run ended.

    Args:
        settings: how many jobs run at a time and where, and the callbacks, which are called on the calling thread.
        may_go_on: whether the workflow can continue after an answer that its own check passed.
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
        prices = settings.batch_prices
        timed = None if prices is None else TimedPaths(prices.timed_paths)
        paths = ActivePaths(sampler, state.template, may_go_on=may_go_on, timed=timed)
        self.state = state
        self._commit = CanonicalCommit(state, paths, sampler if isinstance(sampler, DecidingSampler) else None, settings)
        self._admission = Admission(state, paths, settings.execution.workers)
        self._reporter = ProgressReporter(state, self._commit, settings)
        self._worker = worker
        self._threads = None if settings.execution.isolation == "inline" else Threads(worker)

    def run(self) -> None:
        """Run jobs until the run stops. If an exception ended the run, raise it once the running jobs are written."""
        state = self.state
        # Checked before anything is paid for: the existing rows may be enough.
        if not self._commit.stop_if_done():
            if (known := state.cells.cut_off.message) is not None:
                state.stop("cut-off", known)
            elif (known := state.cells.first_answers.message) is not None:
                state.stop("none-right", known)
        finished: list[UnitFinished] = []
        with Interrupts(is_inline=self._threads is None) as interrupts:
            try:
                while state.stopped_by is None or state.running:
                    if interrupts.count and state.stopped_by in _GOES_ON:
                        state.interrupt()
                        self._reporter.report()
                    # An exception inside would undo the transaction but not what this process has recorded about it.
                    with interrupts.deferred():
                        with state.store.together():
                            jobs = self._write_and_admit(finished)
                        self._admission.answer()
                    self._reporter.report_rows()
                    finished = self._dispatch(jobs, interrupts) or self._collect(interrupts)
                if interrupts.count and state.stopped_by in _GOES_ON:  # since the last turn of the loop
                    state.interrupt()
            except KeyboardInterrupt:
                self._abandon()
            finally:
                if self._threads is not None:
                    self._threads.close()
        if state.problem is not None:
            raise state.problem

    def _write_and_admit(self, finished: list[UnitFinished]) -> list[Job]:
        """Write the results of finished jobs and reserve money for the jobs to start, in one transaction; return these jobs."""
        for message in finished:
            self.state.finish(message)
        self._commit.advance()
        return self._admission.jobs()

    def _dispatch(self, jobs: list[Job], interrupts: Interrupts) -> list[UnitFinished]:
        """Start jobs whose reservations are durable. Jobs that run inline end before this returns; return their messages."""
        if self._threads is not None:
            for job in jobs:
                self._threads.start(job)
            return []
        with interrupts.allowed():
            return [run_job(self._worker, job, partial(self.state.top_up, job.cell)) for job in jobs]

    def _collect(self, interrupts: Interrupts) -> list[UnitFinished]:
        """Wait for a message of a running job, then return all messages that have arrived."""
        finished: list[UnitFinished] = []
        while self._threads is not None and self.state.running:
            try:
                message = self._threads.messages.get(timeout=_WAIT_S) if not finished else self._threads.messages.get_nowait()
            except queue.Empty:
                interrupts.check()
                if finished or (interrupts.count and self.state.stopped_by is None):
                    break
                continue
            # Back to the loop at once: this unit holds its worker until it has an answer. A unit that asks for money is still
            # running; one that has finished frees its worker.
            if isinstance(message, TopUpRequest):
                self._admission.waiting.append(message)
                break
            self._threads.release()
            finished.append(message)
        return finished

    def _abandon(self) -> None:
        """Handle a second Ctrl-C: stop without waiting for running jobs."""
        self.state.interrupt()
        self._worker.close()
        self._admission.refuse_all()
        self.state.abandon()


class CanonicalCommit:
    """Commits results, that is, counts them, in the order of the request paths (docs/architecture.md#invariants).

    The order does not depend on when results were written, so the run stops at the same call as a sequential run.

    Args:
        racing: the sampler, if it begins with a comparison of single models. If the current setup is known, the coverage does
            not stop the run before the comparison ends.
        settings: has the callback for the results of the comparison.
    """

    def __init__(self, state: RunState, paths: ActivePaths, racing: DecidingSampler | None, settings: ProfileSettings) -> None:
        self._state, self._paths = state, paths
        self._racing, self._tell, self._compared = racing, settings.on_single_models, settings.compared
        self._counted, self._look = settings.counted, settings.look
        self._is_held = racing is not None and state.template.today is not None
        self._observations: dict[Cell, Observation] = {}  # the observations that the sampler receives, in order
        self._classes: dict[Cell, int | None] = {}
        self._sizes: Counter[str] = Counter()  # rows of each request when its classes were computed
        self._missing = [(request, run) for request in state.requests for run in self._awaited_runs()]

    @property
    def asking(self) -> str:
        """A short description of the oldest path in progress; empty if there is none.

        During the comparison of single models, it names the model and the position of the request; later, the models of the
        path.
        """
        if not self._paths.active:
            return ""
        first = self._paths.active[0]
        if self._racing is not None:
            return self._racing.asking(first.round, first.request_id, first.choices)
        return " > ".join(first.models)

    def advance(self) -> None:
        """Commit all results that come before the first call without a result, in the order of the paths.

        Begins the sampler's next round when all paths of a round are committed; stops the run if the sampler proposes no more.
        """
        paths = self._paths
        while self._state.stopped_by is None:
            if paths.active or paths.take():
                if not self._commit_path(paths.active[0]):
                    return
                paths.active.pop(0)
            elif not self._next_round():
                self._state.stop("sampler")

    def _next_round(self) -> bool:
        """Begin the sampler's next round; return False if the sampler has nothing more to propose."""
        try:
            rows = self._classified()
            rows = rows if self._compared is None else tuple(self._compared(rows))
            racing = self._racing
            if racing is not None and not racing.is_racing(self._paths.round + 1, rows):
                self._racing, self._is_held = None, False
                if self._tell is not None and self._state.executed:  # otherwise an earlier run has reported them
                    self._tell(racing.single_models(rows, self._counted))
                if self.stop_if_done():
                    return True
            return self._paths.next_round(rows)
        except WorkflowError as error:  # from agree: the rows of the units that just ended are kept
            self._state.fail(error)
            return True

    def _classified(self) -> tuple[Observation, ...]:
        """Return the committed results in order, with the answer classes (equal answers of a request) that the sampler needs.

        The classes are computed from these results only, so that they do not depend on timing.
        """
        signals, rows = self._state.signals, self._observations
        if not signals.answer:
            return tuple(rows.values())
        sizes = Counter(request_id for request_id, _ in rows)
        # Only requests with new rows are compared again: the comparison is workflow code and may take long.
        grown = {request_id for request_id, size in sizes.items() if self._sizes.get(request_id) != size}
        self._classes |= answer_classes((row for row in rows.values() if row.request_id in grown), signals).of
        self._sizes = sizes
        return tuple(replace(row, answer_class=self._classes.get(cell)) for cell, row in rows.items())

    def stop_if_done(self) -> bool:
        """Stop the run if it is complete, or has reached its coverage or the end of a step; return whether it stopped."""
        coverage, target = self._state.cells.coverage, self._state.ledger.limits.coverage
        by: StoppedBy | None = None
        if coverage.is_complete:
            by = "complete"
        elif self._is_held:
            return False
        elif target is not None and coverage.fraction >= target:
            by = "coverage"
        elif self._look is not None and self._look.is_due(coverage, self._lacks_nothing):
            by = "look"
        if by is not None:
            self._state.stop(by)
        return by is not None

    def _awaited_runs(self) -> list[Run]:
        """Return the runs of every request that end the step: those that the look lacks, and that of the current setup."""
        if self._look is None or not self._look.lacking:
            return []
        template = self._state.template
        return [*self._look.lacking, *([] if template.today is None else [whole_path(template, template.today)])]

    def _lacks_nothing(self) -> bool:
        """Return whether every request has the awaited runs. A run is not looked for again once it was found complete."""
        template, left = self._state.template, self._missing
        while left and run_of(self._observations, template, *left[-1])[1]:
            left.pop()
        return not left

    def _stop_if_broken(self, row: Observation) -> bool:
        """Stop the run if its results reveal a broken stage, a template that is too short, or no right answer; return whether
        it stopped.
        """
        cells = self._state.cells
        cut = cells.cut_off.add(row)
        broken, none_right = cells.first_rows.add(row), cells.first_answers.add(row)
        if broken is not None:
            self._state.stop("broken", broken)
        elif cut is not None:
            self._state.stop("cut-off", cut)
        elif none_right is not None:
            self._state.stop("none-right", none_right)
        return broken is not None or cut is not None or none_right is not None

    def _commit_path(self, path: ActivePath) -> bool:
        """Commit the path's calls; return False at a call without a result, or if the run stops."""
        cells, rule = self._state.cells, self._state.template.stop
        # Done before the path's own cells: the bound of the next block is copied here, and may have learned only from whole
        # paths.
        cells.price_bounds.reached(path.number)
        # Committed means shown to the sampler and counted towards coverage and stops. The row was written long before.
        while path.committed < path.resolve(cells.rows, rule):
            cell = path.cell(path.committed + 1)
            row = cells.rows.get(cell)
            # The first cell without a row stops the commit, even if later cells have rows: they count when their turn comes.
            # Because of this, a resumed run, and one with more workers, stops at the same row.
            if row is None:
                return False
            self._observations[cell] = row
            path.committed += 1
            if cells.commit(cell) and (self._stop_if_broken(row) or self.stop_if_done()):
                return False
            if path.ends_at(row, rule):
                break
        return True


class ProgressReporter:
    """Calls the callback ``on_progress`` once for each result; does nothing without that callback."""

    def __init__(self, state: RunState, commit: CanonicalCommit, settings: ProfileSettings) -> None:
        self._state, self._commit, self._on_progress, self._look = state, commit, settings.on_progress, settings.look
        self._reported = 0

    def report_rows(self) -> None:
        """Report the results that were added since this method was last called, one by one."""
        first, self._reported = self._reported + 1, self._state.executed
        for executed in range(first, self._reported + 1):
            self.report(executed)

    def report(self, executed: int | None = None) -> None:
        """Report the current state of the run. ``executed`` is the number of executed jobs to report; None reports all."""
        if self._on_progress is not None:
            progress = replace(self._state.progress(), asking=self._commit.asking)
            if self._look is not None:
                progress = replace(progress, target=self._look.coverage, look_usd=self._look.next_usd)
            self._on_progress(progress if executed is None else replace(progress, executed=executed))
