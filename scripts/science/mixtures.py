"""Policies compared at equal spend: the concave frontier, and mixtures of two plans of one method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np
import numpy.typing as npt

from vinelm.errors import ConfigError
from vinelm.evaluation.plans.path_plans import pareto_frontier
from vinelm.trie.arrays import FloatArray


def concave_frontier(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return the indices of the (cost, value) points that no mixture of two others dominates, by rising cost.

    Mixing the two of them that bracket a spend gives the highest value that any mixture of all points has at that spend.
    """
    kept: list[int] = []
    for index in pareto_frontier(points):
        while len(kept) > 1 and _is_below(points[kept[-1]], points[kept[-2]], points[index]):
            kept.pop()
        kept.append(index)
    return kept


def _is_below(point: tuple[float, float], left: tuple[float, float], right: tuple[float, float]) -> bool:
    """Whether the point lies on the line between two others, or below it."""
    return (point[1] - left[1]) * (right[0] - left[0]) <= (right[1] - left[1]) * (point[0] - left[0])


@dataclass(frozen=True, slots=True)
class Mixture:
    """Two plans of one method, each request being served by the second with probability ``share``.

    Expected accuracy, dollars and seconds of a mixture are linear in the share.

    Attributes:
        low: Index of the plan that spends less.
        high: Index of the plan that spends more; equal to ``low`` where one plan is served alone.
        share: Of the second plan, in [0, 1].
    """

    low: int
    high: int
    share: float

    def of(self, values: npt.ArrayLike) -> FloatArray:
        """Return the expected values under the mixture; ``values`` has shape (plans, ...), the result shape (...)."""
        found = np.asarray(values, np.float64)
        return np.asarray((1.0 - self.share) * found[self.low] + self.share * found[self.high])


def mixture_at(spends: Sequence[float], spend: float) -> Mixture:
    """Return the mixture of a method's plans that spends exactly ``spend``.

    A plan that a method chose for a budget spends more or less than that on other requests. Mixing the two plans whose
    measured spends are nearest to it, one from below and one from above, makes methods comparable at equal dollars. Only spends
    decide: accuracies are not looked at. Of plans with equal spends the first one counts.

    Where ``spend`` is above the dearest plan, that plan is served alone and spends less; where it is below the cheapest, that
    one is served alone and spends more.

    Args:
        spends: Measured dollars (or seconds) per request of each plan, in any order.
        spend: Dollars (or seconds) per request to compare at.

    Raises:
        ConfigError: There is no plan, or an amount is not finite.
    """
    amounts = [float(amount) for amount in spends]
    if not amounts or not all(map(isfinite, (*amounts, spend))):
        raise ConfigError("a mixture needs at least one plan, and amounts that are finite")
    below = [i for i, amount in enumerate(amounts) if amount <= spend]
    above = [i for i, amount in enumerate(amounts) if amount > spend]
    low = max(below, key=amounts.__getitem__) if below else min(above, key=amounts.__getitem__)
    if not below or not above or amounts[low] == spend:
        return Mixture(low, low, 0.0)
    high = min(above, key=amounts.__getitem__)
    return Mixture(low, high, (spend - amounts[low]) / (amounts[high] - amounts[low]))
