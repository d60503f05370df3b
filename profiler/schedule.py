"""The loop of a profile: start what is certain to be admitted, write what came back, count in canonical order, stop."""

from __future__ import annotations

import queue
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from vinelm.catalog import Catalog
from vinelm.errors import BudgetExhausted, ConfigError, StoreError
from vinelm.observation import Observation
from vinelm.profiler.account import Account
from vinelm.profiler.coverage import Outlook
from vinelm.profiler.crew import Asked, Ended, Threads, run_job
from vinelm.profiler.interrupts import Interrupts
from vinelm.profiler.ledger import Ledger, Reservation
from vinelm.profiler.progress import Progress, StoppedBy
from vinelm.profiler.sampling import Sampler
from vinelm.profiler.walking import Going, Walks
from vinelm.profiler.work import Cell, Job, Refused, Worker
from vinelm.template import Template
from vinelm.traces.run_records import RunRecords
from vinelm.traces.store import ObservationStore

_ROOM = 8.0  # a unit is taken to cost at most this many times its first reservation: bounds are learned, and may be raised
_WAIT_S = 0.2  # how long a Ctrl-C may go unnoticed


@dataclass(frozen=True)
class Terms:
    """What a run may do. ``workers`` None: one unit at a time, on this very thread."""

    template: Template
    catalog: Catalog
    target: float | None
    workers: int | None
    is_virtual_time: bool
    on_progress: Callable[[Progress], None] | None


class Schedule:
    """One run over one store, on the calling thread. After :meth:`run`: ``stopped_by`` and ``message``."""

    def __init__(self, worker: Worker, store: ObservationStore, ledger: Ledger, account: Account, terms: Terms) -> None:
        self.worker, self.store, self.ledger, self.account, self.terms = worker, store, ledger, account, terms
        self.records = RunRecords(store)
        self.stopped_by: StoppedBy | None = None
        self.message = ""
        self.executed = 0
        self.calls = 0
        self.failures: Counter[str] = Counter()
        self._crew = None if terms.workers is None else Threads(worker)
        self._running: dict[Cell, Reservation] = {}
        self._company: dict[Cell, int] = {}  # units on the same engine when it started, where time is real
        self._asking: list[Asked] = []
        self._problem: BaseException | None = None
        self._new_rows: list[Observation] = []

    # -- the loop ----------------------------------------------------------------------------------------------

    def run(self, sampler: Sampler) -> None:
        """Until something stops it. Raises what a unit raised, after the units in flight are written."""
        self._stop_if_done()
        visited: dict[Cell, Observation] = {}
        walks = Walks(sampler)
        ended: list[Ended] = []
        with Interrupts(is_inline=self._crew is None) as interrupts:
            try:
                while self.stopped_by is None or self._running:
                    if interrupts.count and self.stopped_by is None:
                        self._stop("interrupted")
                        self._tell(self._progress())
                    with interrupts.deferred(), self.records.together():
                        self._write(ended)
                        ended = []
                        self._count(walks, visited)
                        jobs = self._admit(walks)
                    self._report()
                    ended = self._dispatch(jobs, interrupts) or self._collect(interrupts)
            except KeyboardInterrupt:
                self._abandon()
            finally:
                if self._crew is not None:
                    self._crew.close()
        if self._problem is not None:
            raise self._problem

    def _dispatch(self, jobs: list[Job], interrupts: Interrupts) -> list[Ended]:
        """Their reservations are durable: let them run. What came back already, if they run here."""
        if self._crew is not None:
            for job in jobs:
                self._crew.start(job)
            return []
        with interrupts.allowed():
            return [run_job(self.worker, job, partial(self._top_up, job.cell)) for job in jobs]

    def _collect(self, interrupts: Interrupts) -> list[Ended]:
        """Wait for a message, then take all that are there."""
        ended: list[Ended] = []
        while self._crew is not None and self._running:
            try:
                message = self._crew.messages.get(timeout=_WAIT_S) if not ended else self._crew.messages.get_nowait()
            except queue.Empty:
                if ended or (interrupts.count and self.stopped_by is None):
                    break
                continue
            if isinstance(message, Asked):
                self._asking.append(message)
                break
            self._crew.ended()
            ended.append(message)
        return ended

    def _abandon(self) -> None:
        """The person does not want to wait for the units in flight."""
        self._stop("interrupted")
        self.stopped_by = "interrupted"
        self.worker.close()
        for asked in self._asking:
            asked.answer(False)
        self._running.clear()
        self.store.abandon_open()

    # -- what came back ----------------------------------------------------------------------------------------

    def _write(self, ended: list[Ended]) -> None:
        for message in ended:
            reservation = self._running.pop(message.job.cell)
            outcome = message.outcome
            if outcome is None:
                self._problem = self._problem or message.problem
                self._stop("interrupted")
                continue  # its entry stays open: nobody knows what it cost
            if isinstance(outcome, Refused):
                self.ledger.settle_again(reservation, outcome.paid_usd)
                self._stop("budget", "the next call may cost more than is left of the budget")
                continue
            row = replace(outcome.observation, in_flight=self._company.pop(message.job.cell, 0))
            if row.failure == "auth":  # no property of the model, and every further call would fail alike
                self.ledger.settle_again(reservation, row.cost_usd)
                self._problem = self._problem or ConfigError(f"model {row.model!r}: {self._key_hint(row.model)}")
                self._stop("interrupted")
                continue
            checkpoint = None if row.ended(self.terms.template.stop) else outcome.checkpoint  # nobody goes on from an end
            self.ledger.settle(reservation, row, checkpoint, paid_usd=outcome.paid_usd)
            self._keep(row)

    def _keep(self, row: Observation) -> None:
        used_up = self.account.keep(row)
        if used_up is not None:
            self.records.drop_checkpoint(*used_up)
        self.executed += 1
        self.calls += row.calls
        if row.failure is not None:
            self.failures[row.failure] += 1
        self._new_rows.append(row)

    def _key_hint(self, model: str) -> str:
        variable = self.terms.catalog[model].api_key_env
        mend = f"check the environment variable {variable}" if variable else "check its credentials"
        return f"the provider refused the key: {mend}"

    # -- counting in order -------------------------------------------------------------------------------------

    def _count(self, walks: Walks, visited: dict[Cell, Observation]) -> None:
        """Everything up to the first cell without a row; stop where a run of one unit at a time would."""
        rule = self.terms.template.stop
        while self.stopped_by is None:
            if not walks.going and not walks.pull():
                if not walks.next_round(tuple(visited.values())):
                    return self._stop("sampler")
                continue
            going = walks.going[0]
            self.account.bounds.reached(going.number)
            is_over = False
            while not is_over and going.counted < len(going.path):
                cell = going.cell(going.counted + 1)
                row = self.account.known.get(cell)
                if row is None:
                    return None
                visited[cell] = row
                going.counted += 1
                is_over = row.ended(rule)
                if self.account.count(cell) and self._stop_if_done():
                    return None
            walks.going.pop(0)
        return None

    def _stop_if_done(self) -> bool:
        is_complete = self.account.coverage.is_complete
        is_done = is_complete or (self.terms.target is not None and self.account.coverage.fraction >= self.terms.target)
        if is_done:
            self._stop("complete" if is_complete else "coverage")
        return is_done

    def _stop(self, by: StoppedBy, message: str = "") -> None:
        if self.stopped_by is None:
            self.stopped_by, self.message = by, message

    # -- admitting ---------------------------------------------------------------------------------------------

    def _admit(self, walks: Walks) -> list[Job]:
        """Units that a run of one at a time would come to, whatever those before them say. Their money is set aside."""
        if self.stopped_by is not None:
            for asked in self._asking:
                asked.answer(bool(self._grant(asked, 0.0, is_first=True)))
            self._asking.clear()
            return []
        scan = _Scan(self, walks)
        return scan.jobs()

    def _grant(self, asked: Asked, before_usd: float, *, is_first: bool) -> bool | None:
        """Yes, no, or None: the units before it must be settled first."""
        reservation = self._running[asked.cell]
        extra = asked.upper_usd - reservation.upper_usd
        if self.ledger.refusal(before_usd + max(extra, 0.0)) is None:
            self.ledger.top_up(reservation, asked.upper_usd)
            return True
        return False if is_first else None

    def _top_up(self, cell: Cell, upper_usd: float) -> bool:
        """The same for a unit on this thread: nothing is before it."""
        try:
            self.ledger.top_up(self._running[cell], upper_usd)
        except BudgetExhausted:
            return False
        return True

    def job(self, cell: Cell, reservation: Reservation) -> Job:
        """The unit of a cell, with the state to go on from."""
        request_id, prefix = cell
        parent = self.store.checkpoint(request_id, prefix[:-1]) if len(prefix) > 1 else None
        if len(prefix) > 1 and parent is None:
            raise StoreError(
                f"{self.store.path}: request {request_id!r} has no checkpoint after {'/'.join(prefix[:-1])}: "
                "its row was imported, or the file is damaged: give another store"
            )
        self._running[cell] = reservation
        if not self.terms.is_virtual_time:
            engine = self.terms.catalog[prefix[-1]].engine
            others = sum(self.terms.catalog[other[-1]].engine == engine for _, other in self._running)
            self._company[cell] = others - 1
        return Job(self.account.requests[request_id], prefix, parent, reservation.upper_usd)

    # -- telling -----------------------------------------------------------------------------------------------

    def _report(self) -> None:
        if self.terms.on_progress is None:
            return
        told = len(self._new_rows)
        for left in range(told - 1, -1, -1):
            self._tell(replace(self._progress(), executed=self.executed - left))
        self._new_rows.clear()

    def _tell(self, progress: Progress) -> None:
        if self.terms.on_progress is not None:
            self.terms.on_progress(progress)

    def _progress(self) -> Progress:
        coverage = self.account.coverage
        return Progress(
            executed=self.executed,
            failures=dict(self.failures),
            coverage=coverage.fraction,
            target=self.terms.target,
            spent_usd=coverage.spent_usd,
            budget_usd=self.ledger.budget_usd,
            committed_usd=self.ledger.committed_usd,
            calls=self.calls,
            in_flight=len(self._running),
            interval=self.account.interval(),
            is_draining=self.stopped_by is not None and bool(self._running),
        )


class _Scan:
    """One look over the walks under way, in order, for what may be started now."""

    def __init__(self, schedule: Schedule, walks: Walks) -> None:
        self._run = schedule
        self._walks = walks
        self._account = schedule.account
        self._before: set[Cell] = set()  # cells without a row that may come before the one that is looked at
        self._before_usd = 0.0  # what they may cost, as far as it is not set aside
        self._before_calls = 0
        self._asking = {asked.cell: asked for asked in schedule._asking}
        target = schedule.terms.target
        self._outlook = Outlook(self._account.coverage) if target is not None else None
        self._may_cover = False  # the outlook reaches the target: nothing further on is certain
        busy = len(schedule._running) - len(self._asking)
        self._free = (schedule.terms.workers or 1) - busy

    def jobs(self) -> list[Job]:
        """Reserve and return them. Units that wait for money are answered where that is certain."""
        jobs: list[Job] = []
        index = 0
        while (self._free > 0 or self._asking) and (index < len(self._walks.going) or self._walks.pull()):
            going = self._walks.going[index]
            index += 1
            frontier = going.frontier(self._account.known, self._run.terms.template.stop)
            self._foresee_known(going)
            if frontier is None:
                continue
            cell = going.cell(frontier)
            if cell in self._asking:
                self._answer(cell)
            elif cell not in self._run._running and cell not in self._before and self._free > 0:
                job = self._start(going, frontier)
                if job is None:
                    self._free = 0
                    if not self._asking:
                        break
                else:
                    jobs.append(job)
                    self._free -= 1
            self._foresee(going, frontier)
        return jobs

    def _start(self, going: Going, length: int) -> Job | None:
        run, cell = self._run, going.cell(length)
        upper_usd, upper_calls = self._upper(going, length)
        refusal = run.ledger.refusal(self._before_usd + upper_usd, self._before_calls + upper_calls)
        if refusal is not None:
            if not self._before:
                run._stop("budget", run.ledger.refusal(upper_usd, upper_calls) or refusal)
            return None
        if self._before and self._is_covered_perhaps():
            return None
        return run.job(cell, run.ledger.reserve(*cell, upper_usd, upper_calls))

    def _is_covered_perhaps(self) -> bool:
        target = self._run.terms.target
        if self._outlook is not None and target is not None and not self._may_cover:
            self._may_cover = self._outlook.most >= target
        return self._may_cover

    def _answer(self, cell: Cell) -> None:
        asked = self._asking.pop(cell)
        answer = self._run._grant(asked, self._before_usd, is_first=not self._before)
        if answer is not None:
            self._run._asking.remove(asked)
            asked.answer(answer)

    def _upper(self, going: Going, length: int) -> tuple[float, int]:
        stage = self._run.terms.template.invocations[length - 1].name
        bound = self._account.bounds.of(going.number)
        return bound.usd(stage, going.path[length - 1]), bound.calls(stage)

    # -- what may come before --------------------------------------------------------------------------------------

    def _foresee_known(self, going: Going) -> None:
        """Rows that are there and not counted yet: their price is known."""
        if self._outlook is None:
            return
        for length in range(going.counted + 1, len(going.path) + 1):
            cell = going.cell(length)
            row = self._account.known.get(cell)
            if row is None:
                return
            if cell not in self._account.counted and cell not in self._before:
                self._before.add(cell)
                self._outlook.add(cell[1], row.cost_usd + row.tool_cost_usd, is_open=self._account.is_open(cell))
            if row.ended(self._run.terms.template.stop):
                return

    def _foresee(self, going: Going, frontier: int) -> None:
        """The rest of the walk, from its first cell without a row on."""
        for length in range(frontier, len(going.path) + 1):
            cell = going.cell(length)
            if cell in self._before:
                continue
            self._before.add(cell)
            reservation = self._run._running.get(cell)
            upper_usd, upper_calls = self._upper(going, length)
            if reservation is None:
                self._before_usd += upper_usd
                self._before_calls += upper_calls
            raised = 0.0 if reservation is None else reservation.upper_usd - upper_usd
            self._before_usd += max((_ROOM - 1) * upper_usd - raised, 0.0)
            if self._outlook is not None:
                held = upper_usd if reservation is None else reservation.upper_usd
                self._outlook.add(cell[1], held, is_open=self._account.is_open(cell))
