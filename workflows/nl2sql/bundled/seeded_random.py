"""Reproducible random draws for generated rows, the same on every machine and Python version.

Only ``random.Random.random`` is used, whose values Python guarantees, and exact arithmetic: logarithms and powers may differ in
the last bit between C libraries.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import date, timedelta
from typing import TypeVar

T = TypeVar("T")


class Dice:
    """A seeded stream of draws."""

    def __init__(self, seed: str) -> None:
        self._uniform = random.Random(seed).random

    def chance(self, probability: float) -> bool:
        """True with that probability."""
        return self._uniform() < probability

    def below(self, n: int) -> int:
        """An integer in [0, n), all alike."""
        return int(self._uniform() * n)

    def between(self, low: int, high: int) -> int:
        """An integer in [low, high], all alike."""
        return low + self.below(high - low + 1)

    def bell(self, low: int, high: int) -> int:
        """An integer in [low, high] that is most often near the middle: the mean of three draws."""
        mean = (self._uniform() + self._uniform() + self._uniform()) / 3
        return low + int(mean * (high - low + 1))

    def heavy(self, low: int, high: int) -> int:
        """An integer in [low, high], mostly low, with a long tail: a cubed draw."""
        draw = self._uniform()
        return low + int(draw * draw * draw * (high - low + 1))

    def pick(self, items: Sequence[T]) -> T:
        """One of the items, all alike."""
        return items[self.below(len(items))]

    def skewed(self, items: Sequence[T]) -> T:
        """One of the items, the early ones more often: of ten, the first in 23 draws of 100, the last in 6."""
        draw = self._uniform()
        return items[int(draw * (0.25 + 0.75 * draw) * len(items))]

    def maybe(self, value: T, missing: float) -> T | None:
        """The value, or None with probability ``missing``."""
        return None if self.chance(missing) else value

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """The items in another order."""
        left = list(items)
        for last in range(len(left) - 1, 0, -1):
            other = self.below(last + 1)
            left[last], left[other] = left[other], left[last]
        return left

    def sample(self, items: Sequence[T], count: int) -> list[T]:
        """``count`` different items, or all if there are fewer."""
        return self.shuffled(items)[:count]

    def day(self, first: str, last: str) -> str:
        """An ISO date in [first, last]."""
        start = date.fromisoformat(first)
        return (start + timedelta(days=self.below((date.fromisoformat(last) - start).days + 1))).isoformat()

    def cents(self, low: int, high: int) -> float:
        """An amount in [low, high], mostly low, with two decimals."""
        return self.heavy(low * 100, high * 100) / 100


def later(day: str, days: int) -> str:
    """The ISO date so many days after (or before) another."""
    return (date.fromisoformat(day) + timedelta(days=days)).isoformat()
