"""The decision: keep what is in use, or the best single model, or switch to VineLM's plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from vinelm.evaluation.judging.cross_fit import BothWays, CrossFit, DirectedJudgement, gain_over, negated
from vinelm.evaluation.judging.planning_half import PolicyName
from vinelm.evaluation.judging.result import MARGIN
from vinelm.evaluation.off_policy.intervals import HalfScores, OffPolicyEstimate, estimate_mean
from vinelm.evaluation.off_policy.path_steps import PathSteps
from vinelm.evaluation.off_policy.scores import Scores
from vinelm.evaluation.off_policy.steps import StepPolicy
from vinelm.evaluation.store_sweeps.plan_in_use import PlanInUse
from vinelm.objective import Objective

LEVEL = 0.975
"""Of both intervals of each comparison: a switch may be for less cost or for more accuracy, so that each gets half of 5 %."""
NOT_IDENTIFIED = OffPolicyEstimate(
    value=0.0, standard_error=0.0, low=0.0, high=0.0, effective=0.0, unsupported=1.0, is_identified=False
)
"""What is said of a plan that there is not."""
SwitchVerdict = Literal["switch", "keep", "open", "not identified"]
SwitchKind = Literal["cheaper", "better"]


@dataclass(frozen=True, kw_only=True)
class PlanComparison:
    """VineLM's plan against its rival, judged on requests that planned neither.

    The rival is what the application runs today where that is known, else the most accurate single model of each half.

    Attributes:
        kind: ``cheaper``: the cheapest plan that promises the rival's accuracy. ``better``: the most accurate plan that
            promises to cost no more.
        policy: VineLM over ``signals`` or over ``paths``.
        objective: What was planned for.
        plans: VineLM's plan of each half, in words.
        rivals: The rival of each half, in words.
        rival_names: The model of each half, or the name of what is in use.
        is_in_use: The rival is what the application runs today.
        accuracy, cost_usd: Of VineLM's plan.
        rival_accuracy, rival_cost_usd: Of the rival.
        gain: Paired difference of accuracy, with :data:`LEVEL`.
        saved_usd: Paired dollars saved per request, with :data:`LEVEL`.
        static_plans: The best static plan of each half for the same objective, in words; empty where none meets the bound.
        static_accuracy, static_cost_usd: Of the static plan.
        over_static: Paired gain of VineLM's plan over it, in what the objective counts: accuracy, or dollars saved.
        steps, rival_steps: VineLM's plan of each half and its rival, to be followed.
    """

    kind: SwitchKind
    policy: PolicyName
    objective: Objective
    plans: tuple[str, ...]
    rivals: tuple[str, ...]
    rival_names: tuple[str, ...]
    is_in_use: bool = False
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
    steps: tuple[StepPolicy, ...] = ()
    rival_steps: tuple[StepPolicy, ...] = ()

    @property
    def beats_static(self) -> bool:
        """Whether VineLM's plan is better than the best static plan, by the 95 % interval; also where there is none."""
        return not self.static_plans or (self.over_static.is_identified and self.over_static.low > 0.0)

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
    """Keep the rival, or switch.

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


@dataclass(frozen=True)
class _Rival:
    """What VineLM's plans are compared with, as judged in both directions."""

    names: tuple[str, ...]
    ways: tuple[DirectedJudgement, ...]
    is_in_use: bool


def decide(fit: CrossFit, in_use: PlanInUse | None = None) -> SwitchDecision | None:
    """Compare VineLM's plans with what is in use, or with the most accurate single model of each half.

    Args:
        fit: Both halves.
        in_use: What the application runs today; None: not known.

    Returns:
        The decision; None where a half has no such plan.
    """
    rival = _single(fit) if in_use is None else _in_use(fit, in_use)
    if rival is None:
        return None
    floor = min(way.chosen.promised_accuracy for way in rival.ways)
    cap = max(way.chosen.promised_cost_usd for way in rival.ways)
    wanted: list[tuple[SwitchKind, Objective]] = [
        # Rounded to the loose side, so that the rival itself meets both.
        ("cheaper", Objective(minimize="cost", min_accuracy=max(floor - 1e-9, 0.0))),
        ("better", Objective(maximize="accuracy", max_cost_usd=cap * (1.0 + 1e-9))),
    ]
    found = []
    for kind, objective in wanted:
        runs = fit.runs([objective], hindsight=False, votes=False, required=("paths",))
        if runs:
            found.append(_compared(kind, runs[0], rival))
    return SwitchDecision(comparisons=tuple(found)) if found else None


def _single(fit: CrossFit) -> _Rival | None:
    free = fit.runs([Objective(maximize="accuracy")], hindsight=False, votes=False)
    if not free:
        return None
    ways = tuple(one["single"] for one in free[0].by_half)
    return _Rival(tuple(dict.fromkeys(map(_model, ways))), ways, is_in_use=False)


def _in_use(fit: CrossFit, plan: PlanInUse) -> _Rival:
    free = Objective(maximize="accuracy")
    ways = tuple(fit.judge(i, half.following(plan.under(half.plans)), free) for i, half in enumerate(fit.planning))
    return _Rival((plan.name,), ways, is_in_use=True)


def _compared(kind: SwitchKind, both: BothWays, rival: _Rival) -> PlanComparison:
    if all("signals" in one for one in both.by_half):
        found = _against(kind, "signals", both, rival)
        if found.is_judged:
            return found
    return _against(kind, "paths", both, rival)


def _against(kind: SwitchKind, policy: PolicyName, both: BothWays, rival: _Rival) -> PlanComparison:
    ways = [one[policy] for one in both.by_half]
    own, other = [way.scores for way in ways], [way.scores for way in rival.ways]
    fixed = [one["static"] for one in both.by_half if "static" in one]
    static = [way.scores for way in fixed] if len(fixed) == len(ways) else []
    halves = [HalfScores(one, two) for one, two in zip(own, other, strict=True)]
    return PlanComparison(
        kind=kind,
        policy=policy,
        objective=both.objective,
        plans=_words(ways),
        rivals=_words(rival.ways),
        rival_names=rival.names,
        is_in_use=rival.is_in_use,
        accuracy=_mean(own, "accuracy"),
        cost_usd=negated(_mean(own, "cost")),
        rival_accuracy=_mean(other, "accuracy"),
        rival_cost_usd=negated(_mean(other, "cost")),
        gain=estimate_mean(halves, "accuracy", level=LEVEL, bound=1.0),
        saved_usd=estimate_mean(halves, "cost", level=LEVEL),
        static_plans=_words(fixed) if static else (),
        static_accuracy=_mean(static, "accuracy"),
        static_cost_usd=negated(_mean(static, "cost")),
        over_static=gain_over(own, static, both.objective.target) if static else NOT_IDENTIFIED,
        steps=tuple(way.chosen.steps for way in ways),
        rival_steps=tuple(way.chosen.steps for way in rival.ways),
    )


def _words(ways: Sequence[DirectedJudgement]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(way.chosen.words for way in ways))


def _model(way: DirectedJudgement) -> str:
    """The model of a plan on a single one. Where the trie branches, that is the plan in words."""
    steps = way.chosen.steps
    return steps.path[-1] if isinstance(steps, PathSteps) else way.chosen.words


def _mean(scores: Sequence[Scores], target: str) -> OffPolicyEstimate:
    if not scores:
        return NOT_IDENTIFIED
    return estimate_mean([HalfScores(one) for one in scores], target, bound=1.0 if target == "accuracy" else None)
