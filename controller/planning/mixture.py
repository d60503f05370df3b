"""Traffic splits: requests are divided between two plans so that their average meets the objective's bound exactly.

In the plane of cost and accuracy, every split between two plans lies on the line between them. So the best splits form the
upper convex hull of all plans, which is a concave curve. A bound B between the costs d_i and d_(i+1) of two neighbouring
corners is met if the share w = (B - d_i) / (d_(i+1) - d_i) of the requests follows the more expensive corner.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from vinelm.objective import Objective
from vinelm.plans.assignment import Assignment
from vinelm.trie.arrays import FloatArray

LEAST_SHARE = 1e-6
"""A smaller share of the more expensive plan is considered rounding: the cheaper plan then serves all requests."""


class Mixture(NamedTuple):
    """The two plans between which an objective's traffic is split.

    Args:
        low: The objective for which the planner makes the cheaper plan.
        high: The objective for which the planner makes the more expensive plan.
        share: The share of requests that follow the more expensive plan, in (0, 1).
        low_bound: The bound of ``low``, in dollars or as a fraction.
        high_bound: The bound of ``high``.
    """

    low: Objective
    high: Objective
    share: float
    low_bound: float
    high_bound: float

    @property
    def bounds(self) -> Assignment[float]:
        """A rule that assigns ``high_bound`` to the fraction :attr:`share` of the requests, and ``low_bound`` to the others.

        The assigned bound is the argument of :meth:`Objective.drawn`.
        """
        return Assignment.of_share(self.share, self.high_bound, self.low_bound)


@dataclass(frozen=True, eq=False)
class Hull:
    """The cost and accuracy (``value``) of the plans at the corners of the upper convex hull of plans.

    They are sorted from the cheapest to the most accurate; shape (corners,).

    Args:
        cost_usd: Each corner's cost per request in dollars, ascending.
        value: Each corner's accuracy, or the lower bound of its accuracy under ``confidence``; ascending.
    """

    cost_usd: tuple[float, ...]
    value: tuple[float, ...]

    @classmethod
    def of(cls, cost_usd: FloatArray, value: FloatArray) -> Hull:
        """Return the hull of one or more plans, given each plan's cost in dollars and value; shape (plans,)."""
        corners: list[tuple[float, float]] = []
        # By rising dollars; a point replaces the last corner if that lies below the line to it (monotone chain).
        for at in np.lexsort((-value, cost_usd)).tolist():
            cost, worth = float(cost_usd[at]), float(value[at])
            if corners and worth <= corners[-1][1]:
                continue  # neither cheaper nor more accurate
            while len(corners) > 1 and _is_below(corners[-2], corners[-1], (cost, worth)):
                corners.pop()
            corners.append((cost, worth))
        return cls(*(tuple(values) for values in zip(*corners, strict=True)))

    def mixture(self, objective: Objective) -> Mixture | None:
        """Return how to divide an objective's requests between two plans; None if one plan serves all requests.

        One plan serves all if the bound lies at a corner or beyond the last corner, or if no division meets every bound on an
        average. ``objective`` must allow a division (:attr:`Objective.mixes`).
        """
        floor, budget = objective.min_accuracy, objective.max_cost_usd
        if objective.target == "accuracy":
            assert budget is not None
            bounds, at = self.cost_usd, bisect_right(self.cost_usd, budget)
            wanted = budget
        else:
            assert floor is not None
            bounds, at = self.value, bisect_left(self.value, floor)
            wanted = floor
        if not 0 < at < len(bounds) or wanted in (bounds[at - 1], bounds[at]):
            return None
        # The bounds are the corners' exact figures, not rounded, so that planning within a plan's own dollars finds it again.
        low, high = bounds[at - 1], bounds[at]
        share = (wanted - low) / (high - low)
        if not LEAST_SHARE < share < 1.0:
            return None
        cost, value = (values[at - 1] + share * (values[at] - values[at - 1]) for values in (self.cost_usd, self.value))
        if objective.target == "accuracy" and floor is not None and value < floor:
            return None
        if objective.target == "cost" and objective.cost_budget == "population" and budget is not None and cost > budget:
            return None
        return Mixture(objective.drawn(low), objective.drawn(high), share, low, high)


def _is_below(low: tuple[float, float], middle: tuple[float, float], high: tuple[float, float]) -> bool:
    """Return whether the second of three points is on or below the line between the first and the third."""
    return (middle[1] - low[1]) * (high[0] - low[0]) <= (high[1] - low[1]) * (middle[0] - low[0])
