"""Standard errors on tries that branch: the delta method along every path, with the arms that it takes.

The accuracy of a path is here the probability of ending on it, or before it on a shared part, with a correct answer; plans add
up the masses of the paths where they end (docs/mathematics.md#arms). With L the derivative of log P(arm) by a logit of the node
that is left, and B the mass of correct answers that ended before, the derivatives of A(u) along effects x_j are

- reach_j db_j for proper ancestors j, and reach_u da_u for u itself, as on linear tries;
- (A(u) - B_j) L_j for every step from an ancestor j down to u, including those of the regression of the arms.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from vinelm.estimator.cost_latency import MeanEstimate
from vinelm.estimator.latent.arm_model import ArmModel
from vinelm.estimator.latent.arm_prediction import PredictedArms
from vinelm.estimator.latent.em import LatentFit
from vinelm.estimator.latent.features import Matrix
from vinelm.estimator.latent.logistic_regression import Regression
from vinelm.estimator.latent.standard_errors import (
    ACCURACY_SCALE,
    COST_SCALE,
    LATENCY_SCALE,
    StandardErrors,
    above,
    amount_variances,
    design_rows,
)
from vinelm.estimator.observation_table import ObservationTable
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.arrays import FloatArray

TINY = 1e-9
ARM_SCALE = 1.0
"""Factor on the standard errors of arms (see ``standard_errors.ACCURACY_SCALE``)."""


@dataclass(frozen=True, eq=False)
class ArmStandardErrors:
    """Standard errors of the path metrics, and of each node's ``arm``, shape (n + 1,)."""

    paths: StandardErrors
    arm: FloatArray


def arm_standard_errors(
    cells: ObservationTable,
    fit: LatentFit,
    predicted: PredictedArms,
    annotated: AnnotatedTrie,
    *,
    cost_usd: MeanEstimate,
    latency_s: MeanEstimate,
) -> ArmStandardErrors:
    """Return the standard errors for *further requests of the same kind* (see the module's text).

    Args:
        cells: the observations.
        fit: the latent model fitted to them.
        predicted: its predicted rates and arms.
        annotated: the trie with these.
        cost_usd: estimate of the dollars per invocation.
        latency_s: estimate of the seconds per invocation at zero load.
    """
    trie, n = cells.trie, cells.n_requests
    shrunk = (annotated.accuracy * n + 1.0) / (n + 2.0)  # 0 or 1 observed is not certainty
    accuracy_var = shrunk * (1.0 - shrunk) / n * (1.0 + _unknown(cells, predicted))
    cost_var, latency_var = amount_variances(annotated, cost_usd, latency_s)
    arm_var = _arm_sampling(predicted, annotated)
    for question in _questions(fit, predicted, annotated):
        for part, rows, entry in _parts(trie, question, predicted):
            gradient = _moved(trie, part, entry, annotated.accuracy, question.ended)
            if rows is not None:
                gradient += question.own[part, None] * rows + above(trie, part, question.through[part, None] * rows)
            accuracy_var[part] += _squares(gradient)
            cost_var[part] += _squares(_moved(trie, part, entry, annotated.path_cost_usd, annotated.path_cost_usd))
            arm_var[part] += predicted.rates.arm[part] ** 2 * _squares(entry)
    arm_var[0] = 0.0
    paths = StandardErrors(
        ACCURACY_SCALE * np.sqrt(accuracy_var), COST_SCALE * np.sqrt(cost_var), LATENCY_SCALE * np.sqrt(latency_var)
    )
    return ArmStandardErrors(paths, _of_arms(predicted, ARM_SCALE * np.sqrt(arm_var)))


# -- questions -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Question:
    """A regression and what its logits move; arrays have shape (n + 1,).

    ``step``: the derivative of log P(arm into the node) by the logit at the parent, or, for the regression of the arms, by its
    coefficients (effects and slopes, one row per arm). ``through`` and ``own``: derivatives of the mass of correct answers that
    end at an ancestor, and at the node itself. ``ended``: the mass of correct answers that ended up to a node.
    """

    regression: Regression
    step: FloatArray | tuple[Matrix, Matrix]
    through: FloatArray
    own: FloatArray
    ended: FloatArray


def _questions(fit: LatentFit, predicted: PredictedArms, annotated: AnnotatedTrie) -> Iterator[_Question]:
    reach = annotated.reach
    ended = annotated.trie.accumulate(reach * annotated.stop_success)
    steps = _steps(fit, predicted)
    for regression, moves, step in zip(fit.regressions, predicted.base.sensitivity, steps, strict=True):
        if regression is not None:
            yield _Question(regression, step, reach * moves.stop_success, reach * moves.success, ended)
    if fit.arms is not None:
        nothing = np.zeros(len(reach))
        yield _Question(fit.arms.regression, _choice_steps(fit.arms, predicted), nothing, nothing, ended)


def _steps(fit: LatentFit, predicted: PredictedArms) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Derivatives of log P(arm into each node) by the logits of right, stop if right and stop if wrong at its parent."""
    up, going = predicted.arms.source, predicted.unobserved
    share = going.mass[up] / np.maximum(predicted.base.reaching[up], TINY)[:, None]
    found = fit.probabilities
    right, if_right, if_wrong = found.right[up], found.stop_if_right[up], found.stop_if_wrong[up]
    took_right, took_wrong = going.shares.if_right, going.shares.if_wrong
    of_arms = (
        share * right * (1.0 - right) * ((1.0 - if_right) * took_right - (1.0 - if_wrong) * took_wrong),
        -share * right * if_right * (1.0 - if_right) * took_right,
        -share * (1.0 - right) * if_wrong * (1.0 - if_wrong) * took_wrong,
    )
    arm = predicted.rates.arm
    first, second, third = (_of_nodes(predicted, moved.sum(axis=1)) / np.maximum(arm, TINY) for moved in of_arms)
    return first, second, third


def _choice_steps(model: ArmModel, predicted: PredictedArms) -> tuple[Matrix, Matrix]:
    """Derivatives of log P(arm) by the effects and the slopes of the regression of the arms; one row per arm each."""
    arms, questions, going = predicted.arms, model.questions, predicted.unobserved
    probability = model.regression.probabilities()
    chosen = np.flatnonzero(arms.is_choice[arms.source])
    reaching = np.maximum(predicted.base.reaching[arms.source], TINY)
    weight = 1.0 / (reaching * np.maximum(_of_each_arm(predicted), TINY))
    values, rows, columns = [], [], []
    for is_right, mass, share in ((0, going.wrong, going.shares.if_wrong), (1, going.right, going.shares.if_right)):
        for order in range(questions.most_arms - 1):
            asked = chosen[(arms.order[chosen] >= order) & (arms.count[arms.source[chosen]] - 1 > order)]
            row = questions.row(arms.source[asked], order, is_right)
            taken = (arms.order[asked] == order)[:, None]
            moved = mass[arms.source[asked]] * share[asked] * (taken - probability[row])
            values.append(moved.sum(axis=1) * weight[asked])
            rows.append(asked)
            columns.append(row)
    shape = (len(arms), len(questions.node))
    factor = sparse.csr_array((np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), shape=shape)
    difficulty = predicted.base.mean_difficulty[questions.node]
    features = model.regression.features
    return factor @ features.design, factor @ (sparse.diags_array(difficulty) @ features.slope)


# -- gradients -------------------------------------------------------------------------------------------------


def _parts(trie: Trie, question: _Question, predicted: PredictedArms) -> Iterator[tuple[slice, FloatArray | None, FloatArray]]:
    """Yield (nodes, their design rows, gradients of the log P(arm) into each), times a root of the covariance.

    One subtree of the root at a time, which bounds the memory. The rows are None for the regression of the arms.
    """
    basis = np.asarray(np.linalg.cholesky(question.regression.covariance), dtype=np.float64)
    for child in trie.children(0):
        part = trie.subtree(child)
        if isinstance(question.step, tuple):
            effects, slopes = (matrix[predicted.arms.of_node[part]] for matrix in question.step)
            n_effects = effects.shape[1]
            yield part, None, np.asarray(effects @ basis[:n_effects] + slopes @ basis[n_effects:], dtype=np.float64)
            continue
        rows = design_rows(question.regression, predicted.base, part, basis)
        up = trie.parent[part] - part.start
        entry = np.where(up[:, None] >= 0, rows[np.maximum(up, 0)], 0.0) * question.step[part, None]
        yield part, rows, entry


def _moved(trie: Trie, part: slice, entry: FloatArray, metric: FloatArray, before: FloatArray) -> FloatArray:
    """Change of a path metric by the arms of its path: each step moves what comes after it."""
    passed = before[np.maximum(trie.parent[part], 0)]
    total = metric[part, None] * (above(trie, part, entry) + entry)
    passing = passed[:, None] * entry
    return np.asarray(total - above(trie, part, passing) - passing)


def _squares(gradient: FloatArray) -> FloatArray:
    return np.asarray(np.einsum("ij,ij->i", gradient, gradient), dtype=np.float64)


# -- sampling --------------------------------------------------------------------------------------------------


def _arm_sampling(predicted: PredictedArms, annotated: AnnotatedTrie) -> FloatArray:
    """Variance of each arm by the sample of requests that reach its node."""
    up = np.maximum(annotated.trie.parent, 0)
    reaching = np.maximum(predicted.base.reaching[up], 1.0)
    shrunk = (predicted.rates.arm * reaching + 1.0) / (reaching + 2.0)
    unknown = predicted.unobserved.mass.sum(axis=1)[up] / np.maximum(predicted.base.reaching[up], TINY)
    return np.asarray(shrunk * (1.0 - shrunk) / reaching * (1.0 + np.clip(unknown, 0.0, 1.0)))


def _unknown(cells: ObservationTable, predicted: PredictedArms) -> FloatArray:
    """Share of the requests whose outcome on each path was not observed: at its end, by an earlier stop, or by another arm."""
    trie, arms, size = cells.trie, predicted.arms, len(cells.trie)
    stops = np.bincount(cells.node[cells.stop], minlength=size).astype(np.float64)
    known = np.flatnonzero(cells.arm >= 0)
    took = np.zeros(len(arms))
    if len(known):
        took += np.bincount(arms.find(cells.node[known], cells.arm[known]), minlength=len(arms))
    if arms.count[0] > 1:
        took += np.bincount(arms.find(np.zeros(cells.n_requests, np.int64), cells.first_stage), minlength=len(arms))
    left = np.bincount(arms.source, took, size)[arms.source] - took
    known_end = trie.accumulate(stops + _of_nodes(predicted, left)) + (cells.count - stops)
    return np.clip(1.0 - known_end / cells.n_requests, 0.0, 1.0)


def _of_nodes(predicted: PredictedArms, of_arms: FloatArray) -> FloatArray:
    """The value of the arm that leads to each node, 0 at the root."""
    found = of_arms[np.maximum(predicted.arms.of_node, 0)]
    found[0] = 0.0
    return found


def _of_each_arm(predicted: PredictedArms) -> FloatArray:
    """P(arm) of each arm, shape (arms,)."""
    found = np.zeros(len(predicted.arms))
    found[predicted.arms.of_node[1:]] = predicted.rates.arm[1:]
    return found


def _of_arms(predicted: PredictedArms, errors: FloatArray) -> FloatArray:
    """The same standard error for all nodes of an arm, to the last bit."""
    of_arm = np.zeros(len(predicted.arms))
    of_arm[predicted.arms.of_node[1:]] = errors[1:]
    return _of_nodes(predicted, of_arm)
