"""Does `vinelm report` say "Switch" where there is nothing to gain?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from coverage_parts.figures import binomial

from vinelm.evaluation import OutcomeTable, PlanComparison, SwitchDecision
from vinelm.evaluation.judging.cross_fit import CrossFit
from vinelm.evaluation.judging.result import MARGIN
from vinelm.evaluation.off_policy.steps import StepPolicy
from vinelm.evaluation.off_policy.table_walk import walk_ends
from vinelm.evaluation.store_sweeps.plan_in_use import PlanInUse
from vinelm.evaluation.store_sweeps.switch_decision import decide
from vinelm.template import Template

RIVALS = ("most accurate single model", "a model in use")


@dataclass(frozen=True)
class Decided:
    """One decision of one world.

    Args:
        rival: One of :data:`RIVALS`.
        verdict: What is said.
        is_right: Whether switching as shown truly gains what the sentence says.
        could_gain: Whether any of the compared plans truly does.
    """

    rival: str
    verdict: str
    is_right: bool
    could_gain: bool


def decided(
    fit: CrossFit, rng: np.random.Generator, fresh: OutcomeTable, template: Template, sizes: Sequence[int]
) -> list[Decided]:
    """Decide against the most accurate single model, and against a model drawn at random that is in use."""
    today = PlanInUse.of(str(rng.choice(fresh.systems)), fit.planning[0].annotated)
    found = zip(RIVALS, (decide(fit), decide(fit, today)), strict=True)
    return [_decided(name, one, fresh, template, sizes) for name, one in found if one is not None]


def _decided(name: str, decision: SwitchDecision, fresh: OutcomeTable, template: Template, sizes: Sequence[int]) -> Decided:
    gains = {id(one): _gains(one, fresh, template, sizes) for one in decision.comparisons}
    return Decided(name, decision.verdict, gains[id(decision.shown)], any(gains.values()))


def _gains(one: PlanComparison, fresh: OutcomeTable, template: Template, sizes: Sequence[int]) -> bool:
    """Whether the plan truly gains what "switch" would say of it."""
    own, rival = (_truth(steps, fresh, template, sizes) for steps in (one.steps, one.rival_steps))
    points, saved = own[0] - rival[0], rival[1] - own[1]
    if one.kind == "cheaper":
        return bool(saved > 0.0 and points >= -MARGIN)
    return bool(points > 0.0 and saved >= -MARGIN * rival[1])


def _truth(steps: Sequence[StepPolicy], fresh: OutcomeTable, template: Template, sizes: Sequence[int]) -> np.ndarray:
    """Accuracy and dollars per request, mean over both directions."""
    total = np.zeros(2)
    for policy, size in zip(steps, sizes, strict=True):
        for end in walk_ends(policy, fresh, template):
            usd = sum(float(fresh.cost_usd[end.rows, column].sum()) for column in end.columns)
            total += size * np.array((end.right(fresh), usd))
    return np.asarray(total / (sum(sizes) * len(fresh)))


def decisions(found: Sequence[Decided]) -> dict[str, Any]:
    """How often "switch" is said, by rival, and how often without a gain."""
    return {rival: _figures([one for one in found if one.rival == rival]) for rival in RIVALS}


def _figures(found: Sequence[Decided]) -> dict[str, Any]:
    without = [one for one in found if not one.could_gain]
    switched = sum(one.verdict == "switch" for one in without)
    low, high = binomial(switched, max(len(without), 1))
    said = [one for one in found if one.verdict == "switch"]
    return {
        "worlds": len(found),
        "verdicts": dict(sorted(Counter(one.verdict for one in found).items())),
        "without_gain": {"worlds": len(without), "switched": switched, "interval": [low, high]},
        "switched": len(said),
        "switched_wrongly": sum(not one.is_right for one in said),
    }
