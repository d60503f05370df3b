"""VineLM's plans against what an application runs today: as accurate for less, or more accurate for as much."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from vinelm.evaluation.judging.cross_fit import BothWays, CrossFit, DirectedJudgement, gain_over, judged_policy
from vinelm.evaluation.judging.judgeable import aims
from vinelm.evaluation.judging.judged_policy import JudgedPolicy
from vinelm.evaluation.judging.plan_in_use import PlanInUse
from vinelm.evaluation.judging.planning_half import PolicyName
from vinelm.evaluation.off_policy.intervals import OffPolicyEstimate
from vinelm.objective import Objective

LEVEL = 0.975
"""Of the intervals of each aim: a gain may be one of dollars or of accuracy, so that each gets half of 5 %."""


class AgainstInUse(NamedTuple):
    """VineLM's plan for one aim, against the plan in use.

    Args:
        objective: What was planned for.
        policies: VineLM, the best static plan for the same objective where there is one, and the plan in use.
        keeps: The paired difference in what must not be lost: accuracy where dollars are to be saved, dollars saved where
            accuracy is to be gained.
        note: How VineLM compares with the static plan, in one sentence.
        ways: The policies as judged in both directions.
    """

    objective: Objective
    policies: tuple[JudgedPolicy, ...]
    keeps: OffPolicyEstimate
    note: str
    ways: dict[PolicyName, tuple[DirectedJudgement, ...]]


def against_in_use(fit: CrossFit, plan: PlanInUse) -> list[AgainstInUse]:
    """Return both aims, dollars first; those that no plan of a half promises to reach are left out.

    Args:
        fit: Both halves.
        plan: What the application runs today.
    """
    free = Objective(maximize="accuracy")
    rival = tuple(fit.judge(i, half.following(plan.under(half.plain.plans)), free) for i, half in enumerate(fit.planning))
    floor = min(way.chosen.promised_accuracy for way in rival)
    cap = max(way.chosen.promised_cost_usd for way in rival)
    runs = fit.runs(aims(floor, cap), hindsight=False, votes=False, required=("paths",))
    return [_judged(both, rival) for both in runs]


def _judged(both: BothWays, rival: tuple[DirectedJudgement, ...]) -> AgainstInUse:
    """Over signals where the rows identify that, else over paths."""
    if all("signals" in one for one in both.by_half):
        found = _against("signals", both, rival)
        if found.keeps.is_identified and found.policies[0].against["in_use"].is_identified:
            return found
    return _against("paths", both, rival)


def _against(name: PolicyName, both: BothWays, rival: tuple[DirectedJudgement, ...]) -> AgainstInUse:
    ways: dict[PolicyName, tuple[DirectedJudgement, ...]] = {name: tuple(one[name] for one in both.by_half)}
    if all("static" in one for one in both.by_half):
        ways["static"] = tuple(one["static"] for one in both.by_half)
    ways["in_use"] = rival
    scores = {policy: [way.scores for way in judged] for policy, judged in ways.items()}
    target, other = both.objective.target, "cost" if both.objective.target == "accuracy" else "accuracy"
    policies = tuple(
        judged_policy(
            policy, _words(judged), sum(way.chosen.promised_accuracy for way in judged) / len(judged), scores, target,
            level=LEVEL, baselines=("in_use",) if policy == name else (),
        )
        for policy, judged in ways.items()
    )  # fmt: skip
    over_static = gain_over(scores[name], scores["static"], target) if "static" in scores else None
    keeps = gain_over(scores[name], scores["in_use"], other, level=LEVEL)
    return AgainstInUse(both.objective, policies, keeps, _note(over_static), ways)


def _note(over: OffPolicyEstimate | None) -> str:
    if over is None:
        return "No static plan promises that, so that only a controller can."
    if over.is_same:
        return "The best static plan for this aim is the same plan: it needs no controller."
    if over.is_identified and over.low > 0.0:
        return "VineLM's plan is better than the best static plan for this aim."
    return "VineLM's plan is not known to be better than the best static plan for this aim: that may do as well."


def _words(ways: Sequence[DirectedJudgement]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(way.chosen.words for way in ways))
