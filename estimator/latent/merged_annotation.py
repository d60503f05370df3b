"""The annotated merged trie of the latent model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from vinelm.catalog import Catalog
from vinelm.estimator.cost_latency import MeanEstimate
from vinelm.estimator.latent.merged_prediction import MergedRates
from vinelm.estimator.observation_table import ObservationTable
from vinelm.template import Template
from vinelm.trie import MergedTrie
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.arrays import FloatArray


def annotate_merged(
    cells: ObservationTable,
    template: Template,
    catalog: Catalog,
    predicted: MergedRates,
    *,
    cost_usd: MeanEstimate,
    latency_s: MeanEstimate,
    meta: Mapping[str, Any],
) -> AnnotatedTrie:
    """Return the trie with the predicted rates, and dollars and seconds that know depth, model, node and mix of difficulties.

    Standard errors are those of one invocation.
    """
    trie = cells.trie
    assert isinstance(trie, MergedTrie)
    rates = predicted.rates
    return AnnotatedTrie(
        trie=trie,
        template=template,
        catalog=catalog,
        success=rates.success,
        stop=rates.stop,
        stop_success=rates.stop_success,
        cost_usd=cost_usd.mean,
        cost_var=cost_usd.var,
        latency_s=latency_s.mean,
        latency_var=latency_s.var,
        cost_size_var=cost_usd.size_var,
        latency_size_var=latency_s.size_var,
        accuracy_se=predicted.success_se,
        cost_se=_error_of_mean(cost_usd),
        latency_se=_error_of_mean(latency_s),
        count=cells.count,
        arm=None if predicted.arms is None else predicted.arms[0],
        arm_success=None if predicted.arms is None else predicted.arms[1],
        difficulty=predicted.by_difficulty,
        meta=meta,
    )


def _error_of_mean(estimate: MeanEstimate) -> FloatArray:
    """All three parts of the error, since one invocation has all of them."""
    return np.asarray(np.sqrt(estimate.mean_var + estimate.along**2 + estimate.mean**2 * estimate.shared))
