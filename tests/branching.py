"""A small trie that branches, made by hand: a router that leads to one of two specialists."""

import numpy as np
from conftest import make_catalog

from vinelm.template import Branch, Stage, Template
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import AnnotatedTrie

TEMPLATE = Template(
    (
        Stage("router", answerable=False),
        Branch({"billing": (Stage("billing"),), "technical": (Stage("technical"), Stage("review"))}),
    )
).bind(("m0", "m1"))
"""m0 is cheap and quick, m1 dear, slow and better. The technical arm has a second stage that checks the answer."""


def routed(**changes):
    """The annotated trie. Billing is easy: m0 is right 3 times in 4; technical requests need m1 (3 in 4, m0: 1 in 4)."""
    trie = Trie.from_template(TEMPLATE)
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
    return AnnotatedTrie(trie, TEMPLATE, make_catalog(2), **(arrays | zeros | changes))
