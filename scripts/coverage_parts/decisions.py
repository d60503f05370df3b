"""Does `vinelm report --in-use` claim a gain where there is none?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from coverage_parts.figures import binomial

from vinelm.evaluation import Evaluation, OutcomeTable
from vinelm.evaluation.judging.against_in_use import AgainstInUse, against_in_use
from vinelm.evaluation.judging.cross_fit import CrossFit
from vinelm.evaluation.judging.plan_in_use import PlanInUse
from vinelm.evaluation.judging.result import MARGIN
from vinelm.evaluation.off_policy.steps import StepPolicy
from vinelm.evaluation.off_policy.table_walk import walk_ends
from vinelm.template import Template

RIVALS = ("a model in use",)
ORDER = ("gain", "open", "not identified", "no gain")
"""The verdict of the two that is shown."""


@dataclass(frozen=True)
class Decided:
    """One verdict of one world.

    Args:
        rival: One of :data:`RIVALS`.
        verdict: What is said.
        is_right: Whether VineLM's plan as shown truly gains what the sentence says.
        could_gain: Whether the plan of either aim truly does.
    """

    rival: str
    verdict: str
    is_right: bool
    could_gain: bool


def decided(
    fit: CrossFit, rng: np.random.Generator, fresh: OutcomeTable, template: Template, sizes: Sequence[int]
) -> list[Decided]:
    """Compare with a model drawn at random that is in use."""
    today = PlanInUse.of(str(rng.choice(fresh.systems)), fit.planning[0].annotated)
    aims = against_in_use(fit, today)
    if not aims:
        return []
    verdicts = [_verdict(one) for one in aims]
    gains = [_gains(one, fresh, template, sizes) for one in aims]
    shown = min(range(len(aims)), key=lambda i: ORDER.index(verdicts[i]))
    return [Decided(RIVALS[0], verdicts[shown], gains[shown], any(gains))]


def _verdict(one: AgainstInUse) -> str:
    found = Evaluation(
        objectives=(one.objective,), policies=one.policies, keeps=one.keeps, requests=0, rows=0, spent_usd=0.0
    )  # fmt: skip
    return found.verdict


def _gains(one: AgainstInUse, fresh: OutcomeTable, template: Template, sizes: Sequence[int]) -> bool:
    """Whether the plan truly gains what is said of it."""
    ways = (one.ways[one.policies[0].name], one.ways["in_use"])
    own, rival = (_truth([way.chosen.parts for way in both], fresh, template, sizes) for both in ways)
    points, saved = own[0] - rival[0], rival[1] - own[1]
    if one.objective.target == "cost":
        return bool(saved > 0.0 and points >= -MARGIN)
    return bool(points > 0.0 and saved >= -MARGIN * rival[1])


def _truth(
    chosen: Sequence[Sequence[tuple[float, StepPolicy]]], fresh: OutcomeTable, template: Template, sizes: Sequence[int]
) -> np.ndarray:
    """Accuracy and dollars per request, mean over both directions."""
    total = np.zeros(2)
    for parts, size in zip(chosen, sizes, strict=True):
        for share, policy in parts:
            for end in walk_ends(policy, fresh, template):
                usd = sum(float(fresh.cost_usd[end.rows, column].sum()) for column in end.columns)
                total += share * size * np.array((end.right(fresh), usd))
    return np.asarray(total / (sum(sizes) * len(fresh)))


def decisions(found: Sequence[Decided]) -> dict[str, Any]:
    """How often a gain is claimed, by rival, and how often without one."""
    return {rival: _figures([one for one in found if one.rival == rival]) for rival in RIVALS}


def _figures(found: Sequence[Decided]) -> dict[str, Any]:
    without = [one for one in found if not one.could_gain]
    switched = sum(one.verdict == "gain" for one in without)
    low, high = binomial(switched, max(len(without), 1))
    said = [one for one in found if one.verdict == "gain"]
    return {
        "worlds": len(found),
        "verdicts": dict(sorted(Counter(one.verdict for one in found).items())),
        "without_gain": {"worlds": len(without), "switched": switched, "interval": [low, high]},
        "switched": len(said),
        "switched_wrongly": sum(not one.is_right for one in said),
    }
