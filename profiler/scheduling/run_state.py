"""The books of a run: every unit from its reservation to its row, and why the run stopped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from vinelm.catalog import Catalog
from vinelm.errors import BudgetExhausted, ConfigError, StoreError
from vinelm.observation import Observation
from vinelm.profiler.budget.ledger import Ledger, PriceBound, Reservation
from vinelm.profiler.config import Terms
from vinelm.profiler.coverage import Coverage
from vinelm.profiler.execution.job import Cell, Job, Refused
from vinelm.profiler.results import StoppedBy
from vinelm.profiler.scheduling.threads import UnitFinished
from vinelm.profiler.scheduling.walks import PriceBounds
from vinelm.template import Template
from vinelm.traces import ObservationStore, RunRecords
from vinelm.workflow import Request


class Books:
    """Used by the thread that decides, and by no other. ``running`` are the units that have a reservation and no row yet;
    ``problem`` is what a unit raised: the run ends with it.
    """

    def __init__(self, store: ObservationStore, ledger: Ledger, account: Account, terms: Terms) -> None:
        self.store, self.ledger, self.account, self.terms = store, ledger, account, terms
        self.records = RunRecords(store)
        self.running: dict[Cell, Reservation] = {}
        self.stopped_by: StoppedBy | None = None
        self.message = ""
        self.problem: BaseException | None = None
        self.executed = 0
        self.calls = 0
        self.failures: Counter[str] = Counter()
        self.new_rows = 0
        """Rows written since somebody was told."""
        self._company: dict[Cell, int] = {}  # units on the same engine when it started, where time is real

    def stop(self, by: StoppedBy, message: str = "") -> None:
        """Start nothing more. The first reason stays."""
        if self.stopped_by is None:
            self.stopped_by, self.message = by, message

    # -- before a unit -----------------------------------------------------------------------------------------

    def open(self, cell: Cell, upper_usd: float, upper_calls: int) -> Job:
        """Set its money aside. The unit, with the state to go on from."""
        request_id, prefix = cell
        reservation = self.ledger.reserve(*cell, upper_usd, upper_calls)
        parent = self.store.checkpoint(request_id, prefix[:-1]) if len(prefix) > 1 else None
        if len(prefix) > 1 and parent is None:
            raise StoreError(
                f"{self.store.path}: request {request_id!r} has no checkpoint after {'/'.join(prefix[:-1])}: "
                "its row was imported, or the file is damaged: give another store"
            )
        self.running[cell] = reservation
        if not self.terms.is_virtual_time:
            engine = self.terms.catalog[prefix[-1]].engine
            others = sum(self.terms.catalog[other[-1]].engine == engine for _, other in self.running)
            self._company[cell] = others - 1
        return Job(self.account.requests[request_id], prefix, parent, reservation.upper_usd)

    def top_up(self, cell: Cell, upper_usd: float) -> bool:
        """Raise what is set aside for a unit under way; whether the budget allows it."""
        try:
            self.ledger.top_up(self.running[cell], upper_usd)
        except BudgetExhausted:
            return False
        return True

    # -- after it ----------------------------------------------------------------------------------------------

    def write(self, message: UnitFinished) -> None:
        """What came back: its row and its real price, or why there is none."""
        reservation = self.running.pop(message.job.cell)
        company = self._company.pop(message.job.cell, 0)
        outcome = message.outcome
        if outcome is None:
            self.problem = self.problem or message.problem
            self.stop("interrupted")
            return  # its entry stays open: nobody knows what it cost
        if isinstance(outcome, Refused):
            self.ledger.settle_again(reservation, outcome.paid_usd)
            self.stop("budget", "the next call may cost more than is left of the budget")
            return
        row = replace(outcome.observation, in_flight=company)
        if row.failure == "auth":  # no property of the model, and every further call would fail alike
            self.ledger.settle_again(reservation, row.cost_usd)
            self.problem = self.problem or ConfigError(f"model {row.model!r}: {self._key_hint(row.model)}")
            self.stop("interrupted")
            return
        checkpoint = None if row.ended(self.terms.template.stop) else outcome.checkpoint  # nobody goes on from an end
        self.ledger.settle(reservation, row, checkpoint, paid_usd=outcome.paid_usd)
        self._keep(row)

    def abandon(self) -> None:
        """Nobody waits for the units under way: their entries are charged at their bound."""
        self.running.clear()
        self.store.abandon_open()

    def _keep(self, row: Observation) -> None:
        used_up = self.account.keep(row)
        if used_up is not None:
            self.records.drop_checkpoint(*used_up)
        self.executed += 1
        self.calls += row.calls
        if row.failure is not None:
            self.failures[row.failure] += 1
        self.new_rows += 1

    def _key_hint(self, model: str) -> str:
        variable = self.terms.catalog[model].api_key_env
        mend = f"check the environment variable {variable}" if variable else "check its credentials"
        return f"the provider refused the key: {mend}"


_REFIT = 1.05  # the interval is computed anew each time the rows have grown by this factor


class Account:
    """``known`` has every row; ``coverage`` and ``bounds`` what was counted in canonical order.

    The store's first ``older`` rows are counted at once: they were there when the run began. The others are its own, bought by
    an earlier call that was killed; each is counted when its turn comes, as if it were bought then.
    """

    def __init__(
        self, rows: Sequence[Observation], older: int, requests: Iterable[Request], template: Template, catalog: Catalog
    ) -> None:
        self.template = template
        self.requests: Mapping[str, Request] = {request.id: request for request in requests}
        self.known: dict[Cell, Observation] = {}
        self.coverage = Coverage(template, len(self.requests))
        self._choices = [len(stage.models or ()) for stage in template.invocations]
        self._children: Counter[Cell] = Counter()
        self.counted: set[Cell] = set()
        self._interval: tuple[float, float] = (0.0, 1.0)
        self._interval_at = 0
        bound = PriceBound(catalog)
        for row in rows:
            self.keep(row)
        for row in sorted(rows[:older], key=lambda row: row.depth):
            if row.request_id in self.requests:
                self.coverage.add(row)
                self.counted.add((row.request_id, row.prefix))
        for row in rows[:older]:
            if row.request_id in self.requests:
                bound.add(row)
        self.bounds = PriceBounds(bound)

    def keep(self, row: Observation) -> Cell | None:
        """A row is in the store. The cell whose checkpoint nobody needs any more, if that is so now."""
        self.known[row.request_id, row.prefix] = row
        parent = (row.request_id, row.prefix[:-1])
        self._children[parent] += 1
        is_last = row.depth > 1 and self._children[parent] == self._choices[row.depth - 1]
        return parent if is_last else None

    def used_up(self, cell: Cell) -> bool:
        """Every extension of the cell by one invocation has a row."""
        return len(cell[1]) < len(self._choices) and self._children[cell] == self._choices[len(cell[1])]

    def count(self, cell: Cell) -> bool:
        """Its turn has come. Whether it counts as newly bought."""
        if cell in self.counted:
            return False
        self.counted.add(cell)
        row = self.known[cell]
        self.coverage.add(row)
        self.bounds.learn(row)
        return True

    def all_counted(self) -> Account:
        """This, with every row counted, whoever bought it and when."""
        for request_id, prefix in sorted(self.known, key=lambda cell: len(cell[1])):
            if request_id in self.requests:
                self.count((request_id, prefix))
        return self

    @property
    def has_gap(self) -> bool:
        """Rows are there whose turn has not come: some before them are missing."""
        return any(cell not in self.counted for cell in self.known if cell[0] in self.requests)

    def is_open(self, cell: Cell) -> bool:
        """The counted rows say that its request gets there."""
        request_id, prefix = cell
        return len(prefix) == 1 or (request_id, prefix[:-1]) in self.counted

    def interval(self) -> tuple[float, float]:
        """Bounds of coverage, refitted now and then."""
        if len(self.counted) >= self._interval_at * _REFIT or self.coverage.is_complete:
            self._interval, self._interval_at = self.coverage.interval(), len(self.counted)
        low, high = self._interval
        return min(low, self.coverage.fraction), max(high, self.coverage.fraction)
