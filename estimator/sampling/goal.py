"""What a profile is for: how much each path's uncertainty matters, from what is known so far."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from vinelm.annotated_trie import AnnotatedTrie
from vinelm.errors import ConfigError
from vinelm.trie import FloatArray

Kind = Literal["everything", "frontier", "floor", "cap"]
CAP_SLACK = 1.15
"""Paths up to this multiple of the cap may still turn out to be under it."""
LEAST_SD = 0.02
EVERYWHERE = 0.02
"""Weight that every path keeps: what looks hopeless after a few rows may not be."""


@dataclass(frozen=True)
class Goal:
    """``everything``: every path alike. ``frontier``: paths that may be the most accurate at some cost. ``floor:0.9``: those
    that may be the cheapest to reach that accuracy. ``cap:0.01``: those that may be the most accurate within so many dollars.
    """

    kind: Kind = "everything"
    value: float = math.nan

    @classmethod
    def parse(cls, text: str) -> Goal:
        """From the command line's ``frontier``, ``floor:FRACTION`` or ``cap:USD``; :class:`ConfigError` for anything else."""
        kind, has_value, number = text.partition(":")
        wrong = ConfigError(f"--goal is {text!r}: use frontier, floor:0.9 (a fraction) or cap:0.01 (dollars per request)")
        if kind in ("frontier", "everything") and not has_value:
            return cls("frontier" if kind == "frontier" else "everything")
        try:
            value = float(number)
        except ValueError:
            raise wrong from None
        if kind == "floor" and 0.0 <= value <= 1.0:
            return cls("floor", value)
        if kind == "cap" and value >= 0.0 and math.isfinite(value):
            return cls("cap", value)
        raise wrong

    def __str__(self) -> str:
        return self.kind if math.isnan(self.value) else f"{self.kind}:{self.value:g}"

    def weights(self, annotated: AnnotatedTrie, sd: FloatArray) -> FloatArray:
        """Weight of each path's variance, shape (n + 1,), at most 1; 0 where the workflow holds no answer.

        ``sd`` is the standard deviation of each path's accuracy: a path counts by how likely it is to be the one chosen.
        """
        sd = np.maximum(sd, LEAST_SD)
        near = {
            "everything": np.ones_like(sd),
            "frontier": _closeness(_gap_at_own_cost(annotated), sd),
            "floor": self._near_floor(annotated, sd),
            "cap": self._near_cap(annotated, sd),
        }[self.kind]
        return np.where(annotated.trie.answerable, np.maximum(near, EVERYWHERE), 0.0)

    def _near_floor(self, annotated: AnnotatedTrie, sd: FloatArray) -> FloatArray:
        """Near the floor, and not dearer than the cheapest path that seems to reach it."""
        if self.kind != "floor":
            return sd
        cost = annotated.path_cost_usd
        meets = annotated.trie.answerable & (annotated.accuracy >= self.value)
        cheapest = float(cost[meets].min()) if meets.any() else math.inf
        dearer = np.maximum(cost / max(cheapest, 1e-12), 1.0) if math.isfinite(cheapest) else np.ones_like(cost)
        return _closeness(annotated.accuracy - self.value, sd) / dearer**2

    def _near_cap(self, annotated: AnnotatedTrie, sd: FloatArray) -> FloatArray:
        """Near the best accuracy within the cap."""
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
    """Accuracy that each path lacks against the best one that costs no more."""
    order = np.argsort(annotated.path_cost_usd, kind="stable")
    accuracy = np.where(annotated.trie.answerable, annotated.accuracy, 0.0)
    best = np.empty_like(accuracy)
    best[order] = np.maximum.accumulate(accuracy[order])
    return best - accuracy
