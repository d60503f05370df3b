"""Simulated truths that branch, for `bench_estimator.py`: complete outcome tables, made from a seed.

Every number is simulated. A request has an ease and a kind; the model at a decision recognises the kind with its own skill, so
that it changes which arm is taken; on a wrong arm the answer is mostly wrong. Nothing here is fitted to an estimator.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from science.recorded_table import RecordedTable
from simulated_truths import catalog_of_models

from vinelm.catalog import Catalog
from vinelm.template import Branch, Stage, Template
from vinelm.trie import Trie

Floats = npt.NDArray[np.float64]
N_REQUESTS = 500


def make_branching_truth(name: str, seed: int = 0, n_models: int = 4, n_requests: int = N_REQUESTS) -> RecordedTable:
    """Return the table of a named structure (see :data:`BRANCHING_TRUTHS`)."""
    rng = np.random.default_rng([seed, sorted(BRANCHING_TRUTHS).index(name), n_models])
    return BRANCHING_TRUTHS[name](rng, catalog_of_models(n_models), n_requests)


def _router(rng: np.random.Generator, catalog: Catalog, n_requests: int) -> RecordedTable:
    """Three arms: search, mathematics, or straight to the writer. Each kind of request belongs on one of them."""
    arms = {"search": (Stage("search", answerable=False),), "math": (Stage("math", answerable=False),), "direct": ()}
    template = Template((Stage("router", answerable=False), Branch(arms), Stage("write"))).bind(tuple(catalog))
    trie = Trie.from_template(template)
    n_models = len(catalog)
    ease, kind = rng.normal(size=n_requests), rng.integers(3, size=n_requests)
    own = 0.6 * rng.normal(size=(n_requests, n_models))  # the same model asked again thinks the same
    skill = rng.permutation(np.linspace(0.2, 2.6, n_models))
    sees = rng.random((n_requests, n_models)) < _logistic(skill + 0.7 * ease[:, None])
    slip = (kind[:, None] + rng.integers(1, 3, size=(n_requests, n_models))) % 3
    stage_of_kind = np.array([trie.stages.index(name) for name in ("search", "math", "write")])
    arm = np.full((n_requests, len(trie)), -1, np.int64)
    arm[:, 0] = trie.stages.index("router")
    ability = rng.normal(0.4, 0.7, (len(trie.stages), n_models))
    success = np.zeros((n_requests, len(trie)), np.bool_)
    for node in range(1, len(trie)):
        stage, path = trie.stages[trie.stage[node]], trie.path(node)
        model = trie.model[node]
        if stage == "router":
            arm[:, node] = stage_of_kind[np.where(sees[:, model], kind, slip[:, model])]
        elif stage == "write":
            taken = trie.stage[path[1]]
            helped = ability[taken, trie.model[path[1]]] if len(path) == 3 else 0.3
            logit = ability[trie.stage[node], model] + helped + 1.1 * ease + own[:, model]
            success[:, node] = rng.random(n_requests) < _logistic(logit - 3.0 * (stage_of_kind[kind] != taken))
        else:
            arm[:, node] = trie.stages.index("write")
    return _table(template, catalog, trie, rng, success=success, stopped=np.zeros_like(success), arm=arm)


def _corrective(rng: np.random.Generator, catalog: Catalog, n_requests: int) -> RecordedTable:
    """Retrieval that is graded, and rewritten where the grader says so; then an answer that a check may send back once."""
    rewrite = Branch({"rewrite": (Stage("rewrite", answerable=False),), "keep": ()})
    template = Template((Stage("grade", answerable=False), rewrite, Stage("answer"), Stage("fix"))).bind(tuple(catalog))
    trie = Trie.from_template(template)
    n_models = len(catalog)
    ease, is_good = rng.normal(size=n_requests), rng.random(n_requests) < 0.55  # the first retrieval is good
    own = 0.6 * rng.normal(size=(n_requests, n_models))
    skill = rng.permutation(np.linspace(0.0, 2.8, n_models))
    grades = rng.random((n_requests, n_models)) < _logistic(skill + 0.5 * ease[:, None])
    ability = rng.normal(0.3, 0.7, (len(trie.stages), n_models))
    found = rng.random((n_requests, n_models)) < _logistic(0.8 + ability[trie.stages.index("rewrite")])
    at = {name: trie.stages.index(name) for name in trie.stages}
    arm = np.full((n_requests, len(trie)), -1, np.int64)
    arm[:, 0] = at["grade"]
    success, stopped = np.zeros((2, n_requests, len(trie)), np.bool_)
    for node in range(1, len(trie)):
        stage, path, model = trie.stages[trie.stage[node]], trie.path(node), trie.model[node]
        if stage == "grade":
            says_good = np.where(grades[:, model], is_good, ~is_good)
            arm[:, node] = np.where(says_good, at["answer"], at["rewrite"])
        elif stage == "rewrite":
            arm[:, node] = at["answer"]
        else:
            rewritten = [step for step in path if trie.stage[step] == at["rewrite"]]
            has_text = np.where(rng.random(n_requests) < 0.1, True, is_good)
            if rewritten:
                has_text = has_text & (rng.random(n_requests) < 0.8) | found[:, trie.model[rewritten[0]]]
            logit = ability[trie.stage[node], model] + 1.1 * ease + own[:, model] + np.where(has_text, 0.8, -1.8)
            success[:, node] = rng.random(n_requests) < _logistic(logit)
            stopped[:, node] = rng.random(n_requests) < np.where(success[:, node], 0.85, 0.4)
            arm[:, node] = np.where(stopped[:, node] | trie.is_leaf[node], -1, at["fix"])
    return _table(template, catalog, trie, rng, success=success, stopped=stopped, arm=arm)


def _table(
    template: Template,
    catalog: Catalog,
    trie: Trie,
    rng: np.random.Generator,
    *,
    success: npt.NDArray[np.bool_],
    stopped: npt.NDArray[np.bool_],
    arm: npt.NDArray[np.int64],
) -> RecordedTable:
    """Add dollars and seconds: by model and stage, longer for long requests."""
    n_requests, n_models = len(success), len(catalog)
    usd = 1e-4 * 2.6 ** rng.permutation(n_models)
    of_stage = rng.uniform(0.5, 2.0, len(trie.stages))[np.maximum(trie.stage, 0)]
    size = rng.lognormal(0.0, 0.4, (n_requests, 1))
    cost = size * rng.lognormal(0.0, 0.3, success.shape) * usd[np.maximum(trie.model, 0)] * of_stage
    seconds = rng.uniform(0.5, 4.0, n_models)[np.maximum(trie.model, 0)] * of_stage
    latency = size**0.5 * rng.lognormal(0.0, 0.4, success.shape) * seconds
    cost[:, 0] = latency[:, 0] = 0.0
    return RecordedTable(
        template=template, catalog=catalog, trie=trie, request_ids=tuple(f"q{i:04d}" for i in range(n_requests)),
        success=success, stopped=stopped, cost_usd=cost, latency_s=latency, arm=arm,
    )  # fmt: skip


def _logistic(logit: Floats) -> Floats:
    return np.asarray(1.0 / (1.0 + np.exp(-logit)))


BRANCHING_TRUTHS: dict[str, Callable[[np.random.Generator, Catalog, int], RecordedTable]] = {
    "router": _router,
    "corrective": _corrective,
}
