"""The base class of estimators (scikit-learn's ``fit`` contract), which builds an AnnotatedTrie."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, Self

from vinelm.catalog import Catalog
from vinelm.errors import NotFittedError
from vinelm.estimator.arm_counts import counted_arms
from vinelm.estimator.cost_latency import MeanEstimate, estimate_amount, zero_load_s
from vinelm.estimator.observation_table import ObservationTable
from vinelm.estimator.outcome_rates import ArmRates, Rates
from vinelm.estimator.prompt_cache import edge_types, index_per_node
from vinelm.estimator.sizes_by_outcome import SizesByOutcome, SizesByStops
from vinelm.rows.observation import Observation
from vinelm.template import Template
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import AnnotatedTrie, within_exits


class RateEstimator(ABC):
    """Base class of estimators of the three rates per node (docs/mathematics.md).

    Pure: no I/O, no clock; equal inputs give equal outputs. As in scikit-learn, ``__init__`` stores its settings unchanged and
    ``fit`` returns the estimator itself.
    """

    name: ClassVar[str]

    def __init__(self) -> None:
        self._annotated: AnnotatedTrie | None = None

    @property
    def annotated_(self) -> AnnotatedTrie:
        """The result of the last ``fit``; :class:`NotFittedError` before the first."""
        if self._annotated is None:
            raise NotFittedError(f"estimator {self.name!r} is not fitted: call fit(observations, template, catalog) first")
        return self._annotated

    @property
    def settings(self) -> dict[str, Any]:
        """The settings given to ``__init__``, as plain JSON types."""
        return {}

    def fit(
        self, observations: Iterable[Observation], template: Template, catalog: Catalog, *, trie: Trie | None = None
    ) -> Self:
        """Estimate from observations, one row per executed cell.

        Args:
            observations: the rows, in any order.
            template: the workflow's template; bound to the catalog's models here.
            catalog: models with engines and prompt caches.
            trie: restricts the template's prefixes; by default all of them.

        Raises:
            InputError: rows do not fit the template (see :meth:`ObservationTable.from_observations`).
            EvidenceError: there are no rows.
        """
        template = template.bind(tuple(catalog))
        cells = ObservationTable.from_observations(observations, template, trie or Trie.from_template(template))
        return self.fit_cells(cells, template, catalog)

    def fit_cells(self, cells: ObservationTable, template: Template, catalog: Catalog) -> Self:
        """Estimate from an encoded table; ``template`` is bound to ``catalog`` and has the table's stop rule."""
        self._annotated = within_exits(self._annotate(cells, template, catalog))
        return self

    def _annotate(self, cells: ObservationTable, template: Template, catalog: Catalog) -> AnnotatedTrie:
        cost, latency = cost_and_latency(cells, catalog, SizesByStops(cells))
        rates = self._rates(cells)
        arms = template.told(lambda: counted_arms(cells, rates))
        return self._assemble(cells, template, catalog, rates=rates, cost=cost, latency=latency, arms=arms)

    def _assemble(
        self,
        cells: ObservationTable,
        template: Template,
        catalog: Catalog,
        *,
        rates: Rates,
        cost: MeanEstimate,
        latency: MeanEstimate,
        arms: ArmRates | None = None,
    ) -> AnnotatedTrie:
        return AnnotatedTrie(
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
            arm=None if arms is None else arms.arm,
            arm_success=None if arms is None else arms.arm_success,
            meta={
                "estimator": self.name,
                "settings": self.settings,
                "requests": cells.n_requests,
                "observations": len(cells),
                "observations_by_depth": cells.count_by_depth,
                "observations_beyond_stop": cells.n_beyond_stop,
                "failed_calls": int(cells.failed.sum()),
            },
        )

    @abstractmethod
    def _rates(self, cells: ObservationTable) -> Rates:
        """The three rates of every node."""


def cost_and_latency(
    cells: ObservationTable, catalog: Catalog, by_outcome: SizesByOutcome
) -> tuple[MeanEstimate, MeanEstimate]:
    """Estimate (dollars, seconds at zero load) of one invocation per node; ``by_outcome`` as in :func:`estimate_amount`."""
    trie = cells.trie
    engine = index_per_node(trie, [catalog[name].engine for name in trie.models])
    edges = edge_types(trie, index_per_node(trie, [catalog[name].prompt_cache for name in trie.models]))
    cost = estimate_amount(cells, cells.cost_usd, edges=edges, by_outcome=by_outcome)
    return cost, estimate_amount(cells, zero_load_s(cells, engine), edges=edges, by_outcome=by_outcome)
