"""What a change of model costs: prompt tokens that a cache served, by edge, and what an invocation is estimated to take."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np

from vinelm.annotated_trie import AnnotatedTrie
from vinelm.catalog import Catalog
from vinelm.observation import Observation

EDGES = ("first", "switched", "kept")
"""An invocation by what ran just before it in the request: nothing, something elsewhere, the same model on the same engine."""

FIGURES = ("switched_cost_usd", "kept_cost_usd", "switched_latency_s", "kept_latency_s")


def edge_of(prefix: tuple[str, ...], catalog: Catalog) -> str:
    """One of :data:`EDGES` for the last invocation of ``prefix``."""
    if len(prefix) < 2:
        return "first"
    return "kept" if catalog[prefix[-1]].prompt_cache == catalog[prefix[-2]].prompt_cache else "switched"


def cached_shares(observations: Iterable[Observation], catalog: Catalog) -> dict[str, dict[str, float]]:
    """Share of the prompt tokens that a cache served, in [0, 1], by model and edge.

    Only of rows whose provider reported both counts; a model without such rows is left out.
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
    """Per model: estimated dollars and seconds of one later invocation, ``switched`` to it and with the model ``kept``.

    Compared within a depth, then averaged over the depths that have both; a model that has no such depth is left out.
    """
    trie, rows = annotated.trie, []
    caches = [annotated.catalog[name].prompt_cache for name in trie.models]
    cache = np.array([caches.index(cache) for cache in caches])[trie.model]  # the root's is never looked at
    for index, name in enumerate(trie.models):
        found = []
        for level in trie.levels[2:]:
            nodes = level[trie.model[level] == index]
            is_same = cache[nodes] == cache[trie.parent[nodes]]
            if is_same.any() and not is_same.all():
                kinds = (nodes[~is_same], nodes[is_same])
                found.append([float(values[at].mean()) for values in (annotated.cost_usd, annotated.latency_s) for at in kinds])
        if found:
            rows.append({"model": name, **dict(zip(FIGURES, np.mean(found, axis=0).tolist(), strict=True))})
    return rows
