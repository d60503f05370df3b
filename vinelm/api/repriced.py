"""An annotated trie at other prices: the estimate of its own store's rows, with their dollars at these prices."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from vinelm.api.estimation import estimate_store, require_same_workflow
from vinelm.catalog import Catalog
from vinelm.errors import ConfigError
from vinelm.traces import ObservationStore, reprice_store
from vinelm.trie.annotated_trie import AnnotatedTrie

_EQUAL = 1e-9


def repriced_trie(annotated: AnnotatedTrie, store: Path, prices: Catalog, *, where: str = "the trie") -> AnnotatedTrie:
    """Return a trie at other prices. Calls no model, and changes no file.

    A trie holds no tokens. So the rows that it was estimated from are priced anew, in a temporary copy of the store, and
    estimated in the same way. Accuracies and seconds stay as they are. ``meta["repriced"]`` names the models with a new price.

    Args:
        annotated: The trie.
        store: The store that it was estimated from, with no row added since.
        prices: Has an entry for each model of the store; only prices are taken from it.
        where: What errors call the trie: its file.

    Raises:
        ConfigError: The store is not the trie's, or has other rows now; a model has no price, or no price differs.
        StoreError: The store cannot be read, or a row of a model with a new price recorded no tokens.
    """
    with ObservationStore.open(store) as opened:
        require_same_workflow(annotated, opened.identity.workflow, opened.identity.dataset_digest, where)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / store.name
        done = reprice_store(store, path, prices)
        name, stop = str(annotated.meta.get("estimator", "latent")), annotated.template.stop
        is_checked, rate = "evidence" in annotated.meta, annotated.calls_per_hour or 0.0
        found = estimate_store(path, estimator=name, stop=stop, checked=is_checked, calls_per_hour=rate)
    if not _has_same_answers(annotated, found):
        raise ConfigError(
            f"{where}: was not estimated from the rows that {store} has now: run `vinelm estimate` on the store first",
            code="trie-not-of-store",
        )
    names = [model.name for model in done.models if model.has_new_price]
    return replace(found, meta={**found.meta, "repriced": names})


def _has_same_answers(one: AnnotatedTrie, other: AnnotatedTrie) -> bool:
    if one.trie != other.trie or one.meta.get("observations") != other.meta.get("observations"):
        return False
    return bool(
        np.allclose(one.success, other.success, rtol=_EQUAL, atol=_EQUAL)
        and np.allclose(one.stop, other.stop, rtol=_EQUAL, atol=_EQUAL)
    )
