"""The books of a run: every unit from its reservation to its row, and why the run stopped."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from vinelm.errors import BudgetExhausted, ConfigError, StoreError
from vinelm.observation import Observation
from vinelm.profiler.account import Account
from vinelm.profiler.budget.ledger import Ledger, Reservation
from vinelm.profiler.config import Terms
from vinelm.profiler.execution.job import Cell, Job, Refused
from vinelm.profiler.results import StoppedBy
from vinelm.profiler.scheduling.threads import Ended
from vinelm.traces.store.run_state import RunRecords
from vinelm.traces.store.store import ObservationStore


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

    def write(self, message: Ended) -> None:
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
