"""The verdict over a whole sweep of budgets: the mean gain, paired by request, with one interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vinelm.evaluation.policy_run import Interval, PolicyRun, Role, mean_interval, resample_weights
from vinelm.evaluation.verdicts.outcome import Outcome
from vinelm.objective import Objective
from vinelm.trie.arrays import FloatArray

LEVEL = 0.95
"""Confidence level of the interval. A gain that is none is claimed with half of the rest, 2.5 %."""


@dataclass(frozen=True, eq=False, kw_only=True)
class BudgetSweep:
    """The runs of all policies under each budget of a grid, on the same requests.

    Attributes:
        caps: Dollars per request, on average, rising.
        runs: One run for each cap, by role; ``vinelm``, ``static`` and ``single`` are needed.
        models: Each single model alone, whatever the budget: who did best in hindsight is found among them.
    """

    caps: tuple[float, ...]
    runs: Mapping[Role, tuple[PolicyRun, ...]]
    models: tuple[PolicyRun, ...] = ()

    @property
    def hindsight(self) -> tuple[PolicyRun, ...]:
        """For each cap the single model that did best on these requests: least excess over the budget, then accuracy."""
        chosen = zip(self.caps, self.runs["single"], strict=True)
        return tuple(_best(cap, (single, *self.models)) for cap, single in chosen)

    @property
    def best_model(self) -> str:
        """The single model that does best in hindsight under most budgets; the first of several."""
        names = [
            _best(cap, self.models or (single,)).policy for cap, single in zip(self.caps, self.runs["single"], strict=True)
        ]
        return max(dict.fromkeys(names), key=names.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPair:
    """VineLM against one rival, as means over the budgets.

    Attributes:
        policy: The rival's name.
        accuracy: The rival's mean accuracy.
        difference: VineLM's mean accuracy minus the rival's, with its interval. Budgets that VineLM significantly exceeds, and
            by more than the rival, count with at most 0.
        outcome: ``gain`` if the interval lies above zero, ``loss`` if below.
        exceeded: The number of budgets that VineLM so exceeds.
    """

    policy: str
    accuracy: float
    difference: Interval
    outcome: Outcome
    exceeded: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepVerdict:
    """The verdict over a sweep of budgets.

    Attributes:
        caps: The budgets in dollars per request.
        accuracy: VineLM's mean accuracy over the budgets.
        static: Against the best static plan.
        single: Against the best single model by the same estimates.
        hindsight: Against the single model that did best under each budget on these requests.
        others: Against further policies, by role; no part of the test.
        model: The single model that is best in hindsight under most budgets.
    """

    caps: tuple[float, ...]
    accuracy: float
    static: SweepPair
    single: SweepPair
    hindsight: SweepPair
    others: Mapping[Role, SweepPair]
    model: str

    @property
    def beats_single(self) -> bool:
        """Whether VineLM gains on the single model, and none does better in hindsight."""
        return self.single.outcome == "gain" and self.hindsight.difference.value >= 0

    @property
    def is_gain(self) -> bool:
        """Whether VineLM gains on the static plan and on the single model, and no single model does better in hindsight."""
        return self.static.outcome == "gain" and self.beats_single


def judge_sweep(sweep: BudgetSweep, *, seed: int = 0) -> SweepVerdict:
    """Compare VineLM with the other policies of a sweep by a paired bootstrap over requests.

    Each request's difference is the mean over the budgets, so that one interval judges the whole sweep.

    Args:
        sweep: The runs.
        seed: Seed of the bootstrap.
    """
    own, hindsight = sweep.runs["vinelm"], sweep.hindsight
    weights = resample_weights(len(own[0]), seed)
    tested: tuple[Role, ...] = ("vinelm", "static", "single")
    return SweepVerdict(
        caps=sweep.caps,
        accuracy=_accuracy(own),
        static=_pair(sweep.caps, own, sweep.runs["static"], weights),
        single=_pair(sweep.caps, own, sweep.runs["single"], weights),
        hindsight=_pair(sweep.caps, own, hindsight, weights),
        others={role: _pair(sweep.caps, own, runs, weights) for role, runs in sweep.runs.items() if role not in tested},
        model=sweep.best_model,
    )


def _pair(caps: Sequence[float], own: Sequence[PolicyRun], rival: Sequence[PolicyRun], weights: FloatArray) -> SweepPair:
    differences, exceeded = np.zeros(len(own[0])), 0
    for cap, mine, other in zip(caps, own, rival, strict=True):
        objective = Objective(maximize="accuracy", max_cost_usd=cap)
        gained = mine.success.astype(float) - other.success.astype(float)
        if mine.misses_bounds(objective, weights, LEVEL) and mine.shortfall(objective) > other.shortfall(objective):
            exceeded += 1
            gained = gained - max(float(gained.mean()), 0.0)
        differences += gained / len(caps)
    difference = mean_interval(differences, weights, LEVEL)
    outcome: Outcome = "gain" if difference.low > 0 else "loss" if difference.high < 0 else "no gain shown"
    return SweepPair(
        policy=rival[0].policy, accuracy=_accuracy(rival), difference=difference, outcome=outcome, exceeded=exceeded
    )


def _best(cap: float, runs: Sequence[PolicyRun]) -> PolicyRun:
    objective = Objective(maximize="accuracy", max_cost_usd=cap)
    return min(runs, key=lambda run: (run.shortfall(objective), -run.accuracy))


def _accuracy(runs: Sequence[PolicyRun]) -> float:
    return float(np.mean([run.accuracy for run in runs]))
