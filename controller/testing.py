"""What the planner is checked against: its definition, spelled out node by node, and random tries to compare them on."""

from __future__ import annotations

import datetime
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from vinelm.annotated_trie import AnnotatedTrie
from vinelm.catalog import Catalog, Model, Price
from vinelm.objective import Objective
from vinelm.template import Loop, Stage, Template
from vinelm.trie import BoolArray, FloatArray, Trie


@dataclass(frozen=True, slots=True)
class Measured:
    """One node that a plan could end at, by the definitions of DESIGN §4 and §5."""

    node: int
    accuracy: float
    cost_usd: float
    latency_s: float
    live_s: float
    bounded_s: float
    bounded_usd: float


def brute_force(
    annotated: AnnotatedTrie,
    objective: Objective,
    *,
    node: int = 0,
    elapsed_s: float = 0.0,
    spent_usd: float = 0.0,
    load: Mapping[str, float] | None = None,
    candidates: BoolArray | None = None,
    may_stop: bool = True,
) -> tuple[int, bool] | None:
    """(node to end at, whether it meets every bound), found by measuring every node; None where there is none to end at.

    Slow, and on purpose without a line in common with the planner.
    """
    trie = annotated.trie
    ends = [
        _measure(annotated, objective, node, v, load or {})
        for v in range(node, int(trie.end[node]))
        if trie.answerable[v] and (may_stop or v != node) and (candidates is None or candidates[v])
    ]
    if not ends:
        return None
    spent = spent_usd if objective.cost_budget == "per_request" else 0.0

    def meets(end: Measured, bound: str) -> bool:
        if bound == "floor":
            return objective.min_accuracy is None or end.accuracy >= objective.min_accuracy
        if bound == "time":
            return objective.max_latency_s is None or end.bounded_s <= objective.max_latency_s - elapsed_s
        return objective.max_cost_usd is None or end.bounded_usd <= objective.max_cost_usd - spent

    def rank(end: Measured) -> tuple[float, ...]:
        first = {"accuracy": -end.accuracy, "cost": end.cost_usd, "latency": end.live_s}[objective.target]
        return (first, -end.accuracy, end.cost_usd, end.latency_s, end.node)

    feasible = [end for end in ends if all(meets(end, bound) for bound in ("floor", "time", "money"))]
    if feasible:
        return min(feasible, key=rank).node, True
    here = [end for end in ends if end.node == node]
    if here and not any(meets(end, "time") and meets(end, "money") for end in ends):
        return node, False
    effort = {"floor": lambda end: -end.accuracy, "time": lambda end: end.bounded_s, "money": lambda end: end.bounded_usd}
    for dropped in ("floor",), ("time",), ("money",), ("time", "floor"), ("money", "floor"), ("time", "money"), tuple(effort):
        kept = [end for end in ends if all(meets(end, bound) for bound in effort if bound not in dropped)]
        if kept:
            order = [bound for bound in ("time", "money", "floor") if bound in dropped and _asked(objective, bound)]
            return min(kept, key=lambda end: (*(effort[bound](end) for bound in order), *rank(end))).node, False
    raise AssertionError("without bounds every end is feasible")


def _asked(objective: Objective, bound: str) -> bool:
    field = {"floor": "min_accuracy", "time": "max_latency_s", "money": "max_cost_usd"}[bound]
    return getattr(objective, field) is not None


def _measure(annotated: AnnotatedTrie, objective: Objective, start: int, end: int, load: Mapping[str, float]) -> Measured:
    trie = annotated.trie
    reach, ended_right, cost, latency = 1.0, 0.0, 0.0, 0.0
    suffix_s = suffix_var = suffix_usd = suffix_usd_var = extra_s = 0.0
    for at in [0, *trie.path(end)]:
        cost += reach * float(annotated.cost_usd[at])
        latency += float(annotated.latency_s[at])
        if trie.depth[at] > trie.depth[start]:
            suffix_s += float(annotated.latency_s[at])
            suffix_var += float(annotated.latency_var[at])
            suffix_usd += float(annotated.cost_usd[at])
            suffix_usd_var += float(annotated.cost_var[at])
            extra_s += load.get(annotated.catalog[trie.models[trie.model[at]]].engine, 0.0)
        accuracy = ended_right + reach * float(annotated.success[at])
        ended_right += reach * float(annotated.stop_success[at])
        reach *= 1.0 - float(annotated.stop[at])
    if objective.confidence is not None:
        assert annotated.accuracy_se is not None
        accuracy = max(accuracy - NormalDist().inv_cdf(objective.confidence) * float(annotated.accuracy_se[end]), 0.0)
    live_s = suffix_s + extra_s
    bounded_s = live_s
    if objective.risk == "mean+sd":
        bounded_s += (1.0 if objective.z is None else objective.z) * math.sqrt(suffix_var)
    bounded_usd = cost
    if objective.cost_budget == "per_request":
        bounded_usd = suffix_usd + (objective.z or 0.0) * math.sqrt(suffix_usd_var)
    return Measured(end, accuracy, cost, latency, live_s, bounded_s, bounded_usd)


def grid_annotated(rng: random.Random, n_models: int, depth: int, *, n_engines: int = 3, steps: int = 16) -> AnnotatedTrie:
    """A full trie on a grid of 1/64, correlated as real ones are (dearer models are better and slower), for larger checks."""
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


# -- random cases ----------------------------------------------------------------------------------------------


def random_annotated(rng: random.Random, *, max_models: int = 4, max_depth: int = 4) -> AnnotatedTrie:
    """An irregular, non-monotone trie on a grid of eighths: sums are exact in floating point, and ties are common."""
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
    if not arrays["latency_s"].any():  # without any latency, no plan may promise seconds
        arrays["latency_s"][-1] = 1 / 8
    return AnnotatedTrie(trie, template, catalog, **arrays, accuracy_se=grid(2) / 4)


def random_question(
    rng: random.Random, annotated: AnnotatedTrie, *, has_errors: bool = True
) -> tuple[Objective, dict[str, object]]:
    """An objective and the rest of a question to the planner; about a third cannot be met."""
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
        fields["confidence"] = rng.choice((0.6, 0.9))
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
