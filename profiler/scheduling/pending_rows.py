"""Asks the judge about rows that it has not judged: the budget ran out, a call failed, or the judge or a label changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from vinelm.errors import BudgetExhausted
from vinelm.judging import Judgement
from vinelm.profiler.execution.job import Job, UnitFinished, Worker, run_job
from vinelm.profiler.execution.judging import Judging
from vinelm.profiler.execution.ledger import Ledger, Reservation
from vinelm.requests.workflow import Request
from vinelm.rows.observation import Cell, Observation
from vinelm.template import Template
from vinelm.traces import ObservationStore
from vinelm.traces.store.judgements import Judgements


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A row to judge, and the state after it."""

    row: Observation
    state: bytes
    passed: tuple[bool, ...]


def verdicts_of(found: Mapping[Cell, Judgement]) -> dict[str, dict[str, bool]]:
    """Return the verdicts of judgements by request, and by what the judge was asked."""
    known: dict[str, dict[str, bool]] = {}
    for (request_id, _), judgement in found.items():
        if judgement.correct is not None:
            known.setdefault(request_id, {})[judgement.asked] = judgement.correct
    return known


class PendingRows:
    """Judges the rows of a store that the judge, as it is declared now, has not judged.

    Args:
        store: held by the caller.
        ledger: reserves and settles what the judge costs.
        worker: evaluates states.
        judging: the judge.
        template: the bound template.
        requests: the requests whose rows are judged, by id.
    """

    def __init__(
        self, store: ObservationStore, ledger: Ledger, worker: Worker, *, judging: Judging, template: Template,
        requests: Mapping[str, Request],
    ) -> None:  # fmt: skip
        self._store, self._ledger, self._worker, self._judging = store, ledger, worker, judging
        self._template, self._requests = template, requests
        self._records = Judgements(store)
        self._found = self._records.latest()
        self._known = verdicts_of(self._found)

    def judge(self, workers: int, on_note: Callable[[str], None] | None) -> None:
        """Judge them, ``workers`` at a time, until all are or the budget is reached. Spends money, and writes to the store.

        Args:
            workers: how many at a time.
            on_note: called with one line if there were any.
        """
        waiting, is_over = list(self._waiting()), False
        n_asked = n_judged = 0
        with ThreadPoolExecutor(workers) as pool:
            for start in range(0, len(waiting), workers):
                jobs = [job for one in waiting[start : start + workers] if (job := self._job(one)) is not None]
                is_over = len(jobs) < len(waiting[start : start + workers])
                for done in pool.map(self._run, jobs):
                    judgement = self._settle(*done)
                    n_asked += judgement is not None
                    n_judged += judgement is not None and judgement.correct is not None
                    is_over |= judgement is not None and judgement.is_refused
                if is_over:
                    break
        if (n_asked or is_over) and on_note is not None:
            end = ", until the budget was reached" if is_over else ""
            every = len(waiting) if is_over else n_asked
            on_note(f"the judge {self._judging.entry.name} judged {n_judged} of {every} earlier rows{end}")

    def _waiting(self) -> Iterator[_Waiting]:
        rows = {(row.request_id, row.prefix): row for row in self._store.observations()}
        for cell, row in rows.items():
            request = self._requests.get(row.request_id)
            if request is None or row.failure is not None or not self._template.stage(row.stage).answerable:
                continue
            found = self._found.get(cell)
            if found is not None and self._holds(found, row, request):
                continue
            state = self._store.checkpoint(*cell)
            if state is not None:
                before = (rows.get((row.request_id, row.prefix[:n])) for n in range(1, len(row.prefix)))
                passed = tuple(one is not None and one.stopped is True for one in before) if row.is_continued else ()
                yield _Waiting(row, state, passed)

    def _holds(self, found: Judgement, row: Observation, request: Request) -> bool:
        """Whether it is a verdict of the judge as it is declared now, and the row has it."""
        is_verdict = found.correct is not None and found.correct is row.success and found.judge == self._judging.digest
        return is_verdict and found.label == self._judging.label_digest(request)

    def _job(self, one: _Waiting) -> tuple[Job, Reservation] | None:
        """The job with its reservation, of nothing at first; None if the budget allows none."""
        row = one.row
        try:
            reservation = self._ledger.reserve(row.request_id, row.prefix, 0.0, 0, is_new=False)
        except BudgetExhausted:
            return None
        known = self._known.get(row.request_id, {})
        request = self._requests[row.request_id]
        return Job(request, row.prefix, one.state, 0.0, is_scoring=True, passed=one.passed, judged=known), reservation

    def _run(self, item: tuple[Job, Reservation]) -> tuple[Job, Reservation, UnitFinished]:
        job, reservation = item

        def top_up(upper_usd: float) -> bool:
            try:
                self._ledger.top_up(reservation, upper_usd)
            except BudgetExhausted:
                return False
            return True

        return job, reservation, run_job(self._worker, job, top_up)

    def _settle(self, job: Job, reservation: Reservation, finished: UnitFinished) -> Judgement | None:
        """Settle what it cost and write the judgement; None if no answer can be seen yet."""
        if finished.problem is not None:
            raise finished.problem
        outcome = finished.outcome
        assert outcome is not None
        judgement = outcome.judgement
        with self._store.database.transaction():
            if judgement is not None:
                self._records.add(job.request.id, job.prefix, judgement)
            self._ledger.settle_without_row(reservation, outcome.paid_usd or 0.0)
        if judgement is not None and judgement.correct is not None:
            self._known.setdefault(job.request.id, {})[judgement.asked] = judgement.correct
        return judgement


__all__ = ["PendingRows", "verdicts_of"]
