"""What a policy did on a set of requests, and bootstrap intervals of what may be said of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from vinelm.objective import Objective
from vinelm.trie import BoolArray, FloatArray

RESAMPLES = 2000
"""Bootstrap resamples: percentiles of a 98.3 % interval still rest on 17 of them."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and the percentile bootstrap interval around it."""

    value: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        """The interval lies wholly on one side of zero."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True, eq=False, kw_only=True)
class PolicyRun:
    """One policy over the same requests, in the same order, as every run it is compared with. Arrays have shape (requests,).

    ``policy`` is who decided (``VineLM``, ``best static plan``, ``best single model``, a model's name), ``plan`` what it
    decided, in words. ``latency_s`` runs from a request's arrival to its answer. ``expected_accuracy`` is what the
    estimates promised; None where nobody planned it.
    """

    policy: str
    plan: str
    success: BoolArray
    cost_usd: FloatArray
    latency_s: FloatArray
    expected_accuracy: float | None = None

    def __len__(self) -> int:
        return len(self.success)

    @property
    def accuracy(self) -> float:
        """Share of right answers."""
        return float(self.success.mean())

    @property
    def mean_cost_usd(self) -> float:
        """Dollars per request."""
        return float(self.cost_usd.mean())

    @property
    def mean_latency_s(self) -> float:
        """Seconds per request."""
        return float(self.latency_s.mean())

    @property
    def p95_latency_s(self) -> float:
        """Seconds within which 95 % of the requests were answered."""
        return float(np.quantile(self.latency_s, 0.95))

    def late(self, max_latency_s: float | None) -> float:
        """Share of requests answered after the cap; 0 without one."""
        return 0.0 if max_latency_s is None else float((self.latency_s > max_latency_s).mean())

    def worth(self, objective: Objective) -> FloatArray:
        """What the objective counts, per request, more being better. Shape (requests,).

        An accuracy target counts right answers, and under a latency cap only those in time; a cost or latency target counts
        dollars or seconds saved (negated).
        """
        if objective.target == "cost":
            return -self.cost_usd
        if objective.target == "latency":
            return -self.latency_s
        if objective.max_latency_s is None:
            return self.success.astype(float)
        return (self.success & (self.latency_s <= objective.max_latency_s)).astype(float)

    def misses_bounds(self, objective: Objective, weights: FloatArray, level: float) -> bool:
        """Its averages miss the objective's floor or budget by more than chance: the whole bootstrap interval of the average
        lies on the wrong side. ``weights``: (resamples, requests), as from :func:`resample_weights`.
        """
        floor, budget = objective.min_accuracy, objective.max_cost_usd
        misses_floor = floor is not None and mean_interval(self.success, weights, level).high < floor
        return misses_floor or (budget is not None and mean_interval(self.cost_usd, weights, level).low > budget)

    def shortfall(self, objective: Objective) -> float:
        """By how much the averages miss the objective's floor or budget, as a fraction of it; 0 where both are met."""
        missed = [0.0]
        if objective.min_accuracy:
            missed.append(1.0 - self.accuracy / objective.min_accuracy)
        if objective.max_cost_usd:
            missed.append(self.mean_cost_usd / objective.max_cost_usd - 1.0)
        return max(missed)


def resample_weights(n_requests: int, seed: int, resamples: int = RESAMPLES) -> FloatArray:
    """How often each request is drawn in each resample, over the number of requests. Shape (resamples, requests)."""
    draws = np.random.default_rng(seed).multinomial(n_requests, np.full(n_requests, 1.0 / n_requests), size=resamples)
    return np.asarray(draws / n_requests, dtype=np.float64)


def mean_interval(values: FloatArray | BoolArray, weights: FloatArray, level: float = 0.95) -> Interval:
    """Mean of ``values`` with its percentile bootstrap interval at ``level``.

    Using the same ``weights`` for the difference of two runs makes the bootstrap a paired one. The requests are what is
    resampled; the plan is taken as given.
    """
    means = weights @ np.asarray(values, dtype=np.float64)
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(means, [tail, 1.0 - tail])
    return Interval(float(np.mean(values)), float(low), float(high))


def pareto(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of the points (cost, value) that no other point beats on both, by rising cost."""
    order = sorted(range(len(points)), key=lambda i: (points[i][0], -points[i][1]))
    kept: list[int] = []
    best = -np.inf
    for index in order:
        if points[index][1] > best:
            kept.append(index)
            best = points[index][1]
    return kept


Role = Literal["vinelm", "full", "static", "single", "model", "hindsight"]
"""Who a series or row belongs to: decides colour, dash and marker. ``full``: VineLM planning on a fully profiled trie;
``single``: the best single model; ``model``: any one model; ``hindsight``: planned with the held-out outcomes themselves."""
