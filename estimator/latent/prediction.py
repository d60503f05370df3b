"""Predicts unobserved outcomes and branches by the latent model; observed outcomes stay as they are.

So the rates of every node are over *all* requests, observed or not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import sparse

from vinelm.estimator.arms import Arms, arms_of
from vinelm.estimator.latent.arm_model import ChoiceProbabilities
from vinelm.estimator.latent.em import LatentFit
from vinelm.estimator.observation_table import ObservationTable
from vinelm.estimator.outcome_rates import ArmRates, Rates
from vinelm.trie.arrays import FloatArray

Ints = npt.NDArray[np.int64]
TINY = 1e-9
"""Pseudo-requests with the predicted rates, so that nodes that no request reaches have finite rates."""


@dataclass(frozen=True, eq=False)
class PredictedRates:
    """Predicted rates of every node; arrays have shape (nodes,) or (nodes, points). A point is a value of the latent
    difficulty.

    Args:
        rates: the probabilities that a request stops and that its answer is right, over observed and unobserved requests.
        arm_rates: probabilities of the branches, per node.
        reaching: expected number of requests that reach the node, including the ``cells.count`` observed requests.
        unseen: expected number of unobserved requests that reach the node, by difficulty; shape (nodes, points).
        mean_difficulty: mean latent difficulty of all requests that reach the node, observed or not.
        arms: the branches.
        shares: P(branch | continues) of each branch.
        on_right: expected number of unobserved requests that continue with a right answer, shape (nodes, points).
        on_wrong: expected number of unobserved requests that continue with a wrong answer; same shape.
    """

    rates: Rates
    arm_rates: ArmRates
    reaching: FloatArray
    unseen: FloatArray
    mean_difficulty: FloatArray
    arms: Arms
    shares: ChoiceProbabilities
    on_right: FloatArray
    on_wrong: FloatArray


def predict_rates(cells: ObservationTable, fit: LatentFit) -> PredictedRates:
    """Return the expected rates of every node, by following all requests down the paths and branches of the trie.

    A request with a result at a node reaches it. There it is divided over the grid points of the difficulty by P(grid point |
    all its results). If it continues, it counts on the branch that it took or, if this is unknown, on the predicted branches.
    Other requests reach a node with the predicted probabilities.
    """
    trie, probabilities = cells.trie, fit.probabilities
    arms = arms_of(trie)
    shares = fit.shares(arms)
    on_right, on_wrong = probabilities.on_right, probabilities.on_wrong
    seen = _sums(cells.node, fit.posterior[cells.request], len(trie))
    seen_arm, seen_arm_right = _seen_arms(cells, fit, arms, shares)
    arriving = np.zeros_like(seen)
    arriving[0] = seen[0] = fit.posterior.sum(axis=0)
    for level in trie.levels[1:]:
        arm = arms.of_node[level]
        up = arms.source[arm]
        unseen = np.maximum(arriving[up] - seen[up], 0.0)
        arriving[level] = unseen * (on_right[up] * shares.if_right[arm] + on_wrong[up] * shares.if_wrong[arm]) + seen_arm[arm]
        if not up.any():
            arriving[level] += cells.kinds.further(seen_arm[arm], arriving[0])
    unseen = np.maximum(arriving - seen, 0.0) + TINY * fit.posterior.mean(axis=0)
    rates, reaching = _rates_of(cells, fit, unseen, seen)
    took_right = (unseen * on_right)[arms.source] * shares.if_right
    took = took_right + (unseen * on_wrong)[arms.source] * shares.if_wrong
    at_source = reaching[arms.source]
    return PredictedRates(
        rates=rates,
        arm_rates=ArmRates.of(
            trie, arms, rates, (took + seen_arm).sum(axis=1) / at_source, (took_right + seen_arm_right).sum(axis=1) / at_source
        ),
        reaching=reaching,
        unseen=unseen,
        mean_difficulty=(unseen + seen) @ fit.grid / reaching,
        arms=arms,
        shares=shares,
        on_right=unseen * on_right,
        on_wrong=unseen * on_wrong,
    )


def _rates_of(cells: ObservationTable, fit: LatentFit, unseen: FloatArray, seen: FloatArray) -> tuple[Rates, FloatArray]:
    """Return each node's rates of stops and of right answers, and the number of requests that reach the node.

    Both cover observed requests, and unobserved requests with their expected outcomes.

    Args:
        cells: The observed results.
        fit: The latent model.
        unseen: The number of unobserved requests of each latent difficulty that reach each node, shape (nodes, points).
        seen: The number of observed requests, in the same form.
    """
    probabilities, stopped, size = fit.probabilities, cells.stop, len(cells.trie)
    stop, right = probabilities.stop, probabilities.right
    seen_stop = _sums(cells.node[stopped], fit.posterior[cells.request[stopped]], size)
    stopping = (unseen * stop + seen_stop).sum(axis=1)
    going_on = (unseen * (1.0 - stop) + seen - seen_stop).sum(axis=1)
    reaching = stopping + going_on
    seen_right = (fit.posterior[cells.request] * fit.belief).sum(axis=1)
    right_stop = (unseen * right * probabilities.stop_if_right).sum(axis=1)
    right_stop += np.bincount(cells.node[stopped], seen_right[stopped], size)
    right_on = (unseen * probabilities.on_right).sum(axis=1) + np.bincount(cells.node[~stopped], seen_right[~stopped], size)
    rates = Rates.of(
        cells.trie, stopping / reaching, right_stop / np.maximum(stopping, 1e-300), right_on / np.maximum(going_on, 1e-300)
    )
    return rates, reaching


def _seen_arms(
    cells: ObservationTable, fit: LatentFit, arms: Arms, shares: ChoiceProbabilities
) -> tuple[FloatArray, FloatArray]:
    """Return, for each branch, how many observed requests took it, and how many of those had a right answer.

    Both arrays have the shape (branches, points), where a point is a latent difficulty. If it is unknown which branch a request
    took, the request counts on each branch with the probability in ``shares``.
    """
    goes_on = ~cells.stop & (arms.count[cells.node] > 0)
    weight, belief = fit.posterior[cells.request], fit.belief * np.ones(len(fit.grid))
    known = np.flatnonzero(goes_on & (cells.arm >= 0))
    arm = arms.find(cells.node[known], cells.arm[known]) if len(known) else known
    total = _sums(arm, weight[known], len(arms))
    right = _sums(arm, weight[known] * belief[known], len(arms))
    unknown = np.flatnonzero(goes_on & (cells.arm < 0))
    for order in range(int(arms.count.max(initial=0)) if len(unknown) else 0):
        here = unknown[arms.count[cells.node[unknown]] > order]
        arm = arms.first[cells.node[here]] + order
        is_right = weight[here] * belief[here] * shares.if_right[arm]
        total += _sums(arm, is_right + weight[here] * (1.0 - belief[here]) * shares.if_wrong[arm], len(arms))
        right += _sums(arm, is_right, len(arms))
    if arms.count[0] > 1:
        total += _sums(arms.find(np.zeros(cells.n_requests, np.int64), cells.first_stage), fit.posterior, len(arms))
    elif arms.count[0] == 1:
        total[arms.first[0]] += fit.posterior.sum(axis=0)
    return total, right


def _sums(of: Ints, values: FloatArray, size: int) -> FloatArray:
    """Return the sums of the rows of ``values`` that have the same index in ``of``; shape (size, points).

    Row i of the result is the sum for index i; indices are below ``size``.
    """
    rows = np.arange(len(of))
    return np.asarray(sparse.csr_array((np.ones(len(of)), (of, rows)), shape=(size, len(of))) @ values, dtype=np.float64)
