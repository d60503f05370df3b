"""The paper's other baselines (§5.3): they predict the mean of each column of the request x path table directly.

They are kept to be beaten. A column's observed entries are a biased sample (only requests that failed so far), and fill-in is
biased the other way; that is the point of the comparison.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from vinelm.annotated_trie import AnnotatedTrie
from vinelm.catalog import Catalog
from vinelm.errors import InputError
from vinelm.estimator.base import RateEstimator
from vinelm.estimator.baselines.cascade import CascadeEstimator
from vinelm.estimator.observation_table import ObservationTable
from vinelm.estimator.outcome_rates import Rates
from vinelm.estimator.shrinkage import pooled_mean
from vinelm.template import Template
from vinelm.trie import FloatArray, Trie


@dataclass(frozen=True, eq=False)
class Entries:
    """The request x path table as far as it is known, shape (requests, n + 1): NaN where nothing is."""

    trie: Trie
    values: FloatArray

    @classmethod
    def of(cls, cells: ObservationTable, *, fill_in: bool) -> Entries:
        """Executed cells; with ``fill_in`` also every extension of a success, as a success (prefix closure)."""
        values = np.full((cells.n_requests, len(cells.trie)), np.nan)
        known = cells.labelled
        values[cells.request[known], cells.node[known]] = cells.right[known]
        if fill_in:
            for level in cells.trie.levels[1:]:
                solved = values[:, cells.trie.parent[level]] == 1.0
                values[:, level] = np.where(solved, 1.0, values[:, level])
        values[:, 0] = np.nan
        return cls(cells.trie, values)

    @property
    def is_known(self) -> npt.NDArray[np.bool_]:
        """Where an entry is known."""
        return ~np.isnan(self.values)

    def column_means(self) -> FloatArray:
        """Mean of the known entries of each column; an empty column gets its model's mean at its depth."""
        total, count = np.nansum(self.values, axis=0), self.is_known.sum(axis=0).astype(np.float64)
        fallback = pooled_mean(self.trie, total, count, prior=0.0, weight=1e-6)
        return np.where(count > 0, total / np.maximum(count, 1.0), fallback)


class ColumnEstimator(RateEstimator):
    """Says A(u) of every path at once. Stop rates, which the cost sums need, are the plain cascade's; ``success`` of a node is
    whatever makes its path's accuracy come out as said, so that it may lie outside [0, 1].
    """

    needs_oracle: ClassVar[bool] = True

    def _rates(self, cells: ObservationTable) -> Rates:
        return CascadeEstimator()._rates(cells)

    def _annotate(self, cells: ObservationTable, template: Template, catalog: Catalog) -> AnnotatedTrie:
        if self.needs_oracle and cells.rule != "oracle":
            raise InputError(f"estimator {self.name!r} fills successes in, which needs the oracle stop: use 'latent'")
        plain = super()._annotate(cells, template, catalog)
        accuracy = np.clip(self._column_means(cells), 0.0, 1.0)
        before = plain.accuracy - plain.reach * plain.success
        success = (accuracy - before) / np.maximum(plain.reach, 1e-9)
        success[0] = 0.0
        return replace(plain, success=success)

    @abstractmethod
    def _column_means(self, cells: ObservationTable) -> FloatArray:
        """Predicted mean of each column, shape (n + 1,)."""


class AverageEstimator(ColumnEstimator):
    """Mean of the executed entries of each column."""

    name: ClassVar[str] = "average"
    needs_oracle: ClassVar[bool] = False

    def _column_means(self, cells: ObservationTable) -> FloatArray:
        return Entries.of(cells, fill_in=False).column_means()


class PrefixAverageEstimator(ColumnEstimator):
    """Prefix fill-in, then the mean of the known entries of each column."""

    name: ClassVar[str] = "prefix-average"

    def _column_means(self, cells: ObservationTable) -> FloatArray:
        return Entries.of(cells, fill_in=True).column_means()


class PrefixImputeEstimator(ColumnEstimator):
    """Prefix fill-in, then hard-impute (unknown entries from the best approximation of rank ``rank``, repeated), then means.

    The paper names neither the rank nor the number of turns.
    """

    name: ClassVar[str] = "prefix-impute"

    def __init__(self, *, rank: int = 2, iterations: int = 30) -> None:
        super().__init__()
        self.rank = rank
        self.iterations = iterations

    @property
    def settings(self) -> dict[str, Any]:
        """The settings given to ``__init__``, as plain JSON."""
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
    """Best approximation of that rank, by the smaller of the two Gram matrices."""
    if table.shape[0] > table.shape[1]:
        return low_rank(table.T, rank).T
    _, vectors = np.linalg.eigh(table @ table.T)
    leading = vectors[:, -rank:]
    return np.asarray(leading @ (leading.T @ table))
