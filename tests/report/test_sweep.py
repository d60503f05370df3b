import numpy as np
import pytest
from conftest import random_table
from hypothesis import given
from hypothesis import strategies as st

from vinelm.report.sweep import Contestant, cap_grid, follow, frontier_nodes, path_text, sweep


@given(st.integers(0, 200), st.sampled_from(["oracle", "workflow"]))
def test_following_a_path_gives_its_exact_metrics(seed, stop):
    """Means over requests of a replayed path are A(u) and C(u) of the exact trie."""
    table = random_table(seed, n_requests=12, n_models=2, depth=3, stop=stop)
    exact = table.annotate()
    for node in range(1, len(table.trie)):
        run = follow(table, node, policy="p", plan="")
        assert run.accuracy == pytest.approx(exact.accuracy[node])
        assert run.mean_cost_usd == pytest.approx(exact.path_cost_usd[node])


def test_following_stops_with_the_request():
    table = random_table(0, n_requests=30, n_models=2, depth=3, stop="oracle")
    node = table.trie.node(("m0", "m1", "m0"))
    run = follow(table, node, policy="p", plan="")
    first, second, third = table.trie.path(node)
    for i in range(30):
        walked = [first]
        if not table.success[i, first]:
            walked.append(second)
            if not table.success[i, second]:
                walked.append(third)
        assert run.latency_s[i] == pytest.approx(table.latency_s[i, [0, *walked]].sum())
        assert run.success[i] == table.success[i, walked[-1]]


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
    caps = cap_grid(exact, "max_cost_usd", 7)
    assert len(caps) == 7
    assert caps == sorted(caps)
    assert caps[0] >= exact.path_cost_usd[nodes[0]]
    assert caps[-1] >= exact.path_cost_usd[nodes[-1]]


def test_a_sweep_keeps_feasible_points_in_order_of_the_cap():
    table = random_table(1, n_requests=25, n_models=2, depth=2)
    asked = []

    def run(objective):
        asked.append(objective.max_latency_s)
        return follow(table, 1, policy="p", plan="x") if objective.max_latency_s > 1 else None

    (frontier,) = sweep([Contestant("p", "vinelm", run)], "max_latency_s", [3.0, 0.5, 2.0])
    assert asked == [0.5, 2.0, 3.0]
    assert [point.cap for point in frontier.points] == [2.0, 3.0]
    for point in frontier.points:
        right = point.run.success & (point.run.latency_s <= point.cap)
        assert point.worth.value == pytest.approx(right.mean())
        assert point.worth.low <= point.worth.value <= point.worth.high


def test_a_path_reads_as_stages_and_models():
    table = random_table(1, n_requests=3, n_models=2, depth=2)
    assert path_text(table, table.trie.node(("m0", "m1"))) == "generate m0, repair m1"
    assert path_text(table, 0) == "no invocation"
