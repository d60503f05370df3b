"""The paper's other baselines (VineLM paper §5.3): direct estimates of the column means of the request x path table.

They are biased and serve only for comparison: a column's observed entries come only from requests that failed so far, and
prefix fill-in is biased in the opposite direction.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from vinelm.catalog import Catalog
from vinelm.errors import InputError
from vinelm.estimator.arm_counts import counted_arms
from vinelm.estimator.arms import arms_of
from vinelm.estimator.baselines.cascade import CascadeEstimator
from vinelm.estimator.observation_table import ObservationTable
from vinelm.estimator.outcome_rates import Rates
from vinelm.estimator.shrinkage import pooled_mean
from vinelm.template import Template
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.arrays import FloatArray


@dataclass(frozen=True, eq=False)
class Entries:
    """The known entries of the request x path table: whether a request is answered correctly on the path to a node.

    ``values`` has the shape (requests, nodes): 1 for a right answer, 0 for a wrong one, a score in between if scores are
    graded, NaN if unknown.
    """

    trie: Trie
    values: FloatArray

    @classmethod
    def of(cls, cells: ObservationTable, *, fill_in: bool) -> Entries:
        """Return the entries of the table: whether the answer is right, for each executed call with a label.

        With ``fill_in``, every path that extends a successful path also counts as a success.
        """
        values = np.full((cells.n_requests, len(cells.trie)), np.nan)
        known = cells.labelled
        values[cells.request[known], cells.node[known]] = cells.right[known]
        if fill_in:
            for level in cells.trie.levels[1:]:
                solved = values[:, cells.trie.parent[level]] == 1.0
                values[:, level] = np.where(solved, 1.0, values[:, level])
        _take_other_arms(values, cells)
        values[:, 0] = np.nan
        return cls(cells.trie, values)

    @property
    def is_known(self) -> npt.NDArray[np.bool_]:
        """A mask of the known entries of ``values``, shape (requests, nodes)."""
        return ~np.isnan(self.values)

    def column_means(self) -> FloatArray:
        """Return, for each node, the share of right answers among the requests whose outcome there is known; shape (nodes,).

        A node without known outcomes gets the mean of its model at its depth.
        """
        total, count = np.nansum(self.values, axis=0), self.is_known.sum(axis=0).astype(np.float64)
        fallback = pooled_mean(self.trie, total, count, prior=0.0, weight=1e-6)
        return np.where(count > 0, total / np.maximum(count, 1.0), fallback)


def _take_other_arms(values: FloatArray, cells: ObservationTable) -> None:
    """Set unknown ``values`` to 0 (no right answer) at nodes on branches that a request did not take, in place."""
    trie, arms = cells.trie, arms_of(cells.trie)
    if not arms.is_choice.any():
        return
    known = np.flatnonzero(cells.arm >= 0)
    request, node, stage = cells.request[known], cells.node[known], cells.arm[known]
    if arms.count[0] > 1:
        everyone = np.arange(cells.n_requests, dtype=np.int64)
        request, node = np.concatenate([everyone, request]), np.concatenate([0 * everyone, node])
        stage = np.concatenate([cells.first_stage, stage])
    took = np.full(values.shape, -1, np.int64)
    took[request, node] = stage
    elsewhere = np.zeros(values.shape, np.bool_)
    for level in trie.levels[1:]:
        up = trie.parent[level]
        elsewhere[:, level] = elsewhere[:, up] | ((took[:, up] >= 0) & (took[:, up] != trie.stage[level]))
    values[elsewhere & np.isnan(values)] = 0.0


def _with_success(plain: AnnotatedTrie, cells: ObservationTable, success: FloatArray) -> AnnotatedTrie:
    """Return the trie ``plain`` with P(right) at each node set to ``success``, limited to the range that stop rates allow.

    The range is from P(stop and right) to P(stop and right) + P(continue). The probabilities of the branches are counted again
    from ``cells``, so that they match P(right).
    """
    goes_on = 1.0 - plain.stop
    right_if_on = np.clip((success - plain.stop_success) / np.maximum(goes_on, 1e-9), 0.0, 1.0)
    right_if_stop = plain.stop_success / np.maximum(plain.stop, 1e-9)
    rates = Rates.of(plain.trie, plain.stop, right_if_stop, right_if_on)
    found = counted_arms(cells, rates)
    return replace(plain, success=rates.success, arm=found.arm, arm_success=found.arm_success)


class ColumnEstimator(CascadeEstimator):
    """Base class of estimators that predict the accuracy A(u) of each path directly.

    Stop rates, which the path costs need, come from :class:`CascadeEstimator`. Each node's P(right), its ``success``, is chosen
    so that the path's accuracy equals the prediction. So ``success`` may lie outside [0, 1]. Merged histories are not
    supported: their nodes represent many paths, and a right answer on one path does not imply right answers on the others.

    If the trie branches, a request counts as wrong on the paths of branches that it does not take. Then ``success`` is limited
    to what the stop rates allow, so that a node's branches are consistent with it.
    """

    needs_oracle: ClassVar[bool] = True

    def _annotate(self, cells: ObservationTable, template: Template, catalog: Catalog) -> AnnotatedTrie:
        cells.trie.require_paths(f"estimator {self.name!r} predicts single paths")
        if self.needs_oracle and cells.rule != "oracle":
            raise InputError(f"estimator {self.name!r} fills in successes, which needs the oracle stop: use 'latent'")
        plain = super()._annotate(cells, template, catalog)
        accuracy = np.clip(self._column_means(cells), 0.0, 1.0)
        before = plain.accuracy - plain.reach * plain.success
        success = (accuracy - before) / np.maximum(plain.reach, 1e-9)
        success[0] = 0.0
        # In a trie that branches, those that continue with a right answer are split between the branches.
        return _with_success(plain, cells, success) if plain.is_contingent else replace(plain, success=success)

    @abstractmethod
    def _column_means(self, cells: ObservationTable) -> FloatArray:
        """Return each path's predicted accuracy, shape (nodes,)."""


class AverageEstimator(ColumnEstimator):
    """Estimates a path's accuracy by the mean over the requests that have a labelled result at its last node."""

    name: ClassVar[str] = "average"
    needs_oracle: ClassVar[bool] = False

    def _column_means(self, cells: ObservationTable) -> FloatArray:
        return Entries.of(cells, fill_in=False).column_means()


class PrefixAverageEstimator(ColumnEstimator):
    """Counts a request's success on a path as a success on all longer paths, then takes means.

    A path's estimated accuracy is the mean of the known entries in its column of the request x path table.
    """

    name: ClassVar[str] = "prefix-average"

    def _column_means(self, cells: ObservationTable) -> FloatArray:
        return Entries.of(cells, fill_in=True).column_means()


class PrefixImputeEstimator(ColumnEstimator):
    """Counts a request's success on a path as a success on all longer paths, imputes unknown entries, then takes means.

    The entries are those of the request x path table; a path's accuracy is the mean of its column. Entries are imputed by
    iterated low-rank approximation; the paper gives neither the rank nor the number of iterations.
    """

    name: ClassVar[str] = "prefix-impute"

    def __init__(self, *, rank: int = 2, iterations: int = 30) -> None:
        super().__init__()
        self.rank = rank
        self.iterations = iterations

    @property
    def settings(self) -> dict[str, Any]:
        """The settings given to ``__init__``, as plain JSON types."""
        return {"rank": self.rank, "iterations": self.iterations}

    def _column_means(self, cells: ObservationTable) -> FloatArray:
        entries = Entries.of(cells, fill_in=True)
        known = entries.is_known[:, 1:]
        values = entries.values[:, 1:]
        full = np.where(known, values, entries.column_means()[1:])
        for _ in range(self.iterations):
            full = np.where(known, values, low_rank(full, self.rank))
        return np.concatenate([[0.0], np.clip(full, 0.0, 1.0).mean(axis=0)])


def low_rank(table: FloatArray, rank: int) -> FloatArray:
    """Return the best approximation of ``table`` of the given rank, from eigenvectors of the smaller Gram matrix."""
    if table.shape[0] > table.shape[1]:
        return low_rank(table.T, rank).T
    _, vectors = np.linalg.eigh(table @ table.T)
    leading = vectors[:, -rank:]
    return np.asarray(leading @ (leading.T @ table))
