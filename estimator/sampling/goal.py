"""The goal of profiling: how much the uncertainty of each path matters, given the current estimate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from vinelm.annotated_trie import AnnotatedTrie
from vinelm.errors import ConfigError
from vinelm.estimator.sampling.contested import PlanContest
from vinelm.trie import FloatArray

Kind = Literal["everything", "frontier", "floor", "cap"]
CAP_SLACK = 1.15
"""Paths that cost up to this multiple of the cap may turn out to cost less than the cap."""
LEAST_SD = 0.02
LEAST_WEIGHT = 0.02
"""Minimum weight of a path: a path that looks bad after a few rows may be good."""


@dataclass(frozen=True)
class Goal:
    """Which paths matter for the decision that a profile should support.

    Args:
        kind: ``everything``: all paths equally. ``frontier``: paths that may be the most accurate at some cost. ``floor``:
            paths that may be the cheapest to reach an accuracy of ``value`` (a fraction). ``cap``: paths that may be the most
            accurate for at most ``value`` dollars per request.
        value: the floor or cap; NaN for the other kinds.
    """

    kind: Kind = "everything"
    value: float = math.nan

    @classmethod
    def parse(cls, text: str) -> Goal:
        """Parse ``everything``, ``frontier``, ``floor:FRACTION`` or ``cap:USD``; :class:`ConfigError` for anything else."""
        kind, has_value, number = text.partition(":")
        invalid = ConfigError(
            f"goal is {text!r}: use everything, frontier, floor:0.9 (a fraction) or cap:0.01 (dollars per request)"
        )
        if kind in ("frontier", "everything") and not has_value:
            return cls("frontier" if kind == "frontier" else "everything")
        try:
            value = float(number)
        except ValueError:
            raise invalid from None
        if kind == "floor" and 0.0 <= value <= 1.0:
            return cls("floor", value)
        if kind == "cap" and value >= 0.0 and math.isfinite(value):
            return cls("cap", value)
        raise invalid

    def __str__(self) -> str:
        return self.kind if math.isnan(self.value) else f"{self.kind}:{self.value:g}"

    def weights(self, annotated: AnnotatedTrie, sd: FloatArray) -> FloatArray:
        """Return the weight of each path's variance in [0, 1], shape (n + 1,); 0 at nodes that are not answerable.

        Args:
            annotated: the current estimate.
            sd: standard deviation of each path's accuracy, shape (n + 1,). Paths that are likely to be chosen weigh more.
        """
        sd = np.maximum(sd, LEAST_SD)
        near = {
            "everything": np.ones_like(sd),
            "frontier": _closeness(_gap_at_own_cost(annotated), sd),
            "floor": self._near_floor(annotated, sd),
            "cap": self._near_cap(annotated, sd),
        }[self.kind]
        return np.where(annotated.trie.answerable, np.maximum(near, LEAST_WEIGHT), 0.0)

    def contested(self, contests: Sequence[PlanContest]) -> FloatArray:
        """Return how contested each node is for this goal, shape (n + 1,), >= 0.

        Args:
            contests: one for each price of dollars; not empty. A floor or cap lies between two of their plans, which count; all
                count for the other kinds.
        """
        if self.kind in ("cap", "floor"):
            reached = {"cap": "cost_usd", "floor": "accuracy"}[self.kind]
            ordered = sorted(contests, key=lambda contest: float(getattr(contest, reached)))
            above = sum(float(getattr(contest, reached)) <= self.value for contest in ordered)
            contests = ordered[max(above - 1, 0) : above + 1]
        return np.asarray(np.sum([contest.nodes for contest in contests], axis=0))

    def _near_floor(self, annotated: AnnotatedTrie, sd: FloatArray) -> FloatArray:
        """Closeness to the floor, discounted by cost relative to the cheapest path that seems to reach it."""
        if self.kind != "floor":
            return sd
        cost = annotated.path_cost_usd
        meets = annotated.trie.answerable & (annotated.accuracy >= self.value)
        cheapest = float(cost[meets].min()) if meets.any() else math.inf
        relative_cost = np.maximum(cost / max(cheapest, 1e-12), 1.0) if math.isfinite(cheapest) else np.ones_like(cost)
        return _closeness(annotated.accuracy - self.value, sd) / relative_cost**2

    def _near_cap(self, annotated: AnnotatedTrie, sd: FloatArray) -> FloatArray:
        """Closeness to the best accuracy within the cap."""
        if self.kind != "cap":
            return sd
        allowed = annotated.trie.answerable & (annotated.path_cost_usd <= CAP_SLACK * self.value)
        if not allowed.any():
            return np.ones_like(sd)
        gap = float(annotated.accuracy[allowed].max()) - annotated.accuracy
        return np.where(allowed, _closeness(gap, sd), 0.0)


def _closeness(gap: FloatArray, sd: FloatArray) -> FloatArray:
    return np.asarray(np.exp(-0.5 * (gap / (1.5 * sd)) ** 2))


def _gap_at_own_cost(annotated: AnnotatedTrie) -> FloatArray:
    """Accuracy of the best path that costs no more, less the path's own."""
    order = np.argsort(annotated.path_cost_usd, kind="stable")
    accuracy = np.where(annotated.trie.answerable, annotated.accuracy, 0.0)
    best = np.empty_like(accuracy)
    best[order] = np.maximum.accumulate(accuracy[order])
    return best - accuracy
