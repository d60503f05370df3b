"""The budget of one unit, enforced call by call: no call is made without enough money reserved for it."""

from __future__ import annotations

from collections.abc import Callable

from vinelm.money.spend_guard import SpendGuard

TopUp = Callable[[float], bool]
"""Asks for the unit's reservation to be raised to that many dollars and returns whether it was. May wait."""


class UnitBudget(SpendGuard):
    """What one unit may still spend. Calls of one unit may come from several threads.

    Args:
        upper_usd: dollars that are already reserved for the unit.
        top_up: asked before a call that needs more. If it refuses, the call is not made and :attr:`was_refused` stays true,
            even where the application catches the exception.
        on_settled: called with the dollars of each call that has ended.
        on_reserved: called with the dollars that calls under way may cost, whenever they change.
    """

    def __init__(
        self,
        upper_usd: float,
        top_up: TopUp,
        *,
        on_settled: Callable[[float], None] | None = None,
        on_reserved: Callable[[float], None] | None = None,
    ) -> None:
        super().__init__(upper_usd)
        self.was_refused = False
        self._top_up = top_up
        self._on_settled = on_settled
        self._on_reserved = on_reserved

    def _raise_limit(self, needed_usd: float) -> bool:
        if self.was_refused or not self._top_up(needed_usd):
            self.was_refused = True
            return False
        self.limit_usd = needed_usd
        return True

    def _refusal(self, upper_usd: float, left_usd: float) -> str:
        return f"the next call may cost up to ${upper_usd:.6f}, more than is left of the budget"

    def _settled(self, cost_usd: float) -> None:
        if self._on_settled is not None:
            self._on_settled(cost_usd)

    def _reservation_changed(self) -> None:
        if self._on_reserved is not None:
            self._on_reserved(self.reserved_usd)
