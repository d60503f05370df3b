"""Money: an upper bound is set aside before each unit and the real price settled after it (DESIGN §6.1)."""

from __future__ import annotations

import math

from vinelm.catalog import Catalog
from vinelm.errors import BudgetExhausted, ConfigError
from vinelm.observation import Observation
from vinelm.traces.store import ObservationStore

_FIRST_PROMPT_TOKENS = 2048
_PROMPT_MARGIN = 1.5


class PriceBound:
    """Upper bound on the dollars of a unit, from what its stage's calls looked like so far.

    The completion is bounded by the model's ``max_tokens``. The prompt is not known before the stage writes it: taken is the
    longest seen at that stage times a margin (2,048 tokens before the first), and as many calls as the stage ever made in one
    invocation, and no less than the model's dearest invocation so far. A bound, then, that a sudden long prompt can break; the
    excess of that one call is settled at its real price. Learns in the order that cells are fed, so the same sequence gives the
    same bounds.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._prompt: dict[str, int] = {}
        self._calls: dict[str, int] = {}
        self._tools_usd: dict[str, float] = {}
        self._dearest_usd: dict[str, float] = {}

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
        prompt = _FIRST_PROMPT_TOKENS if longest is None else math.ceil(longest * _PROMPT_MARGIN)
        one = entry.price.cost_usd(prompt, entry.max_tokens)
        calls_usd = max(one * self._calls.get(stage, 1), self._dearest_usd.get(model, 0.0))
        return calls_usd + self._tools_usd.get(stage, 0.0) * _PROMPT_MARGIN


class Ledger:
    """Admits units while the caps allow. The caps hold for the store as a whole, over all the runs that fed it.

    ``budget_usd`` counts dollars settled and set aside, ``budget_calls`` model calls of all rows.
    """

    def __init__(self, store: ObservationStore, *, budget_usd: float | None = None, budget_calls: int | None = None) -> None:
        if budget_usd is not None and not (budget_usd >= 0 and math.isfinite(budget_usd)):
            raise ConfigError(f"the budget is {budget_usd} dollars: it must be a finite number >= 0")
        if budget_calls is not None and budget_calls < 0:
            raise ConfigError(f"the budget is {budget_calls} calls: it must be >= 0")
        self._store = store
        self.budget_usd = budget_usd
        self.budget_calls = budget_calls
        self.abandoned = store.abandon_open()
        """Units of an earlier run that died in the call; charged at their bound."""
        self.committed_usd = store.committed_usd()
        self.calls = sum(spend.calls for spend in store.spend("depth").values())

    def reserve(self, request_id: str, prefix: tuple[str, ...], upper_usd: float) -> int:
        """Set the bound aside, durably; the entry's number. :class:`BudgetExhausted` if a cap would be exceeded."""
        if self.budget_usd is not None and round(self.committed_usd + upper_usd - self.budget_usd, 9) > 0:  # not the last bit
            left = self.budget_usd - self.committed_usd
            raise BudgetExhausted(
                f"the next call may cost up to ${upper_usd:.6f} and ${max(left, 0.0):.6f} of the ${self.budget_usd:g} is left"
            )
        if self.budget_calls is not None and self.calls >= self.budget_calls:
            raise BudgetExhausted(f"all {self.budget_calls:,} calls of the budget are made")
        entry = self._store.reserve(request_id, prefix, upper_usd)
        self.committed_usd += upper_usd
        return entry

    def settle(self, entry: int, upper_usd: float, observation: Observation, checkpoint: bytes | None) -> None:
        """Write the row, its checkpoint and its real price, all or nothing."""
        self._store.add(observation, checkpoint, reservation=entry)
        self.committed_usd += observation.cost_usd + observation.tool_cost_usd - upper_usd
        self.calls += observation.calls
