"""Profiling without checkpoints: every request on every leaf path from its first invocation, everything paid anew.

Nobody wants this but to measure what checkpoints save (the paper's Table 2). A cell has one row, as ever; what it cost again
and again is in the ledger.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from threading import Lock

from vinelm.catalog import Catalog
from vinelm.errors import BudgetExhausted, ConfigError, VineLMError
from vinelm.observation import Observation
from vinelm.profiler.budget.ledger import Ledger, PriceBound
from vinelm.profiler.execution.job import Cell, Job, Refused, Worker
from vinelm.profiler.results import Progress, StoppedBy
from vinelm.profiler.samplers import RequestPath
from vinelm.profiler.scheduling.admission import ROOM
from vinelm.profiler.scheduling.run_state import Account
from vinelm.template import StopRule
from vinelm.traces import ObservationStore, RunRecords


class Straight:
    """One such run; several walks at a time on threads. A walk that was cut short is made again from its start.

    Walks run beside one another only as long as the caps hold them all whatever they come to: near a cap each waits for the
    ones before it, so that a cap cuts short the same walk as with one worker.
    """

    def __init__(
        self,
        worker: Worker,
        store: ObservationStore,
        ledger: Ledger,
        account: Account,
        catalog: Catalog,
        *,
        workers: int,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self.worker, self.store, self.ledger, self.account = worker, store, ledger, account
        self.stopped_by: StoppedBy = "complete"
        self.message = ""
        self.executed = 0
        self.failures: Counter[str] = Counter()
        self._workers = workers
        self._on_progress = on_progress
        self._rule: StopRule = account.template.stop
        self._bound = PriceBound(catalog)
        self._paid = RunRecords(store).times_paid()
        self._lock = Lock()
        self._is_stopping = False

    def run(self, walks: Iterable[RequestPath]) -> None:
        """All of them, or until a cap is reached."""
        todo = (walk for walk in walks if not self._was_made(walk))
        with ThreadPoolExecutor(self._workers) as pool:
            running: dict[Future[None], RequestPath] = {}
            following = next(todo, None)
            try:
                while following is not None or running:
                    while following is not None and self._may_start(following, running.values()):
                        running[pool.submit(self._make, following)] = following
                        following = next(todo, None)
                    for one in wait(running, return_when=FIRST_COMPLETED).done:
                        del running[one]
                        one.result()
            except BudgetExhausted as error:
                self._is_stopping, self.stopped_by, self.message = True, "budget", str(error)
            except KeyboardInterrupt:
                self._is_stopping, self.stopped_by = True, "interrupted"
                self.worker.close()
            finally:
                self._is_stopping = True
        if self.stopped_by == "interrupted":
            self.store.abandon_open()

    def _may_start(self, walk: RequestPath, running: Collection[RequestPath]) -> bool:
        """Now: nothing is before it, or there is room for it and everything before it at any price."""
        if not running:
            return True
        if len(running) >= self._workers:
            return False
        with self._lock:
            units = [self._upper(one.path[: k + 1]) for one in (*running, walk) for k in range(len(one.path))]
            upper_usd, upper_calls = ROOM * sum(usd for usd, _ in units), math.ceil(ROOM * sum(calls for _, calls in units))
            return self.ledger.refusal(upper_usd, upper_calls) is None

    def _upper(self, prefix: tuple[str, ...]) -> tuple[float, int]:
        stage = self.account.template.invocations[len(prefix) - 1].name
        return self._bound.usd(stage, prefix[-1]), self._bound.calls(stage)

    def _was_made(self, walk: RequestPath) -> bool:
        """Its cells were all paid once more than by the walks before it."""
        cells = []
        for length in range(1, len(walk.path) + 1):
            cell = (walk.request_id, walk.path[:length])
            if not self._paid[cell]:
                return False
            cells.append(cell)
            if self.account.known[cell].ended(self._rule):
                break
        self._paid.subtract(cells)
        return True

    def _make(self, walk: RequestPath) -> None:
        checkpoint: bytes | None = None
        for length in range(1, len(walk.path) + 1):
            if self._is_stopping:
                return
            row, checkpoint = self._unit((walk.request_id, walk.path[:length]), checkpoint)
            if row.ended(self._rule):
                return

    def _unit(self, cell: Cell, parent: bytes | None) -> tuple[Observation, bytes | None]:
        request_id, prefix = cell
        with self._lock:
            upper_usd, upper_calls = self._upper(prefix)
            reservation = self.ledger.reserve(request_id, prefix, upper_usd, upper_calls)

        def top_up(upper_usd: float) -> bool:
            try:
                self.ledger.top_up(reservation, upper_usd)
            except BudgetExhausted:
                return False
            return True

        outcome = self.worker.run(Job(self.account.requests[request_id], prefix, parent, upper_usd), top_up)
        if isinstance(outcome, Refused):
            self.ledger.settle_again(reservation, outcome.paid_usd)
            raise BudgetExhausted("the next call may cost more than is left of the budget")
        row = outcome.observation
        if row.failure == "auth":
            self.ledger.settle_again(reservation, row.cost_usd)
            raise ConfigError(f"model {row.model!r}: the provider refused the key: check its credentials")
        paid_usd = row.cost_usd + row.tool_cost_usd if outcome.paid_usd is None else outcome.paid_usd
        with self._lock:
            if cell in self.account.known:
                self._same(cell, row)
                self.ledger.settle_again(reservation, paid_usd, row.calls)
            else:
                self.ledger.settle(reservation, row, None, paid_usd=paid_usd)
                self.account.keep(row)
                self.account.count(cell)
            self._bound.add(row)
            self._tell(row)
        return row, outcome.checkpoint

    def _same(self, cell: Cell, row: Observation) -> None:
        """The walk goes on from what it saw; a row that says otherwise would make the ledger and the rows disagree."""
        known = self.account.known[cell]
        if known.ended(self._rule) != row.ended(self._rule):
            where = f"request {cell[0]!r}, prefix {'/'.join(cell[1])}"
            raise VineLMError(f"{where} ended differently when it was run again: paths can only be compared if models repeat")

    def _tell(self, row: Observation) -> None:
        self.executed += 1
        if row.failure is not None:
            self.failures[row.failure] += 1
        if self._on_progress is not None:
            coverage, ledger = self.account.coverage, self.ledger
            progress = Progress(
                executed=self.executed, failures=dict(self.failures), coverage=coverage.fraction, target=None,
                spent_usd=ledger.committed_usd, budget_usd=ledger.budget_usd, committed_usd=ledger.committed_usd,
                calls=ledger.calls, interval=self.account.interval(),
            )  # fmt: skip
            self._on_progress(progress)
