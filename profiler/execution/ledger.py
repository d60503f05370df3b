"""The ledger: reserves the maximum price before each job, books the real price after it, and enforces the budgets.

See docs/architecture.md#invariants.
"""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from vinelm.catalog import Catalog
from vinelm.errors import BudgetExhausted
from vinelm.judging import Judgement
from vinelm.profiler.sampling.limits import ProfileLimits
from vinelm.rows.observation import Cell, Observation
from vinelm.traces import ObservationStore
from vinelm.traces.store.batches import BatchRecords
from vinelm.traces.store.judgements import Judgements
from vinelm.traces.store.prompts import StoredPrompts

FIRST_PROMPT_TOKENS = 2048
"""The length assumed for a prompt before any was observed."""
_PROMPT_MARGIN = 1.5


class PriceBound:
    """The maximum cost expected of a job, in dollars, learned from earlier results of the same stage and model.

    The completion has at most the model's ``max_tokens``. The prompt is not known before the stage writes it. So the bound
    assumes the longest prompt observed at that stage times a margin; before any result, 2,048 tokens. The number of model calls
    is the maximum observed in one invocation of the stage. The bound is at least the cost of the model's most expensive
    invocation. If the backend can price a call from its real prompt, the reservation is raised before the call
    (:class:`~vinelm.profiler.execution.job.UnitBudget`). Otherwise an unusually long prompt can exceed the bound, and that call
    is still booked at its real price. The same sequence of calls gives the same bounds.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._prompt: dict[str, int] = {}
        self._calls: dict[str, int] = {}
        self._tools_usd: dict[str, float] = {}
        self._highest_usd: dict[str, float] = {}

    def copy(self) -> PriceBound:
        """Return an independent copy of the bound."""
        twin = copy.copy(self)
        for name in ("_prompt", "_calls", "_tools_usd", "_highest_usd"):
            setattr(twin, name, dict(getattr(self, name)))
        return twin

    def add(self, observation: Observation) -> None:
        """Update the bound with the tokens, calls and cost of one result."""
        stage, calls = observation.stage, max(observation.calls, 1)
        if observation.tokens_in is not None:  # the sum over calls, which bounds each call's prompt
            self._prompt[stage] = max(self._prompt.get(stage, 0), observation.tokens_in)
        self._calls[stage] = max(self._calls.get(stage, 1), calls)
        self._highest_usd[observation.model] = max(self._highest_usd.get(observation.model, 0.0), observation.cost_usd)
        self._tools_usd[stage] = max(self._tools_usd.get(stage, 0.0), observation.tool_cost_usd)

    def usd(self, stage: str, model: str) -> float:
        """Return the maximum cost expected of one invocation of ``stage`` on ``model``, including tools, in dollars."""
        entry = self._catalog[model]
        longest = self._prompt.get(stage)
        prompt = FIRST_PROMPT_TOKENS if longest is None else math.ceil(longest * _PROMPT_MARGIN)
        one = entry.price.cost_usd(prompt, entry.max_tokens)
        calls_usd = max(one * self.calls(stage), self._highest_usd.get(model, 0.0))
        return calls_usd + self._tools_usd.get(stage, 0.0) * _PROMPT_MARGIN

    def calls(self, stage: str) -> int:
        """Return the maximum number of model calls expected in one invocation of ``stage``."""
        return self._calls.get(stage, 1)


@dataclass(slots=True)
class Reservation:
    """A job's reservation: the number of its ledger entry, and the dollars and model calls that are reserved as its maximum."""

    entry: int
    upper_usd: float
    upper_calls: int = 1


class Ledger:
    """Reserves and books money within the budgets, which apply to the whole store, including earlier runs.

    Thread-safe: check and reservation are atomic. Opening a ledger books, at their maximum cost, the jobs that a killed run
    left open.

    Args:
        store: the ledger's store; the caller must have locked it.
        limits: the budgets for dollars (booked and reserved) and for model calls (of all results and of running jobs).
        batches: the store's batches, if calls go through batch APIs.
    """

    def __init__(
        self,
        store: ObservationStore,
        limits: ProfileLimits,
        *,
        batches: BatchRecords | None = None,
    ) -> None:
        self.limits = limits
        self._batches = batches
        self._store = store
        self._lock = threading.RLock()
        self.abandoned = store.abandon_open()
        """The number of jobs that an earlier run left open; they are charged at their maximum cost."""
        self.replaceable: dict[Cell, float] = {} if batches is None else batches.abandoned()
        """Dollars of jobs that an earlier run left open in batches; the next entry of the same job replaces them."""
        self.committed_usd = store.committed_usd()
        self.reserved_usd = 0.0
        """The part of ``committed_usd`` that is reserved for running jobs, in dollars."""
        self.calls = sum(spend.calls for spend in store.spend("depth").values()) + store.retired_calls()
        """Model calls of all results, retired results included, and the maximum number of calls of running jobs."""

    def refusal(self, extra_usd: float, extra_calls: int = 0) -> str | None:
        """Return one line with the reason why these further dollars and model calls cannot be reserved; None if they can be."""
        budget_usd, budget_calls = self.limits.budget_usd, self.limits.budget_calls
        if budget_usd is not None and round(self.committed_usd + extra_usd - budget_usd, 9) > 0:  # ignore rounding errors
            left = budget_usd - self.committed_usd
            return f"the next call may cost up to ${extra_usd:.6f} and ${max(left, 0.0):.6f} of the ${budget_usd:g} is left"
        if budget_calls is not None and self.calls + extra_calls > budget_calls:
            return f"{self.calls:,} of the budget's {budget_calls:,} calls are made"
        return None

    def reserve(
        self,
        request_id: str,
        prefix: tuple[str, ...],
        upper_usd: float,
        upper_calls: int = 1,
        *,
        is_batched: bool = False,
        is_paid: bool = False,
    ) -> Reservation:
        """Reserve a job's maximum cost, durably.

        Args:
            request_id: the job's request.
            prefix: the models of the job's path, up to the one that it calls.
            upper_usd: its maximum cost in dollars.
            upper_calls: its maximum number of model calls.
            is_batched: whether all its calls go through batch APIs. If an interrupted run left a reservation for the job, the
                new one replaces it and is at least as large.
            is_paid: whether the job has already run, so that no budget is checked.

        Raises:
            BudgetExhausted: a budget would be exceeded.
        """
        with self._lock, self._locked():
            replaced_usd = self.replaceable.get((request_id, prefix), 0.0) if is_batched else 0.0
            # What was bought for the unit stays reserved until it has ended, so that others cannot take that room. A unit that
            # needs no more than that is not checked against the budget: its answers are paid for, and fetching them is what
            # makes room.
            is_held = upper_usd <= replaced_usd and replaced_usd > 0
            upper_usd = max(upper_usd, replaced_usd)
            # Checked and written under one lock and in one transaction: two threads can never both take the last dollars.
            reason = self.refusal(-math.inf if is_held else upper_usd - replaced_usd, upper_calls)
            if reason is not None and not is_paid:
                raise BudgetExhausted(reason)
            # The entry is written before the sums change here: if the store refuses it, nothing is reserved.
            if replaced_usd and self._batches is not None:
                self._batches.replace((request_id, prefix))
            entry = self._store.reserve(request_id, prefix, upper_usd, is_batched=is_batched)
            self._reserve(upper_usd)
            if replaced_usd:
                self.committed_usd -= self.replaceable.pop((request_id, prefix))
            self.calls += upper_calls
            return Reservation(entry, upper_usd, upper_calls)

    def top_up(self, reservation: Reservation, upper_usd: float) -> bool:
        """Raise a reservation to ``upper_usd``, durably, before a more expensive call; return whether the budget allows it."""
        extra = upper_usd - reservation.upper_usd
        if extra <= 0:
            return True
        with self._lock, self._locked():
            if self.refusal(extra) is not None:
                return False
            # Durable before the call is made: if the process dies during it, the store already charges its bound.
            self._store.raise_reservation(reservation.entry, upper_usd)
            reservation.upper_usd = upper_usd
            self._reserve(extra)
            return True

    def lower(self, reservation: Reservation, upper_usd: float) -> None:
        """Lower a job's reservation to ``upper_usd`` dollars, durably, once the prices of its calls are known."""
        with self._lock, self._locked():
            self._store.raise_reservation(reservation.entry, upper_usd)
            self._reserve(upper_usd - reservation.upper_usd)
            reservation.upper_usd = upper_usd

    def settle(
        self, reservation: Reservation, observation: Observation, checkpoint: bytes | None, *, paid_usd: float | None = None,
        judgement: Judgement | None = None, shapes: bytes = b"",
    ) -> None:  # fmt: skip
        """Write a job's result, checkpoint and real price in one transaction.

        Args:
            reservation: the job's reservation.
            observation: the result.
            checkpoint: the state to resume from; None stores no state.
            paid_usd: the cost to book in dollars, if it differs from the result's.
            judgement: the judge's verdict on the answer.
            shapes: hashes of the job's prompts, packed as bytes; empty without hashes.
        """
        with self._lock:
            paid = observation.cost_usd + observation.tool_cost_usd if paid_usd is None else paid_usd
            with self._locked():
                # Row, checkpoint and price together: a kill leaves either all of them or an open reservation, never an unpaid
                # row or a price without its row.
                self._store.add(observation, checkpoint)
                self._store.settle(reservation.entry, paid)
                if self._batches is not None:
                    self._batches.drop((observation.request_id, observation.prefix))
                if shapes:
                    StoredPrompts(self._store).add(observation.request_id, observation.prefix, shapes)
                if judgement is not None:
                    Judgements(self._store).add(observation.request_id, observation.prefix, judgement)
            # In memory only after the transaction: if the store refuses it, the sums still hold the whole reservation.
            self._close(reservation, paid, observation.calls)

    def settle_without_row(self, reservation: Reservation, paid_usd: float, calls: int = 0) -> None:
        """Book the dollars and model calls of a job without a new result: a call was refused, or the result already exists."""
        with self.settling(reservation, paid_usd, calls):
            pass

    @contextmanager
    def settling(self, reservation: Reservation, paid_usd: float, calls: int = 0, *, name: str | None = None) -> Iterator[None]:
        """Book a job's dollars and model calls, in one transaction with the writes that the caller makes inside the block.

        ``name`` is the request's id, if the reservation was made before the id was known; None keeps the reservation's id.
        """
        with self._lock:
            with self._locked():
                yield
                self._store.settle(reservation.entry, paid_usd, name)
            self._close(reservation, paid_usd, calls)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Run the block in one transaction, rolled back if it raises.

        Raises:
            StoreError: the run has lost its lock on the store, so another run may be buying the same calls.
        """
        self._store.database.require_held()
        with self._store.together():
            yield

    def _reserve(self, usd: float) -> None:
        self.committed_usd += usd
        self.reserved_usd += usd

    def _close(self, reservation: Reservation, paid_usd: float, calls: int) -> None:
        self.reserved_usd -= reservation.upper_usd
        # `committed` holds both settled prices and open bounds, so closing replaces the bound by the price.
        self.committed_usd += paid_usd - reservation.upper_usd
        self.calls += calls - reservation.upper_calls
