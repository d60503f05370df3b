"""Profiling without checkpoints: every leaf path of every request is executed from its first invocation and paid in full.

Today this only measures what checkpoints save (VineLM paper, Table 2): a cell has one row as ever, and what it cost each time
is in the ledger. It is where *replayed prefixes* will go, for graphs whose state cannot be checkpointed: a path executed from
its start whose earlier calls are answered from recorded rows, so that only the last one is paid for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import NamedTuple, cast

from vinelm.errors import BudgetExhausted, VineLMError
from vinelm.observation import Cell, Observation
from vinelm.profiler.budget.ledger import PriceBound
from vinelm.profiler.execution.job import Job, UnitOutcome, Worker, stage_of
from vinelm.profiler.results import Progress
from vinelm.profiler.scheduling.admission import MARGIN
from vinelm.profiler.scheduling.run_state import RunState
from vinelm.protocols import RequestPath


class _ModelPath(NamedTuple):
    """A request path of a linear template: there each choice is a model."""

    request_id: str
    path: tuple[str, ...]


class UncheckpointedRun:
    """Runs request paths from their start, several at a time on threads. A path that was cut short is executed again in full.

    Paths run side by side only while the budgets hold all of them at any price: near a budget each waits for the ones before
    it, so that the budget cuts short the same path as with one worker.

    Args:
        worker: runs the units.
        state: of the run.
        workers: the number of paths that run at a time.
        on_progress: called after each unit, on the thread that ran it; ``spent_usd`` is all that was settled, since cells are
            paid for repeatedly.
    """

    def __init__(
        self, worker: Worker, state: RunState, workers: int, on_progress: Callable[[Progress], None] | None = None
    ) -> None:
        self.state = state
        self._worker = worker
        self._workers = workers
        self._on_progress = on_progress
        self._rule = state.template.stop
        self._price_bound = PriceBound(state.catalog)
        self._times_paid = state.records.times_paid()
        self._lock = Lock()  # for the state
        self._is_abandoned = False

    def run(self, paths: Iterable[RequestPath]) -> None:
        """Run all of them, or until a budget or Ctrl-C ends the run. Raises what a unit raised."""
        state, every = self.state, (_ModelPath(path.request_id, cast("tuple[str, ...]", path.path)) for path in paths)
        remaining = (path for path in every if not self._is_paid(path))
        with ThreadPoolExecutor(self._workers) as pool:
            running: dict[Future[None], _ModelPath] = {}
            following = next(remaining, None)
            try:
                while running or (following is not None and state.stopped_by is None):
                    while following is not None and self._may_start(following, running.values()):
                        running[pool.submit(self._run_path, following)] = following
                        following = next(remaining, None)
                    for finished in wait(running, return_when=FIRST_COMPLETED).done:
                        del running[finished]
            except KeyboardInterrupt:
                self._is_abandoned = True
                state.stopped_by = "interrupted"  # in place of any other reason
                self._worker.close()
        if state.problem is not None:
            raise state.problem
        if self._is_abandoned:
            state.abandon()
        state.stop("complete")

    def _may_start(self, path: _ModelPath, running: Collection[_ModelPath]) -> bool:
        """Whether the path may start now: nothing runs before it, or the budgets hold it and all of those at any price."""
        if not running:
            return self.state.stopped_by is None
        if len(running) >= self._workers or self.state.stopped_by is not None:
            return False
        with self._lock:
            units = [self._upper(one.path[: k + 1]) for one in (*running, path) for k in range(len(one.path))]
            upper_usd, upper_calls = MARGIN * sum(usd for usd, _ in units), math.ceil(MARGIN * sum(calls for _, calls in units))
            return self.state.ledger.refusal(upper_usd, upper_calls) is None

    def _upper(self, prefix: tuple[str, ...]) -> tuple[float, int]:
        stage = stage_of(self.state.template, len(prefix), ())
        return self._price_bound.usd(stage, prefix[-1]), self._price_bound.calls(stage)

    def _is_paid(self, path: _ModelPath) -> bool:
        """Whether an earlier run paid for the path: each of its cells once more than the paths before it account for."""
        cells = []
        for length in range(1, len(path.path) + 1):
            cell = (path.request_id, path.path[:length])
            if not self._times_paid[cell]:
                return False
            cells.append(cell)
            if self.state.cells.rows[cell].ended(self._rule):
                break
        self._times_paid.subtract(cells)
        return True

    # -- on the pool's threads ---------------------------------------------------------------------------------

    def _run_path(self, path: _ModelPath) -> None:
        """Run its units one after the other, until it ends or the run stops."""
        checkpoint: bytes | None = None
        try:
            for length in range(1, len(path.path) + 1):
                outcome = self._run_unit((path.request_id, path.path[:length]), checkpoint)
                if outcome is None or outcome.observation is None or outcome.observation.ended(self._rule):
                    return
                checkpoint = outcome.checkpoint
        except BaseException as error:
            with self._lock:
                if not self._is_abandoned:  # otherwise the worker was closed under it
                    self.state.fail(error)

    def _run_unit(self, cell: Cell, parent: bytes | None) -> UnitOutcome | None:
        """Reserve, run and settle one unit; None where the run has stopped."""
        state, (request_id, prefix) = self.state, cell
        with self._lock:
            if state.stopped_by is not None:
                return None
            try:
                reservation = state.ledger.reserve(request_id, prefix, *self._upper(prefix))
            except BudgetExhausted as error:
                state.stop("budget", str(error))
                return None
        with self._lock:
            known = state.verdicts(request_id)
        job = Job(state.requests[request_id], prefix, parent, reservation.upper_usd, judged=known)
        outcome = self._worker.run(job, partial(state.top_up, reservation))
        with self._lock:
            row = outcome.observation
            if self._is_abandoned and row is not None and row.failure == "crash":
                return None  # killed by Ctrl-C: its entry stays open and is charged at its bound
            if row is not None:
                self._refuse_different(cell, row)
            state.settle(reservation, replace(outcome, checkpoint=None))
            if cell in state.cells.rows:
                state.cells.commit(cell)
            if row is not None and state.problem is None:
                self._price_bound.add(row)
                self._report()
        return outcome

    def _refuse_different(self, cell: Cell, row: Observation) -> None:
        """Refuse an outcome that contradicts the cell's row: the ledger and the rows would no longer agree."""
        known = self.state.cells.rows.get(cell)
        if row.failure != "auth" and known is not None and known.ended(self._rule) != row.ended(self._rule):
            where = f"request {cell[0]!r}, prefix {'/'.join(cell[1])}"
            raise VineLMError(
                f"{where} ended differently when it was executed again: without checkpoints, models must repeat their answers",
                code="outcome-differs",
            )

    def _report(self) -> None:
        if self._on_progress is not None:
            progress = self.state.progress()
            self._on_progress(replace(progress, spent_usd=progress.committed_usd))
