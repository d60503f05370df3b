"""Decides, before any label is requested, which plans are worth a proof and how many labels the proof takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vinelm.errors import ConfigError

LEAST_SAVED = 0.2
CANDIDATES = 4
OUT_OF_REACH = 3.0
"""A plan is dropped if it is expected to need more than this multiple of the remaining labels."""


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """The facts about one plan, without labels, from the recorded requests that are used to choose plans.

    Attributes:
        name: The plan's name.
        saved: Share of the current cost that the plan saves, below 1; negative if the plan is more expensive.
        differing: Number of compared requests in which the plan's answer differs from today's (the current setup's).
        seen: Number of requests in which the plan's answer was compared with today's.
    """

    name: str
    saved: float
    differing: int
    seen: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plan to test: the test tries to prove that the plan loses less than the allowed margin.

    Attributes:
        name: The plan's name.
        saved: Share of the current cost that the plan saves.
        differing: Estimated share of the requests in which the plan's answer differs from today's, above 0 and below 1.
    """

    name: str
    saved: float
    differing: float


def labels_needed(differing: float, margin: float, diff: float = 0.0) -> tuple[float, float]:
    """Return the numbers of labels with which a proof for one plan at 95 % confidence succeeds in half of all cases,
    and in 80 %.

    Args:
        differing: Share of the requests in which the plan's answer differs from today's.
        margin: The allowed loss, as a fraction (0.02 is two points).
        diff: The plan's mean score minus today's.

    Returns:
        (labels for half of the cases, labels for 80 %): 4.5 and 8 times (differing / (margin + diff))². Both are
            infinite if the plan loses the margin or more.
    """
    if not 0.0 <= differing <= 1.0:
        raise ConfigError(f"the share of differing requests is {differing!r}: give a number from 0 to 1")
    if not 0.0 < margin < 1.0:
        raise ConfigError(f"the margin is {margin!r}: give a fraction above 0 and below 1, such as 0.02 for two points")
    if not -1.0 <= diff <= 1.0:
        raise ConfigError(f"the difference of the mean scores is {diff!r}: give a number from -1 to 1")
    if diff <= -margin:
        return math.inf, math.inf
    ratio = (differing / (margin + diff)) ** 2
    return 4.5 * ratio, 8.0 * ratio


def choose_candidates(
    plans: Sequence[PlanFacts],
    *,
    margin: float,
    labels: int | None,
    least_saved: float = LEAST_SAVED,
    most: int = CANDIDATES,
) -> list[Candidate]:
    """Return the plans worth testing, most promising first; empty if no plan can be proven with this number of labels.

    The requests that were used to choose the plans must not be used again for the proof.

    Args:
        plans: All plans that were compared with today's answers.
        margin: The allowed loss, as a fraction.
        labels: The maximum number of questions that people will answer; None means no limit.
        least_saved: The least share of the current cost that a plan must save; plans that save less are left out.
        most: The maximum number of plans to test at a time; they share the error probability.
    """
    if labels is not None and labels < 0:
        raise ConfigError(f"the number of labels is {labels!r}: give 0 or more, or None for no limit")
    found: dict[tuple[float, int, int], Candidate] = {}
    for plan in plans:
        if not (0 <= plan.differing <= plan.seen and plan.saved < 1.0):
            raise ConfigError(
                f"plan {plan.name!r}: {plan.differing} of {plan.seen} requests differ, saved {plan.saved!r}: impossible"
            )
        share = (plan.differing + 1) / (plan.seen + 2)
        within = labels is None or labels_needed(share, margin)[0] <= OUT_OF_REACH * labels
        if plan.saved >= least_saved and within:
            # Plans with exactly the same savings and differences give the same answers: one is enough.
            found.setdefault((plan.saved, plan.differing, plan.seen), Candidate(plan.name, plan.saved, share))
    return sorted(found.values(), key=lambda one: (-one.saved / (one.differing + 0.02) ** 2, one.name))[:most]
