import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from kit.tables import random_table

from vinelm.evaluation.plans.path_plans import frontier_nodes
from vinelm.evaluation.plans.sweep import spaced_caps


@given(st.integers(0, 100))
def test_no_path_beats_a_frontier_node(seed):
    exact = random_table(seed, n_requests=10, n_models=2, depth=3).annotate()
    kept = frontier_nodes(exact, "cost")
    for node in np.flatnonzero(exact.trie.answerable):
        cheaper = [k for k in kept if exact.path_cost_usd[k] <= exact.path_cost_usd[node]]
        assert any(exact.accuracy[k] >= exact.accuracy[node] for k in cheaper)


def test_caps_span_the_frontier_and_admit_its_ends():
    exact = random_table(4, n_requests=40, n_models=3, depth=3).annotate()
    nodes = frontier_nodes(exact, "cost")
    ends = [float(exact.path_cost_usd[nodes[i]]) for i in (0, -1)]
    caps = spaced_caps(*ends, "max_cost_usd", 7)
    assert len(caps) == 7
    assert caps == sorted(caps)
    assert caps[0] >= ends[0]
    assert caps[-1] >= ends[1]
