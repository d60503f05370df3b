"""Dollars at equal quality: VineLM's cheapest plan for an accuracy, against the cheapest fixed plan that promises it."""

from __future__ import annotations

from typing import NamedTuple

from vinelm.evaluation.judging.cross_fit import BASELINES, BothWays, gain_over
from vinelm.evaluation.judging.judged_policy import JudgedPolicy
from vinelm.evaluation.judging.planning_half import PolicyName
from vinelm.evaluation.off_policy.intervals import OffPolicyEstimate
from vinelm.evaluation.store_sweeps.swept_policies import JudgedSweep

MOST_REACH = 0.1
"""A difference in accuracy that is not known to so many points either way says too little for a headline."""


class EqualQuality(NamedTuple):
    """Two plans for one promised accuracy, as the other half of the requests judges them.

    Args:
        min_accuracy: What both promise.
        own: VineLM.
        rival: The cheaper of the best static plan and the best single model.
        saved_usd: Paired dollars per request that VineLM saves.
        more_accuracy: Paired difference in accuracy; the promise may be kept by one of them and not by the other.
    """

    min_accuracy: float
    own: JudgedPolicy
    rival: JudgedPolicy
    saved_usd: OffPolicyEstimate
    more_accuracy: OffPolicyEstimate


def equal_quality(sweep: JudgedSweep, name: PolicyName) -> EqualQuality | None:
    """Return the comparison at the highest accuracy for which the rows tell enough of both; None if there is none.

    That is decided by how well the difference in accuracy is known (:data:`MOST_REACH`), and not by what is gained, which
    would pick the best of several noisy figures.

    Args:
        sweep: Of floors of accuracy.
        name: The VineLM policy that the verdict is about.
    """
    for index in reversed(range(len(sweep.runs))):
        found = _at(sweep, sweep.runs[index], name)
        if found is not None:
            return found
    return None


def _at(sweep: JudgedSweep, both: BothWays, name: PolicyName) -> EqualQuality | None:
    judged = {
        policy: one.judged
        for policy, points in sweep.points.items()
        for one in points
        if one.objective == both.objective and one.judged.accuracy.is_identified
    }
    own = judged.get(name)
    if own is None:
        return None
    found = [judged[rival] for rival in BASELINES if rival in judged and own.against[rival].is_identified]
    if not found:
        return None
    rival = min(found, key=lambda one: own.against[one.name].value)
    scores = [[one[policy].scores for one in both.by_half] for policy in (name, rival.name)]
    more = gain_over(scores[0], scores[1], "accuracy")
    floor = both.objective.min_accuracy
    assert floor is not None
    is_known = more.is_same or (more.is_identified and more.high - more.low <= 2 * MOST_REACH)
    return EqualQuality(floor, own, rival, own.against[rival.name], more) if is_known else None
