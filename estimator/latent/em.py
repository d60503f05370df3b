"""EM fit of the latent model: request difficulty is a discrete latent trait on a grid with free weights.

Three questions are modelled at a node: is the answer right; does the request stop given a right answer; does it stop given a
wrong answer. So the workflow's check is learned as an imperfect classifier of answers that behaves similarly at all nodes.
Every result, accepted or not, gives information about the models' accuracy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy import sparse

from vinelm.estimator.arms import Arms, arms_of
from vinelm.estimator.latent.arm_model import ArmModel, ChoiceProbabilities
from vinelm.estimator.latent.features import FeatureMatrix
from vinelm.estimator.latent.logistic_regression import ANSWER, VERDICT, Regression
from vinelm.estimator.observation_table import ObservationTable
from vinelm.template.stop_rules import STOP_RULES
from vinelm.trie.arrays import FloatArray

Ints = npt.NDArray[np.int64]
GRID_END = 2.5
WEIGHT_PRIOR = 1.0
"""Pseudo-requests per grid point of the standard normal prior of the grid weights."""
TINY = 1e-12


@dataclass(frozen=True, eq=False)
class OutcomeProbabilities:
    """The probability of "yes" for three questions at each node, by latent difficulty, as arrays of shape (nodes, points).

    The questions are: is the answer right; does the request stop if the answer is right; does it stop if the answer is wrong.
    ``right`` is 0 at nodes that are not answerable.
    """

    right: FloatArray
    stop_if_right: FloatArray
    stop_if_wrong: FloatArray

    @property
    def stop(self) -> FloatArray:
        """The probability that a request stops at each node, for each latent difficulty on the grid; shape (nodes, points)."""
        return self.right * self.stop_if_right + (1.0 - self.right) * self.stop_if_wrong

    @property
    def on_right(self) -> FloatArray:
        """P(right answer, and the request continues) at each node, for each latent difficulty on the grid; shape (nodes,
        points).
        """
        return self.right * (1.0 - self.stop_if_right)

    @property
    def on_wrong(self) -> FloatArray:
        """P(wrong answer, and the request continues) at each node, for each latent difficulty on the grid; shape (nodes,
        points).
        """
        return (1.0 - self.right) * (1.0 - self.stop_if_wrong)


@dataclass(frozen=True, eq=False)
class LatentFit:
    """A fitted latent model.

    Args:
        posterior: P(grid point) of each request, shape (requests, points).
        grid: the points of the latent difficulty (higher is easier), shape (points,).
        probabilities: P(right answer), P(stop after a right answer) and P(stop after a wrong answer) at each node.
        belief: P(right) of each result, shape (results, 1) or (results, points).
        regressions: a regression for each of these three probabilities, in this order; None for one that is always 0 or 1.
        arms: the model of the branches; None if every node has only a single branch.
    """

    posterior: FloatArray
    grid: FloatArray
    probabilities: OutcomeProbabilities
    belief: FloatArray
    regressions: tuple[Regression | None, Regression | None, Regression | None]
    arms: ArmModel | None = None

    def shares(self, arms: Arms) -> ChoiceProbabilities:
        """Return P(branch | the request continues) for every branch of the trie; 1 if every node has a single branch."""
        if self.arms is not None:
            return self.arms.shares()
        certain = np.ones((len(arms), len(self.grid)))
        return ChoiceProbabilities(certain, certain)


def fit_latent(cells: ObservationTable, *, n_points: int, iterations: int) -> LatentFit:
    """Fit the latent model by expectation maximization (EM) and return it.

    Each iteration takes a Newton step for each regression, and updates the posterior of each request's difficulty.

    Args:
        cells: the results.
        n_points: number of grid points; 1 means no latent difficulty.
        iterations: EM iterations.
    """
    grid = np.linspace(-GRID_END, GRID_END, n_points) if n_points > 1 else np.zeros(1)
    normal = np.exp(-0.5 * grid**2) / np.exp(-0.5 * grid**2).sum()
    em = _ExpectationMaximization(cells, grid)
    weights = normal
    posterior, belief = em.expect(weights)  # the prior of the slopes breaks the symmetry of the grid
    for iteration in range(iterations):
        # The first two steps move only the effects: a variance learned from the starting effects would hold them there.
        em.maximize(posterior, belief, with_variances=iteration >= 2)
        posterior, belief = em.expect(weights)
        prior = WEIGHT_PRIOR * n_points
        # The prior counts as requests with normal difficulties, so that few requests cannot empty a grid point.
        weights = (posterior.sum(axis=0) + prior * normal) / (cells.n_requests + prior)
    return LatentFit(posterior, grid, em.probabilities(), belief, em.regressions, em.arms)


class _ExpectationMaximization:
    """The state of the EM fit: the results, and the logistic regressions that predict a call's outcome and the branch after it.

    The regressions are fitted to sums over each node's results, because all results of a node have the same features.
    """

    def __init__(self, cells: ObservationTable, grid: FloatArray) -> None:
        self.cells = cells
        self.grid = grid
        self.rows, self._starts, row = np.unique(cells.node, return_index=True, return_inverse=True)
        self._outcome = row + len(self.rows) * cells.stop
        # Sums over the cells of each request; much faster than np.add.at.
        ones, places = np.ones(len(cells)), (cells.request, np.arange(len(cells)))
        self._by_request = sparse.csr_array((ones, places), shape=(cells.n_requests, len(cells)))
        self._is_asked = cells.trie.answerable[self.rows]
        self._known = cells.labelled | ~cells.trie.answerable[cells.node]
        self._right = np.where(cells.trie.answerable[cells.node], cells.right, np.zeros_like(cells.right))
        arms = arms_of(cells.trie)
        self.arms = ArmModel.start(cells, arms, grid) if arms.is_choice.any() else None
        features = FeatureMatrix.of(cells.trie, cells.kinds)
        # Selected once, since that takes longer than a step on them.
        self._features = replace(features, design=features.design[self.rows], slope=features.slope[self.rows])
        if_right, if_wrong = STOP_RULES[cells.rule].open_stops(bool(cells.failed.any()))
        self.regressions = (
            Regression.start(features, grid, ANSWER),
            Regression.start(features, grid, VERDICT) if if_right else None,
            Regression.start(features, grid, VERDICT) if if_wrong else None,
        )

    def probabilities(self, *, of_all: bool = True) -> OutcomeProbabilities:
        """Return the probabilities of a right answer, of a stop after a right answer, and of a stop after a wrong answer.

        The result has all nodes or, without ``of_all``, only the nodes with results.
        """
        answerable = self.cells.trie.answerable if of_all else self.cells.trie.answerable[self.rows]
        certain = np.ones((len(answerable), len(self.grid)))
        right, stop_if_right, stop_if_wrong = (
            value * certain if regression is None else regression.probabilities(None if of_all else self._features)
            for regression, value in zip(self.regressions, (1.0, 1.0, 0.0), strict=True)
        )
        return OutcomeProbabilities(right * answerable[:, None], stop_if_right, stop_if_wrong)

    def expect(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Do the E step: return P(latent difficulty) for each request, and P(right) for each result.

        The first array has the shape (requests, points), where a point is a difficulty on the grid. The second has the shape
        (results, points), or (results, 1) if P(right) is the same for all difficulties. ``weights`` has the weight of each
        point, shape (points,).
        """
        known = self.probabilities(of_all=False)
        # For each cell, the log chance of what was seen (stopped or not) together with a right answer, and with a wrong one. It
        # is looked up by node and outcome, since all cells of a node share it.
        if_right = (_log(known.right) + _log_stop(known.stop_if_right)).reshape(-1, len(self.grid))[self._outcome]
        if_wrong = (_log(1.0 - known.right) + _log_stop(known.stop_if_wrong)).reshape(-1, len(self.grid))[self._outcome]
        of_first = None
        if self.arms is not None:
            of_first = self._add_arms(self.arms, if_right, if_wrong)
        belief = self._right[:, None].astype(np.float64)
        if self.cells.right.dtype != np.bool_:  # a score between 0 and 1 counts as that share of a right answer
            log_likelihood = belief * if_right + (1.0 - belief) * if_wrong
        else:
            log_likelihood = np.where(self._right[:, None], if_right, if_wrong)
        if not self._known.all():
            # For rows without a label, right and wrong are both possible, weighted by how well each explains the check's
            # verdict.
            either = np.logaddexp(if_right, if_wrong)
            belief = np.where(self._known[:, None], belief, np.exp(if_right - either))
            log_likelihood = np.where(self._known[:, None], log_likelihood, either)
        # Given the difficulty, a request's cells are independent, so their log chances add up; the prior weight is added once.
        log = np.log(weights) + self._by_request @ log_likelihood
        if of_first is not None:
            log += of_first
        # Long histories have tiny likelihoods: with the request's largest subtracted, exp cannot underflow everywhere.
        relative = np.exp(log - log.max(axis=1, keepdims=True))
        return np.asarray(relative / relative.sum(axis=1, keepdims=True)), belief

    def maximize(self, posterior: FloatArray, belief: FloatArray, *, with_variances: bool) -> None:
        """Do the M step: one Newton step of every regression, given the E step's results.

        For the arguments see :meth:`ArmModel.step`.
        """
        # A request counts at each difficulty with its posterior probability, and a cell without a label counts partly as right
        # and partly as wrong. These expected counts replace the whole counts of a regression on known data.
        weight, stop = posterior[self.cells.request], self.cells.stop[:, None]
        right, wrong = self._sum(weight * belief), self._sum(weight * (1.0 - belief))
        # The (yes, asked) counts of the three questions: right of all answers; stopped of the right ones; stopped of the wrong
        # ones.
        counts = (
            (right, (right + wrong) * self._is_asked[:, None]),
            (self._sum(weight * belief * stop), right),
            (self._sum(weight * (1.0 - belief) * stop), wrong),
        )
        for regression, (yes, asked) in zip(self.regressions, counts, strict=True):
            # One step each, without convergence: the E step changes the counts anyway.
            if regression is not None:
                regression.step(self._features, yes, asked)
                if with_variances:
                    regression.update_variances()
        if self.arms is not None:
            self.arms.step(posterior, belief, with_variances=with_variances)

    def _add_arms(self, arms: ArmModel, if_right: FloatArray, if_wrong: FloatArray) -> FloatArray:
        """Add log P(branch taken) to the log likelihoods ``if_right`` and ``if_wrong`` of the results, in place.

        Return each request's log P(first stage), shape (requests, points); 0 if only one stage may come first.
        """
        log = arms.log_likelihood()
        is_first = arms.cell < 0
        cell = arms.cell[~is_first]
        if_wrong[cell] += log[~is_first, 0]
        if_right[cell] += log[~is_first, 1]
        of_first = np.zeros((self.cells.n_requests, len(self.grid)))
        of_first[arms.request[is_first]] = log[is_first, 0]
        return of_first

    def _sum(self, values: FloatArray) -> FloatArray:
        """Return, for each node with results, the sum of ``values`` over its results; shape (nodes, grid points)."""
        return np.asarray(np.add.reduceat(values, self._starts, axis=0), dtype=np.float64)


def _log_stop(probability: FloatArray) -> FloatArray:
    """Return log P(continues) and log P(stops), stacked along a first axis of length 2.

    ``probability`` is P(stops); the other axes of the result are those of ``probability``.
    """
    return np.stack([_log(1.0 - probability), _log(probability)])


def _log(probability: FloatArray) -> FloatArray:
    return np.asarray(np.log(np.maximum(probability, TINY)))
