"""The planner over merged tries: each request's bounds, bounds on averages, and what it says."""

from dataclasses import replace

import numpy as np
import pytest
from kit.oracles.merged_plans import all_plans, arm_rates, best_within, worth
from kit.templates import agent, branching
from kit.tries import random_merged

from vinelm.controller import Planner
from vinelm.controller.planning.contingent import grid_problem
from vinelm.errors import ConfigError, InfeasibleError
from vinelm.objective import Objective
from vinelm.plans.static_plans import StaticPlans
from vinelm.trie.decision_graph import DecisionGraph

CASES = [agent(2, 3, memory=1), agent(2, 3, order="ignored"), branching(2, memory=1)]


@pytest.mark.parametrize("case", range(len(CASES)))
@pytest.mark.parametrize("use", ["latency_s", "cost_usd"])
@pytest.mark.parametrize("seed", range(4))
def test_decisions_within_a_requests_own_bound_are_the_best(case, use, seed):
    """At every node and with every amount left, the next models are those of the best plan by trying all."""
    rng = np.random.default_rng(seed)
    annotated = random_merged(CASES[case], seed)
    amounts = rng.integers(1, 25, len(annotated.trie)).astype(np.float64)
    amounts[0] = 0.0
    annotated = replace(annotated, **{use: amounts})
    trie, rates, planner = annotated.trie, arm_rates(annotated), Planner(annotated)
    own = {"max_latency_s": 64.0} if use == "latency_s" else {"max_cost_usd": 64.0, "cost_budget": "per_request", "z": 0.0}
    objective = Objective(maximize="accuracy", **own)
    used = {"latency_s": "elapsed_s", "cost_usd": "spent_usd"}[use]
    best = best_within(annotated, rates, trie.answerable, 0.0, use=use)
    for node in range(len(trie)):
        for left in (0, 5, 13, 30, 64):
            if not trie.arms(node):
                continue
            decision = planner.plan(objective, node=node, **{used: 64.0 - left})
            if decision.relaxed:
                assert best_after(annotated, rates, best, decision.next_models, node, float("inf"), use) is not None
                continue
            reached = best_after(annotated, rates, best, decision.next_models, node, float(left), use)
            assert reached == pytest.approx(best(node, float(left)), abs=1e-12)


def best_after(annotated, rates, best, next_models, node, left, use):
    """What the decision's next models lead to if everything after is the best."""
    trie, amounts = annotated.trie, getattr(annotated, use)
    total = float(annotated.stop_success[node])
    for stage in trie.arms(node):
        going, right = rates[node, stage]
        model = next_models[stage]
        if model is None:
            total += right if trie.answerable[node] else 0.0
        else:
            child = trie.child(node, model, stage)
            total += going * best(child, left - float(amounts[child]))
    return total


@pytest.mark.parametrize("seed", range(6))
def test_a_budget_is_kept_and_no_fixed_plan_is_better(seed):
    annotated = random_merged(agent(3, 4, memory=1), seed)
    planner = Planner(annotated)
    fixed = StaticPlans(DecisionGraph.of(annotated), None)
    for budget in np.quantile(fixed.cost_usd, [0.05, 0.4, 0.9]):
        decision = planner.plan(Objective(maximize="accuracy", max_cost_usd=float(budget)))
        assert decision.path_cost_usd <= budget + 1e-12
        assert decision.accuracy >= fixed.accuracy[fixed.cost_usd <= budget].max() - 1e-12
    for floor in (0.2, 0.5):
        decision = planner.plan(Objective(minimize="cost", min_accuracy=floor))
        if not decision.relaxed:
            assert decision.accuracy >= floor
            assert decision.path_cost_usd <= fixed.cost_usd[fixed.accuracy >= floor].min(initial=np.inf) + 1e-12


@pytest.mark.parametrize("seed", range(8))
def test_budgets_on_averages_against_all_plans(seed):
    """Never better than the best contingent plan, and the hull's corners are found exactly."""
    annotated = random_merged(agent(2, 3, memory=1), seed)
    planner, rates = Planner(annotated), arm_rates(annotated)
    worths = np.array([worth(annotated, plan, rates)[:2] for plan in all_plans(annotated.trie, annotated.trie.answerable)])
    gaps = []
    for budget in np.quantile(worths[:, 1], [0.1, 0.3, 0.6, 0.9]):
        best = worths[worths[:, 1] <= budget, 0].max()
        found = planner.plan(Objective(maximize="accuracy", max_cost_usd=float(budget)))
        assert found.accuracy <= best + 1e-9 or found.relaxed
        gaps.append(best - found.accuracy)
    assert min(gaps) < 0.05
    at_most = planner.plan(Objective(maximize="accuracy", max_cost_usd=10.0))
    assert at_most.accuracy == pytest.approx(worths[:, 0].max(), abs=1e-12)


def test_the_fastest_answer_and_the_fastest_plan_that_is_good_enough():
    annotated = random_merged(agent(3, 5, memory=1), 2)
    planner = Planner(annotated)
    fastest = planner.plan(Objective(minimize="latency"))
    first = {model: annotated.latency_s[annotated.trie.child(0, model)] for model in annotated.trie.models}
    assert fastest.next_model == min(first, key=first.get)
    assert fastest.plan.latency_s == pytest.approx(min(first.values()))
    good = planner.plan(Objective(minimize="latency", min_accuracy=0.55))
    assert not good.relaxed
    assert good.accuracy >= 0.55 - 1e-9
    assert good.plan.latency_s >= fastest.plan.latency_s


def test_load_makes_an_engine_unattractive():
    annotated = random_merged(agent(2, 4, memory=1), 1)
    planner = Planner(annotated)
    objective = Objective(maximize="accuracy", max_latency_s=2.0)
    engines = {model.name: model.engine for model in annotated.catalog.models}
    usual = planner.plan(objective).next_model
    moved = planner.plan(objective, load={engines[usual]: 50.0})
    assert moved.next_model != usual
    assert not moved.relaxed


def test_models_that_must_not_run_next():
    annotated = random_merged(agent(3, 4, memory=1), 1)
    planner = Planner(annotated)
    for objective in (Objective(maximize="accuracy"), Objective(maximize="accuracy", max_latency_s=3.0)):
        usual = planner.plan(objective).next_model
        assert planner.plan(objective, without={usual}).next_model not in (usual, None)


def test_what_cannot_be_met_is_named():
    annotated = random_merged(agent(2, 3, memory=1), 1)
    planner = Planner(annotated)
    fastest = min(annotated.latency_s[1:3])
    with pytest.raises(InfeasibleError, match=r"no plan meets max_latency_s = 0\.0001 s: the fastest is") as caught:
        planner.plan(Objective(maximize="accuracy", max_latency_s=1e-4, on_infeasible="raise"))
    assert caught.value.best == pytest.approx(fastest)
    relaxed = planner.plan(Objective(maximize="accuracy", max_latency_s=1e-4))
    assert relaxed.relaxed == ("max_latency_s",)
    assert annotated.latency_s[annotated.trie.child(0, relaxed.next_model)] == fastest
    with pytest.raises(InfeasibleError, match="no plan meets min_accuracy = 1: the highest accuracy is"):
        planner.plan(Objective(minimize="cost", min_accuracy=1.0, on_infeasible="raise"))


def test_a_decision_shows_its_plan():
    annotated = random_merged(agent(3, 5, memory=1), 3, with_difficulty=True)
    decision = Planner(annotated).plan(Objective(maximize="accuracy"))
    plain = decision.to_dict()
    assert plain["next_model"] == decision.next_model == decision.next_models["agent"]
    assert plain["contingent_plan"]["promised_accuracy"] == decision.plan.promised_accuracy
    assert decision.plan.accuracy != decision.plan.promised_accuracy
    assert decision.plan.lines()[-1].endswith("end")
    assert decision.reason in decision.explain()
    assert any(option.model == decision.next_model and option.is_chosen for option in decision.options())
    branch = Planner(random_merged(branching(3, memory=1), 3)).plan(Objective(maximize="accuracy"))
    assert any("search" in line or "code" in line for line in branch.plan.lines(limit=30))


def test_the_same_plan_every_time():
    for template in CASES:
        objective = Objective(maximize="accuracy", max_cost_usd=0.4)
        plans = [Planner(random_merged(template, 4)).plan(objective).to_dict() for _ in range(2)]
        assert plans[0] == plans[1]


def test_prepare_refuses_what_is_too_large_and_leaves_the_first_request_less_to_do(monkeypatch):
    """As far as bounds of each request allow: their plans depend on what is left."""
    annotated, objective = random_merged(CASES[0], 1), Objective(maximize="accuracy", max_latency_s=9.0)
    searches, real = [], grid_problem.least_need
    monkeypatch.setattr(grid_problem, "least_need", lambda *asked: searches.append(asked) or real(*asked))
    planner = Planner(annotated)
    planner.prepare(objective)
    assert len(searches) == 1
    planner.plan(objective)
    assert len(searches) == 1
    monkeypatch.setattr(grid_problem, "MOST_WITH_CAPS", 5)
    with pytest.raises(ConfigError, match="at most 5 merged nodes"):
        Planner(annotated).prepare(objective)
