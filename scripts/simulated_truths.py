"""Simulated truths of different structure for `bench_estimator.py`: complete outcome tables, made from a seed.

Written and committed before any estimator ran on them; nothing here is fitted to an estimator. In every truth a request has
latent traits, a model answers by its own strengths, and a *persistent* effect per (request, model) makes asking the same model
again help little. What differs is what else decides an answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from science.recorded_table import RecordedTable

from vinelm.catalog import Catalog
from vinelm.template import Loop, Stage, StopRule, Template
from vinelm.trie import Trie

Floats = npt.NDArray[np.float64]
SHAPES = {"8x3": (8, 3), "2x4": (2, 4), "4x6": (4, 6)}
"""Models and depth."""
N_REQUESTS = 500


@dataclass(frozen=True)
class Structure:
    """What decides an answer. ``edge(previous models, model)`` is added to the logit of a repair by ``model``."""

    ability: Floats
    """(stage 0 generate or 1 repair, models): logits."""
    traits: Floats
    """(requests, axes)."""
    strength: Floats
    """(axes, models): what each trait does for each model."""
    persistent_sd: float
    edge: Callable[[tuple[int, ...], int], float]
    accepts_right: float = 1.0
    accepts_wrong: float = 0.0
    stop: StopRule = "oracle"


def make_truth(
    name: str, shape: str, seed: int = 0, n_requests: int = N_REQUESTS, *, size_correlation: float = 0.0
) -> RecordedTable:
    """The table of a named structure (see :data:`TRUTHS`) in a named shape (see :data:`SHAPES`).

    ``size_correlation`` is that of a request's log size with its difficulty: its mean trait over the models, negated.
    """
    n_models, depth = SHAPES[shape]
    rng = np.random.default_rng([seed, sorted(TRUTHS).index(name), n_models, depth])
    return _table(TRUTHS[name](rng, n_models, n_requests), depth, rng, size_correlation)


# -- structures ------------------------------------------------------------------------------------------------


def _abilities(rng: np.random.Generator, n_models: int, low: float, high: float, repair: float) -> Floats:
    """Spread abilities; a model's skill at repairing is only loosely that at generating."""
    first = rng.permutation(np.linspace(low, high, n_models))
    return np.stack([first, first + repair + rng.normal(0.0, 0.4, n_models)])


def _three_skills(rng: np.random.Generator, n_models: int, n_requests: int) -> Structure:
    strength = rng.dirichlet(np.ones(3) * 1.5, n_models).T * 2.2
    return Structure(
        _abilities(rng, n_models, -0.8, 1.4, -0.2), rng.normal(size=(n_requests, 3)), strength, 0.9,
        lambda before, model: -0.3 * before.count(model),
    )  # fmt: skip


def _not_rank_one(rng: np.random.Generator, n_models: int, n_requests: int) -> Structure:
    pair = rng.normal(0.0, 1.1, (n_models, n_models))  # how well a model mends what another one wrote
    older = rng.normal(0.0, 0.4, (n_models, n_models))
    np.fill_diagonal(pair, -2.2)
    return Structure(
        _abilities(rng, n_models, -0.9, 1.0, -0.3), rng.normal(size=(n_requests, 1)), np.full((1, n_models), 1.0), 0.6,
        lambda before, model: float(pair[before[-1], model] + sum(older[j, model] for j in before[:-1])),
    )  # fmt: skip


def _noisy_verifier(rng: np.random.Generator, n_models: int, n_requests: int) -> Structure:
    return Structure(
        _abilities(rng, n_models, -0.7, 1.2, -0.2), rng.normal(size=(n_requests, 2)),
        rng.uniform(0.3, 1.3, (2, n_models)), 0.7, lambda before, model: -0.6 * (before[-1] == model),
        accepts_right=0.9, accepts_wrong=0.45, stop="workflow",
    )  # fmt: skip


def _specialists(rng: np.random.Generator, n_models: int, n_requests: int) -> Structure:
    n_classes = 4
    of_class = np.eye(n_classes)[rng.integers(n_classes, size=n_requests)]
    strength = rng.normal(-0.7, 0.5, (n_classes, n_models))
    strength[np.arange(n_models) % n_classes, np.arange(n_models)] = 2.0
    return Structure(
        _abilities(rng, n_models, -0.4, 0.4, 0.0), of_class, strength, 0.7, lambda before, model: -0.5 * before.count(model)
    )


def _near_deterministic(rng: np.random.Generator, n_models: int, n_requests: int) -> Structure:
    return Structure(
        _abilities(rng, n_models, -3.0, 4.0, 0.0), rng.normal(size=(n_requests, 2)), rng.uniform(1.0, 4.0, (2, n_models)), 7.0,
        lambda before, model: 0.0,
    )  # fmt: skip


TRUTHS: dict[str, Callable[[np.random.Generator, int, int], Structure]] = {
    "three-skills": _three_skills,
    "not-rank-one": _not_rank_one,
    "noisy-verifier": _noisy_verifier,
    "specialists": _specialists,
    "near-deterministic": _near_deterministic,
}


# -- the table -------------------------------------------------------------------------------------------------


def _table(made: Structure, depth: int, rng: np.random.Generator, size_correlation: float) -> RecordedTable:
    n_models, n_requests = made.ability.shape[1], len(made.traits)
    catalog = catalog_of_models(n_models)
    template = Template((Stage("generate"), Loop((Stage("repair"),), times=depth - 1)), made.stop).bind(tuple(catalog))
    trie = Trie.from_template(template)
    success = _successes(made, trie, rng)
    accepted = np.where(success, made.accepts_right, made.accepts_wrong) > rng.random(success.shape)
    usd = 1e-4 * 2.6 ** rng.permutation(n_models) * (1.0 + 0.4 * (trie.depth[:, None] > 1))
    seconds = rng.uniform(0.5, 4.0, n_models)
    size = rng.lognormal(0.0, 0.4, (n_requests, 1))  # long prompts cost more with every model
    if size_correlation:
        ease = (made.traits @ made.strength).mean(axis=1, keepdims=True)
        hard = 0.4 * (ease.mean() - ease) / ease.std()
        size = np.exp(size_correlation * hard + np.sqrt(1.0 - size_correlation**2) * np.log(size))
    noise = rng.lognormal(0.0, 0.3, success.shape)
    cost = size * noise * usd[np.arange(len(trie)), np.maximum(trie.model, 0)]
    latency = size**0.5 * rng.lognormal(0.0, 0.4, success.shape) * seconds[np.maximum(trie.model, 0)]
    cost[:, 0] = latency[:, 0] = 0.0
    return RecordedTable(
        template=template, catalog=catalog, trie=trie, request_ids=tuple(f"q{i:04d}" for i in range(n_requests)),
        success=success, stopped=accepted, cost_usd=cost, latency_s=latency,
    )  # fmt: skip


def _successes(made: Structure, trie: Trie, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    persistent = made.persistent_sd * rng.normal(size=(len(made.traits), made.ability.shape[1]))
    own = made.traits @ made.strength + persistent  # (requests, models)
    success = np.zeros((len(made.traits), len(trie)), np.bool_)
    path: dict[int, tuple[int, ...]] = {0: ()}
    for node in range(1, len(trie)):
        up, model = int(trie.parent[node]), int(trie.model[node])
        before = path[up]
        path[node] = (*before, model)
        logit = made.ability[min(len(before), 1), model] + own[:, model] + (made.edge(before, model) if before else 0.0)
        chance = 1.0 / (1.0 + np.exp(-logit))
        if before:  # an answer that was right and is worked on again mostly stays right
            chance = np.where(success[:, up], 0.6 + 0.4 * chance, chance)
        success[:, node] = rng.random(len(chance)) < chance
    return success


def catalog_of_models(n_models: int) -> Catalog:
    """Return a catalog of so many simulated models."""
    price = {"input": 1.0, "output": 1.0, "source": "simulated", "as_of": "2025-01-01"}
    names = [f"m{i}" for i in range(n_models)]
    return Catalog.from_dict({"model": [{"name": n, "provider": "simulated", "model": n, "price": price} for n in names]})
