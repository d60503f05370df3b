"""Which cells to buy next: Bayesian A-optimal design on the latent model (beyond the paper's uniform cascade).

After a uniform pilot the sampler fits the model to what was paid for, and buys where a dollar takes most off the variance of
the paths' accuracies. With C the covariance of the effects, B the sum of the paths' squared gradients, x the design row of a
node and w = p (1 - p) there, one more answer takes w x'CBCx / (1 + w x'Cx) off: Neyman's rule where nodes share nothing. Deep
nodes are reached through requests whose failed prefix is already paid for, so that they cost one cell.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vinelm.annotated_trie import AnnotatedTrie
from vinelm.catalog import Catalog
from vinelm.estimator.cost_latency import estimate_amount
from vinelm.estimator.latent.em import LatentFit, fit_mixture
from vinelm.estimator.latent.prediction import PredictedRates, complete
from vinelm.estimator.latent.standard_errors import design_rows, gradients, path_weights
from vinelm.estimator.observation_table import ObservationTable
from vinelm.estimator.sampling.goal import Goal
from vinelm.observation import Observation
from vinelm.protocols import RequestPath
from vinelm.template import Template
from vinelm.trie import FloatArray, Trie

Ints = npt.NDArray[np.int64]
PORTIONS = 16
"""A round is bought in this many portions; the gains are worked out anew for each."""


class NeymanSampler:
    """Proposes request paths in rounds (:class:`~vinelm.protocols.Sampler`). Pure: it depends on its settings and on the paid,
    observed rows it is shown, and on nothing else.

    Round 0 is a uniform cascade of ``pilot`` paths (by default one for every other request); each later round is as large as
    everything before it, so that a run may be cut off by any budget. ``goal`` says which paths matter.
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
        self.catalog = catalog
        self.request_ids = tuple(request_ids)
        self.seed = seed
        self.pilot = pilot or max(1, len(self.request_ids) // 2)
        self.goal = goal or Goal()

    def propose(self, round_: int, observations: Sequence[Observation]) -> Iterable[RequestPath]:
        """Return the request paths of a round, in order; none when every reached cell is executed."""
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
        stock = _CellPool.of(cells, self.request_ids, rng)
        design = _Design.of(cells, self.template, self.catalog, self.goal)
        left = len(cells)
        portion = max(1, left // PORTIONS)
        while left > 0:
            node = design.best(stock.has)
            if node is None:
                return
            bought = stock.take(node, min(portion, left))
            path = cells.trie.prefix(node)
            yield from (RequestPath(request, path) for request in bought)
            design.learn(node, len(bought))
            left -= len(bought)


class _CellPool:
    """Which requests can be sent to each node: those known to reach it that were not run there."""

    def __init__(self, trie: Trie, everyone: list[str], rows: dict[int, dict[str, bool]]) -> None:
        self._trie = trie
        self._everyone = everyone
        self._rows = rows
        self.has = np.zeros(len(trie), np.bool_)
        for node in range(1, len(trie)):
            self.has[node] = bool(self._open(node))

    @classmethod
    def of(cls, cells: ObservationTable, request_ids: Sequence[str], rng: random.Random) -> _CellPool:
        """Requests in random order, those with the fewest rows first."""
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

    def _open(self, node: int) -> list[str]:
        up, done = int(self._trie.parent[node]), self._rows.get(node, {})
        above = self._rows.get(up, {})
        if up == 0:
            return [name for name in self._everyone if name not in done]
        return [name for name in self._everyone if name in above and not above[name] and name not in done] if above else []

    def take(self, node: int, n: int) -> list[str]:
        """Up to ``n`` of them; taken once only. What they show is not known before the next round."""
        requests = self._open(node)
        taken = requests[:n]
        self._rows.setdefault(node, {}).update(dict.fromkeys(taken, True))
        self.has[node] = len(requests) > len(taken)
        return taken


@dataclass(eq=False)
class _HeadDesign:
    """One head's share of the design problem: rows, covariance, and the paths' squared gradients."""

    rows: FloatArray
    covariance: FloatArray
    target: FloatArray
    weight: FloatArray
    """Expected information of one more run at each node: chance to be asked times p (1 - p)."""

    def gain(self) -> FloatArray:
        """Variance that one more run at each node would take off, summed over the weighted paths."""
        spread = self.rows @ self.covariance
        own = np.einsum("ij,ij->i", spread, self.rows)
        reward = np.einsum("ij,ij->i", spread @ self.target, spread)
        return np.asarray(self.weight * reward / (1.0 + self.weight * own))

    def learn(self, node: int, n: int) -> None:
        """``n`` more runs at the node, outcomes as expected (Sherman-Morrison)."""
        spread = self.covariance @ self.rows[node]
        information = n * float(self.weight[node])
        shrink = information / (1.0 + information * float(self.rows[node] @ spread))
        self.covariance = self.covariance - shrink * np.outer(spread, spread)


@dataclass(eq=False)
class _Design:
    heads: list[_HeadDesign]
    cost_usd: FloatArray

    @classmethod
    def of(cls, cells: ObservationTable, template: Template, catalog: Catalog, goal: Goal) -> _Design:
        mixture = fit_mixture(cells, n_points=7 if cells.n_requests >= 100 else 1, iterations=15)
        completed = complete(cells, mixture)
        rates, trie = completed.rates, cells.trie
        cost, zero = estimate_amount(cells, cells.cost_usd).mean, np.zeros(len(trie))
        annotated = AnnotatedTrie(
            trie=trie, template=template, catalog=catalog, success=rates.success, stop=rates.stop,
            stop_success=rates.stop_success, cost_usd=cost, cost_var=zero, latency_s=zero, latency_var=zero,
        )  # fmt: skip
        right, wrong = rates.success, 1.0 - rates.success
        accepted = rates.stop_success / np.maximum(right, 1e-12)
        given_up = np.clip((rates.stop - rates.stop_success) / np.maximum(wrong, 1e-12), 0.0, 1.0)
        weights = [right * wrong, right * accepted * (1.0 - accepted), wrong * given_up * (1.0 - given_up)]
        heads = cls._heads(mixture, completed, annotated, weights, goal)
        price = np.maximum(cost, 1e-12) if cost.any() else np.ones(len(trie))  # everything is free: count cells
        return cls(heads, price)

    @staticmethod
    def _heads(
        mixture: LatentFit, completed: PredictedRates, annotated: AnnotatedTrie, weights: list[FloatArray], goal: Goal
    ) -> list[_HeadDesign]:
        trie, moved = annotated.trie, path_weights(completed, annotated)
        learned = [(i, regression) for i, regression in enumerate(mixture.regressions) if regression is not None]
        variance = np.zeros(len(trie))
        for index, regression in learned:
            for part, gradient in gradients(trie, regression, completed, moved[index], annotated.accuracy):
                variance[part] += np.einsum("ij,ij->i", gradient @ regression.covariance, gradient)
        matters = np.sqrt(goal.weights(annotated, np.sqrt(variance)))
        made = []
        for index, regression in learned:
            target = np.zeros_like(regression.covariance)
            for part, gradient in gradients(trie, regression, completed, moved[index], annotated.accuracy):
                weighted = gradient * matters[part, None]
                target += weighted.T @ weighted
            rows = design_rows(regression, completed, slice(0, len(trie)))
            made.append(_HeadDesign(rows, regression.covariance, target, weights[index]))
        return made

    def best(self, is_open: npt.NDArray[np.bool_]) -> int | None:
        """The open node with the largest gain per dollar; None if none is open. Ties go to the first in trie order."""
        if not is_open.any():
            return None
        gain = np.sum([head.gain() for head in self.heads], axis=0) if self.heads else np.ones(len(is_open))
        return int(np.argmax(np.where(is_open, gain / self.cost_usd, -1.0)))

    def learn(self, node: int, n: int) -> None:
        """The expected effect of ``n`` more runs there."""
        for head in self.heads:
            head.learn(node, n)
