"""Simulated batches: how near they come to a budget and a deadline when prices and speeds are not what the trie says.

Every run has a random trie of some kind, a budget and a deadline that some plans meet at the real figures, and a factor for
each model's dollars and seconds within 1 - DRIFT and 1 + DRIFT: the same all the time, or ("moving") on the way from one number
to another, which nobody can know. A request takes the expected figures of its plan times these, and a factor of its own. A
ledger reserves an upper bound for each, and refuses what does not fit.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, Protocol

import numpy as np
import places  # noqa: F401 - first: where the oracles are
from kit.oracles.mixtures_of_plans import KINDS, small_tries

from vinelm.batches.plan_shares import DrawnPlan, PlanShares
from vinelm.batches.steering import Steering
from vinelm.controller import Planner
from vinelm.objective import Objective

DRIFT = 0.3
SPREAD = 0.5
"""Standard deviation of the logarithm of a request's own factor."""
BOUND = 4.0
"""What is reserved for a request, over its expected dollars; none costs more."""
WORKERS = 32
NEAR, IN_TIME = 0.99, 0.97
BEST = Objective(maximize="accuracy")


def landings(bounded: str, moving: bool, runs: int, requests: int) -> dict[str, Any]:
    """Return what became of so many simulated batches: ``"dollars"`` or both are bounded."""
    found = [_run(bounded, planner, requests, seed, moving=moving) for seed, planner in enumerate(_planners(runs))]
    binding = [one for one in found if not one["deadline_binds"]]
    timed = [one for one in found if one["in_time"] is not None]
    usd = np.array([one["usd"] for one in binding])
    return {
        "bounded": bounded,
        "drift": "moving" if moving else "steady",
        "runs": len(found),
        "requests": requests,
        "budget_binds": len(binding),
        "within_1_percent": float(np.mean((usd >= NEAR) & (usd <= 1.0 + 1e-9))) if binding else None,
        "least": float(usd.min()) if binding else None,
        "most_of_budget": max(one["over"] for one in found),
        "in_time": float(np.mean([bool(one["in_time"] <= 1.0) for one in timed])) if timed else None,
        "latest": max((one["in_time"] for one in timed), default=None),
        "all_answered": float(np.mean([not one["unanswered"] for one in found])),
        "most_unanswered": max(one["unanswered"] for one in found) / requests,
    }


def _planners(runs: int) -> list[Planner]:
    """Planners over random tries of every kind in turn, with some choice in dollars and in seconds."""
    each = -(-runs // len(KINDS))
    kinds = [[planner for _, planner, _ in islice(_worthwhile(kind), each)] for kind in KINDS]
    return [planner for some in zip(*kinds, strict=True) for planner in some][:runs]


def _worthwhile(kind: str) -> Any:
    for rng, planner, plans in small_tries(kind, 10_000, seed=7):
        if not planner.annotated.knows_latency or (planner.annotated.cost_usd < 0).any():
            continue
        dear, cheap = planner.plan(BEST).path_cost_usd, planner.plan(Objective(minimize="cost")).path_cost_usd
        if cheap > 0.0 and dear > 1.3 * cheap:
            yield rng, planner, plans


class World(Protocol):
    """What the requests of a simulated batch take."""

    def __len__(self) -> int: ...

    def took(self, plan: DrawnPlan, planner: Planner, place: int) -> tuple[float, float]:
        """Dollars and seconds of a request under a plan."""

    def bound_usd(self, plan: DrawnPlan) -> float:
        """What a ledger reserves for a request, at least what it takes."""


class Simulated(NamedTuple):
    """A simulated batch: dollars, seconds, and the plan of each request that was answered, by its place."""

    spent: float
    elapsed: float
    plans: dict[int, DrawnPlan]


@dataclass
class _World:
    """What a run's requests really take.

    Args:
        usd: Factor of each model's dollars, at the start and the end.
        seconds: The same of its seconds.
        own: Each request's own factors, shape (requests, 2).
    """

    usd: Mapping[str, tuple[float, float]]
    seconds: Mapping[str, tuple[float, float]]
    own: np.ndarray

    def __len__(self) -> int:
        return len(self.own)

    def bound_usd(self, plan: DrawnPlan) -> float:
        """See :class:`World`."""
        return BOUND * plan.usd

    def took(self, plan: DrawnPlan, planner: Planner, place: int) -> tuple[float, float]:
        """Dollars and seconds of a request under a plan."""
        at = place / len(self.own)
        usd, seconds = _by_model(plan, planner)
        return (
            float(self.own[place, 0]) * sum(value * _between(self.usd[name], at) for name, value in usd.items()),
            float(self.own[place, 1]) * sum(value * _between(self.seconds[name], at) for name, value in seconds.items()),
        )

    def total(self, plan: DrawnPlan, planner: Planner) -> tuple[float, float]:
        """The same of all requests."""
        usd, seconds = np.array([self.took(plan, planner, place) for place in range(len(self.own))]).mean(axis=0)
        return float(usd) * len(self.own), float(seconds) * len(self.own)


def _between(ends: tuple[float, float], at: float) -> float:
    return ends[0] + at * (ends[1] - ends[0])


_SPLIT: dict[int, tuple[DrawnPlan, tuple[dict[str, float], dict[str, float]]]] = {}


def _by_model(plan: DrawnPlan, planner: Planner) -> tuple[dict[str, float], dict[str, float]]:
    """The plan's expected dollars and seconds by model; "" for what runs before the first."""
    found = _SPLIT.get(id(plan))
    if found is None:
        annotated = planner.annotated
        reached = plan.planner.plan(plan.objective, elapsed_s=float(plan.planner.annotated.latency_s[0])).reached
        reached[0] = 1.0
        names = ["" if model < 0 else annotated.trie.models[model] for model in annotated.trie.model]
        usd: dict[str, float] = dict.fromkeys(names, 0.0)
        seconds = dict(usd)
        for node in np.flatnonzero(reached):
            usd[names[node]] += float(reached[node] * annotated.cost_usd[node])
            seconds[names[node]] += float(reached[node] * annotated.latency_s[node])
        found = _SPLIT[id(plan)] = (plan, (usd, seconds))  # holds the plan, so that no other one gets its id
    return found[1]


def _world(planner: Planner, requests: int, seed: int, moving: bool) -> _World:
    rng = np.random.default_rng(seed)
    names = ["", *planner.annotated.trie.models]

    def factors() -> dict[str, tuple[float, float]]:
        found = {name: 1.0 + DRIFT * rng.uniform(-1.0, 1.0, 2) for name in names}
        return {name: (float(ends[0]), float(ends[1 if moving else 0])) for name, ends in found.items()}

    own = np.minimum(rng.lognormal(-(SPREAD**2) / 2, SPREAD, (requests, 2)), BOUND / (1.0 + DRIFT))
    return _World(factors(), factors(), own)


def _run(bounded: str, planner: Planner, requests: int, seed: int, *, moving: bool) -> dict[str, Any]:
    _SPLIT.clear()
    rng, world = random.Random(seed), _world(planner, requests, seed, moving)
    shares = PlanShares(planner, BEST)
    dearest, cheapest = shares.within(None, None)[0].plan, shares.within(0.0, None)[0].plan
    quickest = shares.within(None, 0.0)[0].plan
    dear, cheap = (world.total(plan, planner) for plan in (dearest, cheapest))
    quick = world.total(quickest, planner)
    # A mixture of the cheapest, the quickest and the dearest plan is feasible at the real figures, with a little to spare.
    weights = np.array([rng.random() ** 2, rng.random(), rng.random()])
    weights /= weights.sum()
    mixed = weights @ np.array([dear, cheap, quick])
    if bounded == "dollars":
        mixed[0] = cheap[0] + rng.uniform(0.0, 1.1) * (dear[0] - cheap[0])
    budget = float(mixed[0]) * 1.03
    deadline = None if bounded == "dollars" else float(mixed[1]) / WORKERS * 1.05
    spent, elapsed, plans = simulated(planner, world, budget, deadline)
    return {
        "usd": float(spent / min(budget, dear[0])),
        "over": float(spent / budget),
        "in_time": None if deadline is None else float(elapsed / deadline),
        "deadline_binds": deadline is not None and elapsed > IN_TIME * deadline,
        "unanswered": requests - len(plans),
    }


def simulated(
    planner: Planner, world: World, budget: float, deadline: float | None, *, workers: int = WORKERS, names: Sequence[str] = ()
) -> Simulated:
    """Serve a batch.

    Args:
        planner: Over the trie that plans are made from.
        world: What requests really take.
        budget: Dollars of all requests.
        deadline: Seconds of all of them; None: any.
        workers: Requests under way at a time.
        names: Of the requests, which decide who follows which plan of a mixture; empty: their numbers.
    """
    keys = list(names) or [f"request {number}" for number in range(len(world))]
    steering = Steering(planner, BEST, budget_usd=budget, deadline_s=deadline, keys=keys, workers=workers)
    spent = reserved = elapsed = 0.0
    under_way: list[tuple[float, int, float, float, float]] = []
    held: DrawnPlan | None = None  # a plan for which the ledger has no room yet
    plans: dict[int, DrawnPlan] = {}
    at = 0
    while at < len(keys) or under_way:
        while at < len(keys) and len(under_way) < workers:
            if held is None:
                if steering.waits(keys[at]):
                    break
                held = steering.next(keys[at], elapsed_s=elapsed, reserved_usd=reserved)
            if held is not None:
                bound = world.bound_usd(held)
                if spent + reserved + bound > budget:
                    if under_way:
                        break
                    steering.ended(keys[at], cost_usd=0.0, seconds=0.0)
                else:
                    usd, seconds = world.took(held, planner, at)
                    plans[at] = held
                    reserved += bound
                    heapq.heappush(under_way, (elapsed + seconds, at, usd, seconds, bound))
            held, at = None, at + 1
        if under_way:
            elapsed, place, usd, seconds, bound = heapq.heappop(under_way)
            reserved, spent = reserved - bound, spent + usd
            steering.ended(keys[place], cost_usd=usd, seconds=seconds)
    return Simulated(spent, elapsed, plans)
