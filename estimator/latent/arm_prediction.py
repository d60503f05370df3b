"""Predict the rates and arms of a trie that branches: observed outcomes and arms as they are, the rest by the latent model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vinelm.estimator.arms import Arms, arms_of
from vinelm.estimator.latent.arm_model import ChoiceProbabilities
from vinelm.estimator.latent.em import LatentFit
from vinelm.estimator.latent.prediction import TINY, PredictedRates, by_node, rates_of
from vinelm.estimator.observation_table import ObservationTable
from vinelm.estimator.outcome_rates import ArmRates
from vinelm.trie.arrays import FloatArray

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Unobserved:
    """The latent model's predictions for the requests that reach a node and were not observed there.

    Args:
        mass: their expected number at each node, shape (n + 1, points).
        right: of them, those that go on with a right answer; same shape.
        wrong: those that go on with a wrong one.
        shares: P(arm | goes on) of each arm.
    """

    mass: FloatArray
    right: FloatArray
    wrong: FloatArray
    shares: ChoiceProbabilities


@dataclass(frozen=True, eq=False)
class PredictedArms:
    """Predictions for a trie that branches.

    Args:
        base: rates, reaching requests and sensitivities, as on a linear trie.
        rates: probabilities of the arms, per node.
        arms: the arms.
        unobserved: the predicted part.
    """

    base: PredictedRates
    rates: ArmRates
    arms: Arms
    unobserved: Unobserved


def predict_arms(cells: ObservationTable, fit: LatentFit) -> PredictedArms:
    """Propagate every request down every path and every arm.

    As in :func:`~vinelm.estimator.latent.prediction.predict_rates`, a request that was observed at a node certainly reaches it.
    One that goes on counts with the arm that it took, and with the predicted arms where the arm is not known.
    """
    trie, probabilities = cells.trie, fit.probabilities
    arms = arms_of(trie)
    shares = _shares(arms, fit)
    right, wrong = probabilities.right, 1.0 - probabilities.right
    on_right, on_wrong = right * (1.0 - probabilities.stop_if_right), wrong * (1.0 - probabilities.stop_if_wrong)
    seen, seen_stop = by_node(cells, fit.posterior), by_node(cells, fit.posterior, cells.stop)
    seen_arm, seen_arm_right = _seen_arms(cells, fit, arms, shares)
    arriving = np.zeros_like(seen)
    arriving[0] = seen[0] = fit.posterior.sum(axis=0)
    for level in trie.levels[1:]:
        arm = arms.of_node[level]
        up = arms.source[arm]
        unseen = np.maximum(arriving[up] - seen[up], 0.0)
        arriving[level] = unseen * (on_right[up] * shares.if_right[arm] + on_wrong[up] * shares.if_wrong[arm]) + seen_arm[arm]
    unseen = np.maximum(arriving - seen, 0.0) + TINY * fit.posterior.mean(axis=0)
    going = Unobserved(unseen, unseen * on_right, unseen * on_wrong, shares)
    base = rates_of(cells, fit, unseen=unseen, seen=seen, seen_stop=seen_stop)
    reaching = base.reaching[arms.source]
    took_right = going.right[arms.source] * shares.if_right
    took = took_right + going.wrong[arms.source] * shares.if_wrong
    rates = ArmRates.of(
        arms, base.rates, (took + seen_arm).sum(axis=1) / reaching, (took_right + seen_arm_right).sum(axis=1) / reaching
    )
    return PredictedArms(base, rates, arms, going)


def _shares(arms: Arms, fit: LatentFit) -> ChoiceProbabilities:
    if fit.arms is not None:
        return fit.arms.shares()
    certain = np.ones((len(arms), len(fit.grid)))
    return ChoiceProbabilities(certain, certain)


def _seen_arms(
    cells: ObservationTable, fit: LatentFit, arms: Arms, shares: ChoiceProbabilities
) -> tuple[FloatArray, FloatArray]:
    """Observed requests that took each arm, and those of them with a right answer; shape (arms, points) each."""
    total, right = np.zeros((2, len(arms), len(fit.grid)))
    goes_on = ~cells.stop & (arms.count[cells.node] > 0)
    weight, belief = fit.posterior[cells.request], fit.belief * np.ones(len(fit.grid))
    known = np.flatnonzero(goes_on & (cells.arm >= 0))
    arm = arms.find(cells.node[known], cells.arm[known]) if len(known) else known
    np.add.at(total, arm, weight[known])
    np.add.at(right, arm, weight[known] * belief[known])
    unknown = np.flatnonzero(goes_on & (cells.arm < 0))
    for order in range(int(arms.count.max(initial=0))):
        here = unknown[arms.count[cells.node[unknown]] > order]
        arm = arms.first[cells.node[here]] + order
        is_right = weight[here] * belief[here] * shares.if_right[arm]
        np.add.at(total, arm, is_right + weight[here] * (1.0 - belief[here]) * shares.if_wrong[arm])
        np.add.at(right, arm, is_right)
    if arms.count[0] > 1:
        np.add.at(total, arms.find(np.zeros(cells.n_requests, np.int64), cells.first_stage), fit.posterior)
    elif arms.count[0] == 1:
        total[arms.first[0]] += fit.posterior.sum(axis=0)
    return total, right
