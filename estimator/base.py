"""The base class of estimators (scikit-learn's ``fit`` contract), which builds an AnnotatedTrie."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np

from vinelm.catalog import Catalog
from vinelm.errors import NotFittedError
from vinelm.estimator.arm_counts import counted_arms
from vinelm.estimator.cost_latency import MeanEstimate, estimate_amount, zero_load_s
from vinelm.estimator.observation_table import ObservationTable
from vinelm.estimator.outcome_rates import ArmRates, Rates
from vinelm.estimator.prompt_cache import edge_types, index_per_node
from vinelm.estimator.sizes_by_outcome import SizesByOutcome, SizesByStops
from vinelm.rows.observation import Observation
from vinelm.template import SKIP, Template
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import AnnotatedTrie, within_exits
from vinelm.trie.arrays import BoolArray, FloatArray


class RateEstimator(ABC):
    """Base class of estimators of each node's three rates: P(stop), P(stop and right) and P(right) (docs/mathematics.md).

    Pure: no I/O, no clock; equal inputs give equal outputs. As in scikit-learn, ``__init__`` stores the settings unchanged
    and ``fit`` returns the estimator.
    """

    name: ClassVar[str]

    def __init__(self) -> None:
        self._annotated: AnnotatedTrie | None = None

    @property
    def annotated_(self) -> AnnotatedTrie:
        """The result of the last ``fit``; raises :class:`NotFittedError` before the first."""
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
        """Estimate the annotations from observations, one for each executed call, and return the estimator.

        Args:
            observations: the results, in any order.
            template: the workflow's template; bound to the catalog's models here.
            catalog: the models, with their engines and prompt caches.
            trie: the prefixes to estimate, by default all prefixes of the template.

        Raises:
            InputError: results do not fit the template (see :meth:`ObservationTable.from_observations`).
            EvidenceError: there are no results.
        """
        template = template.bind(tuple(catalog))
        cells = ObservationTable.from_observations(observations, template, trie or Trie.from_template(template))
        return self.fit_cells(cells, template, catalog)

    def fit_cells(self, cells: ObservationTable, template: Template, catalog: Catalog) -> Self:
        """Estimate the annotations from ``cells``, an encoded table of results, and return the estimator.

        ``template`` must be bound to ``catalog`` and have the table's stop rule.
        """
        self._annotated = within_exits(with_kept_answers(self._annotate(cells, template, catalog)))
        return self

    def _annotate(self, cells: ObservationTable, template: Template, catalog: Catalog) -> AnnotatedTrie:
        cost, latency = cost_and_latency(cells, catalog, SizesByStops(cells))
        rates = self._rates(cells)
        arms = counted_arms(cells, rates)
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
        arms: ArmRates,
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
            arm=arms.arm,
            arm_success=arms.arm_success,
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
        """Return the probabilities that determine each node's rates; see :class:`Rates`.

        This is the method that each estimator implements.
        """


def cost_and_latency(
    cells: ObservationTable, catalog: Catalog, by_outcome: SizesByOutcome
) -> tuple[MeanEstimate, MeanEstimate]:
    """Return estimates of each node's cost per call, in dollars, and latency per call at zero load, in seconds.

    ``by_outcome`` predicts a request's size from its outcomes; see :func:`estimate_amount`. The size is the factor by which the
    request's calls cost or take more than those of the mean request.
    """
    trie = cells.trie
    engine = index_per_node(trie, [catalog[name].engine for name in trie.models])
    edges = edge_types(trie, index_per_node(trie, [catalog[name].prompt_cache for name in trie.models]))
    skipped = skipped_nodes(trie)
    asked = cells.of_cells(~skipped[cells.node]) if skipped.any() else cells
    cost = estimate_amount(asked, asked.cost_usd, edges=edges, by_outcome=by_outcome)
    timed = asked.of_cells(~np.isnan(asked.latency_s)) if np.isnan(asked.latency_s).any() else asked
    latency = estimate_amount(timed, zero_load_s(timed, engine), edges=edges, by_outcome=by_outcome)
    if not skipped.any():
        return cost, latency
    return _of_tools_alone(cells, skipped, cells.cost_usd, cost), _of_tools_alone(cells, skipped, cells.latency_s, latency)


def skipped_nodes(trie: Trie) -> BoolArray:
    """Return a mask of the nodes whose stage is skipped, shape (nodes,).

    At such a node, the optional stage does not run: the node has :data:`~vinelm.template.SKIP` instead of a model.
    """
    return np.array([name == SKIP for name in (*trie.models, "")])[trie.model]  # the last is the root's -1


def _of_tools_alone(cells: ObservationTable, skipped: BoolArray, values: FloatArray, found: MeanEstimate) -> MeanEstimate:
    """Return the estimate ``found``, with new values at the nodes whose stage is skipped.

    The new values are the mean and variance of the results of the skipped stage. If a stage is skipped, only the tools after it
    cost dollars or seconds. A skipped stage without results gets 0.

    Args:
        cells: the results.
        skipped: a mask of the nodes whose stage is skipped, shape (nodes,).
        values: the dollars or seconds of each result, shape (results,).
        found: the estimate of the same amount for all nodes.
    """
    trie, arrays = cells.trie, {name: getattr(found, name).copy() for name in _OF_NODES}
    for stage in np.unique(trie.stage[skipped]):
        here = skipped & (trie.stage == stage)
        seen = values[here[cells.node]]
        for name in _OF_NODES:
            arrays[name][here] = 0.0
        if len(seen):
            arrays["mean"][here], arrays["var"][here] = seen.mean(), seen.var()
            arrays["mean_var"][here] = seen.var() / len(seen)
    return replace(found, **arrays)


_OF_NODES = ("mean", "var", "size_var", "mean_var", "along")


def with_kept_answers(annotated: AnnotatedTrie) -> AnnotatedTrie:
    """Return the annotations, changed so that a skipped stage or a judge leaves P(right) as it was before the stage.

    Such a stage writes no answer. So among the requests that reach it, P(right) after the stage is set to P(right) before it.
    P(stop) and P(branch) stay the same there, while P(stop and right) and P(branch and right) are adapted (:func:`_moved`). The
    input is returned unchanged if it has no such stage, or if a node may be reached by several sequences of calls.
    """
    trie, template = annotated.trie, annotated.template
    judges = np.array([stage.verdict is not None for stage in template.stages])
    has_answer = np.array([stage.answerable for stage in template.stages])
    keeps = skipped_nodes(trie) | (judges[trie.stage] & (trie.model >= 0))
    keeps &= (trie.depth > 1) & has_answer[trie.stage] & has_answer[trie.stage[trie.parent]]
    if trie.is_merged or not keeps.any():
        return annotated
    success, stop_success = annotated.success.copy(), annotated.stop_success.copy()
    arm, took = annotated.arms
    for edges in trie.edge_levels:
        nodes = np.sort(trie.target[edges][keeps[trie.target[edges]]])
        chance, right, before = arm[nodes], took[nodes], success[nodes]
        success[nodes] = np.clip(np.divide(right, chance, out=before.copy(), where=chance > 0.0), 0.0, 1.0)
        stop_success[nodes] = _moved(stop_success[nodes], annotated.stop[nodes], before, success[nodes])
        below = np.flatnonzero(np.isin(trie.parent, nodes) & (trie.depth > 0))
        own = np.searchsorted(nodes, trie.parent[below])
        took[below] = _moved(took[below], arm[below], before[own], success[nodes][own])
    return replace(annotated, success=success, stop_success=stop_success, arm_success=took)


def _moved(right: FloatArray, mass: FloatArray, before: FloatArray, after: FloatArray) -> FloatArray:
    """Return P(event and the answer is right) after P(right) has changed; P(event) stays the same.

    ``mass`` is P(event), where the event is a stop or a branch. ``right`` is P(event and right) before the change. P(right)
    changes from ``before`` to ``after``. If P(right) falls, P(event and right) falls in the same proportion. If P(right) rises,
    P(event and wrong) falls in the same proportion as P(wrong).
    """
    less = right * np.divide(after, before, out=np.zeros_like(before), where=before > 0.0)
    wrong = (mass - right) * np.divide(1.0 - after, 1.0 - before, out=np.zeros_like(before), where=before < 1.0)
    return np.where(after <= before, less, np.clip(mass - wrong, 0.0, mass))
