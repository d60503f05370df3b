"""The plan for a mean of dollars or accuracy over a population of requests: a price found by bisection, cached by the caller."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

TURNS = 24
HIGHEST_PRICE = 1e9

T = TypeVar("T")


def dearest_within(at: Callable[[float], T], cost_of: Callable[[T], float], budget_usd: float, scale: float) -> list[tuple[float, T]]:
    """Return (price, plan) of the plans met while looking for the lowest price whose plan keeps the budget.

    Args:
        at: the plan at a price of accuracy per dollar.
        cost_of: its dollars.
        budget_usd: the budget.
        scale: a typical price to begin with, such as 1 / dollars of a request.
    """
    found = [(0.0, at(0.0))]
    if cost_of(found[0][1]) <= budget_usd:
        return found
    low, high = 0.0, scale
    while high < HIGHEST_PRICE * scale:
        found.append((high, at(high)))
        if cost_of(found[-1][1]) <= budget_usd:
            break
        low, high = high, high * 8.0
    for _ in range(TURNS):
        middle = (low * high) ** 0.5 if low > 0.0 else high / 64.0
        found.append((middle, at(middle)))
        if cost_of(found[-1][1]) <= budget_usd:
            high = middle
        else:
            low = middle
        if high <= low * (1.0 + 1e-4):
            break
    return found
