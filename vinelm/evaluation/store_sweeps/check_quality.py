"""Measures how often the workflow's own check is wrong."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from scipy.special import betaincinv

from vinelm.rows.observation import Observation


class CheckQuality(NamedTuple):
    """How often the workflow's own check is wrong on one model's answers in the first call of a request.

    Only the first call counts, because later calls are made only for requests whose earlier answers the check refused.
    An answer with a score of 0.7 counts as 0.7 right and 0.3 wrong.

    Args:
        model: The model; None means all models.
        answers: Number of answers with a score and a result of the check.
        accepted: Number of answers that the check accepts.
        accepted_wrong: Number of accepted answers that are wrong; may be a fraction.
        refused_right: Number of right answers that the check refuses; may be a fraction.
    """

    model: str | None
    answers: int
    accepted: int
    accepted_wrong: float
    refused_right: float

    @property
    def refused(self) -> int:
        """The number of answers that the check refuses."""
        return self.answers - self.accepted


def check_quality(rows: Iterable[Observation]) -> list[CheckQuality]:
    """Return how often the check is wrong: one item over all models, then one for each model, by name.

    Empty if no first answer has both a score and a result of the check.
    """
    counts: dict[str | None, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0, 0.0])
    for row in rows:
        if row.depth != 1 or row.success is None or row.stopped is None:
            continue
        right = float(row.success)
        for name in (None, row.model):
            total = counts[name]
            total[0] += 1
            total[1] += row.stopped
            total[2] += (1.0 - right) if row.stopped else 0.0
            total[3] += 0.0 if row.stopped else right
    names = sorted(counts, key=lambda name: (name is not None, name or ""))
    return [CheckQuality(name, int(counts[name][0]), int(counts[name][1]), *counts[name][2:]) for name in names]


def share_interval(part: float, whole: int) -> tuple[float, float]:
    """Return the 95 % interval of the share ``part`` / ``whole`` by Jeffreys' prior (Brown, Cai and DasGupta 2001); (0, 1)
    without data.
    """
    if not whole:
        return 0.0, 1.0
    low = float(betaincinv(part + 0.5, whole - part + 0.5, 0.025)) if part > 0 else 0.0
    high = float(betaincinv(part + 0.5, whole - part + 0.5, 0.975)) if part < whole else 1.0
    return low, high
