"""Pareto dominance: which ends below a node can be the best for some values of the bounds and some load.

An end is dominated if another one that ranks before it by the objective's target uses the same engines equally often and is no
worse in any bounded quantity. The other one is then chosen instead, also where bounds are relaxed. Dominance does not depend
on the request's node: ends that a child's frontier dropped need not be looked at again for its parent.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from vinelm.controller.planning.objective_class import ObjectiveClass
from vinelm.controller.planning.path_metrics import IntArray, PathMetrics
from vinelm.trie.arrays import BoolArray, FloatArray

LAGS = 32
"""Each end is compared with this many predecessors per pass."""
LITTLE = 0.1
"""Passes end when one drops no more than this share. A dominated end that stays costs memory, never correctness."""


def pareto_frontier(metrics: PathMetrics, objective_class: ObjectiveClass, ends: IntArray) -> IntArray:
    """The non-dominated ends, given all of them sorted best first.

    Exact with one bounded quantity and no load; otherwise a few dominated ends may stay.
    """
    keys = objective_class.dominance_keys(metrics, ends)
    if objective_class.has_load:
        group = metrics.visit_group[ends]
        order = np.argsort(group, kind="stable")
        return ends[np.sort(order[_kept([values[order] for values in keys], group[order])])]
    if len(keys) > 1:
        return ends[_kept(keys, None)]
    if not keys:
        return ends[:1]
    best_before = np.minimum.accumulate(np.concatenate(([np.inf], keys[0])))[:-1]
    return ends[keys[0] < best_before]


def _kept(keys: list[FloatArray], group: npt.NDArray[Any] | None) -> npt.NDArray[np.intp]:
    """Positions that stay, of items sorted by group and within each group best first."""
    kept = np.arange(len(keys[0]))
    while True:
        stays = ~_dominated(keys, group)
        kept, keys = kept[stays], [values[stays] for values in keys]
        group = None if group is None else group[stays]
        if len(stays) - len(kept) <= LITTLE * len(stays):
            return kept


def _dominated(keys: list[FloatArray], group: npt.NDArray[Any] | None) -> BoolArray:
    """Where one of the last ``LAGS`` items of the same group is no worse in every key."""
    size = len(keys[0])
    dominated = np.zeros(size, np.bool_)
    for lag in range(1, min(LAGS, size - 1) + 1):
        beaten = keys[0][:-lag] <= keys[0][lag:]
        for values in keys[1:]:
            beaten &= values[:-lag] <= values[lag:]
        if group is not None:
            beaten &= group[:-lag] == group[lag:]
        dominated[lag:] |= beaten
    return dominated
