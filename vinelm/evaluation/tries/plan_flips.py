"""The plans that change from one annotated trie to another: for each cap on the dollars of a request, the most accurate one."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

from vinelm.evaluation.plans.plans import Plans
from vinelm.evaluation.plans.plans_over import plans_over
from vinelm.evaluation.plans.sweep import spaced_caps
from vinelm.objective import Objective
from vinelm.trie.annotated_trie import AnnotatedTrie

N_CAPS = 24
_EXTREMES = Objective(minimize="cost"), Objective(maximize="accuracy")
"""The objectives between whose plans caps are tried."""
_TWO_SIDED_95 = 1.96
_EXACT = 1e-9
"""Relative difference below which two figures count as equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFlip:
    """Another plan for the highest accuracy within a range of mean dollars per request.

    Attributes:
        min_cap_usd: The smallest of the caps that were tried at which the plans differ so.
        max_cap_usd: The largest of them.
        before: The first trie's plan: models from the root; where plans have a model for each arm, one item with its words.
        after: The second trie's plan.
        gain: Accuracy of the new plan less that of the old one, both by the second trie; None if it does not have the old one.
        standard_error: Of the gain, as if both were estimated from different requests; None if it is not known.
        old_cost_usd: Dollars of the old plan by the second trie; None if it does not have it.
    """

    min_cap_usd: float
    max_cap_usd: float
    before: tuple[str, ...]
    after: tuple[str, ...]
    gain: float | None
    standard_error: float | None
    old_cost_usd: float | None

    @property
    def why(self) -> Literal["gone", "over the cap", "beyond noise", "within noise"]:
        """Why the old plan is not chosen any more: a model of it is gone, it costs too much, or another is more accurate."""
        if self.gain is None or self.old_cost_usd is None:
            return "gone"
        if self.old_cost_usd > self.min_cap_usd * (1 + _EXACT):
            return "over the cap"
        known = self.standard_error is not None and self.gain > _TWO_SIDED_95 * self.standard_error
        return "beyond noise" if known else "within noise"


def plan_flips(before: AnnotatedTrie, after: AnnotatedTrie) -> tuple[PlanFlip, ...]:
    """Return where the plans under a cap on mean dollars differ, neighbouring caps with the same two plans as one."""
    both = plans_over(before), plans_over(after)
    ends = [plans.decision(goal).path_cost_usd for plans in both for goal in _EXTREMES]
    found: list[PlanFlip] = []
    was_there = False
    for cap in spaced_caps(min(ends), max(ends), "max_cost_usd", N_CAPS):
        flip = _flip(both, cap)
        if flip is not None and was_there and (found[-1].before, found[-1].after, found[-1].why) == (
            flip.before, flip.after, flip.why
        ):  # fmt: skip
            flip = replace(found.pop(), max_cap_usd=cap)
        was_there = flip is not None
        if flip is not None:
            found.append(flip)
    return tuple(found)


def _flip(both: tuple[Plans[Any], Plans[Any]], cap: float) -> PlanFlip | None:
    old, new = (plans.decision(Objective(maximize="accuracy", max_cost_usd=cap, mix=False)) for plans in both)
    if not (old.is_feasible and new.is_feasible):
        return None
    carried = both[1].carried(old, new)
    if carried is not None and carried.is_same:
        return None
    errors = [new.standard_error, None if carried is None else carried.standard_error]
    known = [error for error in errors if error is not None]
    return PlanFlip(
        min_cap_usd=cap,
        max_cap_usd=cap,
        before=old.shown,
        after=new.shown,
        gain=None if carried is None else new.accuracy - carried.accuracy,
        standard_error=math.hypot(*known) if len(known) == 2 else None,
        old_cost_usd=None if carried is None else carried.cost_usd,
    )
