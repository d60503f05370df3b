"""Random tries and questions for checking the planner."""

from __future__ import annotations

import datetime
import random
from typing import Any

import numpy as np

from vinelm.catalog import Catalog, Model, Price
from vinelm.objective import Objective
from vinelm.template import Loop, Stage, Template
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.arrays import FloatArray


def grid_annotated(rng: random.Random, n_models: int, depth: int, *, n_engines: int = 3, steps: int = 16) -> AnnotatedTrie:
    """Make a full trie, for larger checks. Expensive models are more accurate and slower; values lie on a grid.

    Args:
        rng: The source of randomness.
        n_models: Models per stage.
        depth: Invocations of the longest path.
        n_engines: Engines that the models share.
        steps: Grid steps per unit.
    """
    names = tuple(f"m{i}" for i in range(n_models))
    catalog = Catalog(_model(name, engine=f"e{i % n_engines}") for i, name in enumerate(names))
    template = Template((Stage("first", names), Loop((Stage("again", names),), depth - 1)) if depth > 1 else (Stage("first"),))
    trie = Trie.from_template(template)
    noise = np.random.default_rng(rng.randrange(2**32))
    level = (trie.model + 1) / n_models

    def grid(base: FloatArray, top: int) -> FloatArray:
        values = np.floor(np.clip(base * noise.uniform(0.3, 1.7, len(trie)), 0.0, 1.0) * steps) / steps * top
        values[0] = 0.0
        return values

    success, stop = grid(0.5 * level, 1), grid(np.full(len(trie), 0.4), 1)
    cost, latency, cost_var, latency_var = (grid(0.6 * level, top) for top in (4, 4, 2, 2))
    arrays = (success, stop, np.minimum(success, stop), cost, cost_var, latency, latency_var)
    return AnnotatedTrie(trie, template, catalog, *arrays)


def random_annotated(rng: random.Random, *, max_models: int = 4, max_depth: int = 4) -> AnnotatedTrie:
    """Make a small irregular trie with values on a grid of eighths: sums are exact in floating point, and ties are common.

    Accuracy need not grow along a path.
    """
    models = [f"m{i}" for i in range(rng.randint(max(max_models - 1, 1), max_models))]
    catalog = Catalog(_model(name, engine=f"e{rng.randrange(3)}") for name in models)
    template = _template(rng, models, rng.randint(max(max_depth - 1, 1), max_depth))
    full = Trie.from_template(template)
    keep = [node for node in range(1, len(full)) if rng.random() < 0.4] or [1]
    trie = full if rng.random() < 0.5 else Trie.from_prefixes(template, [full.prefix(node) for node in keep])
    size = len(trie)
    coarse = rng.choice((1, 1, 4))

    def grid(top: int) -> FloatArray:
        return np.array([rng.randint(0, top // coarse) * coarse / 8 for _ in range(size)])

    stop = grid(8)
    success = grid(8)
    arrays: dict[str, Any] = {
        "success": success,
        "stop": stop,
        "stop_success": np.minimum(np.minimum(stop, success), grid(8)),
        "cost_usd": grid(12),
        "cost_var": grid(8),
        "latency_s": grid(12),
        "latency_var": grid(8),
    }
    for name in ("success", "stop", "stop_success"):
        arrays[name][0] = 0.0
    if not arrays["latency_s"].any():  # a trie without any latency cannot be planned with a latency bound
        arrays["latency_s"][-1] = 1 / 8
    return AnnotatedTrie(trie, template, catalog, **arrays, accuracy_se=grid(2) / 4)


def random_question(
    rng: random.Random, annotated: AnnotatedTrie, *, has_errors: bool = True
) -> tuple[Objective, dict[str, object]]:
    """Make an objective and the other arguments of :meth:`Planner.plan`; about a third of the questions are infeasible.

    Args:
        rng: The source of randomness.
        annotated: The trie that is planned over.
        has_errors: Whether the trie has standard errors, so that ``confidence`` may be set.
    """
    target = rng.choice(("accuracy", "cost", "latency"))
    fields: dict[str, object] = {"maximize": "accuracy"} if target == "accuracy" else {"minimize": target}
    if rng.random() < 0.5:
        fields["min_accuracy"] = rng.randint(0, 16) / 16
    if rng.random() < 0.5:
        fields["max_latency_s"] = rng.randint(0, 40) / 8
        fields["risk"] = rng.choice(("mean", "mean", "mean+sd"))
    if rng.random() < 0.5:
        fields["max_cost_usd"] = rng.randint(0, 32) / 8
        fields["cost_budget"] = rng.choice(("population", "population", "per_request"))
    if (fields.get("risk") == "mean+sd" or fields.get("cost_budget") == "per_request") and rng.random() < 0.5:
        fields["z"] = rng.randint(0, 4) / 2
    if has_errors and rng.random() < 0.2:
        level = rng.choice((0.6, 0.9))
        if target == "accuracy" or "min_accuracy" in fields:
            fields["confidence"] = level
    asked: dict[str, object] = {
        "node": rng.randrange(len(annotated.trie)) if rng.random() < 0.6 else 0,
        "elapsed_s": rng.randint(0, 24) / 8 if rng.random() < 0.5 else 0.0,
        "spent_usd": rng.randint(0, 16) / 8 if rng.random() < 0.5 else 0.0,
        "may_stop": rng.random() < 0.7,
    }
    if rng.random() < 0.5:
        asked["load"] = {f"e{i}": rng.randint(0, 12) / 8 for i in range(3) if rng.random() < 0.8}
    if rng.random() < 0.2:
        asked["candidates"] = np.array([rng.random() < 0.5 for _ in range(len(annotated.trie))])
    return Objective(**fields), asked  # type: ignore[arg-type]


def _template(rng: random.Random, models: list[str], depth: int) -> Template:
    def allowed() -> tuple[str, ...]:
        return tuple(rng.sample(models, rng.randint((len(models) + 1) // 2, len(models))))

    first = Stage("first", allowed(), answerable=depth == 1 or rng.random() < 0.8)
    if depth == 1:
        return Template((first,))
    if rng.random() < 0.3 and depth % 2 == 1:
        return Template((first, Loop((Stage("plan", allowed(), answerable=False), Stage("act", allowed())), depth // 2)))
    return Template((first, Loop((Stage("again", allowed()),), depth - 1)))


def _model(name: str, *, engine: str) -> Model:
    price = Price(input=1.0, output=1.0, source="made up", as_of=datetime.date(2026, 1, 1))
    return Model(name=name, provider="simulated", model_id=name, engine=engine, price=price)
