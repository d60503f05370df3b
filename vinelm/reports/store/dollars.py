"""The headline in dollars: what the same quality costs with VineLM, and what it costs otherwise."""

from __future__ import annotations

from vinelm.evaluation import Evaluation, JudgedPolicy, OffPolicyEstimate
from vinelm.evaluation.judging.result import MARGIN
from vinelm.evaluation.store_sweeps.equal_quality import EqualQuality, equal_quality
from vinelm.reports.formatting import percent, thousand, usd
from vinelm.reports.store.plan_sections import IN_USE, ShownPlan
from vinelm.verdicts.judged_store import JudgedStore

PER = "per 1,000 requests"
LONGEST = 60
"""Characters of a plan in the headline; a longer one is in the verdict below it."""


def dollars_sentence(judged: JudgedStore, own: ShownPlan | None, rival: ShownPlan | None) -> str:
    """Return the dollars at equal quality as one sentence; empty where there is nothing to compare, or everything is free.

    Judged by requests that did not choose the plans where the rows identify that, against the plan in use if there is one;
    else by the estimates of the trie.

    Args:
        judged: What the rows say.
        own: VineLM's plan of the whole store for the rival's accuracy.
        rival: The plan in use, or the most accurate single model.
    """
    found = judged.evaluation
    if found is not None:
        aim = next((one for one in found.aims if one.target == "cost"), None)
        if aim is not None and _is_judged(aim):
            assert aim.keeps is not None
            return _judged(aim.headline, aim.rival, aim.gain, aim.keeps, aim.level)
        sweep = judged.sweep("min_accuracy")
        equal = None if sweep is None or found.aims else equal_quality(sweep, found.headline.name)
        if equal is not None:
            return _equal(equal)
    return _estimated(own, rival)


def _is_judged(aim: Evaluation) -> bool:
    return aim.gain.is_identified and aim.keeps is not None and (aim.keeps.is_identified or aim.keeps.is_same)


def _equal(found: EqualQuality) -> str:
    return _judged(found.own, found.rival, found.saved_usd, found.more_accuracy, 0.95)


def _judged(own: JudgedPolicy, rival: JudgedPolicy, saved: OffPolicyEstimate, more: OffPolicyEstimate, level: float) -> str:
    if not max(own.cost_usd.value, rival.cost_usd.value) > 0.0:
        return ""
    plan = rival.plans[0] if len(rival.plans) == 1 else ""
    other = f"{_name(rival)} ({plan})" if plan and len(plan) <= LONGEST else _name(rival)
    prices = f"{thousand(own.cost_usd.value)} instead of {thousand(rival.cost_usd.value)} {PER}"
    if saved.is_same and more.is_same:
        return f"As accurate as the {other} for the same {thousand(own.cost_usd.value)} {PER}: it is the same plan."
    points = (
        "the same accuracy"
        if more.is_same
        else f"accuracy {100 * more.value:+.1f} points, {100 * more.low:+.1f} to {100 * more.high:+.1f}"
    )
    figures = f"{_difference(saved, level)}; {points}"
    if more.high < 0.0 or more.value < -MARGIN:
        return f"Less accurate than the {other}, for {prices} ({figures})."
    if saved.high < 0.0:
        return f"No dollars are saved at the accuracy of the {other}: {prices} ({figures})."
    if saved.low <= 0.0:
        return f"It is open whether dollars are saved at the accuracy of the {other}: {prices} ({figures})."
    is_sure = more.is_same or more.low >= -MARGIN
    return f"{'As' if is_sure else 'Planned to be as'} accurate as the {other}, for {prices} ({figures})."


def _difference(saved: OffPolicyEstimate, level: float) -> str:
    """The dollars saved, or what the plan costs more, with the interval."""
    sign, words = (1, "saves {}") if saved.value >= 0.0 else (-1, "{} more")
    low, high = sorted(sign * 1000 * end for end in (saved.low, saved.high))
    amount = words.format(usd(abs(1000 * saved.value)))
    return f"{amount}, {100 * level:.3g} %: {_signed(low)} to {_signed(high)}"


def _estimated(own: ShownPlan | None, rival: ShownPlan | None) -> str:
    """The same by the estimates of the trie, which chose the plan and flatter it."""
    if own is None or rival is None or not rival.decision.path_cost_usd > 0.0:
        return ""
    mine, other = own.decision, rival.decision
    prices = f"{thousand(mine.path_cost_usd)} instead of {thousand(other.path_cost_usd)} {PER}"
    if mine.path_cost_usd >= other.path_cost_usd * (1.0 - 1e-6) or mine.accuracy < other.accuracy - 1e-3:
        return ""
    name = "plan in use" if rival.name == IN_USE else rival.name
    return f"Estimated, not judged: as accurate as the {name} ({other.words}; {percent(other.accuracy)} right) for {prices}."


def _name(one: JudgedPolicy) -> str:
    return one.title.replace(", ", " over ")


def _signed(value: float) -> str:
    return f"{'-' if value < 0 else ''}{usd(abs(value))}"
