"""A small trie that branches: a router, a branch with a loop that is left early, and a shared reply."""

import numpy as np
from conftest import make_catalog

from vinelm.template import Branch, Loop, Stage, Template
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import AnnotatedTrie


def routed_trie(seed: int = 0, n_models: int = 2, *, answers_everywhere: bool = False) -> AnnotatedTrie:
    """Random annotations over router -> (up to 2 look-ups | straight on) -> reply; dearer models are better and slower."""
    rng = np.random.default_rng(seed)
    catalog = make_catalog(n_models)
    models = tuple(catalog)
    template = Template(
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
