"""Templates with loops that merge, and random annotations of their tries."""

import numpy as np
from conftest import make_catalog

from vinelm.template import Branch, Loop, Stage, Template
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import NODE_ARRAYS, AnnotatedTrie
from vinelm.trie.difficulty import DifficultyRates


def agent(n_models, times, **settings):
    models = tuple(f"m{i}" for i in range(n_models))
    return Template((Loop((Stage("agent", models),), times, **settings),))


def branching(times, **settings):
    two = ("m0", "m1")
    inner = Branch({"search": (Stage("search", two, answerable=False),), "code": (Stage("code", two),)})
    return Template((Stage("plan", ("m0",), answerable=False), Loop((inner,), times, **settings)))


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
