"""Choose the cells to execute next by Bayesian A-optimal design on the latent model (the paper samples uniform cascades).

After a uniform pilot the sampler fits the model to the rows so far and chooses the cells that reduce the variance of the paths'
accuracies most per dollar. With C the covariance of the effects, B the sum of the paths' squared gradients, x the design row of
a node and w = p (1 - p) there, one more answer reduces it by w x'CBCx / (1 + w x'Cx); this is Neyman allocation if nodes share
no effects. Deep nodes are reached through requests whose failed prefix is already paid for, so that they cost one cell.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vinelm.annotated_trie import AnnotatedTrie
from vinelm.catalog import Catalog
from vinelm.errors import ConfigError
from vinelm.estimator.cost_latency import estimate_amount
from vinelm.estimator.latent.em import LatentFit, fit_latent
from vinelm.estimator.latent.prediction import PredictedRates, predict_rates
from vinelm.estimator.latent.standard_errors import design_rows, gradients, path_weights
from vinelm.estimator.observation_table import ObservationTable
from vinelm.estimator.sampling.goal import Goal
from vinelm.observation import Observation
from vinelm.protocols import RequestPath
from vinelm.template import Template
from vinelm.trie import FloatArray, Trie

Ints = npt.NDArray[np.int64]
PORTIONS = 16
"""Portions per round; gains are recomputed for each portion."""


class NeymanSampler:
    """Adaptive sampler (:class:`~vinelm.protocols.Sampler`). Pure: proposals depend only on the settings and the given rows.

    Round 0 is a uniform cascade. Each later round is as large as all rounds before it, so that any budget may cut a run off.

    Args:
        template: the workflow's template.
        catalog: models and prices.
        request_ids: the requests to sample from.
        seed: seed of the random choices.
        pilot: number of request paths in round 0; by default half the number of requests.
        goal: which paths matter; by default all equally.

    Raises:
        ConfigError: the template branches.
    """

    def __init__(
        self,
        template: Template,
        catalog: Catalog,
        request_ids: Sequence[str],
        seed: int,
        *,
        pilot: int | None = None,
        goal: Goal | None = None,
    ) -> None:
        self.template = template.bind(tuple(catalog))
        if not self.template.is_linear:
            raise ConfigError('the Neyman sampler plans for templates that do not branch: use the sampler "cascade"')
        self.catalog = catalog
        self.request_ids = tuple(request_ids)
        self.seed = seed
        self.pilot = pilot or max(1, len(self.request_ids) // 2)
        self.goal = goal or Goal()

    def propose(self, round_: int, observations: Sequence[Observation]) -> Iterable[RequestPath]:
        """Return the request paths of a round, in order; empty when every reached cell has been executed."""
        rng = random.Random(f"neyman:{self.seed}:{round_}")
        if round_ == 0 or not observations:
            return self._uniform(rng)
        trie = Trie.from_template(self.template)
        return self._allocated(ObservationTable.from_observations(observations, self.template, trie), rng)

    def _uniform(self, rng: random.Random) -> Iterator[RequestPath]:
        order = list(self.request_ids)
        rng.shuffle(order)
        for turn in range(self.pilot):
            models = [rng.choice(stage.models or ()) for stage in self.template.invocations]
            yield RequestPath(order[turn % len(order)], tuple(models))

    def _allocated(self, cells: ObservationTable, rng: random.Random) -> Iterator[RequestPath]:
        pool = _CellPool.of(cells, self.request_ids, rng)
        design = _Design.of(cells, self.template, self.catalog, self.goal)
        left = len(cells)
        portion = max(1, left // PORTIONS)
        while left > 0:
            node = design.best(pool.has_candidates)
            if node is None:
                return
            chosen = pool.take(node, min(portion, left))
            path = cells.trie.prefix(node)
            yield from (RequestPath(request, path) for request in chosen)
            design.condition(node, len(chosen))
            left -= len(chosen)


class _CellPool:
    """The requests that can be sent to each node: those known to reach it that were not executed there."""

    def __init__(self, trie: Trie, everyone: list[str], rows: dict[int, dict[str, bool]]) -> None:
        self._trie = trie
        self._everyone = everyone
        self._rows = rows
        self.has_candidates = np.zeros(len(trie), np.bool_)
        for node in range(1, len(trie)):
            self.has_candidates[node] = bool(self._candidates(node))

    @classmethod
    def of(cls, cells: ObservationTable, request_ids: Sequence[str], rng: random.Random) -> _CellPool:
        """Build the pool; requests with few rows come first, in random order."""
        rows: dict[int, dict[str, bool]] = {}
        for request, node, stop in zip(cells.request, cells.node, cells.stop, strict=True):
            rows.setdefault(int(node), {})[cells.request_ids[request]] = bool(stop)
        n_rows = dict.fromkeys(request_ids, 0)
        for request in cells.request:
            n_rows[cells.request_ids[request]] = n_rows.get(cells.request_ids[request], 0) + 1
        everyone = list(request_ids)
        rng.shuffle(everyone)
        everyone.sort(key=lambda name: n_rows[name])
        return cls(cells.trie, everyone, rows)

    def _candidates(self, node: int) -> list[str]:
        up, done = int(self._trie.parent[node]), self._rows.get(node, {})
        above = self._rows.get(up, {})
        if up == 0:
            return [name for name in self._everyone if name not in done]
        return [name for name in self._everyone if name in above and not above[name] and name not in done] if above else []

    def take(self, node: int, n: int) -> list[str]:
        """Remove and return up to ``n`` requests of the node; their outcomes are unknown until the next round."""
        requests = self._candidates(node)
        taken = requests[:n]
        self._rows.setdefault(node, {}).update(dict.fromkeys(taken, True))
        self.has_candidates[node] = len(requests) > len(taken)
        return taken


@dataclass(eq=False)
class _QuestionDesign:
    """The design problem of one question: design rows, posterior covariance, and the paths' weighted squared gradients."""

    rows: FloatArray
    covariance: FloatArray
    target: FloatArray
    weight: FloatArray
    """Expected information of one more run at each node: probability of being asked times p (1 - p)."""

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


@dataclass(eq=False)
class _Design:
    """The design problems of all questions, and the estimated dollars of one more run at each node."""

    questions: list[_QuestionDesign]
    cost_usd: FloatArray

    @classmethod
    def of(cls, cells: ObservationTable, template: Template, catalog: Catalog, goal: Goal) -> _Design:
        fit = fit_latent(cells, n_points=7 if cells.n_requests >= 100 else 1, iterations=15)
        predicted = predict_rates(cells, fit)
        rates, trie = predicted.rates, cells.trie
        cost, zero = estimate_amount(cells, cells.cost_usd).mean, np.zeros(len(trie))
        annotated = AnnotatedTrie(
            trie=trie, template=template, catalog=catalog, success=rates.success, stop=rates.stop,
            stop_success=rates.stop_success, cost_usd=cost, cost_var=zero, latency_s=zero, latency_var=zero,
        )  # fmt: skip
        right, wrong = rates.success, 1.0 - rates.success
        accepted = rates.stop_success / np.maximum(right, 1e-12)
        given_up = np.clip((rates.stop - rates.stop_success) / np.maximum(wrong, 1e-12), 0.0, 1.0)
        weights = [right * wrong, right * accepted * (1.0 - accepted), wrong * given_up * (1.0 - given_up)]
        questions = cls._questions(fit, predicted, annotated, weights, goal)
        price = np.maximum(cost, 1e-12) if cost.any() else np.ones(len(trie))  # all free: count cells
        return cls(questions, price)

    @staticmethod
    def _questions(
        fit: LatentFit, predicted: PredictedRates, annotated: AnnotatedTrie, weights: list[FloatArray], goal: Goal
    ) -> list[_QuestionDesign]:
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
            made.append(_QuestionDesign(rows, regression.covariance, target, weights[index]))
        return made

    def best(self, is_open: npt.NDArray[np.bool_]) -> int | None:
        """Return the open node with the largest gain per dollar, the first in trie order on ties; None if none is open."""
        if not is_open.any():
            return None
        gain = np.sum([question.gain() for question in self.questions], axis=0) if self.questions else np.ones(len(is_open))
        return int(np.argmax(np.where(is_open, gain / self.cost_usd, -1.0)))

    def condition(self, node: int, n: int) -> None:
        """Update all questions for ``n`` more runs at the node."""
        for question in self.questions:
            question.condition(node, n)
