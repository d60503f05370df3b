"""A verdict as text: where VineLM gains, by how much, and what to use for each objective."""

from __future__ import annotations

from collections.abc import Sequence

from vinelm.evaluation import PolicyRun
from vinelm.evaluation.verdicts.verdict import ComparisonResult, PairwiseComparison, PolicyComparison, Verdict
from vinelm.objective import Objective
from vinelm.reports.formatting import objective_words, percent, usd


def verdict_headline(verdict: Verdict) -> str:
    """Summarise a verdict in one sentence: where VineLM gains, or which model to use instead.

    A sweep of budgets comes before single objectives.

    Gains with a bound that VineLM missed on these requests are counted, and the sentence says so.
    """
    sweep = verdict.sweep
    if sweep is not None and sweep.is_gain:
        share = f"; {_share(verdict.gains, verdict)} by itself" if verdict.gains else ""
        return f"Gain over the best static plan and the best single model on average over {len(sweep.caps)} budgets{share}."
    if verdict.gains:
        return f"Gain over the best static plan and the best single model {_share(verdict.gains, verdict)}."
    over_single = [r for r in verdict.results if r.beats_single]
    if sweep is not None and sweep.beats_single:
        where = f"on average over {len(sweep.caps)} budgets"
        return f"Gain over the best single model {where}; no significant gain over the best static plan."
    if over_single:
        return f"Gain over the best single model {_share(over_single, verdict)}; no significant gain over the best static plan."
    best = [r.comparison.best_single_in_hindsight.policy for r in verdict.results]
    models = list(dict.fromkeys([*([] if sweep is None else [sweep.model]), *best]))
    return f"No gain: use model {' or '.join(models)}" + (", depending on the objective." if len(models) > 1 else ".")


def _share(results: Sequence[ComparisonResult], verdict: Verdict) -> str:
    return f"under {len(results)} of {len(verdict.results)} objectives{_with_missed(results)}"


def verdict_lines(verdict: Verdict) -> tuple[str, ...]:
    """Describe the result of each objective in one line."""
    return tuple(f"{objective_words(compared.comparison.objective)}: {sentence(compared)}" for compared in verdict.results)


def advice_text(result: ComparisonResult) -> str:
    """Return what to use for this objective: VineLM, the static plan or a model, and the condition if VineLM missed a bound."""
    return _advice(result, f"the static plan “{result.static.rival.plan}”")


def sentence(compared: ComparisonResult) -> str:
    """Describe one objective's result: the differences from each baseline with intervals, missed bounds, and the advice."""
    parts = [_against(compared, compared.static), _against(compared, compared.single), *missed_bounds(compared.comparison)]
    hindsight = compared.best_single_in_hindsight
    if hindsight.overshot:
        parts.append(f"{hindsight.rival.policy}, the best single model in hindsight, stays closer to the bounds")
    elif hindsight.difference.value < 0 and compared.single.outcome != "loss":
        gap = difference_text(hindsight, compared.comparison.objective)
        parts.append(f"{gap} against {hindsight.rival.policy}, the best single model in hindsight")
    return f"{'; '.join(parts)}; {advice_text(compared)}."


def missed_bounds(comparison: PolicyComparison) -> list[str]:
    """Describe each bound on an average that VineLM missed on these requests."""
    own = comparison.vinelm
    words = {
        "floor": f"VineLM's accuracy of {percent(own.accuracy)} is below the floor",
        "budget": f"VineLM's mean cost of {usd(own.mean_cost_usd)} is over the budget",
    }
    return [words[bound] for bound in _missed(comparison.objective, own)]


def difference_text(comparison: PairwiseComparison, objective: Objective) -> str:
    """Format a difference in the unit of the objective with its interval: ``+3.1 points (+0.4 to +5.9)``."""
    value, low, high = comparison.difference.value, comparison.difference.low, comparison.difference.high
    if objective.target == "accuracy":
        return f"{100 * value:+.1f} points ({100 * low:+.1f} to {100 * high:+.1f})"
    if objective.target == "latency":
        return f"{-value:+.2f} s ({-high:+.2f} to {-low:+.2f})"
    base = comparison.rival.mean_cost_usd or 1.0
    return f"{-100 * value / base:+.0f} % cost ({-100 * high / base:+.0f} to {-100 * low / base:+.0f})"


def short_advice(compared: ComparisonResult) -> str:
    """Return what to use for this objective, without the steps of a plan."""
    return _advice(compared, "the static plan")


def versus_text(comparison: PairwiseComparison, objective: Objective) -> str:
    """Format the difference, or ``the same`` if every request had the same result."""
    return "the same" if comparison.is_same else difference_text(comparison, objective)


def _missed(objective: Objective, run: PolicyRun) -> list[str]:
    """The bounds on averages that a run does not meet on these requests, in one word each."""
    missed = []
    if objective.min_accuracy is not None and run.accuracy < objective.min_accuracy:
        missed.append("floor")
    if objective.max_cost_usd is not None and run.mean_cost_usd > objective.max_cost_usd:
        missed.append("budget")
    return missed


def _with_missed(results: Sequence[ComparisonResult]) -> str:
    count = sum(bool(_missed(r.comparison.objective, r.comparison.vinelm)) for r in results)
    if not count:
        return ""
    where = ("there" if len(results) == 1 else "each time") if count == len(results) else f"in {count} of them"
    return f", but {where} VineLM misses a bound"


def _advice(result: ComparisonResult, static: str) -> str:
    objective, hindsight = result.comparison.objective, result.comparison.best_single_in_hindsight
    if not result.beats_single:
        return f"use model {hindsight.policy}"
    if result.static.outcome == "loss":
        return f"use {static}"
    text = "use VineLM" if result.is_gain else f"use VineLM or {static}"
    missed = _missed(objective, result.comparison.vinelm)
    if not missed:
        return text
    text = f"{text} only if the {' and '.join(missed)} may be missed"
    return text if _missed(objective, hindsight) else f"{text}, else model {hindsight.policy}"


def _against(compared: ComparisonResult, comparison: PairwiseComparison) -> str:
    if comparison.is_same:
        return f"the same as the {comparison.rival.policy}"
    difference = f"{difference_text(comparison, compared.comparison.objective)} against the {comparison.rival.policy}"
    if comparison.outcome == "no gain shown" and comparison.overshot and comparison.difference.low > 0:
        return f"{difference}, but VineLM misses a bound by more"
    return f"{difference}: {comparison.outcome}"
