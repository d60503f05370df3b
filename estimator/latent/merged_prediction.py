"""Predicts rates of a merged trie's nodes by the latent model, as means over the merged histories.

The means assume that models are chosen as in the profile.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vinelm.estimator.arms import Arms, arms_of
from vinelm.estimator.cost_latency import MeanEstimate
from vinelm.estimator.latent.em import LatentFit, OutcomeProbabilities
from vinelm.estimator.latent.logistic_regression import Regression, sigmoid
from vinelm.estimator.latent.standard_errors import StandardErrors
from vinelm.estimator.observation_table import ObservationTable
from vinelm.estimator.outcome_rates import ArmRates, Rates
from vinelm.trie import MergedTrie
from vinelm.trie.arrays import BoolArray, FloatArray
from vinelm.trie.difficulty import DifficultyRates

TINY = 1e-12
LARGEST_SHIFT = 3.0
PSEUDO_ROWS = 20.0
"""The number of pseudo-results of a uniform choice of models that are added to the results of each stage."""
SQUARE_ROOT_BLOCK = 4096


@dataclass(frozen=True, eq=False)
class MergedRates:
    """The rates (probabilities of stops and right answers) at every node of a trie whose nodes stand for several call
    sequences.

    Arrays have shape (nodes,) unless another shape is given.

    Args:
        rates: the rates among requests that reach the node in the profile.
        arm_rates: probability of each edge's branch, shape (edges,).
        by_difficulty: the rates for requests of each difficulty.
        success_se: standard error of ``rates.success``, given ``mix``. Its sources are the posterior of the model's effects and
            the sample of requests. It ignores effects that the features do not model.
        mix: share of each difficulty among the requests that reach each node, shape (nodes, points).
    """

    rates: Rates
    arm_rates: ArmRates
    by_difficulty: DifficultyRates
    success_se: FloatArray
    mix: FloatArray

    def errors(self, cost_usd: MeanEstimate, latency_s: MeanEstimate) -> StandardErrors:
        """Return the standard errors of the rates, costs and latencies of one call at each node."""
        cost_se, latency_se = (
            np.asarray(np.sqrt(amount.mean_var + amount.along**2 + amount.mean**2 * amount.shared))
            for amount in (cost_usd, latency_s)
        )
        return StandardErrors(self.success_se, cost_se, latency_se, arm=None)


def predict_merged(cells: ObservationTable, trie: MergedTrie, fit: LatentFit) -> MergedRates:
    """Propagate the requests' difficulties along the edges, and return the mean rates at each node.

    A node represents many histories, of which few were observed. So observations do not replace predictions here. Instead, a
    node's results shift its predicted probabilities. The shift is shrunk towards 0, more strongly if shifts vary little between
    nodes. At nodes that are deeper in a loop than all results of their stage, no answer counts as right, because no data show
    whether further turns still help.
    """
    probabilities = _with_node_effects(cells, fit)
    probabilities.right[_beyond_rows(cells, trie)] = 0.0
    arms, stop, start = arms_of(trie), probabilities.stop, fit.posterior.mean(axis=0)
    arm, arm_right = _arms(fit, arms, probabilities)
    mass = _masses(trie, start, arm[trie.edge_arm], _choice_shares(cells, trie))
    reached = mass.sum(axis=1)
    mix = (mass + TINY * start) / (reached + TINY * start.sum())[:, None]
    stop_success = probabilities.right * probabilities.stop_if_right
    stopping, right = (mix * stop).sum(axis=1), (mix * probabilities.right).sum(axis=1)
    right_stop = (mix * stop_success).sum(axis=1)
    rates = Rates.of(
        trie, stopping, right_stop / np.maximum(stopping, 1e-300), (right - right_stop) / np.maximum(1.0 - stopping, 1e-300)
    )
    errors = _success_errors(cells, fit, probabilities, mix)
    for values in (probabilities.right, stop, stop_success):
        values[0] = 0.0
    known_arms = (None, None) if trie.is_linear else (arm, arm_right)
    by_difficulty = DifficultyRates(start, probabilities.right, stop, stop_success, *known_arms)
    took, took_right = ((mix[arms.source] * each).sum(axis=1) for each in (arm, arm_right))
    arm_rates = ArmRates.of(trie, arms, rates, took, took_right)
    return MergedRates(rates, arm_rates, by_difficulty, errors, mix)


def _beyond_rows(cells: ObservationTable, trie: MergedTrie) -> BoolArray:
    """Return a mask of the nodes whose depth exceeds that of every recorded result at their stage, shape (nodes,)."""
    deepest = np.zeros(len(trie.stages), np.int64)
    np.maximum.at(deepest, trie.stage[cells.node], trie.depth[cells.node])
    beyond: BoolArray = trie.depth > deepest[trie.stage]
    beyond[0] = False
    return beyond


def _arms(fit: LatentFit, arms: Arms, probabilities: OutcomeProbabilities) -> tuple[FloatArray, FloatArray]:
    """Return P(branch is taken) and P(branch is taken and the answer so far is right) for requests at the branch's node.

    Both have the shape (branches, points). A point is a grid point of the request's difficulty.
    """
    shares, source = fit.shares(arms), arms.source
    on_right, on_wrong = probabilities.on_right, probabilities.on_wrong
    on_right[0], on_wrong[0] = 0.0, 1.0  # the root is not an invocation: nothing was fitted there, and no request ends there
    took_right = on_right[source] * shares.if_right
    return took_right + on_wrong[source] * shares.if_wrong, took_right


def _choice_shares(cells: ObservationTable, trie: MergedTrie) -> FloatArray:
    """Return for each edge how often its model is chosen at its stage, shape (edges,).

    This is the model's share of the results of the stage, shrunk towards a uniform choice. Shares of edges with the same source
    and stage sum to 1.
    """
    n_models = len(trie.models)
    kind = trie.stage.astype(np.int64) * n_models + trie.model
    rows = np.bincount(kind[cells.node], minlength=len(trie.stages) * n_models).astype(np.float64)
    of_edge, arm = kind[trie.target], trie.edge_arm
    n_options = np.bincount(arm)[arm]
    weight = rows[of_edge] + PSEUDO_ROWS / n_options
    return np.asarray(weight / np.bincount(arm, weight)[arm])


def _masses(trie: MergedTrie, start: FloatArray, arm: FloatArray, share: FloatArray) -> FloatArray:
    """Return the expected share of all requests that reach each node, by latent difficulty; shape (nodes, points).

    It assumes that models are chosen as often as in the profile.

    Args:
        trie: the trie.
        start: the share of each grid point at the root, shape (points,).
        arm: the part of the requests at an edge's source that takes the edge's branch, shape (edges, points).
        share: each edge's share within its branch, shape (edges,).
    """
    mass = np.zeros((len(trie), len(start)))
    mass[0] = start
    for depth, edges in enumerate(trie.edge_levels):
        part = mass[trie.source[edges]] * arm[edges] * share[edges, None]
        first, size = int(trie.levels[depth + 1][0]), len(trie.levels[depth + 1])
        for point in range(len(start)):
            mass[first : first + size, point] = np.bincount(trie.target[edges] - first, part[:, point], size)
    return mass


def _with_node_effects(cells: ObservationTable, fit: LatentFit) -> OutcomeProbabilities:
    """Return the fitted probabilities, with each node's logits shifted towards the outcomes of the node's results.

    The fit alone cannot do this, because the latent model has no feature for a single node.
    """
    fitted = fit.probabilities
    weight, stop = fit.posterior[cells.request], cells.stop[:, None]
    right, wrong = weight * fit.belief, weight * (1.0 - fit.belief)
    answerable = cells.trie.answerable[cells.node][:, None]
    moved = [
        _moved(cells, probability, regression, yes, asked)
        for probability, regression, yes, asked in (
            (fitted.right, fit.regressions[0], right, weight * answerable),
            (fitted.stop_if_right, fit.regressions[1], right * stop, right),
            (fitted.stop_if_wrong, fit.regressions[2], wrong * stop, wrong),
        )
    ]
    return OutcomeProbabilities(moved[0] * cells.trie.answerable[:, None], moved[1], moved[2])


def _moved(
    cells: ObservationTable, probability: FloatArray, regression: Regression | None, yes: FloatArray, asked: FloatArray
) -> FloatArray:
    """Return ``probability`` with the logit of each node shifted towards the share of "yes" in the node's results.

    The shifts have a normal prior. Its variance is the part of the variance between nodes that chance does not explain.
    Without a regression, ``probability`` is returned unchanged.

    Args:
        cells: the results.
        probability: P(yes) at each node, shape (nodes, points).
        regression: the fitted regression of a yes/no question; None for a question with a certain answer.
        yes: the expected number of "yes" of each result, shape (results, points).
        asked: the expected number of "yes" and "no" of each result, shape (results, points).
    """
    if regression is None:
        return probability
    size, expected = len(cells.trie), probability[cells.node]
    off = np.bincount(cells.node, (yes - asked * expected).sum(axis=1), size)
    information = np.bincount(cells.node, (asked * expected * (1.0 - expected)).sum(axis=1), size)
    variance = float((off**2 - information).sum()) / max(float((information**2).sum()), 1e-9)
    if variance <= 1e-6:
        return probability
    shift = np.clip(off / (information + 1.0 / variance), -LARGEST_SHIFT, LARGEST_SHIFT)
    inner = np.clip(probability, TINY, 1.0 - TINY)
    return np.where(shift[:, None] == 0.0, probability, sigmoid(np.log(inner / (1.0 - inner)) + shift[:, None]))


def _success_errors(
    cells: ObservationTable, fit: LatentFit, probabilities: OutcomeProbabilities, mix: FloatArray
) -> FloatArray:
    regression = fit.regressions[0]
    success = (mix * probabilities.right).sum(axis=1)
    shrunk = (success * cells.n_requests + 1.0) / (cells.n_requests + 2.0)
    variance = shrunk * (1.0 - shrunk) / cells.n_requests
    if regression is not None:
        steep = mix * probabilities.right * (1.0 - probabilities.right)
        root = np.asarray(np.linalg.cholesky(regression.covariance), dtype=np.float64)
        n_effects = regression.features.design.shape[1]
        for first in range(0, len(success), SQUARE_ROOT_BLOCK):
            part = slice(first, first + SQUARE_ROOT_BLOCK)
            level = regression.features.design[part] @ root[:n_effects]
            slope = regression.features.slope[part] @ root[n_effects:]
            gradient = steep[part].sum(axis=1)[:, None] * level + (steep[part] @ fit.grid)[:, None] * slope
            variance[part] += np.einsum("ij,ij->i", gradient, gradient)
    error = np.sqrt(variance)
    error[~cells.trie.answerable] = 0.0
    return np.asarray(error)
