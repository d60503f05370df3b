"""Which ends below a node can ever be the best: those that no other one makes superfluous, whatever the bounds and the load.

An end is superfluous if one that comes before it in the objective's order visits the same engines equally often and is no worse
in every bounded quantity. That one would be chosen instead, and also where a bound has to give way. None of this depends on the
node that is asked about: what a child has dropped its parent need not look at.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from vinelm.controller.planning.objective_class import ObjectiveClass
from vinelm.controller.planning.path_metrics import IntArray, PathMetrics
from vinelm.trie import BoolArray, FloatArray

LAGS = 32
"""An end is compared with so many before it at a time; what is left is compared again until little goes any more."""
LITTLE = 0.1
"""As a share of what is left. A superfluous end that stays takes room; it never makes an answer wrong."""


def pareto(known: PathMetrics, kind: ObjectiveClass, ends: IntArray) -> IntArray:
    """``ends``, in the objective's order, without superfluous ones: all of them where one quantity is bounded and no load
    counts, else nearly all.
    """
    worse = kind.parts(known, ends)
    if kind.has_load:
        group = known.visit_group[ends]
        order = np.argsort(group, kind="stable")
        return ends[np.sort(order[_kept([values[order] for values in worse], group[order])])]
    if len(worse) > 1:
        return ends[_kept(worse, None)]
    if not worse:
        return ends[:1]
    before = np.minimum.accumulate(np.concatenate(([np.inf], worse[0])))[:-1]
    return ends[worse[0] < before]


def _kept(worse: list[FloatArray], group: npt.NDArray[Any] | None) -> npt.NDArray[np.intp]:
    """Positions that stay. Items run over groups, and within each in the objective's order."""
    kept = np.arange(len(worse[0]))
    while True:
        stays = ~_dominated(worse, group)
        kept, worse = kept[stays], [values[stays] for values in worse]
        group = None if group is None else group[stays]
        if len(stays) - len(kept) <= LITTLE * len(stays):
            return kept


def _dominated(worse: list[FloatArray], group: npt.NDArray[Any] | None) -> BoolArray:
    """Where one of the items just before, of the same group, is no worse in every quantity."""
    size = len(worse[0])
    dominated = np.zeros(size, np.bool_)
    for lag in range(1, min(LAGS, size - 1) + 1):
        beaten = worse[0][:-lag] <= worse[0][lag:]
        for values in worse[1:]:
            beaten &= values[:-lag] <= values[lag:]
        if group is not None:
            beaten &= group[:-lag] == group[lag:]
        dominated[lag:] |= beaten
    return dominated
