"""What may be claimed: VineLM against the plans a user could freeze, by paired bootstrap on held-out requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from vinelm.evaluation.policy_run import Interval, PolicyRun, mean_interval, resample_weights
from vinelm.objective import Objective
from vinelm.reports.formatting import objective_words, percent, usd

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

    @property
    def advice(self) -> str:
        """What to use for this objective, in a few words."""
        if self.is_gain:
            return "use VineLM"
        if self.beats_single:
            return f"use VineLM or the static plan “{self.static.rival.plan}”"
        return f"use model {self.contest.best_single_in_hindsight.policy}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """All rulings, at a level shared among the objectives (Bonferroni), and the headline."""

    rulings: tuple[ComparisonResult, ...]
    level: float

    @property
    def gains(self) -> tuple[ComparisonResult, ...]:
        """Objectives under which VineLM is worth having."""
        return tuple(r for r in self.rulings if r.is_gain)

    @property
    def headline(self) -> str:
        """One sentence: where a gain is shown, or that none is and what to use instead."""
        total = len(self.rulings)
        if self.gains:
            share = f"{len(self.gains)} of {total} objectives"
            return f"Gain shown under {share}, over the best static plan and the best single model."
        over_single = [r for r in self.rulings if r.beats_single]
        if over_single:
            share = f"{len(over_single)} of {total} objectives"
            return f"Gain shown over the best single model under {share}; none over the best static plan, which does as well."
        models = list(dict.fromkeys(r.contest.best_single_in_hindsight.policy for r in self.rulings))
        return f"No gain: use model {' or '.join(models)}" + (" (by objective, see below)." if len(models) > 1 else ".")

    @property
    def lines(self) -> tuple[str, ...]:
        """One sentence per objective and rival."""
        return tuple(f"{objective_words(ruling.contest.objective)}: {sentence(ruling)}" for ruling in self.rulings)


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


def sentence(ruling: ComparisonResult) -> str:
    """How VineLM did against its rivals under one objective, with intervals, and what to use."""
    said = [_against(ruling, ruling.static), _against(ruling, ruling.single)]
    said += missed_bounds(ruling.contest)
    best_single_in_hindsight = ruling.best_single_in_hindsight
    if best_single_in_hindsight.overshot:
        said.append(f"{best_single_in_hindsight.rival.policy}, the best single model with hindsight, kept the bounds better")
    elif best_single_in_hindsight.difference.value < 0 and ruling.single.outcome != "loss":
        gap = difference_text(best_single_in_hindsight, ruling.contest.objective)
        said.append(f"{gap} against {best_single_in_hindsight.rival.policy}, the best single model with hindsight")
    return f"{'; '.join(said)}; {ruling.advice}."


def missed_bounds(contest: PolicyComparison) -> list[str]:
    """The averages that VineLM promised and did not keep."""
    objective, own = contest.objective, contest.vinelm
    missed = []
    if objective.min_accuracy is not None and own.accuracy < objective.min_accuracy:
        missed.append(f"it missed the floor with {percent(own.accuracy)}")
    if objective.max_cost_usd is not None and own.mean_cost_usd > objective.max_cost_usd:
        missed.append(f"it missed the budget with {usd(own.mean_cost_usd)}")
    return missed


def difference_text(comparison: Comparison, objective: Objective) -> str:
    """The difference in the unit of the objective, with its interval, e.g. ``+3.1 points (0.4 to 5.9)``."""
    value, low, high = comparison.difference.value, comparison.difference.low, comparison.difference.high
    if objective.target == "accuracy":
        return f"{100 * value:+.1f} points ({100 * low:+.1f} to {100 * high:+.1f})"
    if objective.target == "latency":
        return f"{-value:+.2f} s ({-high:+.2f} to {-low:+.2f})"
    base = comparison.rival.mean_cost_usd or 1.0
    return f"{-100 * value / base:+.0f} % cost ({-100 * high / base:+.0f} to {-100 * low / base:+.0f})"


def short_advice(ruling: ComparisonResult) -> str:
    """What to use, without the plan's steps."""
    return "use VineLM or the static plan" if ruling.beats_single and not ruling.is_gain else ruling.advice


def versus_text(comparison: Comparison, objective: Objective) -> str:
    """The difference, or that there is none at all."""
    return "the same" if comparison.is_same else difference_text(comparison, objective)


def _against(ruling: ComparisonResult, comparison: Comparison) -> str:
    if comparison.is_same:
        return f"the same as the {comparison.rival.policy}"
    said = f"{difference_text(comparison, ruling.contest.objective)} against the {comparison.rival.policy}"
    if comparison.outcome == "no gain shown" and comparison.overshot and comparison.difference.low > 0:
        return f"{said}, but its bounds were missed by more"
    return f"{said}: {comparison.outcome}"
