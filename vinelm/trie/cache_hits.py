"""The effect of a call cache on a trie: invocations answered by the cache cost nothing and take no time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from vinelm.trie.annotated_trie import AnnotatedTrie, AnyTrie

KEY = "cache_hits"
"""Key in a trie's ``meta``: the rates by stage and model."""


def with_hits(annotated: AnyTrie, rates: Mapping[tuple[str, str], float]) -> AnyTrie:
    """Return a copy of the trie with lower dollars and seconds, for a service in which a cache answers a share of the
    invocations.

    Args:
        annotated: The trie, estimated as if every call were made. Seconds of tools are not known separately, and count as model
            seconds.
        rates: The share of the invocations that the cache answers, in [0, 1), keyed by (stage of the workflow, model).
    """
    if not rates:
        return annotated
    told: dict[str, dict[str, float]] = {}
    for (stage, model), rate in rates.items():
        told.setdefault(stage, {})[model] = rate
    trie, base = annotated.trie, annotated.template.base_stages
    own = [told.get(base[name], {}) for name in annotated.stage_names]
    by_stage = np.array([[of_model.get(model, 0.0) for model in trie.models] for of_model in own])
    asked = 1.0 - np.where(trie.model < 0, 0.0, by_stage[trie.stage, trie.model])
    changed: dict[str, Any] = {}
    for mean, var in (("cost_usd", "cost_var"), ("latency_s", "latency_var")):
        old, spread = getattr(annotated, mean), getattr(annotated, var)
        changed[mean] = asked * old
        changed[var] = asked * (spread + old**2) - changed[mean] ** 2
    for name in ("cost_size_var", "latency_size_var"):
        size_var = getattr(annotated, name)
        if size_var is not None:
            changed[name] = asked**2 * size_var
    signals = annotated.signals and with_hits(annotated.signals, rates)
    return replace(annotated, signals=signals, meta={**annotated.meta, KEY: told}, **changed)


def seconds_if_asked(annotated: AnnotatedTrie, node: int) -> float:
    """Return the expected seconds of a node's invocation if the cache does not answer it, so that the model is called."""
    seconds, trie = float(annotated.latency_s[node]), annotated.trie
    told: Mapping[str, Mapping[str, float]] = annotated.meta.get(KEY, {})
    if not told or trie.model[node] < 0:
        return seconds
    stage = annotated.template.base_stages[annotated.stage_names[trie.stage[node]]]
    return seconds / (1.0 - told.get(stage, {}).get(trie.models[trie.model[node]], 0.0))
