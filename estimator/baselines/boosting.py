"""Extends successes to longer paths, then predicts table cells by gradient boosting (VineLM paper §5.3). Extra ``xgboost``."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from vinelm.estimator.baselines.column_means import ColumnEstimator, Entries
from vinelm.estimator.observation_table import ObservationTable
from vinelm.extras import required_extra
from vinelm.trie.arrays import FloatArray


class PrefixXgboostEstimator(ColumnEstimator):
    """Predicts the unknown entries of the request x path table by gradient boosting, then takes the mean of each column.

    Before that, a request's success on a path is extended to all longer paths. For the features of an entry see
    :func:`cell_features`. The paper lists the features but not XGBoost's settings. The settings here are XGBoost's
    defaults, with fewer trees and a lower learning rate.

    Args:
        trees: boosting rounds.
        depth: maximum depth of a tree.
        learning_rate: XGBoost's ``eta``.
    """

    name: ClassVar[str] = "prefix-xgboost"

    def __init__(self, *, trees: int = 80, depth: int = 4, learning_rate: float = 0.1) -> None:
        super().__init__()
        self.trees = trees
        self.depth = depth
        self.learning_rate = learning_rate

    @property
    def settings(self) -> dict[str, Any]:
        """The settings given to ``__init__``, as plain JSON types."""
        return {"trees": self.trees, "depth": self.depth, "learning_rate": self.learning_rate}

    def _column_means(self, cells: ObservationTable) -> FloatArray:
        with required_extra("xgboost", "estimator 'prefix-xgboost'"):
            import xgboost
        entries = Entries.of(cells, fill_in=True)
        features = cell_features(cells, entries)
        known, values = entries.is_known[:, 1:].ravel(), entries.values[:, 1:].ravel()
        settings = {
            "objective": "binary:logistic", "max_depth": self.depth, "eta": self.learning_rate, "nthread": 1, "seed": 0,
            "verbosity": 0, "base_score": float(np.clip(values[known].mean(), 0.01, 0.99)),
        }  # fmt: skip
        train = xgboost.DMatrix(features[known], label=values[known])
        booster = xgboost.train(settings, train, num_boost_round=self.trees)
        full = values.copy()
        if not known.all():
            full[~known] = booster.predict(xgboost.DMatrix(features[~known]))
        return np.concatenate([[0.0], full.reshape(cells.n_requests, -1).mean(axis=0)])


def cell_features(cells: ObservationTable, entries: Entries) -> FloatArray:
    """Return the features of each pair of a request and a node other than the root; shape (pairs, features).

    The pairs of the first request come first. A pair is a cell of a table with a row per request and a column per node. Its
    features are its depth, the counts and means of its row and column, and the mean of the sibling nodes. Further features
    describe the path to the node: the values and means of its proper prefixes at each depth, and the power scores
    (:func:`_power`) of its models. NaN where a feature is undefined.
    """
    trie, known = cells.trie, entries.is_known
    size = len(trie)
    column_mean, column_count = entries.column_means(), known.sum(axis=0)
    row_count = known.sum(axis=1)
    row_mean = np.nansum(entries.values, axis=1) / np.maximum(row_count, 1)
    of_column = [trie.depth.astype(np.float64), column_count, column_mean, _sibling_means(cells, column_mean, column_count)]
    prefixes = _prefixes(cells)
    power = _power(cells, column_mean)
    scores = np.where(prefixes >= 0, power[trie.model[np.maximum(prefixes, 0)]], np.nan)
    of_column += [np.nanmax(scores[1:], axis=1, initial=0.0), np.nanmean(scores[1:], axis=1), power[trie.model[1:]]]
    columns = [np.broadcast_to(item[-(size - 1) :], (cells.n_requests, size - 1)) for item in of_column]
    columns += [np.broadcast_to(item[:, None], (cells.n_requests, size - 1)) for item in (row_count, row_mean)]
    for d in range(trie.max_depth - 1):  # proper prefixes only: the entry itself would leak the label
        at = prefixes[1:, d]
        is_proper = (at >= 0) & (at != np.arange(1, size))
        columns.append(np.where(is_proper, entries.values[:, np.maximum(at, 0)], np.nan))
        columns.append(np.broadcast_to(np.where(is_proper, column_mean[np.maximum(at, 0)], np.nan), columns[-1].shape))
    return np.stack([np.asarray(column, np.float32).ravel() for column in columns], axis=1)


def _prefixes(cells: ObservationTable) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Return the indices of the nodes on the path to each node, shape (nodes, depths).

    Column d has the node at depth d + 1; -1 beyond the node's depth.
    """
    trie = cells.trie
    table = np.full((len(trie), trie.max_depth), -1, np.int64)
    for level in trie.levels[1:]:
        table[level] = table[trie.parent[level]]
        table[level, trie.depth[level[0]] - 1] = level
    return table


def _sibling_means(cells: ObservationTable, mean: FloatArray, count: Any) -> FloatArray:
    """Return, for each node, the mean of its siblings' known entries; the node's own mean if there are none.

    The entries are those of a table with a row per request and a column per node. ``mean`` and ``count`` are the mean and the
    number of the known entries in each column, shape (nodes,).
    """
    parent = np.maximum(cells.trie.parent, 0)
    total = np.bincount(parent, mean * count, len(cells.trie))[parent] - mean * count
    others = np.bincount(parent, count, len(cells.trie))[parent] - count
    return np.where(others > 0, total / np.maximum(others, 1), mean)


def _power(cells: ObservationTable, column_mean: FloatArray) -> FloatArray:
    """Return each model's power score, shape (models,): its accuracy as a request's first model.

    For a model that is never first, it is the mean of ``column_mean`` over the nodes of this model. ``column_mean`` is the mean
    of the known entries of each node's column, shape (nodes,).
    """
    trie = cells.trie
    first = trie.levels[1]
    scores = np.array([column_mean[1:][trie.model[1:] == m].mean() for m in range(len(trie.models))])
    scores[trie.model[first]] = column_mean[first]
    return scores
