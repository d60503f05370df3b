"""Edge types (which prompt cache an invocation meets), what they do to tokens, cost and latency, and hits by rate of calls."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from vinelm.catalog import Catalog
from vinelm.catalog.model import CACHE_TTL_S, Model, entries_of
from vinelm.errors import ConfigError
from vinelm.estimator.row_nodes import rows_with_nodes
from vinelm.rows.observation import Cell, Observation
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import AnnotatedTrie

EDGES = ("first", "switched", "kept")
"""Edge types: the first invocation of a request; after one with another prompt cache; after one with the same prompt cache."""

FIGURES = ("switched_cost_usd", "kept_cost_usd", "switched_latency_s", "kept_latency_s")


def edge_of(prefix: tuple[str, ...], catalog: Catalog) -> str:
    """Return the edge type (one of :data:`EDGES`) of the last invocation of ``prefix``."""
    if len(prefix) < 2:
        return "first"
    return "kept" if catalog[prefix[-1]].prompt_cache == catalog[prefix[-2]].prompt_cache else "switched"


def edge_types(trie: Trie, cache: npt.NDArray[np.int16]) -> npt.NDArray[np.int64]:
    """Return the edge type of each node as an index into :data:`EDGES`, shape (n + 1,).

    Args:
        trie: the trie.
        cache: index of each node's prompt cache, shape (n + 1,) (:attr:`vinelm.catalog.Model.prompt_cache`).
    """
    parent = np.maximum(trie.parent, 0)
    return np.where(trie.depth < 2, 0, np.where(cache == cache[parent], 2, 1)).astype(np.int64)


def index_per_node(trie: Trie, of_model: Sequence[Hashable]) -> npt.NDArray[np.int16]:
    """Return per node the index of the first model whose entry in ``of_model`` equals the node's; -1 at the root."""
    index = np.array([of_model.index(value) for value in of_model], np.int16)
    return np.where(trie.model >= 0, index[trie.model], np.int16(-1)).astype(np.int16)


def cached_shares(observations: Iterable[Observation], catalog: Catalog) -> dict[str, dict[str, float]]:
    """Return the share of prompt tokens served from a cache, in [0, 1], by model and edge type.

    Only rows whose provider reported both counts are used; models and edge types without such rows are left out.
    """
    total: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for row in observations:
        if row.tokens_cached is not None and row.tokens_in:
            counts = total[row.prefix[-1], edge_of(row.prefix, catalog)]
            counts[0] += row.tokens_cached
            counts[1] += row.tokens_in
    shares: dict[str, dict[str, float]] = {}
    for name in catalog:
        found = {edge: total[name, edge][0] / total[name, edge][1] for edge in EDGES if (name, edge) in total}
        if found:
            shares[name] = found
    return shares


def follow_ups(annotated: AnnotatedTrie) -> list[dict[str, Any]]:
    """Return per model the estimated dollars and seconds of a later invocation, after a switch and with the model kept.

    Means within a depth, averaged over the depths that have both edge types; models without such a depth are left out. Each row
    has the keys ``model`` and :data:`FIGURES`.
    """
    trie, rows = annotated.trie, []
    edges = edge_types(trie, index_per_node(trie, [annotated.catalog[name].prompt_cache for name in trie.models]))
    for index, name in enumerate(trie.models):
        found = []
        for level in trie.levels[2:]:
            nodes = level[trie.model[level] == index]
            is_same = edges[nodes] == EDGES.index("kept")
            if is_same.any() and not is_same.all():
                kinds = (nodes[~is_same], nodes[is_same])
                found.append([float(values[at].mean()) for values in (annotated.cost_usd, annotated.latency_s) for at in kinds])
        if found:
            rows.append({"model": name, **dict(zip(FIGURES, np.mean(found, axis=0).tolist(), strict=True))})
    return rows


def at_call_rate(
    observations: Sequence[Observation], catalog: Catalog, calls_per_hour: float = 0.0, annotated: AnnotatedTrie | None = None
) -> tuple[list[Observation], dict[str, Any]]:
    """Return the rows with the dollars that a service pays, whose requests come less often than those of a profile. Pure.

    Hits on what the same request has sent before stay as they were charged. What other requests left in the cache, the part of
    a prompt that is the same for all, is warm with P = 1 - exp(-rate * TTL): the rate is that of the requests that reach the
    invocation, if all follow its path. So the dollars of a path hold for the plan that takes it, without any iteration.

    Args:
        observations: The rows of a profile, as they were charged.
        catalog: Their models, with prices and how long caches last.
        calls_per_hour: Requests of the service per hour, >= 0; 0: each finds the caches cold.
        annotated: The trie of these rows, which says who reaches an invocation. None, or merged histories: every request does.

    Returns:
        The rows in their order, and what ``meta`` of the trie says of it, as ``prompt_cache``: the rate, and the common
        tokens by stage and model. Nothing where no row shows common tokens.

    Raises:
        ConfigError: The rate is negative or not finite.
    """
    if not (calls_per_hour >= 0.0 and math.isfinite(calls_per_hour)):
        raise ConfigError(
            f"calls_per_hour is {calls_per_hour}: give the requests of the service per hour, a number >= 0",
            code="calls-per-hour",
        )
    prompts = _prompts(observations, catalog)
    shared = _shared_tokens([prompt for prompt in prompts if prompt is not None])
    if not shared:
        return list(observations), {}
    reach = [1.0] * len(prompts)
    if calls_per_hour and annotated is not None and annotated.has_path_metrics:
        reach = [annotated.reach[node] for _, node in rows_with_nodes(observations, annotated.trie, annotated.template.stop)]
    priced = [
        row if prompt is None else replace(row, cost_usd=prompt.usd(row.cost_usd, shared, calls_per_hour * share))
        for row, prompt, share in zip(observations, prompts, reach, strict=True)
    ]
    tokens: dict[str, dict[str, int]] = defaultdict(dict)
    for name in catalog:
        for (stage, cache), common in shared.items():
            if cache == catalog[name].prompt_cache:
                tokens[stage][name] = common.tokens
    return priced, {"prompt_cache": {"calls_per_hour": calls_per_hour, "shared_tokens": dict(tokens)}}


_Key = tuple[str, tuple[str, str]]
"""A stage and the prompt cache of its model: what the common part of a prompt belongs to."""


@dataclass(frozen=True, slots=True)
class _Common:
    """Prompt tokens that other requests make warm.

    ``is_chained``: an earlier stage of the same request sends them, too, so that they are warm if it has run on the same cache.
    Hits after it then go beyond what all requests have in common.
    """

    tokens: int
    is_chained: bool


@dataclass(frozen=True, slots=True)
class _Prompt:
    """The prompt of one call of a row, on the mean of its calls.

    ``is_alone``: no other branch of the request ran this stage on this cache before. What such a branch left behind, the
    request's own text, no service finds.

    ``met`` says who may have left it in the cache: a request's first invocation on it meets what other requests left; one that
    follows the same stage what its own request did; one that follows another stage either. ``held`` are the tokens that the own
    request has sent at most.
    """

    key: _Key
    is_alone: bool
    model: Model
    calls: int
    tokens_in: int
    hit: int
    met: Literal["first", "chained", "same"]
    held: float

    @classmethod
    def of(
        cls, row: Observation, rows: Mapping[Cell, Observation], catalog: Catalog, seen: set[tuple[str, _Key]]
    ) -> _Prompt | None:
        """The prompt of a row; None if it is not known. ``seen`` are the requests and keys of the rows before, and then its."""
        if row.tokens_cached is None or not row.tokens_in or not row.calls or not set(row.prefix) <= set(catalog):
            return None
        model = catalog[row.model]
        depths = [k for k in range(1, row.depth) if catalog[row.prefix[k - 1]].prompt_cache == model.prompt_cache]
        earlier = [rows.get((row.request_id, row.prefix[:k])) for k in depths]
        is_same = any(one is None or one.stage == row.stage for one in earlier)
        key = (row.stage, model.prompt_cache)
        is_alone = (row.request_id, key) not in seen
        seen.add((row.request_id, key))
        return cls(
            key=key,
            is_alone=is_alone,
            model=model,
            calls=row.calls,
            tokens_in=row.tokens_in // row.calls,
            hit=row.tokens_cached // row.calls,
            met="first" if not earlier else "same" if is_same else "chained",
            held=max((_sent(one) for one in earlier), default=0.0),
        )

    def usd(self, charged_usd: float, shared: Mapping[_Key, _Common], requests_per_hour: float) -> float:
        """The dollars of the row where the cache is warm as often as such a rate of requests makes it."""
        price, common = self.model.price, shared.get(self.key)
        own = self.met == "same" or (
            self.met == "chained" and (common is None or common.is_chained or (self.is_alone and self.hit > common.tokens))
        )
        foreign = max(self.hit - self.held, 0) if own else self.hit
        dollars = charged_usd + price.cache_saves_usd(self.tokens_in, foreign)
        if common is not None and not own:
            ttl_h = (price.cache_ttl_s or CACHE_TTL_S) / 3600.0
            warm = -math.expm1(-requests_per_hour * ttl_h / len(entries_of(self.model)))
            dollars -= warm * price.cache_saves_usd(self.tokens_in, common.tokens)
        return max(dollars, 0.0)


def _prompts(observations: Sequence[Observation], catalog: Catalog) -> list[_Prompt | None]:
    """The prompt of each row, in their order, which is that of their execution; None where it is not known."""
    rows = {(row.request_id, row.prefix): row for row in observations}
    seen: set[tuple[str, _Key]] = set()
    return [_Prompt.of(row, rows, catalog, seen) for row in observations]


def _sent(row: Observation | None) -> float:
    """The tokens that an invocation left in the cache at most."""
    return math.inf if row is None or row.tokens_in is None else float(row.tokens_in + (row.tokens_out or 0))


def _shared_tokens(prompts: Sequence[_Prompt]) -> dict[_Key, _Common]:
    """The common part of the prompts of each stage and cache; left out where no row has a hit on it."""
    alone: dict[_Key, list[_Prompt]] = defaultdict(list)
    for prompt in prompts:
        if prompt.met != "same" and prompt.is_alone:
            alone[prompt.key].append(prompt)
    found = {}
    for key, here in alone.items():
        first = [prompt.hit for prompt in here if prompt.met == "first" and prompt.hit]
        chained = [prompt.hit for prompt in here if prompt.met == "chained"]
        if first:
            tokens = int(np.median(first))
            found[key] = _Common(tokens, is_chained=bool(chained) and float(np.median(chained)) > tokens)
        elif 0 in chained and any(chained):  # a cold row: an earlier stage of the request does not send the same
            found[key] = _Common(int(np.quantile([hit for hit in chained if hit], 0.1, method="lower")), is_chained=False)
    return found
