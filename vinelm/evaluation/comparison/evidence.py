"""Reads from a store what a comparison of plans needs: rows, prices, latencies, request types, prompts and judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, cast

from vinelm.catalog import Catalog
from vinelm.estimator.call_rate import CallRate
from vinelm.evaluation.comparison.referred_rows import ReferredRows
from vinelm.evaluation.comparison.scored_rows import ScoredRows
from vinelm.prompts.shape import Shape
from vinelm.rows.observation import Cell, Observation, at_ordinary_prices, with_seconds
from vinelm.template import StopRule, Template
from vinelm.traces import ObservationStore
from vinelm.traces.store.kinds import learnt_of_requests, told_apart
from vinelm.traces.store.prompts import StoredPrompts
from vinelm.trie.annotated_trie import AnnotatedTrie

if TYPE_CHECKING:
    from vinelm.traces import PostgresUrl, StoreIdentity


@dataclass(frozen=True, eq=False, kw_only=True)
class StoreEvidence:
    """The contents of a store that matter for a choice of models.

    Attributes:
        identity: The store's identity.
        registered: The ids of all requests for which results could have been recorded.
        observations: The rows, with costs at ordinary instead of batch prices. If request types are distinguished, stages
            have separate names for each type. If a judge model scores the store, scores are its verdicts.
        template: The workflow's stages, each with its models, with the stop rule to plan for and the request types that
            are distinguished.
        catalog: The models.
        kinds: The type of each request, by request id; empty if types are not distinguished.
        untold: A single sentence on why declared types are not distinguished; empty if they are, or none are declared.
        scored: The rows at the prices that were paid, scored by labels or by a judge, and the facts about the judge
            that a trie stores.
        prompts: The shapes (hashed prefixes) of the prompts of each row's calls, keyed by the row's (request id,
            models up to its call); empty if no row used a prompt cache.
        charged_usd: The cost of the rows as charged, in dollars.
        committed_usd: Dollars that were really paid; less than ``charged_usd`` if rows share one recorded answer.
        n_timed: Number of rows with a measured latency.
        calls_per_hour: Requests of the service per hour, which determine how often a prompt cache is warm.
        annotated: The trie that was estimated from these rows, if known. It gives the share of requests that reach an
            invocation, from which each invocation's call rate follows.
        referred: How the rows of requests without labels were scored by comparison with the current setup; None if all have
            labels, or a judge scores.
        unscored: The same rows as ``observations``, but without the scores from ``referred``; empty if ``referred`` is None.
    """

    identity: StoreIdentity
    registered: Sequence[str]
    observations: Sequence[Observation]
    template: Template
    catalog: Catalog
    kinds: Mapping[str, str]
    untold: tuple[str, ...]
    scored: ScoredRows
    prompts: Mapping[Cell, Sequence[Shape]]
    charged_usd: float
    committed_usd: float
    n_timed: int
    calls_per_hour: float = 0.0
    annotated: AnnotatedTrie | None = None
    referred: ReferredRows | None = None
    unscored: Sequence[Observation] = ()

    @classmethod
    def of(
        cls,
        path: str | Path | PostgresUrl,
        annotated: AnnotatedTrie | None = None,
        *,
        stop: str | None = None,
        calls_per_hour: float = 0.0,
        by_kind: bool = True,
    ) -> StoreEvidence:
        """Read a store.

        Args:
            path: The store. It is only read.
            annotated: A trie of the store, whose template, request types and call rate are used.
            stop: The stop rule to plan for; None means the trie's rule, or without a trie the workflow's own.
            calls_per_hour: Without a trie: requests of the service per hour, >= 0.
            by_kind: Without a trie: whether to distinguish declared request types if there are enough rows for each.

        Raises:
            StoreError: The store cannot be read.
            ConfigError: The judge disagrees with the labels, or cannot say when requests stop.
            EvidenceError: A judge scores the store, and no answer has a verdict.
        """
        with ObservationStore.open(path) as store:
            identity, registered, scored = store.identity, store.request_ids(), ScoredRows.of_store(store)
            referred = scored.referred(store)
            committed_usd = store.committed_usd()
            rows = scored.rows
            # A trie has already fixed its kinds and call rate, learned from these rows. Learning them again from more rows
            # would test another plan than the one that it serves.
            template = identity.bound_template() if annotated is None else annotated.template
            untold = () if annotated is None else annotated.untold
            rows, template = told_apart(store, rows, template, learn=by_kind and not untold)
            kinds, why = learnt_of_requests(store, template)
            untold = untold or why
            prompts = StoredPrompts(store).of_cached(rows)
        if stop is not None:
            template = template.with_stop(cast("StopRule", stop))
        scored.require_stop(template)
        ordinary = at_ordinary_prices(rows)
        return cls(
            identity=identity,
            registered=registered,
            observations=ordinary if referred is None else referred.scored(ordinary),
            template=template,
            catalog=identity.models(),
            kinds=kinds,
            untold=untold,
            scored=scored,
            prompts=prompts,
            charged_usd=sum(row.cost_usd + row.tool_cost_usd for row in rows),
            committed_usd=committed_usd,
            n_timed=sum(row.is_timed for row in rows),
            calls_per_hour=calls_per_hour if annotated is None else annotated.calls_per_hour or 0.0,
            annotated=annotated,
            referred=referred,
            unscored=() if referred is None else ordinary,
        )

    @cached_property
    def requests(self) -> list[str]:
        """The ids of all requests for which results could have been recorded, and of any others that have rows."""
        return list(dict.fromkeys((*self.registered, *(row.request_id for row in self.observations))))

    @cached_property
    def rate(self) -> CallRate:
        """An object that recomputes the costs of rows for a service with :attr:`calls_per_hour` requests per hour."""
        return CallRate(self.observations, self.catalog, self.calls_per_hour, self.prompts)

    @cached_property
    def rows(self) -> list[Observation]:
        """The rows to compare plans by: with the costs that the service would pay, and each with a latency."""
        return self._priced(self.observations)

    @cached_property
    def hopeful(self) -> list[Observation]:
        """:attr:`rows`, scored as if every answer on which people have not yet decided were as good as the current
        setup's answer.
        """
        assert self.referred is not None
        return self._priced(self.referred.scored(self.unscored, is_hopeful=True))

    def _priced(self, rows: Sequence[Observation]) -> list[Observation]:
        priced = CallRate(with_seconds(rows), self.catalog, self.calls_per_hour, self.prompts)
        return priced.rows(self.annotated)
