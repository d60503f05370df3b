"""Evaluates a store's results again before a run, from the states stored after them, without running a stage again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial

from vinelm.errors import BudgetExhausted
from vinelm.judging import Judgement
from vinelm.profiler.execution.job import Job, TopUp, UnitOutcome, Worker, run_job
from vinelm.profiler.execution.judging import Judging
from vinelm.profiler.execution.ledger import Ledger, Reservation
from vinelm.profiler.execution.replayed.runner import Units
from vinelm.profiler.scheduling.settings import ProfileSettings
from vinelm.requests.workflow import Request
from vinelm.rows.observation import Cell, Observation
from vinelm.traces import ObservationStore
from vinelm.traces.store.judgements import Judgements


@dataclass(frozen=True)
class KeptRows:
    """The results of a store at the start of a run, and the states stored after them, which can be scored again.

    Attributes:
        store: the store; the caller must have locked it.
        units: runs jobs in this process.
        worker: the worker that scores states; ``settings`` limit how many it scores at a time.
        settings: the settings of the profile.
        every: all requests of the workflow and of the run.
    """

    store: ObservationStore
    units: Units
    worker: Worker
    settings: ProfileSettings
    every: Sequence[Request]

    @cached_property
    def requests(self) -> Mapping[str, Request]:
        """All requests, by id."""
        return {request.id: request for request in self.every}

    def job(
        self,
        cell: Cell,
        state: bytes | None,
        stopped: Mapping[Cell, bool] | None,
        judged: Mapping[str, bool] | None = None,
    ) -> Job:
        """Return the job that scores a stored state.

        Args:
            cell: the request id and the models of the result.
            state: the state after the result.
            stopped: for a result that follows a passed answer: whether each answer passed the workflow's own check, keyed by
                (request id, models). None for other results.
            judged: see :class:`~vinelm.profiler.execution.job.Job`.
        """
        request_id, prefix = cell
        before = () if stopped is None else tuple((request_id, prefix[:length]) for length in range(1, len(prefix)))
        passed = tuple(stopped.get(one, False) for one in before) if stopped is not None else ()
        return Job(self.requests[request_id], prefix, state, 0.0, is_scoring=True, passed=passed, judged=judged)

    def evaluated(self, job: Job, top_up: TopUp = lambda _upper_usd: False) -> UnitOutcome:
        """Run a job made by :meth:`job`, which evaluates the state stored with a result; return the job's outcome.

        ``top_up`` decides whether a model call, such as a judge's, may reserve money. The default refuses every call.
        """
        finished = run_job(self.worker, job, top_up)
        if finished.problem is not None:
            raise finished.problem
        assert finished.outcome is not None
        return finished.outcome

    def stopped(self) -> dict[Cell, bool]:
        """Return whether each result's answer passed the workflow's own check, keyed by (request id, models)."""
        return {(row.request_id, row.prefix): row.stopped is True for row in self.store.observations()}

    def pool(self) -> ThreadPoolExecutor:
        """Return the pool of threads that evaluate states."""
        return ThreadPoolExecutor(self.settings.execution.workers)


def verdicts_of(found: Mapping[Cell, Judgement]) -> dict[str, dict[str, bool]]:
    """Return, for each request id, the judge's verdicts: for each question to the judge, whether it found the answer right.

    The inner keys are digests of the questions.
    """
    known: dict[str, dict[str, bool]] = {}
    for (request_id, _), judgement in found.items():
        if judgement.correct is not None:
            known.setdefault(request_id, {})[judgement.asked] = judgement.correct
    return known


class PendingRows:
    """Lets the currently declared judge score the results of the store that this judge has not scored.

    Args:
        rows: the store's results.
        ledger: reserves and books the judge's cost.
        judging: the judge.
    """

    def __init__(self, rows: KeptRows, ledger: Ledger, judging: Judging) -> None:
        self._rows, self._ledger, self._judging = rows, ledger, judging
        self._records = Judgements(rows.store)
        self._found = self._records.latest()
        self._known = verdicts_of(self._found)

    def judge(self) -> str | None:
        """Let the judge score the results, several at a time, until all are scored or the budget is reached. Spends money.

        Returns:
            One line about the scored results; None if there were none to score.
        """
        waiting, is_over, workers = list(self._waiting()), False, self._rows.settings.execution.workers
        n_asked = n_judged = 0
        with self._rows.pool() as pool:
            for start in range(0, len(waiting), workers):
                # At most as many at a time as there are workers: later rows then know these verdicts, and equal answers are
                # judged once.
                jobs = [reserved for job in waiting[start : start + workers] if (reserved := self._reserved(job)) is not None]
                is_over = len(jobs) < len(waiting[start : start + workers])
                # In the order of the rows, whichever answer comes first, so that the store is written in a fixed order.
                for done in pool.map(self._run, jobs):
                    judgement = self._settle(*done)
                    n_asked += judgement is not None
                    n_judged += judgement is not None and judgement.correct is not None
                    is_over |= judgement is not None and judgement.is_refused
                if is_over:
                    break
        if not (n_asked or is_over):
            return None
        end = ", until the budget was reached" if is_over else ""
        every = len(waiting) if is_over else n_asked
        return f"the judge {self._judging.entry.name} judged {n_judged} of {every} earlier rows{end}"

    def _waiting(self) -> Iterator[Job]:
        store, template, requests = self._rows.store, self._rows.units.template, self._rows.requests
        stopped = self._rows.stopped()
        for row in store.observations():
            cell, request = (row.request_id, row.prefix), requests.get(row.request_id)
            if request is None or row.failure is not None or not template.stage(row.stage).answerable:
                continue
            found = self._found.get(cell)
            if found is not None and self._holds(found, row, request):
                continue
            state = store.checkpoint(*cell)
            if state is not None:
                yield self._rows.job(cell, state, stopped if row.is_continued else None, judged={})

    def _holds(self, found: Judgement, row: Observation, request: Request) -> bool:
        """Return whether a stored judgement of a result is still valid.

        It is valid if its verdict is the result's success, and neither the judge nor the label has changed since.
        """
        is_verdict = found.correct is not None and found.correct is row.success and found.judge == self._judging.digest
        return is_verdict and found.label == self._judging.label_digest(request)

    def _reserved(self, job: Job) -> tuple[Job, Reservation] | None:
        """Return the job with a new reservation of $0; None if the budget is exhausted.

        The amount of the reservation is increased before the judge is first called.
        """
        try:
            # An answer equal to a judged one costs nothing. The judge's first call raises the reservation.
            reservation = self._ledger.reserve(*job.cell, 0.0, 0)
        except BudgetExhausted:
            return None
        return replace(job, judged=self._known.get(job.request.id, {})), reservation

    def _run(self, item: tuple[Job, Reservation]) -> tuple[Job, Reservation, UnitOutcome]:
        job, reservation = item
        return job, reservation, self._rows.evaluated(job, partial(self._ledger.top_up, reservation))

    def _settle(self, job: Job, reservation: Reservation, outcome: UnitOutcome) -> Judgement | None:
        """Book the judge's cost, write the judgement, and return it.

        None if the judge was not asked, because the state after the result is not available.
        """
        judgement = outcome.judgement
        # Written together: the next run would pay again for a price without its judgement.
        with self._rows.store.database.transaction():
            if judgement is not None:
                self._records.add(*job.cell, judgement)
            self._ledger.settle_without_row(reservation, outcome.paid_usd or 0.0)
        if judgement is not None and judgement.correct is not None:
            self._known.setdefault(job.request.id, {})[judgement.asked] = judgement.correct
        return judgement
