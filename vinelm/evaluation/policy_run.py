"""Results of a policy on a set of requests, and bootstrap intervals over them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from vinelm.objective import Objective
from vinelm.trie.arrays import BoolArray, FloatArray

RESAMPLES = 2000
"""Number of bootstrap resamples: each tail of a 98.3 % interval still holds 17 of them."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its percentile bootstrap interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False, kw_only=True)
class PolicyRun:
    """Per-request results of one policy. Runs that are compared hold the same requests in the same order.

    Attributes:
        policy: Name of the policy: ``VineLM``, ``best static plan``, ``best single model``, or a model's name.
        plan: Its plan before the request, in words.
        success: Whether each answer was right, shape (requests,).
        cost_usd: Dollars spent on each request, shape (requests,).
        latency_s: Seconds from each request's arrival to its answer, shape (requests,).
        expected_accuracy: Accuracy that the trie estimated for the plan; None if the policy did not plan.
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
        """Fraction of right answers."""
        return float(self.success.mean())

    @property
    def mean_cost_usd(self) -> float:
        """Mean dollars per request."""
        return float(self.cost_usd.mean())

    @property
    def mean_latency_s(self) -> float:
        """Mean seconds per request."""
        return float(self.latency_s.mean())

    def late(self, max_latency_s: float | None) -> float:
        """Return the fraction of requests answered after the cap; 0 without one."""
        return 0.0 if max_latency_s is None else float((self.latency_s > max_latency_s).mean())

    def utility(self, objective: Objective) -> FloatArray:
        """Return what the objective counts for each request, higher being better. Shape (requests,).

        With an accuracy target: 1 for a right answer (under a latency cap: for a right answer in time), else 0. With a cost or
        latency target: the dollars or seconds, negated.
        """
        if objective.target == "cost":
            return -self.cost_usd
        if objective.target == "latency":
            return -self.latency_s
        if objective.max_latency_s is None:
            return self.success.astype(float)
        return (self.success & (self.latency_s <= objective.max_latency_s)).astype(float)


@lru_cache(4)
def resample_weights(n_requests: int, seed: int, resamples: int = RESAMPLES) -> FloatArray:
    """Draw bootstrap weights: each request's share of each resample. Shape (resamples, requests), rows sum to 1. Read-only."""
    draws = np.random.default_rng(seed).multinomial(n_requests, np.full(n_requests, 1.0 / n_requests), size=resamples)
    weights = np.asarray(draws / n_requests, dtype=np.float64)
    weights.setflags(write=False)
    return weights


def mean_interval(values: FloatArray | BoolArray, weights: FloatArray, level: float = 0.95) -> Interval:
    """Return the mean of ``values`` with its percentile bootstrap interval.

    Requests are resampled; the plan is taken as given. For a paired bootstrap, pass the per-request difference of two runs.

    Args:
        values: One value per request, shape (requests,).
        weights: Bootstrap weights from :func:`resample_weights`.
        level: Confidence level.
    """
    means = weights @ np.asarray(values, dtype=np.float64)
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(means, [tail, 1.0 - tail])
    return Interval(float(np.mean(values)), float(low), float(high))


Role = Literal["vinelm", "paths", "full", "static", "single", "vote", "two_agree", "model", "hindsight"]
"""The policy that a series or table row shows: VineLM; VineLM over paths, where the first plans over what requests show
(``paths``); VineLM on a fully profiled trie (``full``); the best static plan; the best single model (``single``); a vote;
asking until two agree; any one model (``model``); or the oracle that knows the held-out outcomes (``hindsight``)."""
