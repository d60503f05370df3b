"""What every estimator shares: scikit-learn's contract over observations, and the way to an AnnotatedTrie."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import numpy.typing as npt

from vinelm.annotated_trie import AnnotatedTrie
from vinelm.catalog import Catalog
from vinelm.errors import NotFittedError
from vinelm.estimator.cost_latency import MeanEstimate, edges_of, estimate_amount, zero_load_s
from vinelm.estimator.observation_table import ObservationTable
from vinelm.estimator.outcome_rates import Rates
from vinelm.observation import Observation
from vinelm.template import Template
from vinelm.trie import FloatArray, Trie


class Estimator(Protocol):
    """Observations in, annotated trie out. Pure: no I/O, no clock, the same input gives the same output."""

    @property
    def annotated_(self) -> AnnotatedTrie:
        """What the last ``fit`` learned; :class:`NotFittedError` before it."""

    def fit(
        self, observations: Iterable[Observation], template: Template, catalog: Catalog, *, trie: Trie | None = None
    ) -> Self:
        """Learn from the rows. ``trie`` restricts the template's prefixes; by default all of them."""

    def fit_cells(self, cells: ObservationTable, template: Template, catalog: Catalog) -> Self:
        """Learn from rows that are already encoded (``template`` bound, its stop rule the cells')."""


class RateEstimator(ABC):
    """An estimator that says the three rates per node (DESIGN §4). Settings stay as ``__init__`` got them."""

    name: ClassVar[str]

    def __init__(self) -> None:
        self._annotated: AnnotatedTrie | None = None

    @property
    def annotated_(self) -> AnnotatedTrie:
        """What the last ``fit`` learned; :class:`NotFittedError` before it."""
        if self._annotated is None:
            raise NotFittedError(f"estimator {self.name!r} is not fitted: call fit(observations, template, catalog) first")
        return self._annotated

    @property
    def settings(self) -> dict[str, Any]:
        """The settings given to ``__init__``, as plain JSON."""
        return {}

    def fit(
        self, observations: Iterable[Observation], template: Template, catalog: Catalog, *, trie: Trie | None = None
    ) -> Self:
        """Learn from the rows; see :class:`~vinelm.estimator.ObservationTable` for what is refused."""
        template = template.bind(tuple(catalog))
        cells = ObservationTable.from_observations(observations, template, trie or Trie.from_template(template))
        return self.fit_cells(cells, template, catalog)

    def fit_cells(self, cells: ObservationTable, template: Template, catalog: Catalog) -> Self:
        """Learn from rows that are already encoded (``template`` bound, its stop rule the cells')."""
        self._annotated = self._annotate(cells, template, catalog)
        return self

    def _annotate(self, cells: ObservationTable, template: Template, catalog: Catalog) -> AnnotatedTrie:
        rates = self._rates(cells)
        cost, latency = amounts_of(cells, catalog)
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
            meta=self._meta(cells),
        )

    def _meta(self, cells: ObservationTable) -> dict[str, Any]:
        return {
            "estimator": self.name,
            "settings": self.settings,
            "requests": cells.n_requests,
            "observations": len(cells),
            "observations_by_depth": cells.count_by_depth,
            "observations_beyond_stop": cells.n_beyond_stop,
            "failed_calls": int(cells.failed.sum()),
        }

    @abstractmethod
    def _rates(self, cells: ObservationTable) -> Rates:
        """The three rates of every node."""


def amounts_of(
    cells: ObservationTable, catalog: Catalog, reaching: FloatArray | None = None
) -> tuple[MeanEstimate, MeanEstimate]:
    """(dollars, seconds at zero load) of one invocation per node."""
    trie = cells.trie
    engine = _per_node(trie, [catalog[name].engine for name in trie.models])
    edges = edges_of(trie, _per_node(trie, [catalog[name].prompt_cache for name in trie.models]))
    cost = estimate_amount(cells, cells.cost_usd, edges=edges, reaching=reaching)
    return cost, estimate_amount(cells, zero_load_s(cells, engine), edges=edges, reaching=reaching)


def _per_node(trie: Trie, of_model: Sequence[Hashable]) -> npt.NDArray[np.int16]:
    """Per node, an index that is the same for models whose entries in ``of_model`` are equal; -1 at the root."""
    index = np.array([of_model.index(value) for value in of_model], np.int16)
    return np.where(trie.model >= 0, index[trie.model], np.int16(-1)).astype(np.int16)
