import numpy as np
import pytest
from conftest import random_table
from hypothesis import given
from hypothesis import strategies as st

from vinelm.evaluation import SweepPolicy, follow, sweep
from vinelm.evaluation.pareto import frontier_nodes
from vinelm.evaluation.replay import run_of
from vinelm.evaluation.sweep import spaced_caps


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


def test_a_sweep_keeps_feasible_points_in_order_of_the_cap():
    table = random_table(1, n_requests=25, n_models=2, depth=2)
    asked = []

    def run(objective):
        asked.append(objective.max_latency_s)
        return run_of(follow(table, 1), "p", "x") if objective.max_latency_s > 1 else None

    (frontier,) = sweep([SweepPolicy("p", "vinelm", run)], "max_latency_s", [3.0, 0.5, 2.0])
    assert asked == [0.5, 2.0, 3.0]
    assert [point.cap for point in frontier.points] == [2.0, 3.0]
    for point in frontier.points:
        run = run_of(follow(table, 1), "p", "x")
        assert point.utility.value == pytest.approx((run.success & (run.latency_s <= point.cap)).mean())
        assert point.late == (run.latency_s > point.cap).mean()
        assert point.utility.low <= point.utility.value <= point.utility.high
