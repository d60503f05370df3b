"""The decision: keep the best single model, or switch to VineLM's plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from vinelm.evaluation.judging.cross_fit import BothWays, CrossFit, DirectedJudgement, are_equal, gain_over, negated
from vinelm.evaluation.judging.planning_half import PolicyName
from vinelm.evaluation.judging.result import MARGIN
from vinelm.evaluation.off_policy.intervals import HalfScores, OffPolicyEstimate, estimate_mean
from vinelm.evaluation.off_policy.path_steps import PathSteps
from vinelm.evaluation.off_policy.scores import Scores
from vinelm.objective import Objective

LEVEL = 0.975
"""Of both intervals of each comparison: a switch may be for less cost or for more accuracy, so that each gets half of 5 %."""
SwitchVerdict = Literal["switch", "keep", "open", "not identified"]
SwitchKind = Literal["cheaper", "better"]


@dataclass(frozen=True, kw_only=True)
class PlanComparison:
    """VineLM's plan against the most accurate single model, judged on requests that planned neither.

    Attributes:
        kind: ``cheaper``: the cheapest plan that promises the single model's accuracy. ``better``: the most accurate plan that
            promises to cost no more.
        policy: VineLM over ``signals`` or over ``paths``.
        objective: What was planned for.
        plans: VineLM's plan of each half, in words.
        rivals: The plan of the single model of each half, in words.
        rival_models: The model of each half.
        accuracy, cost_usd: Of VineLM's plan.
        rival_accuracy, rival_cost_usd: Of the single model.
        gain: Paired difference of accuracy, with :data:`LEVEL`.
        saved_usd: Paired dollars saved per request, with :data:`LEVEL`.
        static_plans: The best static plan of each half for the same objective, in words.
        static_accuracy, static_cost_usd: Of the static plan.
        over_static: Paired gain of VineLM's plan over it, in what the objective counts: accuracy, or dollars saved.
    """

    kind: SwitchKind
    policy: PolicyName
    objective: Objective
    plans: tuple[str, ...]
    rivals: tuple[str, ...]
    rival_models: tuple[str, ...]
    accuracy: OffPolicyEstimate
    cost_usd: OffPolicyEstimate
    rival_accuracy: OffPolicyEstimate
    rival_cost_usd: OffPolicyEstimate
    gain: OffPolicyEstimate
    saved_usd: OffPolicyEstimate
    static_plans: tuple[str, ...]
    static_accuracy: OffPolicyEstimate
    static_cost_usd: OffPolicyEstimate
    over_static: OffPolicyEstimate

    @property
    def beats_static(self) -> bool:
        """Whether VineLM's plan is better than the best static plan, by the 95 % interval."""
        return self.over_static.is_identified and self.over_static.low > 0.0

    @property
    def is_judged(self) -> bool:
        """Whether the rows identify both differences."""
        return self.gain.is_identified and self.saved_usd.is_identified

    @property
    def verdict(self) -> SwitchVerdict:
        """What this comparison alone allows to say. The same accuracy means: at most :data:`MARGIN` less."""
        if not self.is_judged:
            return "not identified"
        if self.gain.is_same and self.saved_usd.is_same:
            return "keep"
        gain, saved = self.gain, self.saved_usd
        scale = max(self.rival_cost_usd.value, 0.0)
        if self.kind == "cheaper":
            if gain.low >= -MARGIN and saved.low > 0.0:
                return "switch"
            return "keep" if gain.high < -MARGIN or saved.high <= MARGIN * scale else "open"
        if gain.low > 0.0 and saved.low >= -MARGIN * scale:
            return "switch"
        return "keep" if gain.high <= MARGIN or saved.high < -MARGIN * scale else "open"


@dataclass(frozen=True, kw_only=True)
class SwitchDecision:
    """Keep the most accurate single model, or switch.

    Attributes:
        comparisons: For less cost and for more accuracy.
    """

    comparisons: tuple[PlanComparison, ...]

    @property
    def shown(self) -> PlanComparison:
        """The comparison that the decision rests on: one that says switch, else one that is open, else the first."""
        order: tuple[SwitchVerdict, ...] = ("switch", "open", "not identified", "keep")
        return min(self.comparisons, key=lambda one: order.index(one.verdict))

    @property
    def verdict(self) -> SwitchVerdict:
        """``switch`` if either comparison says so, ``keep`` if both do; else what is not known."""
        return self.shown.verdict


def decide(fit: CrossFit) -> SwitchDecision | None:
    """Compare VineLM's plans with the most accurate single model of each half; None where a half has no such plan."""
    free = fit.runs([Objective(maximize="accuracy")], hindsight=False)
    if not free:
        return None
    single = [one["single"] for one in free[0].by_half]
    floor = min(way.chosen.promised_accuracy for way in single)
    cap = max(way.chosen.promised_cost_usd for way in single)
    wanted: list[tuple[SwitchKind, Objective]] = [
        # Rounded to the loose side, so that the single model itself meets both.
        ("cheaper", Objective(minimize="cost", min_accuracy=max(floor - 1e-9, 0.0))),
        ("better", Objective(maximize="accuracy", max_cost_usd=cap * (1.0 + 1e-9))),
    ]
    found = []
    for kind, objective in wanted:
        runs = fit.runs([objective], hindsight=False)
        if runs:
            found.append(_compared(kind, runs[0], free[0]))
    return SwitchDecision(comparisons=tuple(found)) if found else None


def _compared(kind: SwitchKind, both: BothWays, free: BothWays) -> PlanComparison:
    policy: PolicyName = "paths"
    if all("signals" in one for one in both.by_half):
        policy = "signals"
        found = _against(kind, policy, both, free)
        if found.is_judged:
            return found
    return _against(kind, "paths", both, free)


def _against(kind: SwitchKind, policy: PolicyName, both: BothWays, free: BothWays) -> PlanComparison:
    ways, rivals = [one[policy] for one in both.by_half], [one["single"] for one in free.by_half]
    own, other = [way.scores for way in ways], [way.scores for way in rivals]
    fixed = [one["static"] for one in both.by_half]
    static = [way.scores for way in fixed]
    halves = [HalfScores(one, two, are_equal(one, two)) for one, two in zip(own, other, strict=True)]
    return PlanComparison(
        kind=kind,
        policy=policy,
        objective=both.objective,
        plans=tuple(dict.fromkeys(way.chosen.words for way in ways)),
        rivals=tuple(dict.fromkeys(way.chosen.words for way in rivals)),
        rival_models=tuple(dict.fromkeys(map(_model, rivals))),
        accuracy=_mean(own, "accuracy"),
        cost_usd=negated(_mean(own, "cost")),
        rival_accuracy=_mean(other, "accuracy"),
        rival_cost_usd=negated(_mean(other, "cost")),
        gain=estimate_mean(halves, "accuracy", level=LEVEL, bound=1.0),
        saved_usd=estimate_mean(halves, "cost", level=LEVEL),
        static_plans=tuple(dict.fromkeys(way.chosen.words for way in fixed)),
        static_accuracy=_mean(static, "accuracy"),
        static_cost_usd=negated(_mean(static, "cost")),
        over_static=gain_over(own, static, both.objective.target),
    )


def _model(way: DirectedJudgement) -> str:
    """The model of a plan on a single one. Where the trie branches, that is the plan in words."""
    steps = way.chosen.steps
    return steps.path[-1] if isinstance(steps, PathSteps) else way.chosen.words


def _mean(scores: Sequence[Scores], target: str) -> OffPolicyEstimate:
    return estimate_mean([HalfScores(one) for one in scores], target, bound=1.0 if target == "accuracy" else None)
