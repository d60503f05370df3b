"""Estimates of merged tries: they recover known rates, do not depend on the order of the rows, and say what they cannot do."""

import random
from dataclasses import replace

import numpy as np
import pytest
from kit.catalogs import make_catalog
from kit.templates import agent, branching

from vinelm.controller import Planner
from vinelm.errors import ConfigError, InputError
from vinelm.estimator import ObservationTable, make_estimator
from vinelm.objective import Objective
from vinelm.plans.static_plans import StaticPlans
from vinelm.rows.observation import Observation
from vinelm.trie import Trie


def walks(template, n_requests, n_walks, seed, right_of, stop_of=(0.7, 0.15), arm_of=None):
    """Rows of random walks; ``right_of(history, difficulty)`` is P(right) after the last choice of a history."""
    rng = np.random.default_rng(seed)
    difficulty = rng.normal(size=n_requests)
    trie = Trie.from_template(template)
    rows = {}
    for walk in range(n_walks):
        request, node, history = walk % n_requests, 0, ()
        stage = next(iter(trie.arms(0)))
        while True:
            models = template.stage(stage).models
            history = (*history, (stage, models[rng.integers(len(models))]))
            key = (request, tuple(model for _, model in history))
            node = trie.child(node, history[-1][1], stage)
            if key not in rows:
                answers = template.stage(stage).answerable
                right = answers and bool(rng.random() < right_of(history, difficulty[request]))
                stopped = bool(rng.random() < stop_of[0 if right else 1]) if answers else False
                arms = tuple(trie.arms(node))
                arm = None
                if not stopped and len(arms) > 1:
                    arm = arms[0] if rng.random() < arm_of(history) else arms[1]
                elif not stopped and arms and not template.is_linear:
                    arm = arms[0]
                rows[key] = Observation(
                    request_id=f"q{request:03d}", prefix=key[1], stage=stage, success=right, stopped=stopped, arm=arm,
                    cost_usd=0.01 * (1 + int(history[-1][1][1:])) * rng.lognormal(0, 0.1), latency_s=1.0 + rng.random(),
                )  # fmt: skip
            row = rows[key]
            if row.stopped or not trie.arms(node):
                break
            stage = row.arm or next(iter(trie.arms(node)))
    return list(rows.values())


def by_model(history, difficulty):
    ability = {"m0": -1.2, "m1": -0.2, "m2": 0.8}[history[-1][1]]
    before = history[-2][1] if len(history) > 1 else None
    return 1 / (1 + np.exp(-(ability + difficulty - 0.8 * (before == history[-1][1]))))


def masses(template, right_of, stop_of=(0.7, 0.15)):
    """Exact success of every node of a loop of one stage under uniform choices, by following all histories."""
    grid = np.linspace(-3.5, 3.5, 41)
    weight = np.exp(-0.5 * grid**2) / np.exp(-0.5 * grid**2).sum()
    trie = Trie.from_template(template)
    right, reach = np.zeros(len(trie)), np.zeros(len(trie))
    waiting = [((), 0, weight)]
    while waiting:
        history, node, mass = waiting.pop()
        for child in trie.children(node):
            longer = (*history, ("agent", trie.models[trie.model[child]]))
            p = right_of(longer, grid)
            right[child] += mass @ p
            reach[child] += mass.sum()
            waiting.append((longer, child, mass * (1 - p * stop_of[0] - (1 - p) * stop_of[1])))
    return right[1:] / reach[1:]


@pytest.mark.parametrize("settings", [{"memory": 2}, {"memory": 1}, {"order": "ignored"}])
def test_many_rows_recover_the_rates(settings):
    template = agent(3, 4, **settings)
    rows = walks(template, 600, 5000, 0, by_model)
    fitted = make_estimator().fit(rows, template, make_catalog(3)).annotated_
    error = fitted.success[1:] - masses(template, by_model)
    assert np.abs(error).mean() < 0.035
    assert np.mean(np.abs(error) <= 1.645 * fitted.accuracy_se[1:]) > 0.75
    assert np.all(fitted.stop_success <= np.minimum(fitted.success, fitted.stop) + 1e-12)
    known = fitted.difficulty
    assert known.weight.sum() == pytest.approx(1.0)
    assert known.success.shape == (len(fitted.trie), len(known.weight))


def test_dollars_are_those_of_the_requests_that_reach_a_node():
    """Hard requests are dear here. Random walks reach each node with the requests that it stands for."""
    template = agent(3, 4, memory=1)
    size = np.exp(-0.5 * np.random.default_rng(0).normal(size=600))  # the difficulties of these walks
    rows = [
        replace(row, cost_usd=row.cost_usd * size[int(row.request_id[1:])]) for row in walks(template, 600, 1500, 0, by_model)
    ]
    fitted = make_estimator().fit(rows, template, make_catalog(3)).annotated_
    for depth in range(1, 5):
        level = fitted.trie.levels[depth]
        paid = sum(row.cost_usd for row in rows if len(row.prefix) == depth)
        assert fitted.count[level] @ fitted.cost_usd[level] == pytest.approx(paid, rel=0.05)


def test_the_order_of_the_rows_does_not_matter():
    template = agent(3, 4, memory=1)
    rows = walks(template, 60, 150, 1, by_model)
    one = make_estimator().fit(rows, template, make_catalog(3)).annotated_
    random.Random(0).shuffle(rows)
    other = make_estimator().fit([*rows, rows[0]], template, make_catalog(3)).annotated_
    for name in ("success", "stop", "stop_success", "cost_usd", "latency_s", "accuracy_se", "cost_se", "count"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_a_request_has_a_cell_for_each_of_its_histories():
    template = agent(2, 3, memory=1)
    rows = walks(template, 5, 900, 2, lambda history, difficulty: 0.1, stop_of=(0.0, 0.0))
    cells = ObservationTable.from_observations(rows, template, Trie.from_template(template))
    assert len(cells) == len(rows) == 5 * (2 + 4 + 8)
    assert cells.count[1:].tolist() == [5, 5, 10, 10, 20, 20]


def test_rows_below_their_own_stop_are_left_out():
    template = agent(2, 3, memory=1)
    rows = walks(template, 5, 900, 2, lambda history, difficulty: 0.1, stop_of=(0.0, 0.0))
    stopped = [replace(row, stopped=True) if row.prefix == ("m0",) else row for row in rows]
    cells = ObservationTable.from_observations(stopped, template, Trie.from_template(template))
    assert cells.n_beyond_stop == 5 * (2 + 4)
    assert cells.count[1:].tolist() == [5, 5, 5, 5, 10, 10]


def test_two_rows_for_one_cell_and_a_strange_path_are_one_line():
    template = agent(2, 3, memory=1)
    row = Observation(request_id="q", prefix=("m0",), stage="agent", success=True, stopped=False, cost_usd=0.1, latency_s=1.0)
    with pytest.raises(InputError, match="two different rows for one cell"):
        make_estimator().fit([row, replace(row, success=False)], template, make_catalog(2))
    with pytest.raises(InputError, match="no such p"):
        make_estimator().fit([replace(row, prefix=("m9",))], template, make_catalog(2))


def test_estimators_of_paths_refuse_merged_tries():
    template = agent(2, 3, memory=1)
    rows = walks(template, 5, 20, 2, by_model)
    for name in ("average", "prefix-average", "prefix-impute", "prefix-xgboost"):
        with pytest.raises(ConfigError, match=f"estimator '{name}' predicts single paths.*use 'latent'"):
            make_estimator(name).fit(rows, template, make_catalog(2))


WAYS = [{"memory": 2}, {"memory": 1}, {"order": "ignored"}]


@pytest.mark.parametrize("name", ["cascade", "cascade-svd"])
@pytest.mark.parametrize("settings", WAYS)
def test_means_of_complete_rows_are_means_over_the_merged_histories(name, settings):
    """The whole table of a small world: every history of each request that its stops let happen."""
    template = agent(2, 3, **settings)
    rows = walks(template, 8, 2400, 2, lambda history, difficulty: 0.4)
    bought = {(row.request_id, row.prefix) for row in rows}
    for row in rows:
        assert row.stopped or row.depth == 3 or all((row.request_id, (*row.prefix, m)) in bought for m in ("m0", "m1"))
    trie, of_node = Trie.from_template(template), {}
    for row in rows:
        of_node.setdefault(trie.node(row.prefix), []).append((row.success, row.stopped, row.success and row.stopped))
    fitted = make_estimator(name).fit(rows, template, make_catalog(2)).annotated_
    for node, outcomes in of_node.items():
        if name == "cascade" or trie.depth[node] < trie.max_depth:  # the projection changes the last rates
            found = fitted.success[node], fitted.stop[node], fitted.stop_success[node]
            np.testing.assert_allclose(found, np.mean(outcomes, axis=0), atol=1e-12)
    assert fitted.difficulty is None
    assert fitted.accuracy_se is None


@pytest.mark.parametrize("name", ["cascade", "cascade-svd"])
@pytest.mark.parametrize("settings", WAYS)
def test_means_of_many_rows_recover_rates_and_static_plans(name, settings):
    template = agent(3, 4, **settings)
    rows = walks(template, 600, 5000, 0, by_model)
    fitted = make_estimator(name).fit(rows, template, make_catalog(3)).annotated_
    truth = np.concatenate(([0.0], masses(template, by_model)))
    assert np.abs(fitted.success - truth)[fitted.count > 30].mean() < 0.05
    stop = np.where(fitted.trie.depth > 0, 0.7 * truth + 0.15 * (1 - truth), 0.0)
    exact = replace(fitted, success=truth, stop=stop, stop_success=0.7 * truth)
    assert np.abs(StaticPlans.of(fitted).accuracy - StaticPlans.of(exact).accuracy).mean() < 0.04
    assert Planner(fitted).plan(Objective(maximize="accuracy")).accuracy > 0.6


def test_counted_arms_of_merged_histories_add_up():
    template = branching(4, memory=2)
    rows = walks(template, 300, 900, 3, lambda history, difficulty: 0.4, arm_of=lambda history: 0.7)
    fitted = make_estimator("cascade").fit(rows, template, make_catalog(2)).annotated_
    trie = fitted.trie
    first, inner = trie.begins_arm, ~trie.is_leaf
    total = np.bincount(trie.source[first], fitted.arm[first], len(trie))
    right = np.bincount(trie.source[first], fitted.arm_success[first], len(trie))
    np.testing.assert_allclose(total[inner], (1.0 - fitted.stop)[inner], atol=1e-9)
    np.testing.assert_allclose(right[inner], (fitted.success - fitted.stop_success)[inner], atol=1e-9)


def test_arms_are_learned_and_add_up():
    template = branching(4, memory=2)

    def arm_of(history):
        return {"m0": 0.8, "m1": 0.3}[history[-1][1]]

    def right_of(history, difficulty):
        return 1 / (1 + np.exp(-(0.3 * (history[-1][1] == "m1") + difficulty)))

    rows = walks(template, 400, 1500, 3, right_of, arm_of=arm_of)
    fitted = make_estimator().fit(rows, template, make_catalog(2)).annotated_
    trie = fitted.trie
    is_first = np.diff(trie.edge_arm, prepend=-1) != 0
    source = trie.source[is_first]
    inner = ~trie.is_leaf
    on, right = (1.0 - fitted.stop)[inner], (fitted.success - fitted.stop_success)[inner]
    np.testing.assert_allclose(np.bincount(source, fitted.arm[is_first], len(trie))[inner], on, atol=1e-9)
    np.testing.assert_allclose(np.bincount(source, fitted.arm_success[is_first], len(trie))[inner], right, atol=1e-9)
    assert np.all(fitted.arm_success <= fitted.arm + 1e-12)
    known = fitted.difficulty
    for point in range(known.arm.shape[1]):  # for requests of every difficulty, and at the root as well
        on = np.bincount(source, known.arm[:, point], len(trie))[inner]
        np.testing.assert_allclose(on, 1.0 - known.stop[inner, point], atol=1e-9)
    errors = []
    for edge in np.flatnonzero(is_first):
        node = int(trie.source[edge])
        if len(trie.arms(node)) > 1 and node:
            share = fitted.arm[edge] / (1.0 - fitted.stop[node])
            first = trie.stages[trie.stage[trie.target[edge]]] == next(iter(trie.arms(node)))
            true = arm_of([("", trie.models[trie.model[node]])])
            errors.append(abs(share - (true if first else 1 - true)))
    assert np.mean(errors) < 0.06


def test_no_answer_counts_as_right_deeper_in_a_loop_than_any_row():
    template, deepest = agent(2, 30, memory=1), 4
    rows = walks(template, 80, 240, 7, lambda history, difficulty: 0.3, stop_of=(0.9, 0.0))
    fitted = make_estimator("latent").fit([row for row in rows if row.depth <= deepest], template, make_catalog(2)).annotated_
    promised = Planner(fitted).plan(Objective(maximize="accuracy")).accuracy
    assert promised == pytest.approx(1 - 0.7**deepest, abs=0.08)  # 30 turns would promise 1
