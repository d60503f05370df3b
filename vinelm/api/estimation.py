"""From a store to an annotated trie that knows where it comes from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from vinelm.annotated_trie import AnnotatedTrie
from vinelm.errors import ConfigError
from vinelm.estimator import cached_shares
from vinelm.observation import Observation
from vinelm.template import StopRule
from vinelm.version import __version__

if TYPE_CHECKING:
    from vinelm.estimator import ObservationTable


MAX_ERROR = 0.15
"""Half of the best path's 90 % accuracy interval from which an estimate is refused, as a fraction."""


def estimate_store(
    path: str | Path, *, estimator: str, stop: str | None = None, checked: bool = False, max_error: float = 1.0
) -> AnnotatedTrie:
    """Fit the store's observations; ``stop`` overrides the workflow's own stop rule.

    ``checked`` adds what the observations say of the estimate's worth as ``meta["evidence"]`` (some five more fits). The same
    rows give the same trie, bit for bit. :class:`StoreError` for a store that cannot be read, :class:`ConfigError` for an
    unknown estimator or one that the stop rule does not allow, :class:`EvidenceError` for an empty store, or where the best
    path's accuracy is known less well than ``max_error`` (a fraction).
    """
    from vinelm.estimator import ObservationTable, make_estimator
    from vinelm.traces import ObservationStore
    from vinelm.trie import Trie

    if not 0.0 < max_error <= 1.0:
        raise ConfigError(f"--max-error is {max_error}: it must be a fraction in (0, 1]")
    model = make_estimator(estimator)
    with ObservationStore.open(path) as store:
        identity, observations, registered = store.identity, store.observations(), store.request_ids()
    template, catalog = identity.bound_template(), identity.models()
    if stop is not None:
        template = template.with_stop(cast("StopRule", stop))
    cells = ObservationTable.from_observations(observations, template, Trie.from_template(template))
    annotated = model.fit_cells(cells, template, catalog).annotated_
    annotated = with_provenance(
        annotated,
        observations,
        workflow=identity.workflow,
        dataset_digest=identity.dataset_digest,
        is_simulated=identity.is_simulated,
        requests_registered=len(registered),
        cached_share=cached_shares(observations, catalog),
    )
    return _with_evidence(annotated, cells, max_error) if checked else annotated


def _with_evidence(annotated: AnnotatedTrie, cells: ObservationTable, max_error: float) -> AnnotatedTrie:
    from vinelm.estimator import validate_estimate

    evidence = validate_estimate(cells, annotated.template, annotated.catalog, annotated)
    spent, coverage = annotated.meta["spent_usd"], annotated.meta["coverage"]
    evidence.require(max_error, spent_usd=spent, everything_usd=spent / coverage if coverage else 0.0)
    return replace(annotated, meta={**annotated.meta, "evidence": evidence.to_dict()})


def with_provenance(
    annotated: AnnotatedTrie, observations: Iterable[Observation], *, requests_registered: int, **facts: Any
) -> AnnotatedTrie:
    """The same trie with its origin in ``meta``: dollars spent, coverage, stop rule, version, and ``facts``.

    ``coverage`` is the observed dollars over the estimated dollars of running every registered request on every path once.
    """
    spent = sum(row.cost_usd + row.tool_cost_usd for row in observations)
    everything = float((annotated.reach * annotated.cost_usd)[1:].sum()) * max(requests_registered, 1)
    meta = {
        **annotated.meta,
        **facts,
        "requests_registered": requests_registered,
        "spent_usd": spent,
        "coverage": spent / everything if everything else None,
        "stop": annotated.template.stop,
        "vinelm": __version__,
    }
    return replace(annotated, meta=meta)


def require_same_workflow(annotated: AnnotatedTrie, workflow: str, dataset_digest: str, where: str) -> None:
    """:class:`ConfigError` if the trie was estimated for another workflow or another dataset than the store's."""
    meta = annotated.meta
    if meta.get("workflow", workflow) != workflow:
        raise ConfigError(
            f"{where}: estimated for the workflow {meta['workflow']!r}, the store holds {workflow!r}: give a matching pair"
        )
    if meta.get("dataset_digest", dataset_digest) != dataset_digest:
        raise ConfigError(f"{where}: estimated from another dataset than the store's: run `vinelm estimate` on this store")
