"""The money of one unit, guarded call by call: no call is made for which not enough is set aside."""

from __future__ import annotations

import threading
from collections.abc import Callable

from vinelm.errors import CallRefused
from vinelm.observation import Usage

TopUp = Callable[[float], bool]
"""Asks for the unit's reservation to be raised to that many dollars; whether it was. May wait."""


class UnitBudget:
    """What one unit may still spend; a :class:`vinelm.protocols.CallGuard`. Calls of one unit may come from several threads.

    ``upper_usd`` is set aside already. A call whose bound goes beyond it asks ``top_up`` first, and is not made if that says
    no: :attr:`was_refused` then, whatever the application makes of the exception.
    """

    def __init__(
        self,
        upper_usd: float,
        top_up: TopUp,
        *,
        on_usage: Callable[[Usage], None] | None = None,
        on_under_way: Callable[[float], None] | None = None,
    ) -> None:
        self._upper_usd = upper_usd
        self._top_up = top_up
        self._on_usage = on_usage
        self._on_under_way = on_under_way
        self._lock = threading.Lock()
        self._under_way: list[float] = []
        self.spent_usd = 0.0
        """Dollars of the calls that are over."""
        self.calls = 0
        self.was_refused = False

    def before(self, upper_bound_usd: float) -> None:
        """A call that cannot cost more is about to be made. :class:`CallRefused` if it must not be."""
        with self._lock:
            needed = self.spent_usd + sum(self._under_way) + upper_bound_usd
            if needed > self._upper_usd:
                if self.was_refused or not self._top_up(needed):
                    self.was_refused = True
                    raise CallRefused(f"the next call may cost up to ${upper_bound_usd:.6f}, more than is left of the budget")
                self._upper_usd = needed
            self._under_way.append(upper_bound_usd)
            self._tell()

    def paid(self, usage: Usage) -> None:
        """A call is over, well or badly, at its real price."""
        with self._lock:
            self.spent_usd += usage.cost_usd
            self.calls += 1
            if self._on_usage is not None:
                self._on_usage(usage)
            if self._under_way:  # which one is not said: take the one that leaves most set aside for the others
                fitting = [bound for bound in self._under_way if bound >= usage.cost_usd]
                self._under_way.remove(min(fitting or self._under_way))
                self._tell()

    def _tell(self) -> None:
        if self._on_under_way is not None:
            self._on_under_way(sum(self._under_way))
