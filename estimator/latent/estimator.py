"""The default estimator: a hierarchical logistic model of a node's outcomes with a latent difficulty per request."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from vinelm.catalog import Catalog
from vinelm.errors import ConfigError
from vinelm.estimator.base import RateEstimator, cost_and_latency
from vinelm.estimator.latent.em import LatentFit, fit_latent
from vinelm.estimator.latent.merged_prediction import MergedRates, predict_merged
from vinelm.estimator.latent.prediction import PredictedRates, predict_rates
from vinelm.estimator.latent.standard_errors import standard_errors
from vinelm.estimator.observation_table import ObservationTable
from vinelm.estimator.outcome_rates import Rates
from vinelm.estimator.sizes_by_outcome import SizesByDifficulty, SizesByOutcome, SizesByStops
from vinelm.template import Template
from vinelm.trie import MergedTrie
from vinelm.trie.annotated_trie import AnnotatedTrie


class LatentEstimator(RateEstimator):
    """Hierarchical latent-trait model; not in the paper.

    A request's outcomes so far give information about its difficulty, and related prefixes share information. Only unobserved
    outcomes are predicted; observed outcomes are used as they are. So if every path of every request is observed, the
    annotations are exact means. Works with any stop rule, and estimates standard errors of accuracy, cost and latency of every
    path.

    Args:
        n_points: grid points of the latent difficulty; 1 means no latent difficulty.
        min_requests: with fewer distinct requests, the model has no latent difficulty.
        iterations: EM iterations.

    Raises:
        ConfigError: a setting is out of range.
    """

    name: ClassVar[str] = "latent"

    def __init__(self, *, n_points: int = 7, min_requests: int = 100, iterations: int = 25) -> None:
        super().__init__()
        if n_points < 1 or min_requests < 0 or iterations < 1:
            raise ConfigError("estimator 'latent': n_points and iterations must be >= 1, min_requests >= 0")
        self.n_points = n_points
        self.min_requests = min_requests
        self.iterations = iterations

    @property
    def settings(self) -> dict[str, Any]:
        """The settings given to ``__init__``, as plain JSON types."""
        return {"n_points": self.n_points, "min_requests": self.min_requests, "iterations": self.iterations}

    def _fit_model(self, cells: ObservationTable) -> LatentFit:
        n_points = self.n_points if cells.n_requests >= self.min_requests else 1
        return fit_latent(cells, n_points=n_points, iterations=self.iterations)

    def _rates(self, cells: ObservationTable) -> Rates:
        return _predicted(cells, self._fit_model(cells)).rates

    def _annotate(self, cells: ObservationTable, template: Template, catalog: Catalog) -> AnnotatedTrie:
        fit = self._fit_model(cells)
        predicted = _predicted(cells, fit)
        cost, latency = cost_and_latency(cells, catalog, _sizes_by_outcome(cells, fit, predicted))
        annotated = self._assemble(
            cells, template, catalog, rates=predicted.rates, cost=cost, latency=latency, arms=predicted.arm_rates
        )
        if isinstance(predicted, MergedRates):
            errors = predicted.errors(cost, latency)
        else:
            errors = standard_errors(cells, fit, predicted, annotated, cost_usd=cost, latency_s=latency)
        return replace(
            annotated,
            accuracy_se=errors.accuracy,
            cost_se=errors.cost_usd,
            latency_se=errors.latency_s,
            arm_se=errors.arm,
            difficulty=predicted.by_difficulty if isinstance(predicted, MergedRates) else None,
            meta={**annotated.meta, "latent": fit.grid.size > 1},
        )


def _predicted(cells: ObservationTable, fit: LatentFit) -> PredictedRates | MergedRates:
    return predict_merged(cells, cells.trie, fit) if isinstance(cells.trie, MergedTrie) else predict_rates(cells, fit)


def _sizes_by_outcome(cells: ObservationTable, fit: LatentFit, predicted: PredictedRates | MergedRates) -> SizesByOutcome:
    """Return the model that predicts the sizes of requests from their difficulty or, if the fit has none, from stop rates."""
    if isinstance(predicted, MergedRates):
        return SizesByDifficulty(fit.posterior, fit.grid, predicted.mix)
    unseen = predicted.unseen.sum(axis=1)
    if fit.grid.size == 1:
        return SizesByStops(cells, unseen)
    return SizesByDifficulty(fit.posterior, fit.grid, predicted.unseen, unseen)
