"""Bounds on averages over requests: finds the curve of accuracy by cost, by varying the price of a dollar in accuracy.

At each price, one plan maximizes accuracy minus price times cost. Over all prices, these plans are the corners of the upper
convex hull of all contingent plans in the plane of cost and accuracy. Plans between two corners need not be searched: a traffic
split between the two corners is at least as good (:mod:`vinelm.controller.planning.mixture`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from itertools import pairwise

from vinelm.controller.planning.contingent.problem import Problem, Solution
from vinelm.controller.planning.contingent.values import PlanGoal
from vinelm.objective import Objective

MOST_STEPS = 200
"""How many prices are tried for one bound."""
MOST_CORNERS = 64
"""How many corners are compared if plans are chosen by the lower bound of their accuracy."""
_NEAR = 1e-9
"""Relative distance from the price at which two neighbours tie, so that the neighbour within the bound is better."""
_TOLERANCE = 1e-12
"""Relative gain below which a price gives no new corner, because of rounding."""


class Curve:
    """The plans at the corners of the upper convex hull of all plans, in the plane of cost and accuracy.

    ``corners`` has the plans found so far, cheapest first. Methods search for more when needed.

    Args:
        problem: The planning problem from the root on.
        answers_first: Whether to prefer plans that answer every request.
    """

    def __init__(self, problem: Problem, *, answers_first: bool = False) -> None:
        self._problem, self._answers_first = problem, answers_first
        # Two inductions give the ends of the hull: the least dollars, and the highest accuracy at any price. All other corners
        # lie in between.
        cheapest = problem.best(PlanGoal("cost"))
        self.corners: list[Solution] = [cheapest]
        self._closed: set[tuple[int, int]] = set()  # pairs of neighbours, by id, between which an induction has found no corner
        best = self._at(0.0)
        # Otherwise one plan is both, and the only corner. On a grid of what is left both are approximate, so that the
        # "cheapest" may even cost more than the most accurate.
        if best.cost_usd > cheapest.cost_usd:
            self.corners.append(best)
        elif best.accuracy > cheapest.accuracy or problem.graph.annotated.trie.is_merged:
            self.corners = [best]

    @property
    def cheapest(self) -> Solution:
        """The plan with the lowest cost among :attr:`corners`, the plans found so far."""
        return self.corners[0]

    @property
    def most_accurate(self) -> Solution:
        """The plan with the highest accuracy among :attr:`corners`, the plans found so far."""
        return self.corners[-1]

    def within(self, budget_usd: float) -> Solution | None:
        """Return, of the plans at the hull's corners, the most accurate one that costs at most ``budget_usd``.

        None if all of them cost more.
        """
        if self.cheapest.cost_usd > budget_usd:
            return None
        return self._refined(lambda corner: corner.cost_usd > budget_usd)[0]

    def reaching(self, floor: float) -> Solution | None:
        """Return, of the plans at the hull's corners, the cheapest one whose accuracy is at least ``floor``.

        None if no corner is that accurate.
        """
        if self.most_accurate.accuracy < floor:
            return None
        if self.cheapest.accuracy >= floor:
            return self.cheapest
        return self._refined(lambda corner: corner.accuracy >= floor)[1]

    def spanning(self, objective: Objective) -> tuple[Solution, Solution]:
        """Return the two plans between which to divide requests, so that the mean meets the objective's bound.

        They are neighbouring corners of the hull. If the bound lies beyond the last corner, return the last corner twice.
        """
        budget, floor = objective.max_cost_usd, objective.min_accuracy
        if objective.target == "accuracy" and budget is not None:
            return self._refined(lambda corner: corner.cost_usd > budget)
        return self._refined(lambda corner: corner.accuracy >= (floor or 0.0))

    def price_within(self, budget_usd: float) -> PlanGoal:
        """Return the goal for planning one request separately, if the mean cost of requests is limited to ``budget_usd``.

        A request is planned separately if it cannot follow the common plan, because a model failed or a cap forbids a call. The
        goal maximizes accuracy minus a price times cost. At this price, the best plan costs at most ``budget_usd`` dollars on
        average. If all plans cost more, the goal is the lowest cost.
        """
        if self.cheapest.cost_usd > budget_usd:
            return PlanGoal("cost")
        if self.most_accurate.cost_usd <= budget_usd:
            return self._goal(0.0)
        # At exactly the slope both neighbours tie. A slightly higher price of a dollar selects the neighbour within the budget.
        return self._goal(_slope(*self._refined(lambda corner: corner.cost_usd > budget_usd)) * (1.0 + _NEAR))

    def price_reaching(self, floor: float) -> PlanGoal:
        """Return the goal for planning one request separately, if the mean accuracy must be at least ``floor``.

        A request is planned separately if it cannot follow the common plan, because a model failed or a cap forbids a call. The
        goal maximizes accuracy minus a price times cost. At this price, the best plan has at least the mean accuracy ``floor``,
        if any plan has it. If the cheapest plan has it, the goal is the lowest cost.
        """
        if self.cheapest.accuracy >= floor:
            return PlanGoal("cost")
        if self.most_accurate.accuracy < floor:
            return self._goal(0.0)
        # In the other direction: a slightly lower price selects the more accurate neighbour, which keeps the floor.
        return self._goal(_slope(*self._refined(lambda corner: corner.accuracy >= floor)) * (1.0 - _NEAR))

    def refined(self) -> list[Solution]:
        """Search for further corners of the convex hull between those known, and return the plans at all known corners.

        At most :data:`MOST_CORNERS` corners are added.
        """
        waiting, most = list(pairwise(self.corners)), MOST_CORNERS
        while waiting and most > 0:
            low, high = waiting.pop(0)
            middle = self._insert(low, high)
            if middle is not None:
                waiting += [(low, middle), (middle, high)]
                most -= 1
        return list(self.corners)

    def _refined(self, is_above: Callable[[Solution], bool]) -> tuple[Solution, Solution]:
        """Return the last corner for which ``is_above`` is False, and the first corner for which it is True.

        Searches for further corners, but only between these two. If ``is_above`` is False for all corners, return the last
        corner twice.
        """
        for _ in range(MOST_STEPS):
            # Each step asks for the corner furthest above the chord that spans the bound. There are finitely many plans, so it
            # ends; the limit on steps only guards against rounding that finds a "new" corner again and again.
            at = next((i for i, corner in enumerate(self.corners) if is_above(corner)), len(self.corners))
            low, high = self.corners[at - 1], self.corners[min(at, len(self.corners) - 1)]
            if low is high or self._insert(low, high) is None:
                break
        return low, high

    def _insert(self, low: Solution, high: Solution) -> Solution | None:
        """Find a plan above the line between two neighbouring corners, store it as a corner and return it; None if there is
        none.
        """
        rise, run = high.accuracy - low.accuracy, high.cost_usd - low.cost_usd
        if rise <= 0.0 or run <= 0.0 or (id(low), id(high)) in self._closed:
            return None
        middle = self._at(rise / run)
        # The plan that is best at the slope of the chord lies on or above it. Without a gain (up to rounding) the chord is an
        # edge of the hull; neighbours keep their ids, so that no induction runs for this pair again.
        gain = (middle.accuracy - low.accuracy) * run - rise * (middle.cost_usd - low.cost_usd)
        if gain <= _TOLERANCE * rise * run or not low.cost_usd < middle.cost_usd < high.cost_usd:
            self._closed.add((id(low), id(high)))
            return None
        at = bisect_right([corner.cost_usd for corner in self.corners], middle.cost_usd)
        self.corners.insert(at, middle)
        return middle

    def _at(self, price: float) -> Solution:
        return self._problem.best(self._goal(price))

    def _goal(self, price: float) -> PlanGoal:
        return PlanGoal("accuracy", price, self._answers_first)


def _slope(low: Solution, high: Solution) -> float:
    """Return the accuracy gained per dollar when going from the plan ``low`` to the more expensive plan ``high``."""
    run = high.cost_usd - low.cost_usd
    return max(high.accuracy - low.accuracy, 0.0) / run if run > 0.0 else 0.0
