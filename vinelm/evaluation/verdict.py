"""What may be claimed: VineLM against the plans a user could freeze, by paired bootstrap on held-out requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from vinelm.evaluation.policy_run import Interval, PolicyRun, mean_interval, resample_weights
from vinelm.objective import Objective

Outcome = Literal["gain", "no gain shown", "loss"]


@dataclass(frozen=True, eq=False, kw_only=True)
class PolicyComparison:
    """The runs of one objective: VineLM's, and those of the best static plan and the best single model as chosen from the
    same observations. ``model`` is that single model's name. ``others`` are shown but not judged.
    """

    objective: Objective
    vinelm: PolicyRun
    static: PolicyRun
    single: PolicyRun
    model: str
    others: tuple[PolicyRun, ...] = ()

    @property
    def best_single_in_hindsight(self) -> PolicyRun:
        """The single model that turned out best on these requests: bounds kept first, then what the objective counts."""
        alone = (replace(self.single, policy=self.model), *self.others)
        return min(alone, key=lambda run: (run.shortfall(self.objective), -float(run.worth(self.objective).mean())))


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """VineLM minus a rival in what the objective counts (more is better), and what that allows to say.

    A gain needs an interval above zero *and* no bound that is missed by more than chance and by more than the rival misses it
    (``overshot``). ``is_same``: every request showed the same under both.
    """

    rival: PolicyRun
    difference: Interval
    outcome: Outcome
    overshot: bool
    is_same: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonResult:
    """One objective's comparisons: with the static plan and the single model that the same observations would have chosen, and
    with the single model that turned out best (``best_single_in_hindsight``, chosen with hindsight).
    """

    contest: PolicyComparison
    static: Comparison
    single: Comparison
    best_single_in_hindsight: Comparison

    @property
    def is_gain(self) -> bool:
        """Better than what the same observations would have frozen, and not behind any single model, hindsight included."""
        return self.static.outcome == "gain" and self.beats_single

    @property
    def beats_single(self) -> bool:
        """Better than the chosen single model, and neither behind the best one nor further from the bounds than it."""
        if self.single.outcome != "gain" or self.best_single_in_hindsight.overshot:
            return False
        return self.best_single_in_hindsight.difference.value >= 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """All rulings, at a level shared among the objectives (Bonferroni), and the headline."""

    rulings: tuple[ComparisonResult, ...]
    level: float

    @property
    def gains(self) -> tuple[ComparisonResult, ...]:
        """Objectives under which VineLM is worth having."""
        return tuple(r for r in self.rulings if r.is_gain)


def compare(contests: Sequence[PolicyComparison], *, seed: int = 0) -> Verdict:
    """Rule on every objective. The level is 95 % over all objectives together: 1 - 0.05 / their number for each."""
    level = 1.0 - 0.05 / len(contests)
    weights = resample_weights(len(contests[0].vinelm), seed)

    def compare(contest: PolicyComparison, rival: PolicyRun) -> Comparison:
        objective = contest.objective
        difference = mean_interval(contest.vinelm.worth(objective) - rival.worth(objective), weights, level)
        missed = contest.vinelm.misses_bounds(objective, weights, level)
        overshot = missed and contest.vinelm.shortfall(objective) > rival.shortfall(objective)
        outcome: Outcome = "no gain shown"
        if difference.low > 0 and not overshot:
            outcome = "gain"
        elif difference.high < 0:
            outcome = "loss"
        own = contest.vinelm
        is_same = bool((own.success == rival.success).all() and (own.cost_usd == rival.cost_usd).all())
        return Comparison(rival=rival, difference=difference, outcome=outcome, overshot=overshot, is_same=is_same)

    return Verdict(
        rulings=tuple(
            ComparisonResult(
                contest=c,
                static=compare(c, c.static),
                single=compare(c, c.single),
                best_single_in_hindsight=compare(c, c.best_single_in_hindsight),
            )
            for c in contests
        ),
        level=level,
    )
