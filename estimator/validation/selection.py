"""Measure how optimistic the choice of the best of many paths is: choose on one half of the requests, judge by the other.

On a trie that branches the choice is among static plans (a model for each stage): a path is not a plan there. Contingent plans
are chosen from more alternatives, so that their optimism may be larger than what is measured here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from vinelm.plans.promise import Promise, SelectionOptimism, single_model_paths
from vinelm.plans.static_plans import StaticPlans
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.arrays import BoolArray, FloatArray

N_CAPS = 10
SMALLEST_CAP = 1e-6
"""Smallest cost cap relative to the largest, where some path is free."""

Halves = tuple[AnnotatedTrie, AnnotatedTrie]


@dataclass(frozen=True, eq=False)
class SelectablePlans:
    """The choices: the nodes of a linear trie, or the static plans of one that branches; arrays of one shape.

    ``error``: standard error of the accuracy, NaN where it is not known; ``latency_s``: of the longest history, at zero load;
    ``allowed``: it can be chosen at all; ``single``: it runs on one model.
    """

    accuracy: FloatArray
    error: FloatArray
    cost_usd: FloatArray
    latency_s: FloatArray
    allowed: BoolArray
    single: BoolArray

    @classmethod
    def of(cls, fitted: AnnotatedTrie) -> SelectablePlans:
        """Return the plans of a trie, in the same order for every trie of one template."""
        return fitted.by_ends(one=cls._paths, several=cls._static)

    @classmethod
    def _paths(cls, fitted: AnnotatedTrie) -> SelectablePlans:
        error = np.full(len(fitted.trie), np.nan) if fitted.accuracy_se is None else fitted.accuracy_se
        figures = fitted.accuracy, error, fitted.path_cost_usd, fitted.path_latency_s
        return cls(*figures, fitted.trie.answerable, single_model_paths(fitted.trie))

    @classmethod
    def _static(cls, fitted: AnnotatedTrie) -> SelectablePlans:
        plans = StaticPlans.of(fitted)
        figures = plans.accuracy, plans.error, plans.cost_usd, plans.longest_s
        return cls(*figures, np.ones(len(plans.accuracy), np.bool_), plans.runs_one_model)

    @property
    def best(self) -> int:
        """The most accurate plan that can be chosen; the first on ties."""
        return int(np.argmax(np.where(self.allowed, self.accuracy, -1.0)))

    def promise(self, selection: SelectionOptimism | None) -> Promise:
        """Return the promise of the best plan, corrected by what its choice among all adds."""
        return Promise.among(self.best, self.accuracy, self.error, self.cost_usd, self.latency_s, self.single, curve=selection)


def selection_optimism(splits: Sequence[Halves], fitted: AnnotatedTrie) -> tuple[SelectionOptimism, float]:
    """Return the optimism of selection over a grid of cost caps, and its mean over the caps before smoothing.

    The mean may be negative. The curve is smoothed over neighbouring caps, and no optimism is below 0.

    Args:
        splits: At least one pair of fits to the two halves of the requests. Each half chooses once and judges once.
        fitted: The fit to all requests: the curve's costs are its own.
    """
    halves = [(SelectablePlans.of(one), SelectablePlans.of(other)) for one, other in splits]
    gaps = np.array([_gaps(chooser, judge) for one, other in halves for chooser, judge in ((one, other), (other, one))])
    mean = gaps.mean(axis=0)  # (2, caps): of the accuracy, and of the advantage over a single model
    return SelectionOptimism.measured(_caps(SelectablePlans.of(fitted)), *mean), float(mean[0].mean())


def _gaps(chooser: SelectablePlans, judge: SelectablePlans) -> FloatArray:
    """Promised less judged, shape (2, caps): the chosen path's accuracy, and its advantage over the chosen single model."""
    caps = _caps(chooser)
    rows = []
    for path, alone in zip(_chosen(chooser, chooser.allowed, caps), _chosen(chooser, chooser.single, caps), strict=True):
        gap = float(chooser.accuracy[path] - judge.accuracy[path])
        rows.append((gap, 0.0 if alone is None else gap - float(chooser.accuracy[alone] - judge.accuracy[alone])))
    return np.array(rows).T


def _chosen(chooser: SelectablePlans, candidates: BoolArray, caps: FloatArray) -> Iterator[int | None]:
    """The most accurate candidate under each cap, the first in trie order on ties; None where all cost more."""
    for cap in caps:
        allowed = candidates & (chooser.cost_usd <= cap)
        yield int(np.argmax(np.where(allowed, chooser.accuracy, -1.0))) if allowed.any() else None


def _caps(plans: SelectablePlans) -> FloatArray:
    """Evenly spaced in the logarithm, from the cheapest answerable path to the most expensive one."""
    cost = plans.cost_usd[plans.allowed]
    high = float(cost.max())
    if high <= 0.0:
        return np.zeros(N_CAPS)
    caps = np.geomspace(max(float(cost.min()), SMALLEST_CAP * high), high, N_CAPS)
    caps[-1] = high  # free of rounding: the last cap allows every path
    return np.asarray(np.maximum(caps, float(cost.min())), dtype=np.float64)
