"""Requests of unlike difficulty: a latent trait on a grid with free weights, fitted by EM over requests.

Three questions are asked at a node: is the answer right; does the request stop, given a right answer; does it, given a wrong
one. So a check is learned as what it is, a judge of answers that is much alike everywhere, and every row says how good the
models are, accepted or not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vinelm.estimator.latent.features import FeatureMatrix
from vinelm.estimator.latent.logistic_regression import ANSWER, VERDICT, Regression
from vinelm.estimator.observation_table import ObservationTable
from vinelm.trie import FloatArray

Ints = npt.NDArray[np.int64]
GRID_END = 2.5
WEIGHT_PRIOR = 1.0
"""Requests per grid point that the standard normal shape of the weights is worth."""
TINY = 1e-12


@dataclass(frozen=True, eq=False)
class OutcomeProbabilities:
    """P(yes) of the three questions, (n + 1, points) each; nodes that hold no answer are never right."""

    right: FloatArray
    stop_if_right: FloatArray
    stop_if_wrong: FloatArray

    @property
    def stop(self) -> FloatArray:
        """P(the request goes no further)."""
        return self.right * self.stop_if_right + (1.0 - self.right) * self.stop_if_wrong


@dataclass(frozen=True, eq=False)
class LatentFit:
    """A fitted latent model: ``posterior`` has shape (requests, points), ``belief`` (cells, 1 or points) is P(right).

    ``regressions`` are those of the questions of :class:`OutcomeProbabilities`, in its order; None where the answer is certain.
    """

    posterior: FloatArray
    grid: FloatArray
    chances: OutcomeProbabilities
    belief: FloatArray
    regressions: tuple[Regression | None, Regression | None, Regression | None]


def fit_mixture(cells: ObservationTable, *, n_points: int, iterations: int) -> LatentFit:
    """EM: each turn one Newton step per question, then each request's weights over the grid. One point: no latent trait."""
    grid = np.linspace(-GRID_END, GRID_END, n_points) if n_points > 1 else np.zeros(1)
    normal = np.exp(-0.5 * grid**2) / np.exp(-0.5 * grid**2).sum()
    fit = _Fit(cells, grid)
    weights = normal
    posterior, belief = fit.expect(weights)  # the slopes' prior breaks the symmetry of the grid
    for turn in range(iterations):
        fit.learn(posterior, belief, with_variances=turn >= 2)
        posterior, belief = fit.expect(weights)
        prior = WEIGHT_PRIOR * n_points
        weights = (posterior.sum(axis=0) + prior * normal) / (cells.n_requests + prior)
    return LatentFit(posterior, grid, fit.chances(), belief, fit.regressions)


class _Fit:
    """The rows and the three regressions; rows are summed per node, since those of one node differ by the request alone."""

    def __init__(self, cells: ObservationTable, grid: FloatArray) -> None:
        self.cells = cells
        self.grid = grid
        self.rows, self._starts, self._row = np.unique(cells.node, return_index=True, return_inverse=True)
        self._is_asked = cells.trie.answerable[self.rows]
        self._known = cells.labelled | ~cells.trie.answerable[cells.node]
        self._right = cells.right & cells.trie.answerable[cells.node]
        effects = FeatureMatrix.of(cells.trie)
        is_oracle = cells.rule == "oracle"
        self.regressions = (
            Regression.start(effects, grid, ANSWER),
            None if is_oracle else Regression.start(effects, grid, VERDICT),
            None if is_oracle and not cells.failed.any() else Regression.start(effects, grid, VERDICT),
        )

    def chances(self, rows: Ints | None = None) -> OutcomeProbabilities:
        """Of the nodes ``rows``, or of all. Certain are, under the oracle, the stop after a right answer and, where no call
        failed, going on after a wrong one.
        """
        answerable = self.cells.trie.answerable if rows is None else self.cells.trie.answerable[rows]
        certain = np.ones((len(answerable), len(self.grid)))
        right, stop_if_right, stop_if_wrong = (
            value * certain if regression is None else regression.chances(rows)
            for regression, value in zip(self.regressions, (1.0, 1.0, 0.0), strict=True)
        )
        return OutcomeProbabilities(right * answerable[:, None], stop_if_right, stop_if_wrong)

    def expect(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(posterior of each request over the grid, belief that each cell is right): the E step."""
        known = self.chances(self.rows)
        stop = self.cells.stop
        if_right = _log(known.right)[self._row] + _of_stop(known.stop_if_right, stop, self._row)
        if_wrong = _log(1.0 - known.right)[self._row] + _of_stop(known.stop_if_wrong, stop, self._row)
        log_likelihood = np.where(self._right[:, None], if_right, if_wrong)
        belief = self._right[:, None].astype(np.float64)
        if not self._known.all():
            either = np.logaddexp(if_right, if_wrong)
            belief = np.where(self._known[:, None], belief, np.exp(if_right - either))
            log_likelihood = np.where(self._known[:, None], log_likelihood, either)
        log = np.tile(np.log(weights), (self.cells.n_requests, 1))
        np.add.at(log, self.cells.request, log_likelihood)
        relative = np.exp(log - log.max(axis=1, keepdims=True))
        return np.asarray(relative / relative.sum(axis=1, keepdims=True)), belief

    def learn(self, posterior: FloatArray, belief: FloatArray, *, with_variances: bool) -> None:
        """One step of every regression on the expected counts: the M step."""
        weight, stop = posterior[self.cells.request], self.cells.stop[:, None]
        right, wrong = self._sum(weight * belief), self._sum(weight * (1.0 - belief))
        counts = (
            (right, (right + wrong) * self._is_asked[:, None]),
            (self._sum(weight * belief * stop), right),
            (self._sum(weight * (1.0 - belief) * stop), wrong),
        )
        for regression, (yes, asked) in zip(self.regressions, counts, strict=True):
            if regression is not None:
                regression.step(self.rows, yes, asked)
                if with_variances:
                    regression.update_variances()

    def _sum(self, values: FloatArray) -> FloatArray:
        """Per node of ``rows``; cells are sorted by node."""
        return np.asarray(np.add.reduceat(values, self._starts, axis=0), dtype=np.float64)


def _of_stop(chance: FloatArray, stop: npt.NDArray[np.bool_], row: Ints) -> FloatArray:
    return np.where(stop[:, None], _log(chance)[row], _log(1.0 - chance)[row])


def _log(chance: FloatArray) -> FloatArray:
    return np.asarray(np.log(np.maximum(chance, TINY)))
