import random

import pytest
from kit.oracles.random_cases import grid_annotated, random_question

from vinelm.controller import Planner
from vinelm.controller.planning import frontier as frontier_module
from vinelm.controller.planning import frontier as tiles_module
from vinelm.controller.planning import frontier_cache as index_module
from vinelm.controller.planning.plan_request import PlanRequest, load_array
from vinelm.controller.planning.subtree import SubtreeView
from vinelm.objective import Objective


def measured(planner, objective, asked):
    load = load_array(asked.get("load"), planner.annotated.engines)
    query = PlanRequest(
        objective, asked["node"], asked["elapsed_s"], asked["spent_usd"], load, asked.get("candidates"), asked["may_stop"]
    )
    choice = SubtreeView(planner.metrics, query).choose()
    return None if choice is None else choice.target


@pytest.mark.parametrize("tile", [None, (1, 1), (2, 3), (100, 1), (100, 100)])
@pytest.mark.parametrize(("n_models", "depth", "n_engines"), [(4, 4, 3), (8, 3, 8), (3, 5, 1)])
def test_a_frontier_finds_what_measuring_every_end_finds(n_models, depth, n_engines, tile, monkeypatch):
    if tile:  # long lists are cut into tiles: make every list long, and ask few of them at a time
        monkeypatch.setattr(frontier_module, "SCAN", 4)
        monkeypatch.setattr(tiles_module, "FIRST", tile[0])
        monkeypatch.setattr(tiles_module, "AT_ONCE", tile[1])
    rng = random.Random(n_models * depth + sum(tile or ()))
    for steps in (8, 64):
        annotated = grid_annotated(rng, n_models, depth, n_engines=n_engines, steps=steps)
        planner = Planner(annotated)
        for _ in range(250):
            objective, asked = random_question(rng, annotated, has_errors=False)
            if rng.random() < 0.5:
                asked["node"] = 0
            expected = measured(planner, objective, asked)
            if expected is not None:
                assert planner.plan(objective, **asked).target == expected, (objective, asked)


def test_frontiers_built_ahead_find_what_those_built_on_the_way_find(monkeypatch):
    monkeypatch.setattr(index_module, "AHEAD", 10)
    rng = random.Random(5)
    annotated = grid_annotated(rng, 3, 4)
    ahead = Planner(annotated)
    for _ in range(400):
        objective, asked = random_question(rng, annotated, has_errors=False)
        ahead.prepare(objective)
        expected = measured(ahead, objective, asked)
        if expected is not None:
            assert ahead.plan(objective, **asked).target == expected, (objective, asked)
    kept = ahead._cache.stores_for(Objective(maximize="accuracy", max_cost_usd=5.0, max_latency_s=6.0)).loaded.frontiers
    assert sum(size > 10 for size in annotated.trie.end - range(len(annotated.trie))) <= len(kept)
    assert ahead.index_bytes > 0


def test_preparing_again_builds_nothing_anew():
    annotated = grid_annotated(random.Random(9), 3, 4)
    planner = Planner(annotated)
    loose, tight = (Objective(maximize="accuracy", max_latency_s=bound) for bound in (9.0, 1.0))
    planner.prepare(loose)
    built = planner._cache.stores_for(loose).loaded.frontiers[0]
    planner.prepare(tight)
    assert planner._cache.stores_for(tight).loaded.frontiers[0] is built


def test_a_large_trie_is_answered_without_frontiers_too(monkeypatch):
    annotated = grid_annotated(random.Random(6), 4, 4)
    objective = Objective(maximize="accuracy", max_latency_s=6.0)
    expected = Planner(annotated).plan(objective).target
    monkeypatch.setattr(index_module, "LAZY", 10)
    planner = Planner(annotated)
    assert planner.plan(objective).target == expected
    assert planner.index_ends == 0


def test_the_room_for_frontiers_is_bounded(monkeypatch):
    monkeypatch.setattr(index_module, "ROOM", 5)
    annotated = grid_annotated(random.Random(7), 3, 4)
    planner = Planner(annotated)
    objective = Objective(maximize="accuracy", max_latency_s=6.0)
    for node in range(len(annotated.trie)):
        planner.plan(objective, node=node)
    assert len(planner._cache.stores_for(objective).unloaded.frontiers) <= 6
    monkeypatch.setattr(index_module, "SHAPES", 3)
    for level in range(10):
        planner.plan(Objective(maximize="accuracy", max_latency_s=6.0, risk="mean+sd", z=float(level)))
    assert len(planner._cache._by_shape) <= 3


def test_objectives_that_differ_in_the_values_of_their_bounds_share_frontiers():
    annotated = grid_annotated(random.Random(7), 3, 4)
    planner = Planner(annotated)
    settings = {"maximize": "accuracy", "max_cost_usd": 2.0, "max_latency_s": 6.0}
    first = planner.plan(Objective(**settings))
    again, tighter = (planner.plan(Objective(**settings | bounds)) for bounds in ({}, {"max_cost_usd": 1.0}))
    assert again == first
    assert again.frontier is first.frontier
    assert tighter.frontier is first.frontier
    assert planner.plan(Objective(**settings, cost_budget="per_request")).frontier is not first.frontier
    assert len(planner._cache._by_shape) == 2


def test_pruning_leaves_few_ends():
    annotated = grid_annotated(random.Random(8), 8, 3, n_engines=8)
    planner = Planner(annotated)
    planner.prepare(Objective(maximize="accuracy", max_latency_s=6.0))
    shelf = planner._cache.stores_for(Objective(maximize="accuracy", max_latency_s=6.0)).loaded
    assert len(shelf.frontiers[0].ends) < annotated.trie.n_nodes / 2


def test_kinds_beyond_the_room_for_them_are_answered_alike(monkeypatch):
    monkeypatch.setattr(index_module, "CLASSES", 4)
    annotated = grid_annotated(random.Random(9), 3, 4)
    planner = Planner(annotated)
    for step in range(12):
        objective = Objective(maximize="accuracy", max_latency_s=3.0, risk="mean+sd", z=step / 4)
        asked = {"node": 0, "elapsed_s": 0.0, "spent_usd": 0.0, "may_stop": True}
        assert planner.plan(objective, **asked).target == measured(planner, objective, asked)
    assert len(planner._cache._stores) == 4
