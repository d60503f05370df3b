"""The contingent planner over tries of outcomes, against every contingent plan of small random ones."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from kit.oracles.contingent_brute_force import ContingentQuestion
from kit.worlds.outcomes import random_outcome_trie

from vinelm.controller import Planner
from vinelm.controller.planning.contingent.limits import Admissible
from vinelm.controller.planning.contingent.problem import Problem
from vinelm.controller.planning.contingent.values import PlanGoal
from vinelm.objective import Objective
from vinelm.plans.plan import Plan
from vinelm.plans.static_plans import StaticPlans
from vinelm.trie.decision_graph import END, DecisionGraph

ANY = Objective(maximize="accuracy")
PRICES = (0.0, 0.02, 0.1, 0.3, 1.0, 4.0)
TOLERANCE = 1e-9
SIZES = (
    {"n_models": 2, "depth": 2, "n_labels": 2},
    {"n_models": 1, "depth": 3, "n_labels": 1},
    {"n_models": 2, "depth": 2, "n_labels": 1, "fits": 3},
    {"n_models": 3, "depth": 2, "n_labels": 1},
    {"n_models": 1, "depth": 2, "n_labels": 3, "follows": True},
)


def small_trie(rng):
    """Of at most some 1,500 plans; where only last answers are returned in a third of the cases."""
    wanted = SIZES[rng.integers(len(SIZES))]
    found, *_ = random_outcome_trie(rng, goes_on=bool(rng.integers(2)), **wanted)
    return found.returning_last() if rng.random() < 0.3 else found


def wrong_prices(annotated):
    """Prices of accuracy at which the plan is not the best of all."""
    graph = DecisionGraph.of(annotated)
    problem = Problem(graph, 0, graph.groups_at(0), Admissible(graph, {}, None), may_stop=False)
    question = ContingentQuestion(annotated, ANY)
    plans, wrong = question.plans(), []
    for price in PRICES:
        outcome = problem.best(PlanGoal("accuracy", price))
        plan = Plan(graph, 0, outcome.first, outcome.choice)
        found = question.measure(plan.next_model)
        best = max(plan.accuracy - price * plan.cost_usd for plan in plans)
        same = abs(found.accuracy - plan.accuracy) + abs(found.cost_usd - plan.cost_usd) <= TOLERANCE
        if not same or abs(found.accuracy - price * found.cost_usd - best) > TOLERANCE:
            wrong.append(price)
    return wrong


def wrong_caps(annotated, rng):
    """Dollars per request within which the plan is not the best of all."""
    planner, wrong = Planner(annotated), []
    for cap in rng.uniform(annotated.cost_usd[1:].min(), 5.0, 3).tolist():
        objective = Objective(maximize="accuracy", max_cost_usd=cap, cost_budget="per_request")
        question = ContingentQuestion(annotated, objective)
        best = question.best()
        decision = planner.plan(objective)
        found = question.measure(decision.plan.next_model)
        if best is not None and not decision.relaxed and abs(found.accuracy - best[0].accuracy) > TOLERANCE:
            wrong.append(cap)
        if not decision.relaxed and found.bounded_usd > cap + TOLERANCE:
            wrong.append(cap)
    return wrong


def hull(plans):
    """Corners of the upper hull of cost and accuracy up to the most accurate plan.

    Plans on the line between two corners are none: arms that differ in nothing but their chance have many such plans.
    """
    corners = []
    for cost, accuracy in sorted((plan.cost_usd, plan.accuracy) for plan in plans):
        if corners and accuracy <= corners[-1][1] + TOLERANCE and cost > corners[-1][0]:
            continue
        while corners and (
            cost - corners[-1][0] <= TOLERANCE / 10
            or (len(corners) > 1 and slope(corners[-2], (cost, accuracy)) >= slope(corners[-2], corners[-1]) * (1 - 1e-6))
        ):
            corners.pop()
        corners.append((cost, accuracy))
    return corners


def slope(one, other):
    return (other[1] - one[1]) / (other[0] - one[0])


def fixed_plans(annotated):
    """Every model for every invocation, with an end after each number of them and where the check has passed the answer."""
    trie, outcomes = annotated.trie, annotated.outcomes
    question = ContingentQuestion(annotated, ANY)
    passed = dict(zip(trie.stages, outcomes.passed.tolist(), strict=True))
    for models in product(trie.models, repeat=trie.max_depth):
        for length in range(1, trie.max_depth + 1):

            def next_model(node, stage, models=models, length=length):
                return None if trie.depth[node] >= length or passed[stage] else models[trie.depth[node]]

            yield models, length, question.measure(next_model)


def wrong_budgets(annotated, rng):
    """Budgets for the mean request for which the plan is worse than the best of all corners and fixed plans."""
    plans = ContingentQuestion(annotated, ANY).plans()
    competing = [*hull(plans), *((plan.cost_usd, plan.accuracy) for *_, plan in fixed_plans(annotated))]
    costs, planner, wrong = [cost for cost, _ in competing], Planner(annotated), []
    just_met = [cost * (1.0 + 1e-6) for cost in rng.choice(costs, 2).tolist()]
    for budget in (*rng.uniform(min(costs), max(costs), 3).tolist(), *just_met):
        objective = Objective(maximize="accuracy", max_cost_usd=budget)
        decision = planner.plan(objective)
        found = ContingentQuestion(annotated, objective).measure(decision.plan.next_model)
        best = max(accuracy for cost, accuracy in competing if cost <= budget)
        if found.cost_usd > budget + TOLERANCE or found.accuracy < best - TOLERANCE:
            wrong.append((budget, best, found))
    return wrong


def check(seed):
    rng = np.random.default_rng(seed)
    annotated = small_trie(rng)
    return [*wrong_prices(annotated), *wrong_caps(annotated, rng), *wrong_budgets(annotated, rng)]


@pytest.mark.parametrize("block", range(4))
def test_the_best_of_all_plans(block):
    """At every tested price, within a cap per request, and for budgets of the mean request."""
    assert [seed for seed in range(50 * block, 50 * block + 50) if check(seed)] == []


@pytest.mark.long
def test_the_best_of_all_plans_at_length():
    assert [seed for seed in range(1000, 3000) if check(seed)] == []


@pytest.mark.parametrize("seed", range(6))
def test_fixed_plans_run_one_model_for_each_invocation_and_end_where_the_check_passes(seed):
    rng = np.random.default_rng(seed)
    annotated, *_ = random_outcome_trie(rng, depth=3, n_labels=2, fits=3, goes_on=bool(seed % 2))
    graph = DecisionGraph.of(annotated)
    fixed = StaticPlans(graph, None)
    expected = {(models, length): plan for models, length, plan in fixed_plans(annotated)}
    assert len(fixed.accuracy) == 3 * len(fixed.models) == 3 * 2**3
    for number, (accuracy, cost) in enumerate(zip(fixed.accuracy, fixed.cost_usd, strict=True)):
        models = tuple(annotated.trie.models[m] for m in fixed.models[number // 3])
        plan = expected[models, number % 3 + 1]
        assert (accuracy, cost) == pytest.approx((plan.accuracy, plan.cost_usd), abs=TOLERANCE)
        assert fixed.longest_s[number] == pytest.approx(plan.longest_s + annotated.latency_s[0])
        choice = fixed.choice(number)
        same = Plan(graph, 0, {0: int(choice[0])}, choice)
        assert same.accuracy == pytest.approx(accuracy, abs=TOLERANCE)
        assert same.standard_error == pytest.approx(fixed.error[number], abs=1e-7)
        assert (choice[graph.checked] == END).all()
        for group in np.flatnonzero(choice >= 0):
            assert graph.model[choice[group]] == fixed.models[number // 3][graph.slot[group]]


def test_slots_are_invocations_and_checked_arms_are_those_of_passed_answers():
    annotated, *_ = random_outcome_trie(np.random.default_rng(0), depth=3, n_labels=2)
    graph, trie = DecisionGraph.of(annotated), annotated.trie
    for group in range(len(graph.source)):
        assert graph.slot[group] == trie.depth[graph.nodes[graph.source[group]]]
        assert graph.checked[group] == ("[passed" in trie.stages[graph.stage[group]])
    assert graph.checked.any()
    stopping, *_ = random_outcome_trie(np.random.default_rng(0), depth=3, n_labels=2, goes_on=False)
    assert not DecisionGraph.of(stopping).checked.any(), "there a passed answer has no arm"


def test_the_mass_by_fit_averages_to_the_mass():
    annotated, *_ = random_outcome_trie(np.random.default_rng(1), depth=3, n_labels=2, fits=4)
    graph = DecisionGraph.of(annotated)
    ended, right = graph.right_by_fit
    reach = annotated.reach[graph.nodes]
    inner = graph.first_group[:-1] < graph.first_group[1:]
    np.testing.assert_allclose(ended.mean(1)[inner], (reach * graph.ended_right)[inner], atol=1e-7)
    first = graph.source > 0
    np.testing.assert_allclose(right.mean(1)[first], (reach[graph.source] * graph.right)[first], atol=1e-7)
    alone, *_ = random_outcome_trie(np.random.default_rng(1), depth=3, fits=1)
    assert DecisionGraph.of(alone).right_by_fit is None


def test_confidence_compares_plans_by_the_spread_between_fits():
    annotated, *_ = random_outcome_trie(np.random.default_rng(4), depth=2, n_labels=2, fits=5)
    spread = annotated.outcomes.spread
    mean = spread.mean(axis=1, keepdims=True)  # the fits of a random model differ in everything: nearer to their mean
    annotated = replace(annotated, outcomes=replace(annotated.outcomes, spread=mean + (spread - mean) / 20))
    planner = Planner(annotated)
    best, cautious = planner.plan(ANY), planner.plan(Objective(maximize="accuracy", confidence=0.95))

    def lower(decision):
        return decision.accuracy - 1.645 * decision.plan.standard_error

    assert best.plan.standard_error > 0.0
    assert lower(best) > 0.0
    assert best.accuracy >= cautious.accuracy
    assert lower(cautious) >= lower(best) - 1e-6


def test_rounding_buys_no_invocation(monkeypatch):
    """Where asking again cannot change what is returned, sums differ by rounding: that is worth no dollar."""

    def costs(is_rounded):
        found = []
        for seed in range(12):
            rng = np.random.default_rng([7, seed])
            annotated, *_ = random_outcome_trie(rng, n_models=2, depth=2, n_labels=2, goes_on=True)
            if is_rounded:
                noise = 1.0 + 4e-16 * rng.standard_normal(len(annotated.trie))
                annotated = replace(annotated, arm_success=annotated.arm_success * noise)
            found.append(Planner(annotated).plan(ANY).path_cost_usd)
        return np.array(found)

    np.testing.assert_allclose(costs(is_rounded=True), costs(is_rounded=False), rtol=0, atol=1e-9)
    monkeypatch.setattr("vinelm.trie.annotated_trie.SignalTrie.least_price", 0.0)
    assert np.ptp(costs(is_rounded=True) - costs(is_rounded=False)) > 0.01  # these tries have such invocations
