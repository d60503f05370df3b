"""How much of the whole has been bought, when the price of the whole is not known yet.

``coverage`` is dollars of executed (request, node) cells over dollars of running every request on every *reached* node once,
stops respected and prefixes checkpointed; a cell that is met again is free. The denominator is estimated: what was paid, plus
for each open cell (reached, not run) the expected price of its subtree from mean costs and continuation rates per
(depth, model). It is exact once everything is run. Where every cell was free so far, cells are counted instead of dollars.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vinelm.observation import Observation
from vinelm.template import Template
from vinelm.trie import FloatArray

_COST_PRIOR = 4.0  # observations' worth of the model's mean over all depths
_RATE_PRIOR = 4.0  # observations' worth of the depth's mean over all models


class Coverage:
    """Running account of what was executed. Feed each cell once, parents before children; arrays are (depth, models)."""

    def __init__(self, template: Template, n_requests: int) -> None:
        self.template = template
        self._index = {name: i for i, name in enumerate(template.models)}
        shape = (template.depth, len(template.models))
        self._allowed = np.zeros(shape)
        for depth, stage in enumerate(template.invocations):
            self._allowed[depth, [self._index[name] for name in stage.models or ()]] = 1.0
        self.counts: FloatArray = np.zeros(shape)
        """Executed cells."""
        self._cost = np.zeros(shape)
        self._went_on = np.zeros(shape)
        self._open = np.zeros(shape)
        self._open[0] = n_requests * self._allowed[0]

    def add(self, observation: Observation) -> None:
        """One executed cell."""
        depth, model = observation.depth - 1, self._index[observation.model]
        self.counts[depth, model] += 1
        self._cost[depth, model] += observation.cost_usd + observation.tool_cost_usd
        self._open[depth, model] -= 1
        if not observation.ended(self.template.stop):
            self._went_on[depth, model] += 1
            if depth + 1 < self.template.depth:
                self._open[depth + 1] += self._allowed[depth + 1]

    @property
    def counts_per_depth(self) -> tuple[int, ...]:
        """Executed cells of each depth, from 1."""
        return tuple(int(n) for n in self.counts.sum(axis=1))

    @property
    def spent_usd(self) -> float:
        """Dollars of the executed cells, tools included."""
        return float(self._cost.sum())

    @property
    def is_complete(self) -> bool:
        """Every reached cell is executed."""
        return not self._open.any()

    @property
    def fraction(self) -> float:
        """Coverage so far, in [0, 1]. 0 before anything is known, 1 exactly when everything is run."""
        if self.is_complete:
            return 1.0
        paid = self._cost if self._cost.any() else self.counts
        total = self._whole(np.ones(self.template.depth), paid)
        return float(paid.sum()) / total if total > 0 else 0.0

    def exhaustive_usd(self) -> float:
        """Estimated dollars of every reached cell once; 0.0 before anything is known."""
        return self._whole(np.ones(self.template.depth), self._cost)

    def naive_usd(self) -> float:
        """Estimated dollars of every request on every leaf path from the root, nothing shared, stops respected."""
        choices = self._allowed.sum(axis=1)
        return self._whole(np.array([choices[d + 1 :].prod() for d in range(len(choices))]), self._cost)

    def _whole(self, weight: FloatArray, paid: FloatArray) -> float:
        """What the executed cells of each (depth, model) cost, plus the expected subtrees of open ones; each cell counts
        ``weight[depth]`` times.
        """
        if not self.counts.any():
            return 0.0
        cost, rate = self._means(paid), self._rates()
        total, below = 0.0, 0.0  # below: expected dollars of the children's subtrees, if the request goes on
        for depth in range(self.template.depth - 1, -1, -1):
            subtree = weight[depth] * cost[depth] + rate[depth] * below
            total += float(self._open[depth] @ subtree + weight[depth] * paid[depth].sum())
            below = float(self._allowed[depth] @ subtree)
        return total

    def _means(self, paid: FloatArray) -> FloatArray:
        """Cost per cell, shrunk towards the model's mean over depths; towards everybody's for a model never run."""
        ran = self.counts.sum(axis=0)
        overall = paid.sum() / self.counts.sum()
        of_model = np.where(ran > 0, paid.sum(axis=0) / np.maximum(ran, 1), overall)
        return np.asarray((paid + _COST_PRIOR * of_model) / (self.counts + _COST_PRIOR))

    def _rates(self) -> FloatArray:
        """P(a request goes on) per cell, shrunk towards its depth's, and that towards the overall rate."""
        overall = (self._went_on.sum() + 1) / (self.counts.sum() + 2)
        ran = self.counts.sum(axis=1, keepdims=True)
        of_depth = (self._went_on.sum(axis=1, keepdims=True) + _RATE_PRIOR * overall) / (ran + _RATE_PRIOR)
        return np.asarray((self._went_on + _RATE_PRIOR * of_depth) / (self.counts + _RATE_PRIOR))


def coverage_of(observations: Sequence[Observation], template: Template, n_requests: int) -> Coverage:
    """The account of a finished set of rows; parents are taken before children whatever their order."""
    account = Coverage(template, n_requests)
    for observation in sorted(observations, key=lambda o: o.depth):
        account.add(observation)
    return account
