"""Small annotated tries: made by hand, or random."""

import numpy as np

from kit.catalogs import make_catalog
from vinelm.template import Branch, Loop, Stage, Template
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import NODE_ARRAYS, AnnotatedTrie
from vinelm.trie.difficulty import DifficultyRates

SPECIALISTS = Template(
    (
        Stage("router", answerable=False),
        Branch({"billing": (Stage("billing"),), "technical": (Stage("technical"), Stage("review"))}),
    )
).bind(("m0", "m1"))
"""A router that leads to one of two specialists; a second stage checks the technical one's answer.

m0 is cheap and quick, m1 dear, slow and better.
"""


def routed(**changes):
    """The annotated trie. Billing is easy: m0 is right 3 times in 4; technical requests need m1 (3 in 4, m0: 1 in 4)."""
    trie = Trie.from_template(SPECIALISTS)
    size = len(trie)
    arrays = {
        name: np.zeros(size) for name in ("success", "stop", "stop_success", "cost_usd", "latency_s", "arm", "arm_success")
    }
    zeros = {"cost_var": np.zeros(size), "latency_var": np.zeros(size)}
    arrays["arm"][0] = 1.0
    for node in range(1, size):
        stage, model = list(trie.edges(node))[-1]
        arrays["cost_usd"][node], arrays["latency_s"][node] = (1.0, 4.0) if model == "m1" else (0.125, 1.0)
        if stage == "router":
            arrays["arm"][node] = 1.0
            continue
        router = trie.prefix(node)[0]
        share = {"billing": 0.75, "technical": 0.25, "review": 1.0}[stage]
        arrays["arm"][node] = share
        right = {"billing": (0.75, 0.875), "technical": (0.25, 0.75), "review": (0.5, 0.875)}[stage][model == "m1"]
        arrays["success"][node] = right - (0.125 if router == "m0" else 0.0)
        if stage == "review":
            arrays["arm_success"][node] = arrays["success"][trie.parent[node]]
        if stage != "technical":
            arrays["stop"][node], arrays["stop_success"][node] = 1.0, arrays["success"][node]
    return AnnotatedTrie(trie, SPECIALISTS, make_catalog(2), **(arrays | zeros | changes))


def routed_trie(
    seed: int = 0, n_models: int = 2, *, answers_everywhere: bool = False, template: Template | None = None
) -> AnnotatedTrie:
    """Random annotations over ``template``; dearer models are better and slower.

    By default it is router -> (up to 2 look-ups | straight on) -> reply.
    """
    rng = np.random.default_rng(seed)
    catalog = make_catalog(n_models)
    models = tuple(catalog)
    template = template or Template(
        (
            Stage("router", models, answerable=answers_everywhere),
            Branch({"look": (Loop((Stage("lookup", models, answerable=answers_everywhere),), 2, early_exit=True),), "on": ()}),
            Stage("reply", models),
        )
    )
    trie = Trie.from_template(template)
    size, level = len(trie), (trie.model + 1) / n_models
    success = np.where(trie.answerable, np.clip(0.35 + 0.4 * level + 0.2 * rng.random(size), 0, 1), 0.0)
    success[0] = 0.0
    stop = np.where(trie.is_leaf, 1.0, 0.0)
    arm, arm_success = np.ones(size), np.zeros(size)
    for node in range(size):
        groups = list(trie.arms(node).values())
        shares = rng.dirichlet(np.ones(len(groups)) * 3) if groups else []
        for children, share in zip(groups, shares, strict=True):
            arm[children], arm_success[children] = share, share * success[node]
    cost = np.where(trie.model >= 0, 0.001 * 4.0**trie.model * (0.8 + 0.4 * rng.random(size)), 0.0)
    latency = np.where(trie.model >= 0, (1.0 + trie.model) * (0.8 + 0.4 * rng.random(size)), 0.0)
    return AnnotatedTrie(
        trie, template, catalog, success=success, stop=stop, stop_success=np.where(trie.is_leaf, success, 0.0), cost_usd=cost,
        cost_var=cost**2, latency_s=latency, latency_var=latency**2 / 4, accuracy_se=np.full(size, 0.01),
        cost_se=np.full(size, 1e-5), count=np.where(trie.depth > 0, 20, 0).astype(np.int64), arm=arm, arm_success=arm_success,
        arm_se=np.where(trie.depth > 1, 0.02, 0.0), meta={"workflow": "desk", "estimator": "exact", "is_simulated": True},
    )  # fmt: skip


def random_merged(template, seed, with_difficulty=False):
    """Random conditional rates, consistent with each other: stop_success <= both, and arms that sum to 1 - stop."""
    rng = np.random.default_rng(seed)
    trie = Trie.from_template(template)
    n = len(trie)
    arrays = {name: rng.random(n) for name in NODE_ARRAYS}
    arrays["stop"] *= 0.8
    arrays["success"] *= trie.answerable
    arrays["stop_success"] = arrays["success"] * arrays["stop"]
    for name in NODE_ARRAYS:
        arrays[name][0] = 0.0
    optional = {}
    if not template.is_linear:
        is_first = np.diff(trie.edge_arm, prepend=-1) != 0
        source = trie.source[is_first]
        weight = rng.random(len(source)) + 0.1
        share = weight / np.bincount(source, weight)[source]
        on, right = 1.0 - arrays["stop"], arrays["success"] - arrays["stop_success"]
        optional = {"arm": (share * on[source])[trie.edge_arm], "arm_success": (share * right[source])[trie.edge_arm]}
    if with_difficulty:
        optional["difficulty"] = random_difficulty(rng, trie)
    catalog = make_catalog(len(trie.models))
    return AnnotatedTrie(trie=trie, template=template, catalog=catalog, **arrays, **optional, meta={"simulated": True})


def random_difficulty(rng, trie, points=3):
    weight = rng.dirichlet(np.ones(points))
    success = rng.random((len(trie), points)) * trie.answerable[:, None]
    stop = rng.random((len(trie), points)) * 0.8
    stop_success = success * stop
    for values in (success, stop, stop_success):
        values[0] = 0.0
    return DifficultyRates(weight, success, stop, stop_success)
