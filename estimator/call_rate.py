"""Adjusts costs to a service's request rate: tokens that other requests cached stay cached only if requests come often."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from vinelm.catalog import Catalog
from vinelm.catalog.model import CACHE_TTL_S, Model, entries_of
from vinelm.errors import ConfigError
from vinelm.estimator.row_nodes import rows_with_nodes
from vinelm.prompts.radix import PromptTree, common_tokens
from vinelm.prompts.shape import Shape
from vinelm.rows.observation import Cell, Observation
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.arrays import FloatArray

MOST_SCALE = 3.0
"""How many provider tokens a shape's token may correspond to; above this the provider has read more than was sent."""


@dataclass(frozen=True, eq=False)
class CallRate:
    """Converts the costs of a profile's results, in dollars, to those of a service with fewer requests per hour. Pure.

    Cache hits on tokens that the same request sent before keep the price that was charged. The part of a prompt that all
    requests have in common is in the cache (warm) with P = 1 - exp(-rate * TTL). Here, the rate counts the requests that would
    reach the call if all requests followed its path. So a path costs the same in every plan that takes it.

    Args:
        observations: The results with the dollars that were charged, in the order of their execution.
        catalog: Their models, with prices and cache lifetimes.
        per_hour: The service's requests per hour, >= 0; at 0, each request finds cold caches.
        prompts: The shapes (hashes of prefixes) of the results' prompts. They show which part of a cache hit the request's
            earlier calls had sent, and which part all requests send. For results without shapes, this is inferred from the
            earlier results.

    Raises:
        ConfigError: The rate is negative or not finite.
    """

    observations: Sequence[Observation]
    catalog: Catalog
    per_hour: float = 0.0
    prompts: Mapping[Cell, Sequence[Shape]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (self.per_hour >= 0.0 and math.isfinite(self.per_hour)):
            raise ConfigError(
                f"calls_per_hour is {self.per_hour}: give the requests of the service per hour, a number >= 0",
                code="calls-per-hour",
            )

    @property
    def facts(self) -> dict[str, Any]:
        """The ``prompt_cache`` part of the trie's ``meta``.

        It has the rate, and by stage and model the number of tokens that all requests have in common. It is empty if no result
        has such tokens; the costs then hold at any rate.
        """
        if not self._shared:
            return {}
        tokens: dict[str, dict[str, int]] = defaultdict(dict)
        for name in self.catalog:
            for (stage, cache), common in self._shared.items():
                if cache == self.catalog[name].prompt_cache:
                    tokens[stage][name] = common.tokens
        return {"prompt_cache": {"calls_per_hour": self.per_hour, "shared_tokens": dict(tokens)}}

    def rows(self, annotated: AnnotatedTrie | None = None) -> list[Observation]:
        """Return the results in their order, with the cost that each would have at the service's request rate.

        Args:
            annotated: The trie of these results, which gives the share of requests that reach each call. If it is None, or if
                one of its nodes stands for several sequences of earlier calls, all requests are assumed to reach every call.
        """
        if not (self._shared and self.per_hour and annotated is not None):
            return self._priced([self.per_hour] * len(self.observations))
        nodes = rows_with_nodes(self.observations, annotated.trie, annotated.template.stop)
        return self._priced([self.per_hour * float(annotated.reading.reach[node]) for _, node in nodes])

    def warm_rows(self) -> list[Observation]:
        """Return the results with the costs that they would have if prompt caches were always warm.

        :meth:`applied` takes a trie estimated from these results.
        """
        return self._priced([math.inf] * len(self.observations))

    def applied(self, annotated: AnnotatedTrie) -> AnnotatedTrie:
        """Return ``annotated``, which was estimated from :meth:`warm_rows`, with the costs at the service's request rate.

        The expected cost of cache misses is added to the cost of each node. It is computed from the rate at which requests
        would reach the node if all of them followed its path. The node's results are not used for this, so it also works for a
        path without results. If a node of the trie stands for several sequences of calls, it is unknown what an earlier call
        left in the cache. Then the same cost is added to all nodes of a stage and model: the mean over all of their results.
        """
        if not self._shared:
            return annotated
        if annotated.trie.is_merged:
            return replace(annotated, cost_usd=annotated.cost_usd + self._cold_rows(annotated.trie))
        trie = annotated.trie
        extra = np.zeros(len(trie))
        for model in range(len(trie.models)):
            for stage in range(len(trie.stages)):
                extra += self._cold_nodes(annotated, stage, model)
        return replace(annotated, cost_usd=annotated.cost_usd + extra)

    def _cold_nodes(self, annotated: AnnotatedTrie, stage: int, model: int) -> FloatArray:
        """Return the expected cost of cache misses per call, in dollars, at the nodes of one stage and model; shape (nodes,).

        All other nodes have 0. So have nodes at which an earlier call of the path has already sent the common part of the
        prompts to the cache.

        Args:
            annotated: The trie.
            stage: The index of the stage.
            model: The index of the model.
        """
        trie, entry = annotated.trie, self.catalog[annotated.trie.models[model]]
        common = self._shared.get((trie.stages[stage], entry.prompt_cache))
        if common is None:
            return np.zeros(len(trie))
        on_cache = np.array([self.catalog[name].prompt_cache == entry.prompt_cache for name in trie.models])[trie.model]
        on_cache[0] = False
        runs = on_cache if common.is_chained else on_cache & (trie.stage == stage)
        is_first = (trie.stage == stage) & (trie.model == model) & (trie.accumulate(runs.astype(np.int64)) == 1)
        cold = _cold(entry, self.per_hour * annotated.reach)
        return np.where(is_first, cold * entry.price.cache_saves_usd(common.tokens_in, common.tokens), 0.0)

    def _cold_rows(self, trie: Trie) -> FloatArray:
        """Return how much cold caches add to the cost of each node's call, in dollars; shape (nodes,).

        This is the mean over all results that have the node's stage and model.
        """
        added: dict[tuple[str, str], list[float]] = defaultdict(list)
        for cold, warm in zip(self.rows(), self.warm_rows(), strict=True):
            added[warm.stage, warm.model].append(cold.cost_usd - warm.cost_usd)
        extra = np.zeros(len(trie))
        for (stage, model), dollars in added.items():
            here = (trie.stage == trie.stages.index(stage)) & (trie.model == trie.models.index(model))
            extra[here] = float(np.mean(dollars))
        return extra

    def _priced(self, rates: Sequence[float]) -> list[Observation]:
        """Return each result with its cost in dollars at the given rate of requests per hour, one rate for each result."""
        if not self._shared:
            return list(self.observations)
        return [
            row if prompt is None else replace(row, cost_usd=prompt.usd(row.cost_usd, self._shared, rate))
            for row, prompt, rate in zip(self.observations, self._prompts, rates, strict=True)
        ]

    @cached_property
    def _prompts(self) -> list[_Prompt | None]:
        """The prompt of each result, in the order of the results; None if the token counts or the models are unknown."""
        rows = {(row.request_id, row.prefix): row for row in self.observations}
        seen: set[tuple[str, _Key]] = set()
        found = [_Prompt.of(row, rows, self.catalog, seen) for row in self.observations]
        return found if not self.prompts else [self._sharper(*pair) for pair in zip(self.observations, found, strict=True)]

    def _sharper(self, row: Observation, prompt: _Prompt | None) -> _Prompt | None:
        """Return the prompt of the result ``row``, with token counts computed from the recorded shape of the prompt's text.

        The prompt is returned unchanged if its shape is unknown, or if the shape of an earlier prompt of the request on the
        same cache is unknown. It also stays unchanged if the provider counted over :data:`MOST_SCALE` times the shape's tokens.
        """
        cells = [(row.request_id, row.prefix[:k]) for k in range(1, row.depth + 1)]
        if prompt is None or cells[-1] not in self._static:
            return prompt
        earlier = [cell for cell in cells[:-1] if self.catalog[cell[1][-1]].prompt_cache == prompt.model.prompt_cache]
        if not all(cell in self.prompts for cell in earlier):
            return prompt
        first, *_ = mine = self.prompts[cells[-1]]
        scale = (row.tokens_in or 0) / max(sum(shape.tokens for shape in mine), 1)  # shapes count bytes
        if scale > MOST_SCALE:
            return prompt
        sent = [common_tokens(first, shape) for cell in earlier for shape in self.prompts[cell]]
        return replace(prompt, held=scale * max(sent, default=0), static=scale * self._static[cells[-1]])

    @cached_property
    def _static(self) -> dict[Cell, float]:
        """For each result, how many tokens at the start of its first prompt nearly all requests of the stage also send.

        The numbers are approximate. The keys are (request, prefix). Results without prompt shapes are left out.
        """
        tree, at = PromptTree(), dict[Cell, int]()
        for row in self.observations:
            cell = (row.request_id, row.prefix)
            for shape in self.prompts.get(cell, ()):
                at.setdefault(cell, len(tree))
                tree.add(row.stage, row.request_id, shape)
        static = tree.labels()[:, 0].tolist()
        return {cell: float(static[place]) for cell, place in at.items()}

    @cached_property
    def _shared(self) -> dict[_Key, _Common]:
        return _shared_tokens([prompt for prompt in self._prompts if prompt is not None])


def _cold(model: Model, per_hour: npt.ArrayLike) -> FloatArray:
    """Return P(cold cache) at the given number of requests per hour.

    This is the probability that no request came to the model's replica within the cache's time to live.
    """
    ttl_h = (model.price.cache_ttl_s or CACHE_TTL_S) / 3600.0
    return np.exp(-np.asarray(per_hour, np.float64) * ttl_h / len(entries_of(model)))


_Key = tuple[str, tuple[str, str]]
"""A stage and the prompt cache of its model, to which the common part of a prompt belongs."""


@dataclass(frozen=True, slots=True)
class _Common:
    """The part of a prompt that is the same for all requests, so that a request may find it in the cache after another request.

    Attributes:
        tokens: the number of tokens in this part.
        tokens_in: the mean number of tokens in the whole prompt.
        is_chained: whether an earlier stage of the same request also sends these tokens. If that stage ran on the same cache,
            the tokens are then in the cache.
    """

    tokens: int
    tokens_in: int
    is_chained: bool


@dataclass(frozen=True, slots=True)
class _Prompt:
    """The prompts of one result, averaged over the result's model calls.

    Attributes:
        key: the stage and the cache.
        is_alone: whether this is the request's first result with this stage and cache. In a profile, an earlier path of the
            request may have left the request's text in the cache. A service runs only one path.
        calls: the number of the result's model calls.
        tokens_in: prompt tokens per model call.
        hit: the part of ``tokens_in`` that was read from the cache.
        met: which earlier calls of this path may have filled the cache: none (``"first"``), one of the same or an unknown stage
            (``"same"``), or only calls of other stages (``"chained"``).
        held: the maximum number of tokens that the request itself has sent, or the exact number if the prompt's shapes
            (hashes of prefixes) are known.
        static: the number of tokens that all requests send; None if shapes are unknown.
    """

    key: _Key
    is_alone: bool
    model: Model
    calls: int
    tokens_in: int
    hit: int
    met: Literal["first", "chained", "same"]
    held: float
    static: float | None = None

    @classmethod
    def of(
        cls, row: Observation, rows: Mapping[Cell, Observation], catalog: Catalog, seen: set[tuple[str, _Key]]
    ) -> _Prompt | None:
        """Return the prompt of the result ``row``; None if its token counts are missing or a model is not in the catalog.

        ``rows`` has all results, keyed by request and prefix. ``seen`` has (request, key of the prompt) for each earlier
        result; this result's pair is added to it.
        """
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
        """Return what the result would cost, in dollars, if the service got ``requests_per_hour`` requests per hour.

        ``charged_usd`` are the dollars that it cost in the profile. ``shared`` has, for each stage and prompt cache, the
        beginning that its prompts have in common.
        """
        price, common = self.model.price, shared.get(self.key)
        if self.static is not None:
            others = int(max(self.hit - self.held, 0))
            beyond = 0 if common is None else int(max(common.tokens - self.held, 0))
            warm = 1.0 - float(_cold(self.model, requests_per_hour))
            saved = price.cache_saves_usd(self.tokens_in, others) - warm * price.cache_saves_usd(self.tokens_in, beyond)
            return max(charged_usd + saved, 0.0)
        own = self.met == "same" or (
            self.met == "chained" and (common is None or common.is_chained or (self.is_alone and self.hit > common.tokens))
        )
        foreign = max(self.hit - self.held, 0) if own else self.hit
        dollars = charged_usd + price.cache_saves_usd(self.tokens_in, foreign)
        if common is not None and not own:
            warm = 1.0 - float(_cold(self.model, requests_per_hour))
            dollars -= warm * price.cache_saves_usd(self.tokens_in, common.tokens)
        return max(dollars, 0.0)


def _sent(row: Observation | None) -> float:
    """Return the maximum number of tokens that the call of the result ``row`` left in the cache: its prompt and its answer.

    Infinity if there is no result or its token count is missing.
    """
    return math.inf if row is None or row.tokens_in is None else float(row.tokens_in + (row.tokens_out or 0))


def _shared_tokens(prompts: Sequence[_Prompt]) -> dict[_Key, _Common]:
    """Return the beginning that a stage's prompts have in common on one prompt cache, keyed by (stage, cache).

    A stage and cache is left out if no call read such a beginning from the cache.
    """
    alone: dict[_Key, list[_Prompt]] = defaultdict(list)
    unknown = {prompt.key for prompt in prompts if prompt.static is None}
    by_shape: dict[_Key, list[_Prompt]] = defaultdict(list)
    for prompt in prompts:
        if prompt.key not in unknown:
            by_shape[prompt.key].append(prompt)
        elif prompt.met != "same" and prompt.is_alone:
            alone[prompt.key].append(prompt)
    found = {key: common for key, here in by_shape.items() if (common := _common(here)) is not None}
    for key, here in alone.items():
        first = [prompt.hit for prompt in here if prompt.met == "first" and prompt.hit]
        chained = [prompt.hit for prompt in here if prompt.met == "chained"]
        tokens_in = int(np.mean([prompt.tokens_in for prompt in here]))
        if first:
            tokens = int(np.median(first))
            found[key] = _Common(tokens, tokens_in, is_chained=bool(chained) and float(np.median(chained)) > tokens)
        elif 0 in chained and any(chained):  # a cold row: an earlier stage of the request does not send the same
            tokens = int(np.quantile([hit for hit in chained if hit], 0.1, method="lower"))
            found[key] = _Common(tokens, tokens_in, is_chained=False)
    return found


def _common(here: Sequence[_Prompt]) -> _Common | None:
    """Return figures of the beginning that the prompts ``here`` have in common, such as its number of tokens.

    The prompts belong to one stage and one prompt cache, and have known shapes (hashes of their prefixes). The result is None
    if no call read tokens from the cache that another request had sent.
    """
    hits = [min(float(prompt.hit), prompt.static or 0.0) for prompt in here]
    foreign = [hit for hit, prompt in zip(hits, here, strict=True) if hit > prompt.held]
    if not foreign:
        return None
    tokens = int(np.median(foreign))
    chained = [prompt.held for prompt in here if prompt.met == "chained"]
    is_chained = bool(chained) and float(np.median(chained)) >= tokens
    return _Common(tokens, int(np.mean([prompt.tokens_in for prompt in here])), is_chained)
