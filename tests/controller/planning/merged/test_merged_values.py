"""Backward induction and evaluation on merged tries, against all plans and against the tree where nothing is lost."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import make_catalog
from core.merged_kit import agent, random_merged
from core.merged_plans import all_plans, arm_rates, best_within, worth

from vinelm.annotated_trie import AnnotatedTrie
from vinelm.controller.planning.merged.evaluation import evaluate
from vinelm.controller.planning.merged.graph import MergedGraph
from vinelm.controller.planning.merged.policies import fixed_choice, fixed_plans, policy_at
from vinelm.controller.planning.merged.values import Resource, induce
from vinelm.template import Branch, Loop, Stage, Template
from vinelm.trie import Trie

SMALL = [
    agent(2, 3, memory=1),
    agent(2, 3, order="ignored"),
    Template((Loop((Branch({"a": (Stage("x", ("m0", "m1")),), "b": (Stage("y", ("m1",)),)}),), 2, memory=1),)),
    Template((Stage("plan", ("m0", "m1"), answerable=False), Loop((Stage("act", ("m0", "m1")),), 2, memory=1))),
]


@pytest.mark.parametrize("case", range(len(SMALL)))
@pytest.mark.parametrize("seed", range(6))
def test_the_induction_finds_the_best_of_all_plans(case, seed):
    annotated = random_merged(SMALL[case], seed)
    graph, rates = MergedGraph.of(annotated), arm_rates(annotated)
    worths = [worth(annotated, plan, rates) for plan in all_plans(annotated.trie, graph.ends)]
    for price in (0.0, 0.2, 0.7, 3.0):
        best = max(accuracy - price * cost for accuracy, cost, _ in worths)
        values = induce(graph, price)
        assert values.value[0] == pytest.approx(best, abs=1e-12)
        seen = evaluate(graph, values.choice)
        assert seen.accuracy - price * seen.cost_usd == pytest.approx(best, abs=1e-12)
        assert seen.cost_usd == pytest.approx(values.cost_usd[0], abs=1e-12)
    cheapest = min(cost for _, cost, _ in worths)
    assert -induce(graph, 1.0, weight=0.0).value[0] == pytest.approx(cheapest, abs=1e-12)


@pytest.mark.parametrize("case", range(len(SMALL)))
@pytest.mark.parametrize("seed", range(4))
def test_an_evaluation_is_what_following_every_history_gives(case, seed):
    annotated = random_merged(SMALL[case], seed)
    graph, rates, trie = MergedGraph.of(annotated), arm_rates(annotated), annotated.trie
    rng = np.random.default_rng(seed)
    plans = list(all_plans(trie, graph.ends))
    for at in rng.choice(len(plans), 12):
        choice = np.full(graph.n_arms, -1)
        for (node, stage), child in plans[at].items():
            arm = next(a for a in graph.arms_of(node) if graph.stage_of(a) == stage)
            if child is not None:
                choice[arm] = next(e for e in graph.edges_of(arm) if trie.target[e] == child)
        for node in (0, trie.children(0)[0]):
            seen = evaluate(graph, choice, node=node)
            expected = worth(annotated, plans[at], rates, node)
            assert (seen.accuracy, seen.cost_usd, seen.latency_s) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("case", range(len(SMALL)))
@pytest.mark.parametrize("use", ["latency_s", "cost_usd"])
@pytest.mark.parametrize("seed", range(6))
def test_what_is_left_is_kept_exactly_where_the_grid_holds_it(case, use, seed):
    annotated = random_merged(SMALL[case], seed)
    rng = np.random.default_rng(seed)
    amounts = rng.integers(1, 30, len(annotated.trie)).astype(np.float64)
    annotated = replace(annotated, **{use: amounts})
    graph, rates = MergedGraph.of(annotated), arm_rates(annotated)
    resource = Resource.of(graph, "x", 64.0, amounts[annotated.trie.target])
    price = 0.01 if use == "latency_s" else 0.0
    values = induce(graph, price, [resource])
    for left in range(0, 65, 4):
        expected = best_within(annotated, rates, graph.ends, price, float(left), use=use)
        assert values.value[0, left] == pytest.approx(expected, abs=1e-12)


def test_time_and_dollars_can_both_be_bounded():
    annotated = random_merged(agent(2, 3, memory=1), 5)
    graph = MergedGraph.of(annotated)
    seconds, dollars = annotated.latency_s[graph.trie.target], annotated.cost_usd[graph.trie.target]
    ample = [Resource.of(graph, "x", 1e6, seconds), Resource.of(graph, "x", 1e6, dollars)]
    free = induce(graph, 0.3).value[0]
    assert induce(graph, 0.3, ample).value[0, -1, -1] == pytest.approx(free, abs=1e-3)
    tight = [Resource.of(graph, "x", 1e6, seconds), Resource.of(graph, "x", float(dollars.min()), dollars)]
    assert induce(graph, 0.3, tight).value[0, -1, -1] <= free
    nothing = [Resource.of(graph, "x", 0.0, seconds), Resource.of(graph, "x", 1e6, dollars)]
    assert induce(graph, 0.3, nothing).value[0, -1, -1] == 0.0


# -- where merging loses nothing -----------------------------------------------------------------------------------


def order_free(n_models, times, seed, **settings):
    """The tree and the merged trie of a loop in which P(right) depends on the model, how often it ran, and the request."""
    rng = np.random.default_rng(seed)
    weight = rng.dirichlet(np.ones(4))
    right = rng.random((n_models, times, 4))  # by model, earlier calls of it, difficulty
    accept = rng.uniform(0.1, 0.9, 2)

    def annotate(template):
        trie = Trie.from_template(template)
        n = len(trie)
        mass = np.zeros((n, 4))
        mass[0] = weight
        arrays = {name: np.zeros(n) for name in ("success", "stop", "stop_success")}
        parents = [0] * n
        for node in range(n):
            for child in trie.children(node):
                parents[child] = node
        for level in trie.levels[1:]:
            for node in level:
                history = trie.prefix(int(node))
                up = trie.node(history[:-1])
                last = trie.models[trie.model[node]]
                p = right[trie.model[node], history[:-1].count(last)]
                here = mass[up] / mass[up].sum()
                arrays["success"][node] = here @ p
                arrays["stop_success"][node] = here @ (p * accept[0])
                arrays["stop"][node] = here @ (p * accept[0] + (1 - p) * accept[1])
                mass[node] = mass[up] * (1 - (p * accept[0] + (1 - p) * accept[1]))
        usd = rng_usd[trie.model] * (trie.model >= 0) * (1.0 + 0.1 * trie.depth)
        seconds = np.where(trie.model >= 0, 1.0 + trie.model, 0.0)
        return AnnotatedTrie(
            trie=trie, template=template, catalog=make_catalog(n_models), **arrays, cost_usd=usd, cost_var=0 * usd,
            latency_s=seconds, latency_var=0 * usd,
        )  # fmt: skip

    rng_usd = rng.uniform(0.01, 0.3, n_models)
    return annotate(agent(n_models, times)), annotate(agent(n_models, times, **settings))


@pytest.mark.parametrize("settings", [{"order": "ignored"}, {"memory": 4}])
@pytest.mark.parametrize("seed", range(8))
def test_merging_loses_nothing_where_order_has_no_effect(settings, seed):
    tree, merged = order_free(3, 4, seed, **settings)
    graph = MergedGraph.of(merged)
    assert merged.trie.n_nodes <= tree.trie.n_nodes
    ends = tree.trie.answerable
    for price in (0.0, 0.1, 0.5, 2.0):
        worths = np.where(ends, tree.accuracy - price * tree.path_cost_usd, -np.inf)
        values = induce(graph, price)
        assert values.value[0] == pytest.approx(max(worths.max(), 0.0), abs=1e-12)
        node, path = 0, []
        while graph.arms_of(node) and values.choice[graph.arms_of(node)[0]] >= 0:
            node = int(merged.trie.target[values.choice[graph.arms_of(node)[0]]])
            path.append(merged.trie.models[merged.trie.model[node]])
        if path:
            end = tree.trie.node(path)
            seen = evaluate(graph, values.choice)
            assert (seen.accuracy, seen.cost_usd, seen.latency_s) == pytest.approx(
                (tree.accuracy[end], tree.path_cost_usd[end], tree.path_latency_s[end]), abs=1e-12
            )


# -- the plan's own requests ---------------------------------------------------------------------------------------


def test_a_plan_is_judged_by_its_own_requests():
    """A strong model solves the easy requests, so those that go on behind it are harder than the profile's."""
    annotated = random_merged(agent(2, 4, memory=1), 3, with_difficulty=True)
    known = annotated.difficulty
    graph = MergedGraph.of(annotated)
    for plan in fixed_plans(graph):
        mass, node, accuracy, cost = known.weight, 0, 0.0, 0.0
        for k in range(plan.turns):
            node = annotated.trie.child(node, plan.models[0])
            cost += mass.sum() * annotated.cost_usd[node]
            if k + 1 == plan.turns:
                accuracy += float(mass @ known.success[node])
            accuracy += float(mass @ known.stop_success[node]) * (k + 1 < plan.turns)
            mass = mass * (1.0 - known.stop[node])
        seen = evaluate(graph, fixed_choice(graph, plan), mix=known.weight)
        assert (plan.run.accuracy, plan.run.cost_usd) == pytest.approx((accuracy, cost), abs=1e-12)
        assert (seen.accuracy, seen.cost_usd, seen.latency_s) == pytest.approx((accuracy, cost, plan.run.latency_s), abs=1e-12)


def test_the_second_look_is_never_worse():
    for seed in range(12):
        annotated = random_merged(agent(3, 4, memory=1), seed, with_difficulty=True)
        graph = MergedGraph.of(annotated)
        for price in (0.0, 0.3):
            first = evaluate(graph, induce(graph, price).choice, mix=annotated.difficulty.weight)
            policy = policy_at(graph, price)
            assert policy.outlook.accuracy - price * policy.outlook.cost_usd >= first.accuracy - price * first.cost_usd - 1e-12


def test_standard_errors_add_up():
    annotated = random_merged(agent(2, 3, memory=1), 1)
    trie = annotated.trie
    annotated = replace(annotated, accuracy_se=np.where(np.arange(len(trie)) > 0, 0.03, 0.0))
    graph = MergedGraph.of(annotated)
    one = next(plan for plan in fixed_plans(graph) if plan.turns == 1)
    assert evaluate(graph, fixed_choice(graph, one)).standard_error == pytest.approx(0.03)
    three = next(plan for plan in fixed_plans(graph) if plan.turns == 3)
    seen = evaluate(graph, fixed_choice(graph, three))
    assert 0.0 < seen.standard_error <= 0.03 * (seen.reach.sum() - 1.0)
