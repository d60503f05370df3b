"""Varies one limit of an objective, and predicts and tests each policy under each value of the limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from vinelm.evaluation.comparison.comparable import swept
from vinelm.evaluation.comparison.cross_fit import BothWays, CrossFit, Done, estimated_policies
from vinelm.evaluation.comparison.fit import Fit, PolicyName
from vinelm.evaluation.comparison.judged_policy import JudgedPolicy
from vinelm.evaluation.off_policy.followed import Followed, followed
from vinelm.objective import Objective

SweptBound = Literal["max_cost_usd", "max_latency_s", "min_accuracy"]
"""The bound that a sweep moves. Under a cap accuracy is maximized, above a floor cost is minimized."""
POINTS: Mapping[SweptBound, int] = {"min_accuracy": 6, "max_latency_s": 5}
"""Number of bounds of each sweep; budgets are those of the evaluation. Under a latency cap plans are made again after each
invocation, which takes most of the time."""
QUANTILES = (0.5, 0.95, 0.99)


@dataclass(frozen=True, eq=False, kw_only=True)
class SweptPolicy:
    """One policy under one value of the varied limit.

    Attributes:
        objective: The objective with this value of the limit.
        policy: The policy's figures on requests that were not used to choose it.
        promised_cost_usd: Dollars per request predicted when the policy was chosen, averaged over the parts of the
            requests.
        latency_s: A request's latency in seconds at each quantile in :data:`QUANTILES`; None for a quantile if there
            are too few requests to determine it.
        violations: Share of requests that exceed the latency cap, or whose own cost exceeds the budget. None if the
            sweep varies ``min_accuracy``, or if too few requests follow the policy to its end.
    """

    objective: Objective
    policy: JudgedPolicy
    promised_cost_usd: float
    latency_s: tuple[float | None, ...]
    violations: float | None

    @property
    def band(self) -> tuple[float, float]:
        """The 95 % interval of the tested accuracy, within [0, 1]."""
        return max(self.policy.accuracy.low, 0.0), min(self.policy.accuracy.high, 1.0)

    @property
    def breaks_bound(self) -> bool:
        """Whether the whole confidence interval of the tested mean cost lies above the budget, or that of the tested
        accuracy below the required minimum.
        """
        cap, floor, own = self.objective.max_cost_usd, self.objective.min_accuracy, self.policy
        is_over = cap is not None and own.cost_usd.is_identified and own.cost_usd.low > cap
        return is_over or (floor is not None and own.accuracy.is_identified and own.accuracy.high < floor)


@dataclass(frozen=True, eq=False)
class PolicySweep:
    """The policies under an objective of which one limit is varied over a range.

    Args:
        bound: The limit that is varied.
        points: Every policy under every value of the limit, keyed by the policy's name, in the order of the values.
            Values that VineLM, the static plan or the single model cannot meet are left out.
        runs: The planned and tested policies, see :class:`~vinelm.evaluation.CrossFit`.
    """

    bound: SweptBound
    points: Mapping[PolicyName, tuple[SweptPolicy, ...]]
    runs: tuple[BothWays, ...]


def bounds_of(planning: Sequence[Fit], bound: SweptBound) -> tuple[Objective, ...]:
    """Return objectives that differ in the limit ``bound``, over the range in which plans exist; empty if this range is
    too small or latencies are unknown.

    ``planning`` has, for each part of the requests, the plans that are tested on it.
    """
    if bound == "max_cost_usd":
        return swept(planning)
    ranges = [half.plans.frontier_range() for half in planning]
    if bound == "min_accuracy":
        low, high = max(one.lowest_accuracy for one in ranges), min(half.plans.best_single_accuracy for half in planning)
        if high - low < 0.01:
            return ()
        floors = np.floor(1000.0 * np.linspace(low, high, POINTS[bound])) / 1000.0
        return tuple(Objective(minimize="cost", min_accuracy=float(floor)) for floor in floors)
    low, high = max(one.fastest_s for one in ranges), max(one.slowest_s for one in ranges)
    if not all(half.annotated.knows_latency for half in planning) or high <= 1.01 * low:
        return ()
    return tuple(
        Objective(maximize="accuracy", max_latency_s=float(f"{cap:.3g}"))
        for cap in np.linspace(1.01 * low, high, POINTS[bound])
    )


def policy_sweep(fit: CrossFit, bound: SweptBound, *, on_done: Done = lambda done, total, what: None) -> PolicySweep:
    """Return every policy under every value of the varied limit, planned on some requests and tested on the others.

    Args:
        fit: The parts of the requests, and the plans to test on each.
        bound: The limit that is varied.
        on_done: Called as ``on_done(done, total, what)``, with the numbers of finished and of all steps, and the
            current step in words.
    """
    objectives = bounds_of(fit.planning, bound)
    runs = tuple(fit.runs(objectives, on_done))
    points: dict[PolicyName, list[SweptPolicy]] = {}
    for both in runs:
        for policy in estimated_policies([both], both.objective.target):
            points.setdefault(policy.name, []).append(_swept_policy(fit, both, policy))
    return PolicySweep(bound, {name: tuple(found) for name, found in points.items()}, runs)


def _swept_policy(fit: CrossFit, both: BothWays, policy: JudgedPolicy) -> SweptPolicy:
    ways = [one[policy.name] for one in both.by_half]
    requests = Followed.joined(
        [followed(steps, fit.bought[half], share) for half, way in enumerate(ways) for share, steps in way.chosen.parts]
    )
    is_known = policy.accuracy.is_identified
    cap_s, cap_usd = both.objective.max_latency_s, both.objective.max_cost_usd
    violations = None
    if is_known and (cap_s is not None or cap_usd is not None):
        violations = requests.share_above(latency_s=cap_s, cost_usd=cap_usd)
    return SweptPolicy(
        objective=both.objective,
        policy=policy,
        promised_cost_usd=float(np.mean([way.chosen.promised_cost_usd for way in ways])),
        latency_s=tuple(requests.latency_quantile(level) if is_known else None for level in QUANTILES),
        violations=violations,
    )
