"""Bounds on averages over requests: chooses the one plan that all requests follow (docs/architecture.md#objectives)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np

from vinelm.controller.planning.contingent.hull import Curve
from vinelm.controller.planning.contingent.problem import Problem, Solution
from vinelm.controller.planning.contingent.values import PlanGoal
from vinelm.controller.planning.metric import COST_CAP, FLOOR, bounds_averages
from vinelm.controller.planning.mixture import Hull
from vinelm.controller.planning.path_metrics import no_standard_errors
from vinelm.objective import Objective
from vinelm.plans.plan import Plan
from vinelm.plans.static_plans import StaticPlans
from vinelm.trie.arrays import BoolArray, FloatArray, Integers


@dataclass(frozen=True)
class RootPlan:
    """The plan from the root for one objective, and the goal of requests that cannot follow this plan.

    Attributes:
        outcome: The plan from the root on, at zero load; None if plans depend only on each request's time, money and load.
        goal: What a request's own plan maximizes or minimizes, once its remaining time and money and the load are known.
        is_fixed: Whether ``outcome`` is a fixed plan (one model per stage), which ignores a request's remaining time and money.
            Requests follow a fixed plan as long as it meets their caps.
        relaxed: Names of the bounds on averages that no plan meets.
        best: The value of this plan in the quantity of the first bound in ``relaxed``: its accuracy, or its cost in dollars.
            No plan within the other bounds has a better value. NaN if ``relaxed`` is empty.
        within_s: The limit on a request's time from the root at zero load, in seconds; None without such a limit.
        looked_up: A cache of (next model, plan, problem), keyed by the request's position, the branches that may come and
            whether the request may end.
    """

    outcome: Solution | None
    goal: PlanGoal
    is_fixed: bool = False
    relaxed: tuple[str, ...] = ()
    best: float = float("nan")
    within_s: float | None = None
    looked_up: dict[object, tuple[str | None, Plan, Problem]] = field(default_factory=dict, compare=False, repr=False)
    """The next model, plan and problem by node, branches and whether the request may end, if nothing else matters."""


@dataclass(frozen=True)
class Population:
    """The plans to choose from under bounds on averages over requests.

    They are the corners of the upper convex hull in cost and accuracy, and the fixed plans (one model per stage). With
    ``confidence``, plans are compared by the lower bound of their accuracy.

    Args:
        problem: The planning problem from the root on, at zero load.
        curve: The problem's hull; shared by objectives that differ only in their bounds on averages.
        fixed: The fixed plans of the problem.
        uncapped: The hull of the problem without its caps; None unless the problem has caps and merged nodes. Plans on this
            hull that meet the caps may be chosen, too.
        errors: A cache of the plans' standard errors, shared like the hull. It maps the ``id`` of an object (a corner or
            ``fixed``) to the object itself and its standard error or errors.
    """

    problem: Problem
    objective: Objective
    curve: Curve
    fixed: StaticPlans
    uncapped: Curve | None = None
    errors: dict[int, tuple[object, Any]] = field(default_factory=dict, compare=False, repr=False)

    def policy(self) -> RootPlan:
        """Return the best plan within the bounds on averages. If no plan meets all, the accuracy floor is relaxed first."""
        floor = self.objective.min_accuracy
        budget = self.objective.max_cost_usd if self.objective.cost_budget == "population" else None
        found = self._best(floor, budget)
        if found is not None:
            return found
        if floor is not None:
            found = self._best(None, budget, first="accuracy")
            if found is not None:
                return self._relaxed(found, FLOOR)
        if floor is not None:
            found = self._best(floor, None, first="cost")
            if found is not None:
                return self._relaxed(found, COST_CAP)
        found = self._best(None, None, first="cost")
        assert found is not None  # without bounds every plan is feasible
        return self._relaxed(found, *((COST_CAP,) if floor is None else (COST_CAP, FLOOR)))

    def hull(self) -> Hull:
        """Return the part of the plans' upper convex hull that is needed to divide requests between two plans.

        Only the part near the objective's bound on the mean is sure to be complete. A plan on the hull may cost more than the
        bound.
        """
        # Only the edge that spans the bound is refined: the rest of the hull does not matter for a mixture.
        capped, loose = self._spanning(self.curve), [] if self.uncapped is None else self._spanning(self.uncapped)
        corners = capped + [corner for corner in loose if self.problem.admits(self._plan(corner))]
        allowed = self._allowed
        return Hull.of(
            np.concatenate(([corner.cost_usd for corner in corners], self._fixed("cost_usd")[allowed])),
            np.concatenate(([self._lower(corner) for corner in corners], self._fixed_accuracy[allowed])),
        )

    def _spanning(self, curve: Curve) -> list[Solution]:
        if self.objective.confidence is not None:
            return curve.refined()
        return list(
            {id(corner): corner for corner in (curve.cheapest, *curve.spanning(self.objective), curve.most_accurate)}.values()
        )

    def reaches(self, floor: float | None, budget: float | None) -> bool:
        """Return whether some plan meets the accuracy floor and the budget and answers every request."""
        found = self._best(floor, budget)
        return found is not None and found.outcome is not None and self.problem.answers(found.outcome)

    def _relaxed(self, policy: RootPlan, *bounds: str) -> RootPlan:
        assert policy.outcome is not None
        best = policy.outcome.accuracy if bounds[0] == FLOOR else policy.outcome.cost_usd
        return replace(policy, relaxed=bounds, best=best)

    def _best(self, floor: float | None, budget: float | None, first: str | None = None) -> RootPlan | None:
        """Return the best plan that meets the accuracy floor and the budget; None if no plan does.

        ``first`` is the quantity that is compared first; by default the objective's target.
        """
        # Corners of the hull answer bounds on averages; a fixed plan below the hull may still be the best single plan within a
        # bound, so both compete.
        capped = self._corners(self.curve, floor, budget)
        corners = capped + [corner for corner in self._loose(floor, budget) if self.problem.admits(self._plan(corner))]
        accuracy = np.concatenate(([self._lower(corner) for corner in corners], self._fixed_accuracy))
        cost = np.concatenate(([corner.cost_usd for corner in corners], self._fixed("cost_usd")))
        meets = np.concatenate((np.ones(len(corners), np.bool_), self._allowed))
        meets &= (accuracy >= (0.0 if floor is None else floor)) & (cost <= (np.inf if budget is None else budget))
        order = self._order(first or self.objective.target, accuracy, cost, meets, corners)
        if order is None:
            return None
        goal = self._goal(first or self.objective.target, floor, budget)
        if self.objective.confidence is not None or self.objective.target == "latency":  # the bounds are not those of the hull
            goal = next((corners[i].goal for i in order.tolist() if i < len(corners)), None) or goal
        winner = int(order[0])
        if winner < len(corners):
            return RootPlan(corners[winner], goal, is_fixed=winner >= len(capped))
        return RootPlan(self._followed(winner - len(corners)), goal, is_fixed=True)

    def _goal(self, target: str, floor: float | None, budget: float | None) -> PlanGoal:
        """Return the goal of requests that cannot follow the plan of the other requests.

        The reason may be a failed model or the requests' caps. ``floor`` is the minimum mean accuracy and ``budget`` the
        maximum mean cost in dollars; None without this bound.
        """
        if target == "cost":
            return PlanGoal("cost") if floor is None else self.curve.price_reaching(floor)
        return PlanGoal("accuracy") if budget is None else self.curve.price_within(budget)

    def _order(
        self, first: str, accuracy: FloatArray, cost: FloatArray, meets: BoolArray, corners: list[Solution]
    ) -> Integers | None:
        """Return the indices of the plans that meet the bounds, best first; None if no plan does.

        The plans are numbered: first those at the corners of the convex hull of cost and accuracy, then the fixed plans.

        Args:
            first: ``"cost"`` compares cost first; any other target compares accuracy first.
            accuracy: Each plan's accuracy, shape (plans,).
            cost: Each plan's cost in dollars, shape (plans,).
            meets: Whether each plan meets the bounds, shape (plans,).
            corners: The plans at the corners.
        """
        items = np.flatnonzero(meets)
        if not len(items):
            return None
        keys = [cost, -accuracy] if first == "cost" else [-accuracy, cost]
        best = items[(keys[0][items] == keys[0][items].min())]
        if len(best) > 1 and len(best[keys[1][best] == keys[1][best].min()]) > 1:
            longest = [self._plan(corner).latency_s for corner in corners]
            keys.append(np.concatenate((longest, self._fixed("longest_s"))))
        return items[np.lexsort((items, *(key[items] for key in reversed(keys))))]

    def _corners(self, curve: Curve, floor: float | None, budget: float | None) -> list[Solution]:
        """Return the plans on the hull ``curve`` that can be the best within the accuracy floor and the budget.

        ``curve`` is the convex hull of all plans in the plane of cost and accuracy; the plans returned are at its corners.
        """
        if self.objective.confidence is not None:
            return curve.refined()
        found: list[Solution | None] = [curve.cheapest, curve.most_accurate]
        found += [] if budget is None else [curve.within(budget)]
        found += [] if floor is None else [curve.reaching(floor)]
        return list({id(corner): corner for corner in found if corner is not None}.values())

    def _loose(self, floor: float | None, budget: float | None) -> list[Solution]:
        return [] if self.uncapped is None else self._corners(self.uncapped, floor, budget)

    # -- fixed plans -------------------------------------------------------------------------------------------

    @property
    def _has_bounds(self) -> bool:
        """True if the objective bounds averages or has ``confidence``; only then are fixed plans considered."""
        return bounds_averages(self.objective) or self.objective.confidence is not None

    def _fixed(self, name: str) -> FloatArray:
        return getattr(self.fixed, name) if self._has_bounds else np.empty(0)

    @cached_property
    def _allowed(self) -> BoolArray:
        return self.fixed.is_allowed if self._has_bounds else np.empty(0, np.bool_)

    @cached_property
    def _fixed_accuracy(self) -> FloatArray:
        """The accuracy of each fixed plan; with ``confidence``, the lower bound of that accuracy."""
        accuracy = self._fixed("accuracy")
        if self.objective.confidence is None:
            return accuracy
        return np.maximum(np.nan_to_num(accuracy - self._z * self._fixed_errors(), nan=0.0), 0.0)

    def _fixed_errors(self) -> FloatArray:
        """Return the standard error of each fixed plan's accuracy.

        If several paths may lead to a node, the error is slow to compute. Then it is NaN for plans that are not allowed, and
        for plans that a cheaper plan equals or exceeds in accuracy.
        """
        if not self.problem.graph.annotated.trie.is_merged:
            return self.fixed.error
        if id(self.fixed) not in self.errors:
            self.errors[id(self.fixed)] = self.fixed, self._errors_where_needed()
        return np.asarray(self.errors[id(self.fixed)][1])

    def _errors_where_needed(self) -> FloatArray:
        found = np.full(len(self.fixed.accuracy), np.nan)
        best = -1.0
        for plan in np.lexsort((-self.fixed.accuracy, self.fixed.cost_usd)).tolist():
            if self._allowed[plan] and self.fixed.accuracy[plan] > best:
                best = self.fixed.accuracy[plan]
                found[plan] = self._error(self._plan(self._followed(plan)))
        return found

    def _followed(self, plan: int) -> Solution:
        choice = self.fixed.choice(plan)
        first = {group: int(choice[group]) for group in self.problem.groups}
        found = Plan(self.problem.graph, 0, first, choice)
        return Solution(first, lambda: choice, found.accuracy, found.cost_usd, found.lost)

    # -- lower bounds ------------------------------------------------------------------------------------------

    @cached_property
    def _z(self) -> float:
        return NormalDist().inv_cdf(self.objective.confidence or 0.5)

    def _lower(self, corner: Solution) -> float:
        """Return the accuracy of the plan ``corner``; the lower bound of its accuracy if the objective has ``confidence``."""
        if self.objective.confidence is None:
            return corner.accuracy
        if id(corner) not in self.errors:
            self.errors[id(corner)] = corner, self._error(self._plan(corner))
        error = self.errors[id(corner)][1]
        return max(corner.accuracy - self._z * error, 0.0) if not math.isnan(error) else 0.0

    def _error(self, plan: Plan) -> float:
        if plan.standard_error is None:
            raise no_standard_errors(self.problem.graph.annotated)
        return plan.standard_error

    def _plan(self, corner: Solution) -> Plan:
        return corner.plan(self.problem.graph, 0)
