"""The tries and objectives of ``bench_planner.py``: made up, of any size, linear and branching."""

from __future__ import annotations

from datetime import date

import numpy as np

from vinelm.catalog import Catalog, Model, Price
from vinelm.objective import Objective
from vinelm.template import Branch, Loop, Stage, Template
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import AnnotatedTrie

KINDS = ("min cost | A", "max A | T", "max A | C", "max A | C, T")
"""Targets and bounds of the objectives: accuracy, dollars (cost) and seconds (time)."""


def synthetic(n_models: int, depth: int, seed: int) -> AnnotatedTrie:
    """A full trie under the oracle stop. Expensive models are more accurate and slower; every prefix has its own noise, and a
    model that runs again helps less.
    """
    rng = np.random.default_rng(seed)
    names = tuple(f"m{i}" for i in range(n_models))
    price = Price(input=1, output=1, source="made up", as_of=date(2026, 1, 1))
    catalog = Catalog(Model(name=n, provider="simulated", model_id=n, engine=f"e{i}", price=price) for i, n in enumerate(names))
    template = Template((Stage("first", names), Loop((Stage("again", names),), depth - 1)), "oracle")
    trie = Trie.from_template(template)
    size = len(trie)
    skill = np.linspace(0.25, 0.6, n_models)
    success = skill[trie.model] * np.where(trie.depth > 1, 0.6, 1.0) * rng.uniform(0.7, 1.3, size)
    up = np.maximum(trie.parent, 0)
    success = np.where((trie.model == trie.model[up]) & (trie.depth > 1), 0.4 * success, success)
    cost = (0.0005 * 2.0 ** np.arange(n_models))[trie.model] * rng.lognormal(0, 0.2, size)
    latency = (0.8 * 1.3 ** np.arange(n_models))[trie.model] * rng.lognormal(0, 0.25, size)
    for values in (success, cost, latency):
        values[0] = 0.0
    zeros = np.zeros(size)
    return AnnotatedTrie(
        trie, template, catalog, success, success, success, cost, zeros, latency, zeros, meta={"estimator": "made up"}
    )


def branching_trie(n_models: int, turns: int, seed: int) -> AnnotatedTrie:
    """A full trie of an agent that searches or thinks in each turn. Expensive models are more accurate and slower."""
    rng = np.random.default_rng(seed)
    names = tuple(f"m{i}" for i in range(n_models))
    price = Price(input=1, output=1, source="made up", as_of=date(2026, 1, 1))
    catalog = Catalog(Model(name=n, provider="simulated", model_id=n, engine=f"e{i}", price=price) for i, n in enumerate(names))
    arms = Branch({"search": (Stage("search"),), "think": (Stage("think"),)})
    template = Template((Stage("plan"), Loop((arms,), turns))).bind(names)
    trie = Trie.from_template(template)
    size, up = len(trie), np.maximum(trie.parent, 0)
    success = np.linspace(0.25, 0.6, n_models)[trie.model] * rng.uniform(0.7, 1.3, size)
    stop = np.where(trie.is_leaf, 1.0, rng.uniform(0.0, 0.3, size))
    success[0] = stop[0] = 0.0
    ended = success * stop
    likes = rng.uniform(0.2, 0.8, size)
    share = np.where(trie.depth == 1, 1.0, np.where(trie.stage == trie.stages.index("search"), likes[up], 1.0 - likes[up]))
    arm, right = (1.0 - stop)[up] * share, (success - ended)[up] * share
    arm[0], right[0] = 1.0, 0.0
    cost = (0.0005 * 2.0 ** np.arange(n_models))[trie.model] * rng.lognormal(0, 0.2, size)
    latency = (0.8 * 1.3 ** np.arange(n_models))[trie.model] * rng.lognormal(0, 0.25, size)
    cost[0] = latency[0] = 0.0
    zeros = np.zeros(size)
    return AnnotatedTrie(
        trie, template, catalog, success, stop, ended, cost, zeros, latency, zeros, arm=arm, arm_success=right,
        meta={"estimator": "made up"},
    )  # fmt: skip


def objectives(annotated: AnnotatedTrie, kind: str, count: int, rng) -> list[Objective]:
    """Objectives whose bounds lie between tight and loose."""
    accuracy, cost, latency = (
        np.quantile(values[1:], np.linspace(0.02, 0.98, 97))
        for values in (annotated.accuracy, annotated.path_cost_usd, annotated.path_latency_s)
    )
    made = []
    for _ in range(count):
        a, c, t = (float(rng.choice(values)) for values in (accuracy, cost, latency))
        made.append(
            {
                "min cost | A": lambda a=a: Objective(minimize="cost", min_accuracy=a),
                "max A | T": lambda t=t: Objective(maximize="accuracy", max_latency_s=t),
                "max A | C": lambda c=c: Objective(maximize="accuracy", max_cost_usd=c),
                "max A | C, T": lambda c=c, t=t: Objective(maximize="accuracy", max_cost_usd=c, max_latency_s=t),
            }[kind]()
        )
    return made


def impossible(annotated: AnnotatedTrie, kind: str) -> Objective:
    """An infeasible objective of that kind: no path meets its last bound; half of them meet the other one."""
    cost = float(np.median(annotated.path_cost_usd))
    highest, least_usd, least_s = (
        float(value)
        for value in (annotated.accuracy.max(), annotated.path_cost_usd[1:].min(), annotated.path_latency_s[1:].min())
    )
    return {
        "min cost | A": Objective(minimize="cost", min_accuracy=(1.0 + highest) / 2),
        "max A | T": Objective(maximize="accuracy", max_latency_s=least_s / 2),
        "max A | C": Objective(maximize="accuracy", max_cost_usd=least_usd / 2),
        "max A | C, T": Objective(maximize="accuracy", max_cost_usd=cost, max_latency_s=least_s / 2),
    }[kind]
