"""Divides a batch's requests between plans, within common limits on their mean cost and mean seconds.

With a price per second, every invocation costs its dollars plus the price of its seconds. So a planner that limits only costs
finds the plans on the convex hull of cost and seconds. The price is the ratio of the marginal values of a second and a dollar
in a linear program over the plans that are already known. The planner then finds the best plans at that price, and the program
is solved again with them. This ends when a price repeats, or after a maximum number of rounds (column generation; Dantzig and
Wolfe, 1960).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from vinelm.controller import Planner
from vinelm.errors import ConfigError
from vinelm.objective import Objective

STEPS_PER_OCTAVE = 16
"""Prices of a second lie on a grid, so that few planners are needed: this many steps for each factor of two."""
OCTAVES = 24
"""Prices range up to 2**OCTAVES times the trie's own dollars per second, where dollars no longer matter. Below the range the
price is 0."""
PLANNERS = 8
"""How many planners are kept, each as large as the trie."""
MOST_STEPS = 20
"""How many prices are tried for one pair of bounds."""
_LEAST_PART = 1e-3
"""Bounds may be 0. To measure by how much a bound is missed, it counts as at least this share of the most expensive or slowest
plan."""
LEAST_SHARE = 1e-6
"""Smaller shares are rounding errors."""
NO_PRICE = 1.0, 0.0
"""The weights of a dollar and a second if only dollars count."""
_OVER, _BELOW = 1e4, 1e2
"""Penalties, relative to the target, for exceeding dollars or seconds and for missing the floor, by the fraction of the bound.
"""


@dataclass(frozen=True)
class DrawnPlan:
    """The plan of a request. If requests are divided between several plans, one of these is drawn for each request.

    Args:
        planner: The planner that makes the plan, for :class:`~vinelm.controller.Session`. Its costs are weighted sums of
            dollars and seconds. None after the plan was sent to another process, which rebuilds the planner from ``weights``.
        objective: The objective for which the planner chooses the plan.
        usd: The expected cost of a request in dollars, according to the trie.
        seconds: The expected seconds of a request at zero load, according to the trie.
        accuracy: The expected accuracy, a fraction, according to the trie.
        weights: The weight of a dollar and the weight of a second in the planner's costs; see :func:`priced`.
    """

    planner: Planner | None
    objective: Objective
    usd: float
    seconds: float
    accuracy: float
    weights: tuple[float, float] = NO_PRICE

    def __reduce__(self) -> tuple[Any, ...]:
        return DrawnPlan, (None, self.objective, self.usd, self.seconds, self.accuracy, self.weights)


class Share(NamedTuple):
    """A plan and the share of the requests that follow it, in (0, 1]."""

    share: float
    plan: DrawnPlan


class PlanShares:
    """Finds how to divide requests between plans, so that limits on the mean cost and the mean seconds are met. Not
    thread-safe.

    The plans are those over one trie, which has the estimates of accuracy, cost and latency.

    Args:
        planner: The planner over the trie.
        objective: The target, the accuracy floor and the per-request limits; it must not limit costs.

    Raises:
        ConfigError: The objective limits costs, or is about single requests instead of means.
    """

    def __init__(self, planner: Planner, objective: Objective) -> None:
        _check(objective)
        annotated = planner.annotated
        self._planner, self.objective = planner, objective
        self._planners: dict[int | None, Planner] = {None: planner}
        self._plans: dict[tuple[str, ...], DrawnPlan] = {}
        self._best: set[tuple[str, ...]] = set()
        self._near: int | None = None  # the last price, since the next one is near it
        usd, seconds = float(annotated.cost_usd.sum()), float(annotated.latency_s.sum())
        self._usd_per_second = usd / seconds if usd > 0.0 < seconds else 1.0

    def within(self, usd: float | None, seconds: float | None) -> tuple[Share, ...]:
        """Return the best plans within limits on mean cost and mean seconds, each with its share of the requests, cheapest plan
        first.

        If no division between plans meets the limits, return the one that exceeds them by the smallest factor, because it
        answers the most requests within the budget and the deadline.

        Args:
            usd: The maximum mean cost of a request in dollars, >= 0; None sets no limit.
            seconds: The maximum mean seconds of a request, >= 0; None sets no limit.

        Raises:
            ConfigError: Seconds are limited, but the trie has no latencies.
            InfeasibleError: ``on_infeasible="raise"``, and no plan meets the objective.
        """
        if seconds is not None and not self._planner.annotated.knows_latency:
            raise ConfigError("the trie knows no seconds of its models, so that no deadline can be planned for: leave it out")
        if seconds is None and self.objective.target == "accuracy":
            return self._mixed(usd)
        # Column generation: solve for the shares of the plans known so far, read off the value of a second there, and let the
        # planner find the best plans at that price. Once a price repeats, no plan improves the shares any more.
        self._plans = {key: plan for key, plan in self._plans.items() if key in self._best}  # the others keep planners alive
        price, tried = self._near if seconds is not None else None, set()
        while True:
            self._find(price, usd, seconds)
            shares, per_second = self._shared(usd, seconds)
            tried.add(price)
            price = self._price(per_second)
            if price in tried or len(tried) >= MOST_STEPS:
                self._best, self._near = {_key(plan) for _, plan in shares}, price
                return shares

    def _mixed(self, usd: float | None) -> tuple[Share, ...]:
        """Return the best plans with their shares of the requests under a limit on mean cost only; None sets no limit.

        Either one plan has all requests, or two plans divide them.
        """
        objective = self.objective if usd is None else replace(self.objective, max_cost_usd=usd)
        mixture = self._planner.mixture(objective)
        if mixture is None:
            return (Share(1.0, self._kept(None, objective)),)
        low, high = (self._kept(None, one) for one in (mixture.low, mixture.high))
        return Share(1.0 - mixture.share, low), Share(mixture.share, high)

    def _find(self, price: int | None, usd: float | None, seconds: float | None) -> None:
        """Find the best plans within these limits if each second of latency adds ``price`` to the cost, and store them.

        ``price`` is an index on a grid of prices in dollars per second; None stands for the price 0. ``usd`` and ``seconds``
        limit the mean cost and the mean seconds of a request; None sets no limit.
        """
        planner, (of_usd, of_second) = self._at(price), self._weights(price)
        bound = None
        if usd is not None or price is not None:  # without a budget seconds are priced so high that dollars hardly count
            bound = of_usd * (usd or 0.0) + of_second * (seconds or 0.0)
        objectives = [self.objective]
        if bound is not None:
            # Under a floor even the cheapest plan may be too expensive; then this plan misses the floor.
            within = replace(self.objective, maximize="accuracy", minimize=None, max_cost_usd=bound, mix=True)
            objectives = [within] if self.objective.target == "accuracy" else [*objectives, replace(within, min_accuracy=None)]
        for objective in objectives:
            mixture = planner.mixture(objective)
            for one in [objective] if mixture is None else [mixture.low, mixture.high]:
                self._kept(price, one)

    def _kept(self, price: int | None, objective: Objective) -> DrawnPlan:
        """Return the plan that is best for an objective when each second of latency has a price, which is added to the cost.

        If an equal plan was stored before, return that object.

        ``price`` is an index on a grid of prices in dollars per second; None stands for the price 0.
        """
        planner = self._at(price)
        decision = planner.plan(objective, elapsed_s=float(planner.annotated.latency_s[0]))
        annotated, reached = self._planner.annotated, decision.reached
        reached[0] = 1.0  # the probability of reaching the first invocation
        usd, seconds = float(reached @ annotated.cost_usd), float(reached @ annotated.latency_s)
        plan = DrawnPlan(planner, objective, usd, seconds, decision.accuracy, self._weights(price))
        return self._plans.setdefault(_key(plan), plan)

    def _shared(self, usd: float | None, seconds: float | None) -> tuple[tuple[Share, ...], float]:
        """Return the best division of the requests between the stored plans, and how many dollars a second of latency is
        worth.

        ``usd`` and ``seconds`` limit the mean cost and the mean seconds of a request; None sets no limit. Limits that no
        division meets are exceeded as little as possible.
        """
        from scipy.optimize import linprog  # only bounds on seconds need it, and importing it takes 40 MB

        plans = list(self._plans.values())
        is_cost, floor = self.objective.target == "cost", self.objective.min_accuracy
        rows: list[list[float]] = []
        limits: list[float] = []
        over: list[list[float]] = []
        for name, bound in (("usd", usd), ("seconds", seconds), ("accuracy", floor)):
            sign = -1.0 if name == "accuracy" else 1.0
            unit = max([*(getattr(plan, name) for plan in plans), bound or 0.0, 1e-300])
            row = [sign * getattr(plan, name) / unit for plan in plans]
            rows.append(row if bound is not None else [0.0] * len(plans))
            limits.append(0.0 if bound is None else sign * bound / unit)
            part = max((bound or 0.0) / unit, _LEAST_PART)
            over.append([0.0, -part] if name == "accuracy" else [-part, 0.0])
        target = [plan.usd if is_cost else -plan.accuracy for plan in plans]
        scale = max(map(abs, target)) or 1.0
        # Two further columns may exceed the bounds at a high price, so that there is always a solution, and impossible bounds
        # are exceeded by the same fraction in dollars and seconds.
        found = linprog(
            [*(value / scale for value in target), _OVER, _BELOW],
            A_ub=np.hstack([np.array(rows), np.array(over)]),
            b_ub=limits,
            A_eq=[[1.0] * len(plans) + [0.0, 0.0]],
            b_eq=[1.0],
        )
        shares = [Share(float(share), plan) for share, plan in zip(found.x, plans, strict=False) if share > LEAST_SHARE]
        total = sum(share for share, _ in shares)
        shares = sorted((Share(share / total, plan) for share, plan in shares), key=lambda one: one.plan.usd)
        return tuple(shares), self._worth(found.ineqlin.marginals, plans, usd, seconds, scale)

    def _worth(
        self, marginals: Sequence[float], plans: Sequence[DrawnPlan], usd: float | None, seconds: float | None, scale: float
    ) -> float:
        """Return how many dollars a second of a request's latency is worth, computed from the linear program's solution.

        Args:
            marginals: The marginal values of the limits on cost and on seconds, in this order.
            plans: The plans of the program.
            usd: The limit on the mean cost of a request in dollars; None for no limit.
            seconds: The limit on the mean seconds of a request; None for no limit.
            scale: The number by which the linear program's target, a mean cost or accuracy, was divided. Only used for costs.
        """
        # The marginal of a bound is what the target gains per unit of it; their ratio is the price of a second in dollars.
        of_usd, of_second = -float(marginals[0]), -float(marginals[1])
        if seconds is None or of_second <= 0.0:
            return 0.0
        of_usd /= max([*(plan.usd for plan in plans), usd or 0.0, 1e-300])
        of_second /= max([*(plan.seconds for plan in plans), seconds, 1e-300])
        if self.objective.target == "cost":
            of_usd += 1.0 / scale
        return of_second / of_usd if of_usd > 0.0 else math.inf

    def _price(self, per_second: float) -> int | None:
        """Return the index, on the grid of prices, of the price nearest to ``per_second`` dollars per second; None for the
        price 0.
        """
        most = OCTAVES * STEPS_PER_OCTAVE
        if per_second <= 0.0:
            return None
        step = most if math.isinf(per_second) else round(math.log2(per_second / self._usd_per_second) * STEPS_PER_OCTAVE)
        return None if step < -most else min(step, most)

    def _weights(self, price: int | None) -> tuple[float, float]:
        """Return the weight of a dollar and the weight of a second in the planner's costs, for one price of a second.

        ``price`` is the index of that price on the grid of prices; None stands for 0. The weights are scaled so that costs stay
        about as large as in the trie.
        """
        if price is None:
            return NO_PRICE
        times = 2.0 ** (price / STEPS_PER_OCTAVE)
        return 1.0 / (1.0 + times), self._usd_per_second * times / (1.0 + times)

    def _at(self, price: int | None) -> Planner:
        """Return a planner over a copy of the trie whose costs include a price for each second of latency.

        ``price`` is the index of that price on the grid of prices; None stands for 0.
        """
        found = self._planners.get(price)
        if found is None:
            assert price is not None
            found = priced(self._planner, self._weights(price))
            if len(self._planners) >= PLANNERS:
                del self._planners[next(one for one in self._planners if one is not None)]
            self._planners[price] = found
        return found


def priced(planner: Planner, weights: tuple[float, float]) -> Planner:
    """Return a planner over the same trie in which a cost is the weighted sum of dollars and seconds.

    ``weights`` are the weight of a dollar and the weight of a second. If they are :data:`NO_PRICE`, ``planner`` itself is
    returned.
    """
    if weights == NO_PRICE:
        return planner
    annotated, (of_usd, of_second) = planner.annotated, weights
    usd = of_usd * annotated.cost_usd + of_second * annotated.latency_s
    available = [name for name in annotated.trie.models if name not in planner.metrics.missing]
    return Planner(replace(annotated, cost_usd=usd, cost_se=None), available=available)


def _key(plan: DrawnPlan) -> tuple[str, ...]:
    """Return a key for comparing plans: plans whose cost, seconds and accuracy differ only by rounding have the same key."""
    return tuple(f"{value:.9g}" for value in (plan.usd, plan.seconds, plan.accuracy))


def _check(objective: Objective) -> None:
    if objective.max_cost_usd is not None:
        raise ConfigError(
            f"the objective bounds the dollars of a request (max_cost_usd = {objective.max_cost_usd:g}), but those of a batch "
            "have a common budget: give that, and leave max_cost_usd out"
        )
    if objective.target == "latency":
        raise ConfigError('minimize="latency" is about single requests: maximize accuracy or minimize cost under a deadline')
    if objective.risk == "dp":
        raise ConfigError('risk="dp" plans each request by itself, and a batch plans means: leave it out')
    if not objective.mix:
        raise ConfigError("mix=False has no effect in a batch: its requests are divided between plans; leave it out")
