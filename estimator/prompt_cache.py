"""Edge types of calls (first, same prompt cache as the call before, or another), and their effect on cost and latency."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from vinelm.catalog import Catalog
from vinelm.rows.observation import Observation
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import AnnotatedTrie

EDGES = ("first", "switched", "kept")
"""The edge types of a call: the first call of a request; after a call with another prompt cache, or with the same one.
"""

FIGURES = ("switched_cost_usd", "kept_cost_usd", "switched_latency_s", "kept_latency_s")


def edge_of(prefix: tuple[str, ...], catalog: Catalog) -> str:
    """Return the edge type of the last call of ``prefix``: what its prompt cache may hold.

    It is "first" for a request's first call, "kept" if the call before used the same prompt cache, else "switched".
    """
    if len(prefix) < 2:
        return "first"
    return "kept" if catalog[prefix[-1]].prompt_cache == catalog[prefix[-2]].prompt_cache else "switched"


def edge_types(trie: Trie, cache: npt.NDArray[np.int16]) -> npt.NDArray[np.int64]:
    """Return the edge type of each node as an index into :data:`EDGES`, shape (nodes,).

    Args:
        trie: the trie.
        cache: index of each node's prompt cache, shape (nodes,) (:attr:`vinelm.catalog.Model.prompt_cache`).
    """
    parent = np.maximum(trie.parent, 0)
    return np.where(trie.depth < 2, 0, np.where(cache == cache[parent], 2, 1)).astype(np.int64)


def index_per_node(trie: Trie, of_model: Sequence[Hashable]) -> npt.NDArray[np.int16]:
    """Return a number for each node, equal for nodes whose models have equal entries in ``of_model``; -1 at the root.

    The number is the index of the first model with the entry. ``of_model`` has an entry for each model of the trie.
    """
    index = np.array([of_model.index(value) for value in of_model], np.int16)
    return np.where(trie.model >= 0, index[trie.model], np.int16(-1)).astype(np.int16)


def cached_shares(observations: Iterable[Observation], catalog: Catalog) -> dict[str, dict[str, float]]:
    """Return the share of prompt tokens served from a cache, in [0, 1], by model and edge type.

    Uses only results whose provider reported both counts; omits models and edge types without such results.
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
    """Return the estimated cost and latency of each model's calls that are not a request's first, one dictionary per model.

    The keys are ``model`` and :data:`FIGURES`: dollars and seconds of two kinds of call. Before a "switched" call, another
    prompt cache was used; before a "kept" call, the same one. Each figure is the mean over a model's nodes of one depth,
    averaged over the depths that have both kinds of call. Models without such a depth are omitted.
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
