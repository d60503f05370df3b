"""Money: an upper bound is set aside before each unit and the real price settled after it (DESIGN §6.1)."""

from __future__ import annotations

import copy
import math
import threading
from dataclasses import dataclass

from vinelm.catalog import Catalog
from vinelm.errors import BudgetExhausted, ConfigError
from vinelm.observation import Observation
from vinelm.traces import ObservationStore, RunRecords

FIRST_PROMPT_TOKENS = 2048
"""Of a prompt before any was seen."""
_PROMPT_MARGIN = 1.5


class PriceBound:
    """Upper bound on the dollars of a unit, from what its stage's calls looked like so far.

    The completion is bounded by the model's ``max_tokens``. The prompt is not known before the stage writes it: taken is the
    longest seen at that stage times a margin (2,048 tokens before the first), and as many calls as the stage ever made in one
    invocation, and no less than the model's dearest invocation so far. Where the backend can price a call from its real prompt,
    the reservation is raised before the call (:mod:`vinelm.profiler.budget.unit_budget`); elsewhere a sudden long
    prompt can break it, and the excess of that one call is settled at its real price. Learns in the order that cells are fed,
    so the same sequence gives the same bounds.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._prompt: dict[str, int] = {}
        self._calls: dict[str, int] = {}
        self._tools_usd: dict[str, float] = {}
        self._dearest_usd: dict[str, float] = {}

    def copy(self) -> PriceBound:
        """As it is now: it learns nothing of what the other is fed later."""
        twin = copy.copy(self)
        for name in ("_prompt", "_calls", "_tools_usd", "_dearest_usd"):
            setattr(twin, name, dict(getattr(self, name)))
        return twin

    def add(self, observation: Observation) -> None:
        """Learn from one executed cell."""
        stage, calls = observation.stage, max(observation.calls, 1)
        if observation.tokens_in is not None:  # the sum over calls: no call's prompt was longer
            self._prompt[stage] = max(self._prompt.get(stage, 0), observation.tokens_in)
        self._calls[stage] = max(self._calls.get(stage, 1), calls)
        self._dearest_usd[observation.model] = max(self._dearest_usd.get(observation.model, 0.0), observation.cost_usd)
        self._tools_usd[stage] = max(self._tools_usd.get(stage, 0.0), observation.tool_cost_usd)

    def usd(self, stage: str, model: str) -> float:
        """Dollars that one invocation of ``stage`` on ``model``, tools included, is expected not to exceed."""
        entry = self._catalog[model]
        longest = self._prompt.get(stage)
        prompt = FIRST_PROMPT_TOKENS if longest is None else math.ceil(longest * _PROMPT_MARGIN)
        one = entry.price.cost_usd(prompt, entry.max_tokens)
        calls_usd = max(one * self.calls(stage), self._dearest_usd.get(model, 0.0))
        return calls_usd + self._tools_usd.get(stage, 0.0) * _PROMPT_MARGIN

    def calls(self, stage: str) -> int:
        """Model calls that one invocation of ``stage`` is expected not to exceed."""
        return self._calls.get(stage, 1)


def check_caps(budget_usd: float | None, budget_calls: int | None) -> None:
    """:class:`ConfigError` for a budget that is none."""
    if budget_usd is not None and not (budget_usd >= 0 and math.isfinite(budget_usd)):
        raise ConfigError(f"the budget is {budget_usd} dollars: it must be a finite number >= 0")
    if budget_calls is not None and budget_calls < 0:
        raise ConfigError(f"the budget is {budget_calls} calls: it must be >= 0")


@dataclass(slots=True)
class Reservation:
    """Money set aside for one unit: the entry in the store, and what was reserved so far."""

    entry: int
    upper_usd: float
    upper_calls: int = 1


class Ledger:
    """Admits units while the caps allow. The caps hold for the store as a whole, over all the runs that fed it.

    ``budget_usd`` counts dollars settled and set aside, ``budget_calls`` model calls of all rows and of units in flight. Safe
    under concurrent threads: a check and its reservation are one step.
    """

    def __init__(
        self,
        store: ObservationStore,
        *,
        budget_usd: float | None = None,
        budget_calls: int | None = None,
        records: RunRecords | None = None,
    ) -> None:
        check_caps(budget_usd, budget_calls)
        self._store = store
        self._records = records or RunRecords(store)
        self._lock = threading.RLock()
        self.budget_usd = budget_usd
        self.budget_calls = budget_calls
        self.abandoned = store.abandon_open()
        """Units of an earlier run that died in the call; charged at their bound."""
        self.committed_usd = store.committed_usd()
        self.calls = sum(spend.calls for spend in store.spend("depth").values())
        """Of all rows, and at their bound those of units in flight."""

    def refusal(self, extra_usd: float, extra_calls: int = 0) -> str | None:
        """Why this much more cannot be set aside, in one line; None if it can."""
        if self.budget_usd is not None and round(self.committed_usd + extra_usd - self.budget_usd, 9) > 0:  # not the last bit
            left = self.budget_usd - self.committed_usd
            return (
                f"the next call may cost up to ${extra_usd:.6f} and ${max(left, 0.0):.6f} of the ${self.budget_usd:g} is left"
            )
        if self.budget_calls is not None and self.calls + extra_calls > self.budget_calls:
            return f"{self.calls:,} of the budget's {self.budget_calls:,} calls are made"
        return None

    def reserve(self, request_id: str, prefix: tuple[str, ...], upper_usd: float, upper_calls: int = 1) -> Reservation:
        """Set the bound aside, durably. :class:`BudgetExhausted` if a cap would be exceeded."""
        with self._lock:
            self._refuse(upper_usd, upper_calls)
            entry = self._store.reserve(request_id, prefix, upper_usd)
            self.committed_usd += upper_usd
            self.calls += upper_calls
            return Reservation(entry, upper_usd, upper_calls)

    def top_up(self, reservation: Reservation, upper_usd: float) -> None:
        """Raise it to that bound, durably, before a call that may cost more. :class:`BudgetExhausted` if the cap forbids it."""
        with self._lock:
            extra = upper_usd - reservation.upper_usd
            if extra <= 0:
                return
            self._refuse(extra, 0)
            self._records.raise_reservation(reservation.entry, upper_usd)
            reservation.upper_usd = upper_usd
            self.committed_usd += extra

    def settle(
        self, reservation: Reservation, observation: Observation, checkpoint: bytes | None, *, paid_usd: float | None = None
    ) -> None:
        """Write the row, its checkpoint and its real price, all or nothing.

        ``paid_usd`` where it is not the row's: the call under way when a worker died may have been billed.
        """
        with self._lock:
            paid = observation.cost_usd + observation.tool_cost_usd if paid_usd is None else paid_usd
            with self._records.together():
                self._store.add(observation, checkpoint)
                self._store.settle(reservation.entry, paid)
            self._close(reservation, paid, observation.calls)

    def settle_again(self, reservation: Reservation, paid_usd: float, calls: int = 0) -> None:
        """Close the entry of a unit that leaves no row: refused half-way, or one whose cell has a row already."""
        with self._lock:
            self._store.settle(reservation.entry, paid_usd)
            self._close(reservation, paid_usd, calls)

    def _close(self, reservation: Reservation, paid_usd: float, calls: int) -> None:
        self.committed_usd += paid_usd - reservation.upper_usd
        self.calls += calls - reservation.upper_calls

    def _refuse(self, extra_usd: float, extra_calls: int) -> None:
        reason = self.refusal(extra_usd, extra_calls)
        if reason is not None:
            raise BudgetExhausted(reason)
