"""Standard errors of the path metrics: the delta method along every path and its branches, times a calibrated factor.

Here, the accuracy of a path is the probability that a request ends at the path's last node or at an ancestor of it, with a
correct answer. The accuracy of a plan is the sum over the paths on which it ends (docs/estimators.md#arms). Let L be the
derivative of log P(branch) by a logit of the node at which the branch begins (if only one stage follows, the derivative of log
(1 - s)), and B the mass of correct answers that ended earlier. The derivatives of A(u) along effects x_j are

- reach_j db_j for proper ancestors j, and reach_u da_u for u itself;
- (A(u) - B_j) L_j for every step from an ancestor j down to u, including the steps of the branches' regression.

Each is a running sum from the root.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import sparse

from vinelm.estimator.cost_latency import MeanEstimate
from vinelm.estimator.latent.arm_model import ArmModel
from vinelm.estimator.latent.em import LatentFit
from vinelm.estimator.latent.features import Matrix
from vinelm.estimator.latent.logistic_regression import Regression
from vinelm.estimator.latent.prediction import PredictedRates
from vinelm.estimator.observation_table import ObservationTable
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.arrays import FloatArray

ACCURACY_SCALE = 0.92
COST_SCALE = 1.25
LATENCY_SCALE = 1.2
"""Factors that bring the coverage of 90 % intervals to about 90 %, calibrated at 2 % of the exhaustive cost on simulated tables
of seeds that are not reported. They are below 1 for accuracy, because the mean of the table's own requests is less uncertain
than that of further ones, and above 1 for dollars and seconds, because of effects that the model leaves out.
"""
TINY = 1e-9


@dataclass(frozen=True, eq=False)
class StandardErrors:
    """Standard errors of the estimates for each node; arrays of shape (nodes,).

    Attributes:
        accuracy: of the accuracy of the path to the node, as a fraction.
        cost_usd: of the path's cost, in dollars.
        latency_s: of the path's latency, in seconds.
        arm: of the probability of the branch that leads to the node; None if unknown.
    """

    accuracy: FloatArray
    cost_usd: FloatArray
    latency_s: FloatArray
    arm: FloatArray | None


def standard_errors(
    cells: ObservationTable,
    fit: LatentFit,
    predicted: PredictedRates,
    annotated: AnnotatedTrie,
    *,
    cost_usd: MeanEstimate,
    latency_s: MeanEstimate,
) -> StandardErrors:
    """Return the standard errors for *further requests from the same population* (see the module's docstring).

    They come from two sources: the uncertainty of the effects, which predict unobserved outcomes, and the random sample of
    requests.

    Args:
        cells: the observations.
        fit: the latent model fitted to them.
        predicted: its predicted rates and branches.
        annotated: the trie annotated with ``predicted``.
        cost_usd: estimate of the cost per call, in dollars.
        latency_s: estimate of the latency per call at zero load, in seconds.
    """
    n, trie, spent = cells.n_requests, cells.trie, annotated.path_cost_usd
    shrunk = (annotated.accuracy * n + 1.0) / (n + 2.0)  # an observed 0 or 1 is not certainty
    accuracy_var = shrunk * (1.0 - shrunk) / n * (1.0 + _unknown(cells, predicted))
    cost_var = trie.accumulate(annotated.reach**2 * cost_usd.mean_var) + spent**2 * cost_usd.shared
    cost_var += trie.accumulate(annotated.reach * cost_usd.along) ** 2
    latency_var = trie.accumulate(latency_s.mean_var) + annotated.path_latency_s**2 * latency_s.shared
    latency_var += trie.accumulate(latency_s.along) ** 2
    arm_var = _arm_sampling(predicted, trie)
    for question in questions(fit, predicted, annotated):
        for moves in gradients(trie, question, predicted):
            part = moves.nodes
            accuracy_var[part] += _squares(moves.of_accuracy(annotated.accuracy[part], question.ended))
            # Dollars depend on the questions only through which requests continue: there is no term for the node itself or for
            # answers.
            cost_var[part] += _squares(moves.of_later(spent[part], spent))
            arm_var[part] += predicted.arm_rates.arm[part] ** 2 * _squares(moves.arm)
    arm_var = arm_var[predicted.arms.target][predicted.arms.of_node]  # the same for all nodes of a branch, to the last bit
    arm_var[0] = 0.0
    return StandardErrors(
        accuracy=ACCURACY_SCALE * np.sqrt(accuracy_var),
        cost_usd=COST_SCALE * np.sqrt(cost_var),
        latency_s=LATENCY_SCALE * np.sqrt(latency_var),
        arm=np.sqrt(arm_var),
    )


# -- questions -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class MovedRates:
    """A regression, and how the rates at the nodes change with the logits that it predicts; arrays have shape (nodes,).

    Attributes:
        regression: the regression.
        step: the derivative of log P(branch into the node) by the logit at the parent. For the branches' regression, the
            derivatives are by the coefficients: two matrices (effects, slopes) with one row per branch.
        through: the derivative, by the node's logit, of the probability that a request ends at the node with a correct answer;
            for paths that continue below the node.
        own: the same derivative for the path that ends at the node, where every request that reaches the node ends.
        ended: the probability that a request ends at the node, or at an ancestor of it, with a correct answer.
    """

    regression: Regression
    step: FloatArray | tuple[Matrix, Matrix]
    through: FloatArray
    own: FloatArray
    ended: FloatArray


def questions(fit: LatentFit, predicted: PredictedRates, annotated: AnnotatedTrie) -> Iterator[MovedRates]:
    """Yield, for each regression of the fit, the derivatives of the trie's rates by the regression's logits.

    The regressions predict whether an answer is right, whether a right answer ends the request, whether a wrong answer ends it,
    and which branch is taken. Regressions that the fit lacks are left out.
    """
    reach, found = annotated.reach, fit.probabilities
    nothing = np.zeros(len(reach))
    ended = annotated.trie.accumulate(reach * annotated.stop_success)
    # Derivatives are means of p (1 - p) over the grid points of the unobserved requests.
    share = predicted.unseen / np.maximum(predicted.reaching, TINY)[:, None]
    moved = share * found.right * (1.0 - found.right)
    accepted = share * found.right * found.stop_if_right * (1.0 - found.stop_if_right)
    through = reach * (moved * found.stop_if_right).sum(axis=1), reach * accepted.sum(axis=1), nothing
    own = reach * moved.sum(axis=1), nothing, nothing
    for regression, step, passed, kept in zip(fit.regressions, _steps(fit, predicted), through, own, strict=True):
        if regression is not None:
            yield MovedRates(regression, step, passed, kept, ended)
    if fit.arms is not None:
        yield MovedRates(fit.arms.regression, _choice_steps(fit.arms, predicted), nothing, nothing, ended)


def _steps(fit: LatentFit, predicted: PredictedRates) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return how log P(branch into each node) changes with three logits of the node's parent.

    They are the logits of P(right answer), P(stop if right) and P(stop if wrong). Each result is an array of derivatives,
    shape (nodes,).
    """
    up = predicted.arms.source
    share = predicted.unseen[up] / np.maximum(predicted.reaching[up], TINY)[:, None]
    found = fit.probabilities
    right, if_right, if_wrong = found.right[up], found.stop_if_right[up], found.stop_if_wrong[up]
    took_right, took_wrong = predicted.shares.if_right, predicted.shares.if_wrong
    of_arms = (
        share * right * (1.0 - right) * ((1.0 - if_right) * took_right - (1.0 - if_wrong) * took_wrong),
        -share * right * if_right * (1.0 - if_right) * took_right,
        -share * (1.0 - right) * if_wrong * (1.0 - if_wrong) * took_wrong,
    )
    arm = predicted.arm_rates.arm
    into = predicted.arms.of_node
    first, second, third = (moved.sum(axis=1)[into] / np.maximum(arm, TINY) for moved in of_arms)
    return first, second, third


def _choice_steps(model: ArmModel, predicted: PredictedRates) -> tuple[Matrix, Matrix]:
    """Return the derivatives of log P(branch) by the effects and slopes of the branches' regression, one row per branch."""
    arms, asks, shares = predicted.arms, model.questions, predicted.shares
    probability = model.regression.probabilities()
    chosen = np.flatnonzero(arms.is_choice[arms.source])
    reaching = np.maximum(predicted.reaching[arms.source], TINY)
    weight = 1.0 / (reaching * np.maximum(predicted.arm_rates.arm[arms.target], TINY))
    values, rows, columns = [], [], []
    for is_right, mass, share in ((0, predicted.on_wrong, shares.if_wrong), (1, predicted.on_right, shares.if_right)):
        for order in range(asks.most_arms - 1):
            asked = chosen[(arms.order[chosen] >= order) & (arms.count[arms.source[chosen]] - 1 > order)]
            row = asks.row(arms.source[asked], order, is_right)
            taken = (arms.order[asked] == order)[:, None]
            moved = mass[arms.source[asked]] * share[asked] * (taken - probability[row])
            values.append(moved.sum(axis=1) * weight[asked])
            rows.append(asked)
            columns.append(row)
    shape = (len(arms), len(asks.node))
    factor = sparse.csr_array((np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), shape=shape)
    difficulty = predicted.mean_difficulty[asks.node]
    features = model.regression.features
    return factor @ features.design, factor @ (sparse.diags_array(difficulty) @ features.slope)


# -- gradients -------------------------------------------------------------------------------------------------


class Gradients(NamedTuple):
    """How rates at the nodes of one subtree of the root change with the coefficients of one regression.

    Each row is the gradient at one node by the coefficients, times a Cholesky factor of their covariance. Arrays have the shape
    (nodes, coefficients), except ``up``. ``passed`` and ``own`` are 0 if the coefficients do not affect them.

    Attributes:
        nodes: the range of the subtree's nodes.
        trie: the trie.
        up: the index of each node's parent, shape (nodes,).
        arm: the gradient of log P(branch into the node).
        passed: the gradient of the probability that a request ends at the parent with a correct answer.
        own: the gradient of the probability that a request ends at the node with a correct answer, if the path ends there.
    """

    nodes: slice
    trie: Trie
    up: FloatArray
    arm: FloatArray
    passed: FloatArray | float
    own: FloatArray | float

    def of_accuracy(self, accuracy: FloatArray, ended: FloatArray) -> FloatArray:
        """Return the gradient of the accuracy of the path to each node of the subtree; shape (nodes, coefficients).

        Args:
            accuracy: the accuracy of the path to each node of the subtree, shape (nodes,).
            ended: for each node of the trie, the probability that a request ends at the node, or at an ancestor of it, with a
                correct answer.
        """
        return self.own + self.of_later(accuracy, ended, self.passed)

    def of_later(self, metric: FloatArray, before: FloatArray, passed: FloatArray | float = 0.0) -> FloatArray:
        """Return the part of a path metric's gradient that comes from the probabilities of the branches along the path.

        Args:
            metric: the metric of the path to each node of the subtree, shape (nodes,).
            before: for each node of the whole trie, the part of the metric up to this node.
            passed: the change of the metric at each node that does not come from branches, shape (nodes, coefficients); or 0.

        Returns:
            An array of shape (nodes, coefficients).
        """
        along = self._running(self.arm) * metric[:, None]
        return along + self._running(passed - before[self.up][:, None] * self.arm)

    def _running(self, rows: FloatArray) -> FloatArray:
        """Return, for each node, the sum of ``rows`` over the nodes on the path from the root of the subtree to this node.

        ``rows`` has one row per node of the subtree; the result has the same shape.
        """
        total, depth = rows.copy(), self.trie.depth[self.nodes]
        for d in range(int(depth[0]) + 1, int(depth.max()) + 1):
            level = np.flatnonzero(depth == d)
            total[level] += total[self.up[level] - self.nodes.start]
        return total


def gradients(trie: Trie, question: MovedRates, predicted: PredictedRates) -> Iterator[Gradients]:
    """Yield how the nodes' probabilities change with the coefficients of one regression; see :class:`Gradients`.

    There is one item for each subtree of the root, to limit memory.
    """
    basis = np.asarray(np.linalg.cholesky(question.regression.covariance), dtype=np.float64)
    features = question.regression.features
    n_effects = features.design.shape[1]
    for child in trie.children(0):
        part = trie.subtree(child)
        up = np.maximum(trie.parent[part], 0)
        if isinstance(question.step, tuple):
            effects, slopes = (matrix[predicted.arms.of_node[part]] for matrix in question.step)
            yield Gradients(part, trie, up, np.asarray(effects @ basis[:n_effects] + slopes @ basis[n_effects:]), 0.0, 0.0)
            continue
        # Slopes count at the mean difficulty of the requests that reach a node.
        difficulty = predicted.mean_difficulty[part, None]
        rows = np.asarray(features.design[part] @ basis[:n_effects] + difficulty * (features.slope[part] @ basis[n_effects:]))
        at_parent = np.where(up[:, None] > 0, rows[np.maximum(up - child, 0)], 0.0)
        yield Gradients(
            part,
            trie,
            up,
            arm=at_parent * question.step[part, None],
            passed=at_parent * question.through[up][:, None],
            own=rows * question.own[part, None],
        )


def _squares(gradient: FloatArray) -> FloatArray:
    return np.asarray(np.einsum("ij,ij->i", gradient, gradient), dtype=np.float64)


# -- sampling --------------------------------------------------------------------------------------------------


def _arm_sampling(predicted: PredictedRates, trie: Trie) -> FloatArray:
    """Return, for each node, the sampling variance of the share of requests that take the branch to this node.

    The sample consists of the requests that reach the node's parent.
    """
    up = np.maximum(trie.parent, 0)
    reaching = np.maximum(predicted.reaching[up], 1.0)
    shrunk = (predicted.arm_rates.arm * reaching + 1.0) / (reaching + 2.0)
    unknown = predicted.unseen.sum(axis=1)[up] / np.maximum(predicted.reaching[up], TINY)
    return np.asarray(shrunk * (1.0 - shrunk) / reaching * (1.0 + np.clip(unknown, 0.0, 1.0)))


def _unknown(cells: ObservationTable, predicted: PredictedRates) -> FloatArray:
    """Return, for each node, the share of requests for which it is unknown where they leave the path to the node.

    A request leaves the path when it ends or takes another branch.
    """
    trie, arms, size = cells.trie, predicted.arms, len(cells.trie)
    stops = np.bincount(cells.node[cells.stop], minlength=size).astype(np.float64)
    known = np.flatnonzero(cells.arm >= 0)
    took = np.zeros(len(arms))
    if len(known):
        took += np.bincount(arms.find(cells.node[known], cells.arm[known]), minlength=len(arms))
    if arms.count[0] > 1:
        took += np.bincount(arms.find(np.zeros(cells.n_requests, np.int64), cells.first_stage), minlength=len(arms))
    left = (np.bincount(arms.source, took, size)[arms.source] - took)[arms.of_node]
    left[0] = 0.0
    known_end = trie.accumulate(stops + left) + (cells.count - stops)
    return np.clip(1.0 - known_end / cells.n_requests, 0.0, 1.0)
