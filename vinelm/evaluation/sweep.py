"""Frontiers: what each policy reaches on the same held-out requests over a grid of budgets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Literal

import numpy as np

from vinelm.annotated_trie import AnnotatedTrie
from vinelm.evaluation.policy_plans import Plans
from vinelm.evaluation.policy_run import Interval, PolicyRun, Role, mean_interval, pareto, resample_weights
from vinelm.objective import Objective
from vinelm.trie import FloatArray

Bound = Literal["max_cost_usd", "max_latency_s"]


@dataclass(frozen=True, slots=True)
class Contestant:
    """A policy in a sweep. ``run`` replays it on the held-out requests under an objective; None: no feasible plan."""

    name: str
    role: Role
    run: Callable[[Objective], PolicyRun | None]


@dataclass(frozen=True, slots=True)
class Point:
    """One cap of a sweep: what a policy does under it, per request.

    ``worth`` is what the objective counts, with its interval; ``late`` the share of answers after the cap (None: not known).
    """

    cap: float
    plan: str
    worth: Interval
    accuracy: float
    cost_usd: float
    latency_s: float
    late: float | None


@dataclass(frozen=True, slots=True)
class PolicyFrontier:
    """A contestant's points, by rising cap; caps without a feasible plan are missing."""

    name: str
    role: Role
    points: tuple[Point, ...]


def sweep(contestants: Sequence[Contestant], bound: Bound, caps: Sequence[float], *, seed: int = 0) -> list[PolicyFrontier]:
    """Maximise accuracy under each cap in turn, for each contestant. All intervals use the same resamples (paired)."""
    weights: dict[int, FloatArray] = {}

    def point(contestant: Contestant, cap: float) -> Point | None:
        objective = Objective(maximize="accuracy", max_cost_usd=cap) if bound == "max_cost_usd" else Objective(
            maximize="accuracy", max_latency_s=cap
        )  # fmt: skip
        run = contestant.run(objective)
        if run is None:
            return None
        drawn = weights.setdefault(len(run), resample_weights(len(run), seed))
        return point_of(run, objective, drawn, cap)

    return [
        PolicyFrontier(c.name, c.role, tuple(p for cap in sorted(caps) if (p := point(c, cap)) is not None))
        for c in contestants
    ]


def point_of(run: PolicyRun, objective: Objective, weights: FloatArray, cap: float) -> Point:
    """What ``run`` shows under ``objective``; ``weights`` are resamples of its requests."""
    return Point(
        cap=cap,
        plan=run.plan,
        worth=mean_interval(run.worth(objective), weights),
        accuracy=run.accuracy,
        cost_usd=run.mean_cost_usd,
        latency_s=run.mean_latency_s,
        late=run.late(objective.max_latency_s),
    )


def frontier_nodes(annotated: AnnotatedTrie, amount: Literal["cost", "latency"]) -> list[int]:
    """Answerable nodes that no other beats on accuracy and expected dollars (or seconds), by rising amount."""
    nodes = np.flatnonzero(annotated.trie.answerable)
    amounts = annotated.path_cost_usd if amount == "cost" else annotated.path_latency_s
    return [int(nodes[i]) for i in pareto([(float(amounts[n]), float(annotated.accuracy[n])) for n in nodes])]


def cap_grid(annotated: AnnotatedTrie, bound: Bound, n_caps: int = 12) -> list[float]:
    """Caps from the cheapest (fastest) to the most accurate path of the estimated frontier; dollars spaced geometrically."""
    is_cost = bound == "max_cost_usd"
    amounts = annotated.path_cost_usd if is_cost else annotated.path_latency_s
    nodes = frontier_nodes(annotated, "cost" if is_cost else "latency")
    low, high = float(amounts[nodes[0]]), float(amounts[nodes[-1]])
    if not 0 < low < high:
        return [high]
    caps = np.geomspace(low, high, n_caps) if is_cost else np.linspace(low, high, n_caps)
    # A cap equal to a path's own figure admits it: rounding must not take that away.
    return [float(cap) * (1 + 1e-9) for cap in caps]


def showcase(plans: Plans) -> tuple[Objective, ...]:
    """Most accurate within a budget; cheapest above a floor; where latencies are known, most accurate within a latency cap.

    Fixed rules, no search, and every policy has a plan that meets them by the same estimates:

    - the budget is the geometric mean of the frontier's cheapest and dearest path, rounded up to two figures;
    - the floor lies two thirds of the way from the cheapest path's accuracy to the best single model's, at most 95 %;
    - the latency cap is the mean of the fastest frontier path and the most accurate one, rounded up to half a second.
    """
    annotated = plans.annotated
    by_cost, by_latency = frontier_nodes(annotated, "cost"), frontier_nodes(annotated, "latency")
    cost, accuracy, latency = annotated.path_cost_usd, annotated.accuracy, annotated.path_latency_s
    budget = float(np.sqrt(cost[by_cost[0]] * cost[by_cost[-1]]))
    lowest, highest = float(accuracy[by_cost[0]]), plans.best_single_accuracy
    cap = float(latency[by_latency[0]] + latency[by_latency[-1]]) / 2.0
    shown = (
        Objective(maximize="accuracy", max_cost_usd=_two_figures_up(budget)),
        Objective(minimize="cost", min_accuracy=min(floor(100 * (lowest + 2 * (highest - lowest) / 3)) / 100, 0.95)),
        Objective(maximize="accuracy", max_latency_s=max(ceil(2 * cap) / 2, 0.5)),
    )
    return shown if annotated.knows_latency else shown[:2]


def _two_figures_up(value: float) -> float:
    """The next number with two significant figures: 0.001234 becomes 0.0013."""
    if value <= 0:
        return 0.0
    places = 1 - floor(log10(value))
    return float(f"{ceil(value * 10**places - 1e-9) / 10**places:.12g}")
