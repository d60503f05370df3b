"""Counts of executed cells, and what the whole would cost: the arithmetic under :mod:`vinelm.profiler.coverage`.

Arrays are (depth, models) or (draws, depth, models): every formula works along the last two axes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vinelm.trie import FloatArray

_COST_PRIOR = 4.0  # observations' worth of the model's mean over all depths
_RATE_PRIOR = 4.0  # observations' worth of the depth's mean over all models


@dataclass(slots=True)
class Tally:
    """Executed cells: how many, what they cost in all, how many of them went on."""

    counts: FloatArray
    paid: FloatArray
    went_on: FloatArray

    def copy(self) -> Tally:
        """Arrays of its own."""
        return Tally(self.counts.copy(), self.paid.copy(), self.went_on.copy())

    def means(self) -> FloatArray:
        """Cost per cell, shrunk towards the model's mean over depths; towards everybody's for a model never run."""
        ran = self.counts.sum(axis=-2, keepdims=True)
        overall = _total(self.paid) / np.maximum(_total(self.counts), 1.0)
        of_model = np.where(ran > 0, self.paid.sum(axis=-2, keepdims=True) / np.maximum(ran, 1.0), overall)
        return np.asarray((self.paid + _COST_PRIOR * of_model) / (self.counts + _COST_PRIOR))

    def rates(self) -> FloatArray:
        """P(a request goes on) per cell, shrunk towards its depth's, and that towards the overall rate."""
        overall = (_total(self.went_on) + 1.0) / (_total(self.counts) + 2.0)
        ran = self.counts.sum(axis=-1, keepdims=True)
        of_depth = (self.went_on.sum(axis=-1, keepdims=True) + _RATE_PRIOR * overall) / (ran + _RATE_PRIOR)
        return np.asarray((self.went_on + _RATE_PRIOR * of_depth) / (self.counts + _RATE_PRIOR))

    def rest(self, unopened: FloatArray, allowed: FloatArray, weight: FloatArray) -> FloatArray:
        """Expected price of the subtrees of open cells (reached, not run); each cell counts ``weight[depth]`` times.

        ``unopened`` has the number of open cells, ``allowed`` 1 where a stage may run on a model; both (depth, models).
        """
        cost, rate = self.means(), self.rates()
        total = below = np.zeros(cost.shape[:-2])  # below: expected price of the children's subtrees, if the request goes on
        for depth in range(cost.shape[-2] - 1, -1, -1):
            subtree = weight[depth] * cost[..., depth, :] + rate[..., depth, :] * below[..., None]
            total = total + subtree @ unopened[depth]
            below = subtree @ allowed[depth]
        return np.asarray(total)


def _total(values: FloatArray) -> FloatArray:
    return np.asarray(values.sum(axis=(-2, -1), keepdims=True))
