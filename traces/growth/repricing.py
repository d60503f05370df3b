"""Apply a model's price to the tokens that a row recorded."""

from __future__ import annotations

import math
from dataclasses import dataclass

from vinelm.catalog import Price


@dataclass(frozen=True, slots=True)
class RecordedCost:
    """What a row recorded about its dollars.

    Attributes:
        cost_usd: dollars as they were charged.
        calls: model calls.
        tokens_in: prompt tokens of all calls; None: unknown.
        tokens_out: completion tokens; None: unknown.
        tokens_cached: the part of ``tokens_in`` that was read from a prompt cache; None: unknown, counted as none.
    """

    cost_usd: float
    calls: int
    tokens_in: int | None
    tokens_out: int | None
    tokens_cached: int | None

    def at(self, recorded: Price, now: Price) -> float | None:
        """Return the row's dollars at another price; None if it recorded no tokens.

        Dollars that the tokens do not explain (failed attempts that were billed, a discount) change in the same proportion.

        Args:
            recorded: the price that ``cost_usd`` was charged at.
            now: the price to apply.
        """
        if self.calls == 0 or recorded.model_dump(exclude=_NOT_AN_AMOUNT) == now.model_dump(exclude=_NOT_AN_AMOUNT):
            return self.cost_usd
        if self.tokens_in is None or self.tokens_out is None:
            return None
        before, after = self._of_tokens(recorded), self._of_tokens(now)
        if before <= 0:
            return after + self.cost_usd
        return after if math.isclose(self.cost_usd, before) else after * self.cost_usd / before

    def _of_tokens(self, price: Price) -> float:
        assert self.tokens_in is not None
        assert self.tokens_out is not None
        tokens_usd = price.cost_usd(self.tokens_in, self.tokens_out, self.tokens_cached or 0) - price.call
        return tokens_usd + price.call * self.calls


_NOT_AN_AMOUNT = {"source", "as_of"}
