"""Backward induction and evaluation on merged tries, against all plans and against the tree where nothing is lost."""

from dataclasses import replace

import numpy as np
import pytest
from kit.catalogs import make_catalog
from kit.oracles.merged_plans import all_plans, arm_rates, best_within, worth
from kit.templates import agent
from kit.tries import random_merged

from vinelm.controller.planning.contingent.grid_problem import GridProblems
from vinelm.controller.planning.contingent.limits import Admissible
from vinelm.controller.planning.contingent.problem import Problem
from vinelm.controller.planning.contingent.values import PlanGoal
from vinelm.controller.planning.path_metrics import PathMetrics
from vinelm.controller.planning.plan_request import PlanRequest
from vinelm.objective import Objective
from vinelm.plans.plan import Plan
from vinelm.plans.static_plans import StaticPlans
from vinelm.template import Branch, Loop, Stage, Template
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.decision_graph import DecisionGraph

SMALL = [
    agent(2, 3, memory=1),
    agent(2, 3, order="ignored"),
    Template((Loop((Branch({"a": (Stage("x", ("m0", "m1")),), "b": (Stage("y", ("m1",)),)}),), 2, memory=1),)),
    Template((Stage("plan", ("m0", "m1"), answerable=False), Loop((Stage("act", ("m0", "m1")),), 2, memory=1))),
]


def from_root(annotated):
    """The problem of every request, without caps."""
    graph = DecisionGraph.of(annotated)
    return Problem(graph, 0, graph.groups_at(0), Admissible(graph, {}, None), may_stop=False)


def worth_of(found, price):
    return found.accuracy - price * found.cost_usd


@pytest.mark.parametrize("case", range(len(SMALL)))
@pytest.mark.parametrize("seed", range(6))
def test_the_induction_finds_the_best_of_all_plans(case, seed):
    annotated = random_merged(SMALL[case], seed)
    problem, rates = from_root(annotated), arm_rates(annotated)
    worths = [worth(annotated, plan, rates) for plan in all_plans(annotated.trie, problem.graph.may_end)]
    for price in (0.0, 0.2, 0.7, 3.0):
        best = max(accuracy - price * cost for accuracy, cost, _ in worths)
        found = problem.best(PlanGoal("accuracy", price))
        assert worth_of(found, price) == pytest.approx(best, abs=1e-12)
        plan = found.plan(problem.graph, 0)
        assert (plan.accuracy, plan.cost_usd) == pytest.approx((found.accuracy, found.cost_usd), abs=1e-12)
    cheapest = min(cost for _, cost, _ in worths)
    assert problem.best(PlanGoal("cost")).cost_usd == pytest.approx(cheapest, abs=1e-12)


@pytest.mark.parametrize("case", range(len(SMALL)))
@pytest.mark.parametrize("seed", range(4))
def test_the_figures_of_a_plan_are_what_following_every_history_gives(case, seed):
    annotated = random_merged(SMALL[case], seed)
    graph, rates, trie = DecisionGraph.of(annotated), arm_rates(annotated), annotated.trie
    rng = np.random.default_rng(seed)
    plans = list(all_plans(trie, graph.may_end))
    for at in rng.choice(len(plans), 12):
        choice = np.full(len(graph.source), -1)
        for (node, stage), child in plans[at].items():
            (group,) = graph.groups_at(node, (stage,))
            if child is not None:
                choice[group] = next(e for e in graph.edges_of(group) if graph.target[e] == child)
        for node in (0, trie.children(0)[0]):
            plan = Plan(graph, node, {group: int(choice[group]) for group in graph.groups_at(node)}, choice)
            accuracy, cost, longest = worth(annotated, plans[at], rates, node)
            if node:  # of a request that goes on there
                accuracy, cost = (
                    value / (1.0 - annotated.stop[node]) for value in (accuracy - annotated.stop_success[node], cost)
                )
            assert (plan.accuracy, plan.cost_usd, plan.latency_s) == pytest.approx((accuracy, cost, longest), abs=1e-12)


def within(annotated, use, whole, left, price=0.0):
    """The best plan at a price for a request that has so much left of a bound of its own."""
    own = {"max_latency_s": whole} if use == "latency_s" else {"max_cost_usd": whole, "cost_budget": "per_request", "z": 0.0}
    graph = DecisionGraph.of(annotated)
    used = (
        {"elapsed_s": whole - left, "spent_usd": 0.0} if use == "latency_s" else {"elapsed_s": 0.0, "spent_usd": whole - left}
    )
    request = PlanRequest(Objective(maximize="accuracy", **own), 0, **used, load_s=None, candidates=None, may_stop=False)
    problem = GridProblems(graph, PathMetrics(annotated)).below(request, 0, graph.groups_at(0))
    return problem.best(PlanGoal("accuracy", price))


@pytest.mark.parametrize("case", range(len(SMALL)))
@pytest.mark.parametrize("use", ["latency_s", "cost_usd"])
@pytest.mark.parametrize("seed", range(6))
def test_what_is_left_is_kept_exactly_where_the_grid_holds_it(case, use, seed):
    annotated = random_merged(SMALL[case], seed)
    rng = np.random.default_rng(seed)
    amounts = rng.integers(1, 30, len(annotated.trie)).astype(np.float64)
    amounts[0] = 0.0
    annotated = replace(annotated, **{use: amounts})
    rates, ends = arm_rates(annotated), annotated.trie.answerable
    price = 0.01 if use == "latency_s" else 0.0
    best = best_within(annotated, rates, ends, price, use=use)
    for left in range(0, 65, 8):
        expected = best(0, float(left))
        assert worth_of(within(annotated, use, 64.0, float(left), price), price) == pytest.approx(expected, abs=1e-12)


def test_time_and_dollars_can_both_be_bounded():
    annotated = random_merged(agent(2, 3, memory=1), 5)
    graph, least = DecisionGraph.of(annotated), float(annotated.cost_usd[1:].min())
    problems = GridProblems(graph, PathMetrics(annotated))

    def value(seconds, dollars):
        objective = Objective(maximize="accuracy", max_latency_s=seconds, max_cost_usd=dollars, cost_budget="per_request")
        request = PlanRequest(objective, 0, 0.0, 0.0, None, None, False)
        return worth_of(problems.below(request, 0, graph.groups_at(0)).best(PlanGoal("accuracy", 0.3)), 0.3)

    free = worth_of(from_root(annotated).best(PlanGoal("accuracy", 0.3)), 0.3)
    assert value(1e6, 1e6) == pytest.approx(free, abs=1e-3)
    assert value(1e6, least) <= free
    assert value(1e-9, 1e6) == 0.0


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
    problem = from_root(merged)
    assert merged.trie.n_nodes <= tree.trie.n_nodes
    ends = tree.trie.answerable
    for price in (0.0, 0.1, 0.5, 2.0):
        worths = np.where(ends, tree.accuracy - price * tree.path_cost_usd, -np.inf)
        found = problem.best(PlanGoal("accuracy", price))
        assert worth_of(found, price) == pytest.approx(worths.max(), abs=1e-12)
        plan, node, path = found.plan(problem.graph, 0), 0, []
        while (model := plan.next_model(node, "agent")) is not None:
            node = merged.trie.child(node, model)
            path.append(model)
            if merged.trie.is_leaf[node]:
                break
        end = tree.trie.node(path)
        assert (plan.accuracy, plan.cost_usd, plan.latency_s) == pytest.approx(
            (tree.accuracy[end], tree.path_cost_usd[end], tree.path_latency_s[end]), abs=1e-12
        )


# -- the plan's own requests ---------------------------------------------------------------------------------------


def test_a_plan_is_judged_by_its_own_requests():
    """A strong model solves the easy requests, so those that go on behind it are harder than the profile's."""
    annotated = random_merged(agent(2, 4, memory=1), 3, with_difficulty=True)
    known = annotated.difficulty
    graph = DecisionGraph.of(annotated)
    fixed = StaticPlans(graph, None)
    for number in range(len(fixed.accuracy)):
        mass, node, accuracy, cost = known.weight, 0, 0.0, 0.0
        turns = number % fixed.depth + 1
        for k in range(turns):
            node = annotated.trie.child(node, annotated.trie.models[fixed.models[number // fixed.depth][0]])
            cost += mass.sum() * annotated.cost_usd[node]
            if k + 1 == turns:
                accuracy += float(mass @ known.success[node])
            accuracy += float(mass @ known.stop_success[node]) * (k + 1 < turns)
            mass = mass * (1.0 - known.stop[node])
        choice = fixed.choice(number)
        plan = Plan(graph, 0, {0: int(choice[0])}, choice)
        assert (fixed.accuracy[number], fixed.cost_usd[number]) == pytest.approx((accuracy, cost), abs=1e-12)
        assert (plan.accuracy, plan.cost_usd) == pytest.approx((accuracy, cost), abs=1e-12)
        assert plan.latency_s == pytest.approx(fixed.longest_s[number], abs=1e-12)


def test_the_second_look_is_never_worse():
    """The plan by the profile's rates and the one by its own requests' rates are both judged by their own requests."""
    gains = []
    for seed in range(12):
        annotated = random_merged(agent(3, 4, memory=1), seed, with_difficulty=True)
        problem = from_root(annotated)
        once = from_root(replace(annotated, difficulty=None))
        for price in (0.0, 0.3):
            first = once.best(PlanGoal("accuracy", price)).plan(problem.graph, 0)
            found = problem.best(PlanGoal("accuracy", price))
            gains.append(worth_of(found, price) - worth_of(first, price))
    assert min(gains) >= -1e-12
    assert max(gains) > 0.0


def test_the_mass_of_each_difficulty_gives_the_rates_of_the_plans_own_requests():
    annotated = random_merged(agent(2, 3, memory=1), 2, with_difficulty=True)
    graph, known = DecisionGraph.of(annotated), annotated.difficulty
    plan = from_root(annotated).best(PlanGoal("accuracy")).plan(graph, 0)
    mass = plan.mass
    assert mass[0] == pytest.approx(known.weight)
    own = graph.for_mass(mass)
    reached = np.flatnonzero(mass.sum(axis=1) > 0)
    stops = (mass * known.stop).sum(axis=1) / np.maximum(mass.sum(axis=1), 1e-300)
    for group in range(len(graph.source)):
        at = graph.source[group]
        assert own.arm[group] == pytest.approx(1.0 - stops[at] if at in reached else graph.arm[group])


def test_standard_errors_add_up():
    annotated = random_merged(agent(2, 3, memory=1), 1)
    trie = annotated.trie
    annotated = replace(annotated, accuracy_se=np.where(np.arange(len(trie)) > 0, 0.03, 0.0))
    graph = DecisionGraph.of(annotated)
    fixed = StaticPlans(graph, None)

    def plan(turns):
        choice = fixed.choice(turns - 1)
        return Plan(graph, 0, {0: int(choice[0])}, choice)

    assert plan(1).standard_error == pytest.approx(0.03)
    assert 0.0 < plan(3).standard_error <= 0.03 * (plan(3).mass.sum() - 1.0)
