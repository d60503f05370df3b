"""The rivals without signals choose what brute force chooses."""

import numpy as np
import pytest
from kit.outcome_tables import evidence, random_outcomes
from science.path_rivals import BestSingle, MixedSingle, PathOnly, StaticPlan
from science.restricted_plans import best_workflow_level

from vinelm.objective import Objective

BUDGETS = (0.0015, 0.004, 0.012, 0.05)


@pytest.fixture(scope="module")
def bought():
    return evidence(random_outcomes(120, 4, seed=1))


@pytest.mark.parametrize("budget", BUDGETS)
def test_plans_are_those_of_the_planner(bought, budget):
    objective = Objective(maximize="accuracy", max_cost_usd=budget)
    decision = bought.planner.plan(objective)
    chosen = PathOnly().fit(bought).choose(budget)
    assert chosen.policy.path == decision.path
    assert chosen.promised_cost_usd == pytest.approx(decision.path_cost_usd)
    assert StaticPlan().fit(bought).choose(budget).policy.path == best_workflow_level(bought.planner, objective)


@pytest.mark.parametrize("budget", BUDGETS)
def test_the_best_single_is_the_most_accurate_within_the_budget(bought, budget):
    trie, estimate = bought.estimate.trie, bought.estimate
    nodes = [node for node in range(1, len(trie)) if trie.depth[node] == 1 and estimate.path_cost_usd[node] <= budget]
    best = max(nodes, key=lambda node: estimate.accuracy[node])
    chosen = BestSingle().fit(bought).choose(budget)
    assert chosen.policy.path == trie.prefix(best)
    assert chosen.promised_accuracy == pytest.approx(estimate.accuracy[best])


@pytest.mark.parametrize("budget", [*BUDGETS, 0.0001])
def test_no_mixture_of_two_singles_within_the_budget_is_better(bought, budget):
    estimate, trie = bought.estimate, bought.estimate.trie
    nodes = [node for node in range(1, len(trie)) if trie.depth[node] == 1]
    accuracy, cost = estimate.accuracy[nodes], estimate.path_cost_usd[nodes]
    shares = np.linspace(0, 1, 401)
    mixed = [
        (share * accuracy[i] + (1 - share) * accuracy[j], share * cost[i] + (1 - share) * cost[j])
        for i in range(len(nodes))
        for j in range(len(nodes))
        for share in shares
    ]
    chosen = MixedSingle().fit(bought).choose(budget)
    fits = [a for a, c in mixed if c <= budget]
    if not fits:
        assert chosen.promised_cost_usd == pytest.approx(cost.min())
        return
    assert chosen.promised_accuracy >= max(fits) - 1e-9
    assert chosen.promised_accuracy <= max(fits) + 0.005  # the grid of shares is coarse
    assert chosen.promised_cost_usd <= budget * (1 + 1e-9)


def test_a_mixture_is_replayed_in_expectation():
    table = random_outcomes(50, 3, seed=2)
    chosen = MixedSingle().fit(evidence(table)).choose(0.004)
    success, cost = chosen.policy.run(table)
    one, other, share = chosen.policy.one.path[0], chosen.policy.other.path[0], chosen.policy.share
    assert 0 < share < 1
    expected = (1 - share) * table.success[:, table.column[one]] + share * table.success[:, table.column[other]]
    assert np.allclose(success, expected)
    assert cost.mean() == pytest.approx(0.004, rel=0.4)
