"""The trie of outcomes against the histories that it was laid out from."""

from dataclasses import replace

import numpy as np
import pytest
from kit.worlds.outcomes import every_history, path_trie, random_outcome_trie, random_predictive

from vinelm.estimator.signals.build import signals_trie
from vinelm.plans.plan import Plan
from vinelm.plans.promise import error_between_fits
from vinelm.trie.decision_graph import END, DecisionGraph
from vinelm.vinefile.structure import check_annotated

CASES = [
    {"n_models": 2, "depth": 2, "n_labels": 3},
    {"n_models": 3, "depth": 2, "fits": 2, "follows": True},
    {"n_models": 2, "depth": 3, "follows": True, "goes_on": False},
    {"n_models": 1, "depth": 3, "fits": 2, "goes_on": False},
    {"n_models": 2, "depth": 1, "fits": 2},
    {"n_models": 2, "depth": 3, "least_reach": 0.03, "n_labels": 3},
    {"n_models": 2, "depth": 3, "again": False},
]


@pytest.fixture(scope="module", params=range(len(CASES)))
def case(request):
    wanted = CASES[request.param]
    found, model, path = random_outcome_trie(np.random.default_rng(request.param), **wanted)
    stages = [(stage.name, stage.models) for stage in path.template.invocations]
    return found, model, path, every_history(model, stages, found.trie.models, goes_on=wanted.get("goes_on", True))


def shown_before(found):
    """For each node the history before its invocation, and for each outcome the history with it."""
    outcomes, trie, before, after = found.outcomes, found.trie, {0: ()}, []
    below = {}
    for node in range(1, len(trie)):
        below.setdefault((int(trie.parent[node]), int(trie.stage[node])), []).append(node)
    for node in (n for (up, _), nodes in below.items() if up == 0 for n in nodes):
        before[node] = ()
    for node, label, kind, arm in zip(outcomes.node, outcomes.label, outcomes.answer_class, outcomes.arm, strict=True):
        history = (*before[int(node)], (int(trie.model[node]), int(label), int(kind)))
        after.append(history)
        before.update(dict.fromkeys(below.get((int(node), int(arm)), ()), history))
    return before, after


def test_it_is_a_valid_trie(case):
    found, _, path, _ = case
    check_annotated(replace(path, signals=found))


def test_what_comes_after_a_node_sums_to_one(case):
    found, *_ = case
    trie = found.trie
    assert (found.arm_success <= found.arm + 1e-12).all()
    assert (found.stop_success <= found.stop + 1e-12).all()
    assert (found.stop_success <= found.success + 1e-12).all()
    for node in range(1, len(trie)):
        arms = [below[0] for below in trie.arms(node).values()]
        if arms:
            assert found.arm[arms].sum() + found.stop[node] == pytest.approx(1.0, abs=1e-12)
            assert found.arm_success[arms].sum() + found.stop_success[node] == pytest.approx(found.success[node], abs=1e-12)


def test_each_outcome_is_its_history(case):
    found, _, _, (reach, right, by_fit) = case
    before, after = shown_before(found)
    outcomes = found.outcomes
    for i, history in enumerate(after):
        node = int(outcomes.node[i])
        given = reach[before[node]] if before[node] else 1.0
        best = max(right[history].values(), default=0.0)
        assert found.reach[node] == pytest.approx(given, abs=1e-12)
        assert outcomes.chance[i] * given == pytest.approx(reach[history], abs=1e-12)
        assert outcomes.right[i] * given == pytest.approx(best, abs=1e-12)
        assert outcomes.right_last[i] * given == pytest.approx(right[history][history[-1][2]], abs=1e-12)
        returned = int(outcomes.returned[i])
        assert right[history][returned] == pytest.approx(best, abs=1e-12)
        np.testing.assert_allclose(outcomes.spread[i], by_fit[history][returned], rtol=1e-5, atol=1e-7)
        if outcomes.arm[i] >= 0:
            below = found.trie.arms(node)[found.trie.stages[outcomes.arm[i]]]
            assert set(found.arm[below]) == {outcomes.chance[i]}
            assert set(found.arm_success[below]) == {outcomes.right[i]}


def test_dollars_and_seconds_of_a_node(case):
    found, model, path, _ = case
    before, _ = shown_before(found)
    contexts = {(c.stage, c.model, c.is_again): i for i, c in enumerate(model.contexts)}
    for node in range(1, len(found.trie)):
        models = [found.trie.models[m] for m, *_ in before[node]]
        name = found.trie.models[found.trie.model[node]]
        at = path.trie.node([*models, name])
        cost = model.cost_usd[contexts["repair" if models else "generate", name, name in models]]
        assert found.latency_s[node] == path.latency_s[at]
        size = found.cost_usd[node] / cost
        assert size == pytest.approx(1.0) if not models else model.size.min() <= size <= model.size.max()


def test_ending_after_the_first_answer(case):
    found, _, _, (_, right, _) = case
    graph = DecisionGraph.of(found)
    everywhere = np.full(len(graph.source), END)
    (group,) = graph.groups_at(0)
    for edge in graph.edges_of(group):
        plan = Plan(graph, 0, {group: edge}, everywhere)
        first = [max(of.values(), default=0.0) for h, of in right.items() if len(h) == 1 and h[0][0] == graph.model[edge]]
        assert plan.accuracy == pytest.approx(sum(first), abs=1e-12)


def test_the_worth_of_any_plan_is_that_of_its_histories(case):
    """Random choices in every history; its accuracy by the trie is the sum of what its ends are worth, and so by fit."""
    found, _, _, (reach, right, by_fit) = case
    graph, (_, after) = DecisionGraph.of(found), shown_before(found)
    outcomes, rng = found.outcomes, np.random.default_rng(1)
    arm_of = {(int(n), int(a)): h for n, a, h in zip(outcomes.node, outcomes.arm, after, strict=True) if a >= 0}
    (root,) = graph.groups_at(0)
    for _ in range(20):
        choice = np.array([rng.choice([END, *graph.edges_of(g)]) for g in range(len(graph.source))])
        choice[root] = rng.choice([*graph.edges_of(root)])
        plan = Plan(graph, 0, {root: int(choice[root])}, choice)
        wanted = {}  # by history: the model that goes on, or None
        for group in range(len(graph.source)):
            history = arm_of.get((int(graph.nodes[graph.source[group]]), int(graph.stage[group])), ())
            wanted[history] = None if choice[group] == END else int(graph.model[choice[group]])
        ended = [h for h in reach if wanted.get(h) is None and all(wanted.get(h[:k]) == h[k][0] for k in range(len(h)))]
        best = [max(right[h], key=right[h].get, default=-1) for h in ended]
        assert sum(reach[h] for h in ended) == pytest.approx(1.0, abs=1e-9)
        assert plan.accuracy == pytest.approx(sum(right[h][j] for h, j in zip(ended, best, strict=True)), abs=1e-9)
        if outcomes.spread.shape[1] > 1:
            fits = sum(by_fit[h][j] for h, j in zip(ended, best, strict=True))
            assert plan.standard_error == pytest.approx(error_between_fits(fits), abs=1e-6)


def test_returning_only_last_answers(case):
    found, _, path, (reach, right, _) = case
    last = found.returning_last()
    check_annotated(replace(path, signals=last))
    assert last.returning_last() is last
    assert last.outcomes.returned_class(0) is None
    before, after = shown_before(found)
    success, stop_success = np.zeros(len(found.trie)), np.zeros(len(found.trie))
    for i, history in enumerate(after):
        node = int(found.outcomes.node[i])
        mass = right[history][history[-1][2]] / (reach[before[node]] if before[node] else 1.0)
        success[node] += mass
        stop_success[node] += mass * (found.outcomes.arm[i] < 0)
        for stage, below in found.trie.arms(node).items():
            if stage == found.trie.stages[found.outcomes.arm[i]] and found.outcomes.arm[i] >= 0:
                np.testing.assert_allclose(last.arm_success[below], mass, rtol=0, atol=1e-12)
    np.testing.assert_allclose(last.success[1:], success[1:], rtol=0, atol=1e-12)
    np.testing.assert_allclose(last.stop_success[1:], stop_success[1:], rtol=0, atol=1e-12)
    assert (last.success <= found.success + 1e-12).all()
    np.testing.assert_array_equal(last.arm, found.arm)
    same = found.outcomes.right_last == found.outcomes.right
    np.testing.assert_array_equal(last.outcomes.spread[same], found.outcomes.spread[same])


def test_a_trie_of_too_many_nodes_leaves_out_what_is_unlikely(monkeypatch):
    monkeypatch.setattr("vinelm.estimator.signals.build.MOST_HISTORIES", 200)
    rng = np.random.default_rng(3)
    model, path = random_predictive(rng, depth=3, n_labels=3), path_trie(rng, depth=3)
    small = signals_trie(path, model, goes_on=True)
    assert len(small.outcomes.node) <= 200
    check_annotated(replace(path, signals=small))
