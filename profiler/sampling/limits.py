"""The limits of a profile."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vinelm.errors import ConfigError
from vinelm.meant import fraction_meant

if TYPE_CHECKING:
    from vinelm.profiler.sampling.prices import Prices
    from vinelm.rows.observation import Observation


@dataclass(frozen=True, kw_only=True)
class ProfileLimits:
    """The limits at which a profile stops, whichever it reaches first. None means no such limit.

    Attributes:
        coverage: the fraction, in (0, 1], of the estimated cost of executing every reached call once. A call is reached if its
            request has not ended before it.
        budget_usd: maximum dollars booked and reserved in the store, including earlier runs.
        budget_calls: maximum number of model calls recorded in the store, including earlier runs.

    Raises:
        ConfigError: a value is out of range (codes ``coverage-range``, ``budget-usd-range``, ``budget-calls-range``).
    """

    coverage: float | None = None
    budget_usd: float | None = None
    budget_calls: int | None = None

    def __post_init__(self) -> None:
        if self.coverage is not None and not 0.0 < self.coverage <= 1.0:
            meant = fraction_meant(self.coverage)
            raise ConfigError(f"coverage is {self.coverage}: it must be a fraction in (0, 1]{meant}", code="coverage-range")
        if self.budget_usd is not None and not (self.budget_usd >= 0 and math.isfinite(self.budget_usd)):
            raise ConfigError(
                f"the budget is {self.budget_usd} dollars: it must be a finite number >= 0", code="budget-usd-range"
            )
        if self.budget_calls is not None and self.budget_calls < 0:
            raise ConfigError(f"the budget is {self.budget_calls} calls: it must be >= 0", code="budget-calls-range")

    def usd(self, prices: Prices, everything: float, rows: Sequence[Observation]) -> float:
        """Return the estimated total cost at which a profile reaches the first of its limits.

        The unit is dollars; if every model is free, the number of calls.

        Args:
            prices: The prices estimated from ``rows``.
            everything: The cost of executing every reached call once, in the same unit.
            rows: The results so far.
        """
        found = [everything if self.coverage is None else self.coverage * everything]
        if self.budget_usd is not None and not prices.is_free:
            found.append(self.budget_usd)
        if self.budget_calls is not None:
            calls = sum(row.calls for row in rows)
            mean = sum(row.served_usd for row in rows) / calls if calls and not prices.is_free else 0.0
            found.append(self.budget_calls * (mean or sum(prices.usd.values()) / len(prices.usd)))
        return min(found)
