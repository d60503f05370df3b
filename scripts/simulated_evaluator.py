"""A simulated application for `promises.py`: answer, critique, rewrite in a loop, with an imperfect check of its own.

Its structure is not the latent estimator's: the critique gives no answer, and what it finds decides what a rewrite does. The
check is fooled by the same requests again and again. Nothing here is fitted to an estimator.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from science.recorded_table import RecordedTable

from vinelm.catalog import Catalog
from vinelm.template import Loop, Stage, Template
from vinelm.trie import Trie

Floats = npt.NDArray[np.float64]
MEAN_ABILITY = {"answer": -0.6, "critique": 0.3, "rewrite": 0.0}


def make_evaluator(catalog: Catalog, times: int, seed: int, n_requests: int) -> RecordedTable:
    """The complete table of an application whose loop of three stages runs up to ``times`` times."""
    rng = np.random.default_rng([seed, 77])
    loop = Loop((Stage("answer"), Stage("critique", answerable=False), Stage("rewrite")), times)
    template = Template((loop,), "workflow").bind(tuple(catalog))
    trie, n_models = Trie.from_template(template), len(catalog)
    chance = _chances(rng, n_requests, n_models)
    accepts_right, accepts_wrong = rng.normal(1.5, 0.4), rng.normal(-0.8, 0.5)
    is_fooled = rng.normal(0.0, 1.0, n_requests)
    right, stopped = (np.zeros((n_requests, len(trie)), np.bool_) for _ in range(2))
    found = np.zeros_like(right)
    for node in range(1, len(trie)):
        up, stage = int(trie.parent[node]), trie.stages[trie.stage[node]]
        p, draw = chance[stage][:, trie.model[node]], rng.random(n_requests)
        before = right[:, up]
        if stage == "answer":
            right[:, node] = draw < np.where(before, 0.7 + 0.3 * p, p if up == 0 else 0.5 * p)
        elif stage == "critique":
            right[:, node], found[:, node] = before, draw < np.where(before, 0.3 * (1.0 - p), p)
        else:
            seen = found[:, up]
            right[:, node] = draw < np.where(before, np.where(seen, 0.55 + 0.4 * p, 0.97), np.where(seen, 0.7 * p, 0.08))
            verdict = np.where(right[:, node], accepts_right, accepts_wrong + is_fooled)
            stopped[:, node] = rng.random(n_requests) < _sigmoid(verdict)
    usd = 1e-4 * 3.0 ** rng.permutation(n_models)
    cost = usd[np.maximum(trie.model, 0)] * rng.lognormal(0.0, 0.3, (n_requests, 1))
    cost[:, 0] = 0.0
    return RecordedTable(
        template=template, catalog=catalog, trie=trie, request_ids=tuple(f"q{i:04d}" for i in range(n_requests)),
        success=right & trie.answerable, stopped=stopped, cost_usd=cost, latency_s=np.zeros_like(cost),
    )  # fmt: skip


def _chances(rng: np.random.Generator, n_requests: int, n_models: int) -> dict[str, Floats]:
    """Chance of each stage to do well, shape (requests, models): ability, ease of the request, and a persistent effect."""
    ease = rng.normal(0.0, 1.2, (n_requests, 1))
    return {
        stage: _sigmoid(rng.normal(mean, 0.8, n_models) + ease + rng.normal(0.0, 0.8, (n_requests, n_models)))
        for stage, mean in MEAN_ABILITY.items()
    }


def _sigmoid(logit: Floats) -> Floats:
    return np.asarray(1.0 / (1.0 + np.exp(-logit)))
