"""Which nodes narrow the paths' accuracies most per dollar: Bayesian A-optimal design on the latent model of paths.

With C the covariance of the effects, B the sum of the paths' weighted squared gradients, x the design row of a node and
w = p (1 - p) there, one more answer reduces the weighted variance by w x'CBCx / (1 + w x'Cx). This is Neyman allocation if
nodes share no effects. Deep nodes are reached through requests whose prefix is already paid for, so that they cost one cell.
Nodes are drawn in proportion to their gain per dollar: always to take the best one would trust the model too much.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from vinelm.annotated_trie import AnnotatedTrie
from vinelm.catalog import Catalog
from vinelm.estimator.latent.em import LatentFit, fit_latent
from vinelm.estimator.latent.prediction import PredictedRates, predict_rates
from vinelm.estimator.latent.standard_errors import design_rows, gradients, path_weights
from vinelm.estimator.observation_table import ObservationTable
from vinelm.estimator.sampling.candidate_cells import CandidateCells
from vinelm.estimator.sampling.draws import DrawnNode, draw_index
from vinelm.estimator.sampling.goal import Goal
from vinelm.template import Template
from vinelm.trie import FloatArray

PORTIONS = 16
"""Portions per round; gains are recomputed for each portion."""


@dataclass(eq=False)
class QuestionDesign:
    """The design problem of one question: design rows, posterior covariance, and the paths' weighted squared gradients.

    Args:
        rows: Design row of each node, shape (n + 1, effects).
        covariance: Of the effects, shape (effects, effects).
        target: Sum of the paths' weighted squared gradients, same shape.
        weight: Expected information of one more run at each node: P(it is asked) p (1 - p), shape (n + 1,).
    """

    rows: FloatArray
    covariance: FloatArray
    target: FloatArray
    weight: FloatArray

    def gain(self) -> FloatArray:
        """Reduction of variance by one more run at each node, summed over the weighted paths; shape (n + 1,)."""
        spread = self.rows @ self.covariance
        own = np.einsum("ij,ij->i", spread, self.rows)
        reward = np.einsum("ij,ij->i", spread @ self.target, spread)
        return np.asarray(self.weight * reward / (1.0 + self.weight * own))

    def condition(self, node: int, n: int) -> None:
        """Update the covariance for ``n`` more runs at the node (Sherman-Morrison)."""
        spread = self.covariance @ self.rows[node]
        information = n * float(self.weight[node])
        shrink = information / (1.0 + information * float(self.rows[node] @ spread))
        self.covariance = self.covariance - shrink * np.outer(spread, spread)


class PathDesign:
    """The design problems of all questions (:class:`~vinelm.estimator.sampling.draws.NodeSource`).

    Args:
        questions: The problems.
        cost_usd: Expected dollars of one more run at each node, > 0, shape (n + 1,).
        portion: Draws after which the gains are recomputed.
    """

    def __init__(self, questions: list[QuestionDesign], cost_usd: FloatArray, portion: int) -> None:
        self._questions, self._cost_usd, self._portion = questions, cost_usd, portion
        self._weights = np.zeros(len(cost_usd))
        self._drawn: dict[int, int] = {}
        self._last: int | None = None

    @classmethod
    def of(cls, cells: ObservationTable, template: Template, catalog: Catalog, goal: Goal, cost_usd: FloatArray) -> PathDesign:
        """Fit the latent model to the rows; ``cost_usd`` as above."""
        fit = fit_latent(cells, n_points=7 if cells.n_requests >= 100 else 1, iterations=15)
        predicted = predict_rates(cells, fit)
        rates, trie = predicted.rates, cells.trie
        zero = np.zeros(len(trie))
        annotated = AnnotatedTrie(
            trie=trie, template=template, catalog=catalog, success=rates.success, stop=rates.stop,
            stop_success=rates.stop_success, cost_usd=cost_usd, cost_var=zero, latency_s=zero, latency_var=zero,
        )  # fmt: skip
        right, wrong = rates.success, 1.0 - rates.success
        accepted = rates.stop_success / np.maximum(right, 1e-12)
        given_up = np.clip((rates.stop - rates.stop_success) / np.maximum(wrong, 1e-12), 0.0, 1.0)
        weights = [right * wrong, right * accepted * (1.0 - accepted), wrong * given_up * (1.0 - given_up)]
        return cls(_questions(fit, predicted, annotated, weights, goal), cost_usd, max(1, len(cells) // PORTIONS))

    def draw(self, candidates: CandidateCells, rng: random.Random) -> DrawnNode | None:
        """See :meth:`~vinelm.estimator.sampling.draws.NodeSource.draw`."""
        if self._last is not None and not candidates.is_open(self._last):
            self._weights[self._last] = 0.0
        if not self._weights.any() or sum(self._drawn.values()) >= self._portion:
            self._weigh(candidates)
        if not self._weights.any():
            return None
        found = draw_index(self._weights, rng)
        self._last = found.node
        self._drawn[found.node] = self._drawn.get(found.node, 0) + 1
        return found

    def _weigh(self, candidates: CandidateCells) -> None:
        """Take the nodes drawn so far as answered, and compute the gains of the open ones."""
        for question in self._questions:
            for node, n in self._drawn.items():
                question.condition(node, n)
        self._drawn.clear()
        gain = np.zeros(len(self._cost_usd))
        for question in self._questions:
            gain += question.gain()
        self._weights = np.where(candidates.open_nodes(), np.maximum(gain, 0.0) / self._cost_usd, 0.0)


def _questions(
    fit: LatentFit, predicted: PredictedRates, annotated: AnnotatedTrie, weights: list[FloatArray], goal: Goal
) -> list[QuestionDesign]:
    trie, factors = annotated.trie, path_weights(predicted, annotated)
    uncertain = [(i, regression) for i, regression in enumerate(fit.regressions) if regression is not None]
    variance = np.zeros(len(trie))
    for index, regression in uncertain:
        for part, gradient in gradients(trie, regression, predicted, factors[index], annotated.accuracy):
            variance[part] += np.einsum("ij,ij->i", gradient @ regression.covariance, gradient)
    path_weight = np.sqrt(goal.weights(annotated, np.sqrt(variance)))
    made = []
    for index, regression in uncertain:
        target = np.zeros_like(regression.covariance)
        for part, gradient in gradients(trie, regression, predicted, factors[index], annotated.accuracy):
            weighted = gradient * path_weight[part, None]
            target += weighted.T @ weighted
        rows = design_rows(regression, predicted, slice(0, len(trie)))
        made.append(QuestionDesign(rows, regression.covariance, target, weights[index]))
    return made
