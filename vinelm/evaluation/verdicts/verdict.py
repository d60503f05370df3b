"""The verdict: VineLM compared with fixed plans by paired bootstrap over held-out requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vinelm.evaluation.policy_run import Interval, PolicyRun, mean_interval, resample_weights
from vinelm.evaluation.verdicts.budget_sweep import BudgetSweep, SweepVerdict, judge_sweep
from vinelm.evaluation.verdicts.outcome import Outcome
from vinelm.objective import Objective


@dataclass(frozen=True, eq=False, kw_only=True)
class PolicyComparison:
    """The runs of all policies under one objective, on the same requests.

    Attributes:
        objective: The objective that each policy planned for.
        vinelm: VineLM's run.
        static: Run of the best static plan by the same estimates.
        single: Run of the best single model by the same estimates.
        model: Name of that single model.
        others: One run per single model; shown in reports, not part of the test.
        paths: VineLM's run by plans over paths, where ``vinelm`` plans over what requests show; shown, not part of the test.
    """

    objective: Objective
    vinelm: PolicyRun
    static: PolicyRun
    single: PolicyRun
    model: str
    others: tuple[PolicyRun, ...] = ()
    paths: PolicyRun | None = None

    @property
    def best_single_in_hindsight(self) -> PolicyRun:
        """The single model that did best on these requests: least violation of the bounds first, then highest utility."""
        alone = (replace(self.single, policy=self.model), *self.others)
        return min(alone, key=lambda run: (run.shortfall(self.objective), -float(run.utility(self.objective).mean())))


@dataclass(frozen=True, slots=True, kw_only=True)
class PairwiseComparison:
    """The paired difference between VineLM and one baseline, and its outcome.

    Attributes:
        rival: The baseline's run.
        difference: Mean utility of VineLM minus the baseline's, with its interval.
        outcome: ``gain`` if the interval lies above zero and VineLM did not overshoot, ``loss`` if it lies below zero.
        overshot: VineLM significantly missed a bound, and by more than the baseline.
        is_same: Every request had the same success and cost under both.
    """

    rival: PolicyRun
    difference: Interval
    outcome: Outcome
    overshot: bool
    is_same: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonResult:
    """One objective's results: VineLM against the static plan, the single model, and the best single model in hindsight.

    ``paths``: against VineLM's own plan over paths, where there is one; no part of the test.
    """

    comparison: PolicyComparison
    static: PairwiseComparison
    single: PairwiseComparison
    best_single_in_hindsight: PairwiseComparison
    paths: PairwiseComparison | None = None

    @property
    def is_gain(self) -> bool:
        """Whether VineLM gains on the static plan and on the single model, and no single model does better in hindsight."""
        return self.static.outcome == "gain" and self.beats_single

    @property
    def beats_single(self) -> bool:
        """Whether VineLM gains on the chosen single model, and no single model does better in hindsight."""
        if self.single.outcome != "gain" or self.best_single_in_hindsight.overshot:
            return False
        return self.best_single_in_hindsight.difference.value >= 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The results of all objectives, and of a whole sweep of budgets.

    Attributes:
        results: One for each objective.
        level: Confidence level of each of their intervals, after the Bonferroni correction.
        sweep: The verdict over the sweep, at 95 %; None if none was judged.
    """

    results: tuple[ComparisonResult, ...]
    level: float
    sweep: SweepVerdict | None = None

    @property
    def is_gain(self) -> bool:
        """Whether a gain is claimed: over the sweep, or under one of the objectives."""
        return bool(self.gains) or (self.sweep is not None and self.sweep.is_gain)

    @property
    def gains(self) -> tuple[ComparisonResult, ...]:
        """The results in which VineLM gains."""
        return tuple(r for r in self.results if r.is_gain)


def compare(comparisons: Sequence[PolicyComparison], *, sweep: BudgetSweep | None = None, seed: int = 0) -> Verdict:
    """Compare VineLM with the baselines under every objective, and over a whole sweep of budgets.

    The confidence is 95 % over all objectives together: each interval has the level 1 - 0.05 / their number (Bonferroni).
    The interval of the sweep has 95 %, too. Where there is no gain, an interval lies above zero in half of the cases that it
    misses: a gain is claimed in at most 2.5 % for the objectives and 2.5 % for the sweep, 5 % together.

    Args:
        comparisons: One per objective, all over the same requests.
        sweep: The policies over a grid of budgets, on the same requests; None judges the objectives alone.
        seed: Seed of the bootstrap.
    """
    level = 1.0 - 0.05 / len(comparisons)
    weights = resample_weights(len(comparisons[0].vinelm), seed)

    def pairwise(comparison: PolicyComparison, rival: PolicyRun) -> PairwiseComparison:
        objective = comparison.objective
        difference = mean_interval(comparison.vinelm.utility(objective) - rival.utility(objective), weights, level)
        missed = comparison.vinelm.misses_bounds(objective, weights, level)
        overshot = missed and comparison.vinelm.shortfall(objective) > rival.shortfall(objective)
        outcome: Outcome = "no gain shown"
        if difference.low > 0 and not overshot:
            outcome = "gain"
        elif difference.high < 0:
            outcome = "loss"
        own = comparison.vinelm
        is_same = bool((own.success == rival.success).all() and (own.cost_usd == rival.cost_usd).all())
        return PairwiseComparison(rival=rival, difference=difference, outcome=outcome, overshot=overshot, is_same=is_same)

    return Verdict(
        results=tuple(
            ComparisonResult(
                comparison=c,
                static=pairwise(c, c.static),
                single=pairwise(c, c.single),
                best_single_in_hindsight=pairwise(c, c.best_single_in_hindsight),
                paths=None if c.paths is None else pairwise(c, c.paths),
            )
            for c in comparisons
        ),
        level=level,
        sweep=None if sweep is None else judge_sweep(sweep, seed=seed),
    )
