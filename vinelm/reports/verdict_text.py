"""A verdict in sentences: who won under which objective, by how much, and what to use."""

from __future__ import annotations

from vinelm.evaluation import Comparison, ComparisonResult, PolicyComparison, Verdict
from vinelm.objective import Objective
from vinelm.reports.formatting import objective_words, percent, usd


def verdict_headline(verdict: Verdict) -> str:
    """One sentence: where a gain is shown, or that none is and what to use instead."""
    total = len(verdict.rulings)
    if verdict.gains:
        share = f"{len(verdict.gains)} of {total} objectives"
        return f"Gain shown under {share}, over the best static plan and the best single model."
    over_single = [r for r in verdict.rulings if r.beats_single]
    if over_single:
        share = f"{len(over_single)} of {total} objectives"
        return f"Gain shown over the best single model under {share}; none over the best static plan, which does as well."
    models = list(dict.fromkeys(r.contest.best_single_in_hindsight.policy for r in verdict.rulings))
    return f"No gain: use model {' or '.join(models)}" + (" (by objective, see below)." if len(models) > 1 else ".")


def verdict_lines(verdict: Verdict) -> tuple[str, ...]:
    """One sentence per objective and rival."""
    return tuple(f"{objective_words(ruling.contest.objective)}: {sentence(ruling)}" for ruling in verdict.rulings)


def advice_text(result: ComparisonResult) -> str:
    """What to use for this objective, in a few words."""
    if result.is_gain:
        return "use VineLM"
    if result.beats_single:
        return f"use VineLM or the static plan “{result.static.rival.plan}”"
    return f"use model {result.contest.best_single_in_hindsight.policy}"


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
    return f"{'; '.join(said)}; {advice_text(ruling)}."


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
    return "use VineLM or the static plan" if ruling.beats_single and not ruling.is_gain else advice_text(ruling)


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
