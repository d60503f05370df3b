"""The default estimator: a hierarchical logistic model of what happens at a node, with a latent difficulty per request."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from vinelm.annotated_trie import AnnotatedTrie
from vinelm.catalog import Catalog
from vinelm.errors import ConfigError
from vinelm.estimator.base import RateEstimator, amounts_of
from vinelm.estimator.latent.em import LatentFit, fit_mixture
from vinelm.estimator.latent.prediction import complete
from vinelm.estimator.latent.standard_errors import standard_errors
from vinelm.estimator.observation_table import ObservationTable
from vinelm.estimator.outcome_rates import Rates
from vinelm.template import Template


class LatentEstimator(RateEstimator):
    """Beyond the paper: which *requests* failed where says how hard they are, and related prefixes inform one another.

    Observed outcomes enter as they are, and only the rest is predicted: with every cell observed the annotations are exact
    means. Works for any stop rule, and gives standard errors of every path metric.

    - ``n_points``: grid points of the latent difficulty; 1 means none.
    - ``min_requests``: with fewer distinct requests than this the latent trait is left out (a count-only model).
    - ``iterations``: turns of EM.
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
        """The settings given to ``__init__``, as plain JSON."""
        return {"n_points": self.n_points, "min_requests": self.min_requests, "iterations": self.iterations}

    def _mixture(self, cells: ObservationTable) -> LatentFit:
        n_points = self.n_points if cells.n_requests >= self.min_requests else 1
        return fit_mixture(cells, n_points=n_points, iterations=self.iterations)

    def _rates(self, cells: ObservationTable) -> Rates:
        return complete(cells, self._mixture(cells)).rates

    def _annotate(self, cells: ObservationTable, template: Template, catalog: Catalog) -> AnnotatedTrie:
        mixture = self._mixture(cells)
        completed = complete(cells, mixture)
        rates = completed.rates
        cost, latency = amounts_of(cells, catalog, completed.reaching)
        annotated = AnnotatedTrie(
            trie=cells.trie,
            template=template,
            catalog=catalog,
            success=rates.success,
            stop=rates.stop,
            stop_success=rates.stop_success,
            cost_usd=cost.mean,
            cost_var=cost.var,
            latency_s=latency.mean,
            latency_var=latency.var,
            cost_size_var=cost.size_var,
            latency_size_var=latency.size_var,
            count=cells.count,
            meta=self._meta(cells) | {"latent": mixture.grid.size > 1},
        )
        errors = standard_errors(cells, mixture, completed, annotated, cost_usd=cost, latency_s=latency)
        return replace(annotated, accuracy_se=errors.accuracy, cost_se=errors.cost_usd, latency_se=errors.latency_s)
