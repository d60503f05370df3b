"""The parts of the bench of questions to a graph: rows without LangGraph, gains at equal dollars, cached tokens, snippets."""

import numpy as np
import pytest

pytest.importorskip("pydantic_monty", reason="the extra graph is not installed")

import bench_graphqa as bench
from graphqa_parts import budgets, hostile, hostile_snippets
from graphqa_parts.worlds import World

import vinelm
from vinelm.traces import ObservationStore
from vinelm.workflows import load_workflow
from vinelm.workflows.graphqa import GraphSource, Node
from vinelm.workflows.graphqa.workflow import demo_graphs

SAME = ("stage", "success", "stopped", "arm", "signal", "answer")


@pytest.mark.long
def test_its_rows_are_those_of_the_profiler(tmp_path):
    """Both arms, repairs and all turns: the graph that is spelled out goes where the workflow's goes."""
    workflow, catalog = load_workflow("graphqa"), budgets.catalog_of(("gemma-27b", "qwen-32b"))
    vinelm.profile(workflow, catalog, tmp_path / "a.db", requests=workflow.requests[:30], budget_calls=250, seed=5)
    with ObservationStore.open(tmp_path / "a.db") as store:
        rows = store.observations()
    world = World(workflow, demo_graphs(), catalog, 5)
    for row in rows:
        own = world.reached(world.requests[row.request_id], row.prefix).row
        assert [getattr(own, name) for name in SAME] == [getattr(row, name) for name in SAME], (row.request_id, row.prefix)
        assert (own.cost_usd, own.latency_s) == pytest.approx((row.cost_usd, row.latency_s))
    assert {row.stage for row in rows} == {"classify", "act_direct", "plan", "act", "reason"}
    assert max(row.depth for row in rows if row.stage == "reason") == 8


@pytest.mark.long
def test_policies_are_served_to_requests_that_did_not_plan():
    workflow = load_workflow("graphqa")
    names = [request.id for request in workflow.requests]
    world = World(workflow, demo_graphs(), budgets.catalog_of(budgets.PAIRS[0]), 0)
    found = budgets.served_under_budgets(world, names[:40], names[40:50], 0)
    assert {name: (right.shape, cost.shape) for name, (right, cost) in found.items()} == dict.fromkeys(
        ("vinelm", "static", "single"), ((9, 10), (9, 10))
    )
    assert all(((right >= 0) & (right <= 1)).all() and (cost > 0).all() for right, cost in found.values())
    assert {request for request, _ in world._known} <= {*names[:40], *names[40:50]}


def test_a_rival_is_taken_where_it_spends_as_much():
    rival = np.array([[0.0, 1.0], [1.0, 1.0]]), np.array([[1.0, 1.0], [3.0, 3.0]])
    assert [budgets.at_dollars(rival, usd).tolist() for usd in (0.5, 2.0, 9.0)] == [[0.0, 1.0], [0.5, 1.0], [1.0, 1.0]]
    ours = np.array([[1.0, 1.0], [1.0, 1.0]]), np.array([[2.0, 2.0], [2.0, 2.0]])
    assert budgets.gains({"vinelm": ours, "static": rival}, "static").tolist() == [0.5, 0.0]
    found = budgets.interval(np.array([1.0] * 50 + [0.0] * 50))
    assert found["value"] == 50.0
    assert 38 < found["low"] < 50 < found["high"] < 62


def test_what_no_earlier_prompt_begins_with_is_uncached():
    assert bench.uncached(["a" * 40, "a" * 40, "a" * 20 + "b" * 20]) == (15, 30)
    assert bench.uncached([]) == (0, 0)


def test_hostile_snippets_are_counted_and_an_escape_is_one(monkeypatch):
    source = GraphSource([Node("a", "k", "Ann"), Node("b", "k", "Bob")], [("a", "treats", "b")])
    monkeypatch.setattr(hostile, "REFUSED", ["import os", "print(1)"])
    monkeypatch.setattr(hostile, "HELD", {"open('/etc/passwd').read()": "PermissionError", "print('root:')": ""})
    monkeypatch.setattr(hostile, "FLOODS", ["print('x' * 9000)", "print('few')"])
    found = hostile.measured(source.functions())
    assert (found["snippets"], found["escaped"]) == (6, ["print(1)", "print('root:')", "print('few')"])
    assert found["pool_lives"]
    assert len(hostile_snippets.REFUSED) + len(hostile_snippets.HELD) + len(hostile_snippets.FLOODS) >= 80


@pytest.mark.long
@pytest.mark.parametrize("code", hostile_snippets.FLOODS)
def test_a_flood_stays_within_its_limits(code, monkeypatch):
    source = GraphSource([Node("a", "k", "Ann"), Node("b", "k", "Bob")], [("a", "treats", "b")])
    for name in ("REFUSED", "HELD"):
        monkeypatch.setattr(hostile, name, [])
    monkeypatch.setattr(hostile, "FLOODS", [code])
    found = hostile.measured(source.functions())
    assert (found["escapes"], found["pool_lives"]) == (0, True)
    assert found["most_printed_bytes"] <= 4096
