"""Plans over tries that branch: static plans, single models, frontiers and arms, each compared with its definition."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from kit.tables import random_table
from kit.tries import routed_trie

from vinelm.api.planning import require_evidence
from vinelm.errors import ConfigError, EvidenceError
from vinelm.evaluation.plans.arms import arm_shares
from vinelm.evaluation.plans.graph_plans import GraphPlans
from vinelm.evaluation.plans.path_plans import PathPlans
from vinelm.evaluation.plans.plans_over import plans_over
from vinelm.evaluation.store_sweeps.plan_spending import plan_spending
from vinelm.objective import Objective
from vinelm.reports.plan_tree import plan_tree

BEST = Objective(maximize="accuracy")
SEEDS = range(6)


@pytest.fixture
def routed():
    return routed_trie()


def by_hand(annotated, models):
    """Accuracy, dollars and longest seconds of a model per stage, request by request through the trie."""
    trie = annotated.trie

    def follow(node, reach, used_s):
        below = [arm[next(i for i, c in enumerate(arm) if trie.models[trie.model[c]] == models[stage])]
                 for stage, arm in trie.arms(node).items()]  # fmt: skip
        accuracy, cost, longest = reach * annotated.stop_success[node], reach * annotated.cost_usd[node], used_s
        for child in below:
            found = follow(child, reach * annotated.arm[child], used_s + annotated.latency_s[child])
            accuracy, cost, longest = accuracy + found[0], cost + found[1], max(longest, found[2])
        return accuracy, cost, longest

    return follow(0, 1.0, 0.0)


def every_static(annotated):
    stages = annotated.trie.stages
    for chosen in itertools.product(annotated.trie.models, repeat=len(stages)):
        models = dict(zip(stages, chosen, strict=True))
        yield models, by_hand(annotated, models)


def test_confidence_without_standard_errors_is_refused():
    plans = GraphPlans(replace(routed_trie(), accuracy_se=None))
    with pytest.raises(ConfigError, match="confidence needs standard errors"):
        plans.fixed(Objective(maximize="accuracy", confidence=0.9), "static")


@pytest.mark.parametrize("seed", SEEDS)
def test_the_best_static_plan_is_the_best_of_all_models_per_stage(seed):
    annotated = routed_trie(seed)
    plans, every = GraphPlans(annotated), list(every_static(annotated))
    median_usd, median_s = np.median([found[1] for _, found in every]), np.median([found[2] for _, found in every])
    allowed = {
        BEST: lambda found: True,
        Objective(maximize="accuracy", max_cost_usd=float(median_usd)): lambda found: found[1] <= median_usd,
        Objective(maximize="accuracy", max_latency_s=float(median_s)): lambda found: found[2] <= median_s + 1e-12,
    }
    for objective, fits in allowed.items():
        models, expected = max((item for item in every if fits(item[1])), key=lambda item: item[1][0])
        plan = plans.fixed(objective, "static")
        assert plan.models == models
        assert (plan.accuracy, plan.path_cost_usd, plan.path_latency_s) == pytest.approx(expected)
        spent = plan_spending(plan)
        assert sum(one.cost_usd for one in spent) == pytest.approx(plan.path_cost_usd)
        assert {one.stage: one.model for one in spent}.items() <= models.items()
        assert sum(root.share for root in plan_tree(plan).roots) == pytest.approx(1.0)
    cheapest = min(found[1] for _, found in every if found[0] >= 0.6)
    assert plans.fixed(Objective(minimize="cost", min_accuracy=0.6), "static").path_cost_usd == pytest.approx(cheapest)


@pytest.mark.parametrize("seed", SEEDS)
def test_single_models_run_every_stage(seed):
    annotated = routed_trie(seed, 3)
    plans = GraphPlans(annotated)
    alone = dict(plans.single_models())
    assert list(alone) == list(annotated.trie.models)
    for model, plan in alone.items():
        assert set(plan.models.values()) == {model}
        assert plan.words == model
        assert plan.accuracy == pytest.approx(by_hand(annotated, plan.models)[0])
    best = plans.fixed(BEST, "single")
    assert best == max(alone.values(), key=lambda plan: plan.accuracy)
    assert plans.best_single_accuracy == best.accuracy


@pytest.mark.parametrize("seed", SEEDS)
def test_vinelm_is_at_least_as_good_as_any_static_plan(seed):
    plans = GraphPlans(routed_trie(seed))
    found = plans.frontier_range()
    floor = (found.lowest_accuracy + 2 * plans.best_single_accuracy) / 3
    for objective in (
        Objective(maximize="accuracy", max_cost_usd=(found.cheapest_usd * found.dearest_usd) ** 0.5),
        Objective(minimize="cost", min_accuracy=floor),
        Objective(maximize="accuracy", max_latency_s=(found.fastest_s + found.slowest_s) / 2),
    ):
        best, static, single = plans.compare(objective)
        assert best.decision.is_feasible
        assert static.decision is not None
        assert single.decision is not None
        if objective.target == "accuracy":
            assert best.decision.accuracy >= static.decision.accuracy - 1e-12 >= single.decision.accuracy - 2e-12
        else:
            assert best.decision.path_cost_usd <= static.decision.path_cost_usd + 1e-12


def test_none_is_named_where_no_static_plan_meets_the_bounds(routed):
    plans = GraphPlans(routed)
    assert plans.fixed(Objective(maximize="accuracy", max_cost_usd=1e-9), "static") is None


@pytest.mark.parametrize("seed", SEEDS)
def test_the_frontier_rises_and_no_static_plan_is_above_it(seed):
    annotated = routed_trie(seed)
    plans = GraphPlans(annotated)
    found = plans.along_budgets(40)
    cost, accuracy = [d.path_cost_usd for d in found], [d.accuracy for d in found]
    assert cost == sorted(cost)
    assert accuracy == sorted(accuracy)
    assert accuracy[-1] == pytest.approx(plans.decision(BEST).accuracy)
    ends = plans.frontier_range()
    assert ends.cheapest_usd <= ends.dearest_usd
    for _, (right, dollars, _) in every_static(annotated):
        within = plans.decision(Objective(maximize="accuracy", max_cost_usd=dollars * (1 + 1e-9)))
        assert within.accuracy >= right - 1e-9


def test_a_static_plan_may_end_early_where_the_application_lets_it():
    annotated = routed_trie(1, answers_everywhere=True)
    plans = GraphPlans(annotated)
    cheapest = plans.fixed(Objective(minimize="cost"), "static")
    assert cheapest.most_invocations == 1
    assert "up to 1 invocations" in cheapest.words
    policy = plans.policy(cheapest)
    assert policy.next_model("router", ()) == cheapest.models["router"]
    assert not policy.should_continue((cheapest.models["router"],), False, {})


def test_a_static_plan_runs_each_stage_on_its_model(routed):
    plans = GraphPlans(routed)
    plan = plans.fixed(BEST, "static")
    policy = plans.policy(plan)
    for stage, model in plan.models.items():
        assert policy.next_model(stage, ()) == model


def test_plans_over_a_trie_of_either_kind(routed):
    assert isinstance(plans_over(routed), GraphPlans)
    assert isinstance(plans_over(random_table(0, n_requests=5, n_models=2, depth=2).annotate()), PathPlans)


# -- arms --------------------------------------------------------------------------------------------------------


def test_arm_shares_are_means_over_the_histories(routed):
    trie = routed.trie
    shares = arm_shares(routed)
    assert [(share.stage, share.model) for share in shares] == [
        (stage, model) for stage in ("router", "lookup") for model in trie.models
    ]
    router = trie.node(["m0"], ["router"])
    first = shares[0]
    assert first.arms == pytest.approx({arm: routed.arm[nodes[0]] for arm, nodes in trie.arms(router).items()})
    assert sum(first.arms.values()) + first.ends == pytest.approx(1.0)
    assert first.observations == 20
    assert first.half_width90 == pytest.approx(dict.fromkeys(first.arms, 1.6448536 * 0.02))
    lookups = [n for n in range(len(trie)) if list(trie.edges(n))[1:] == [("lookup", "m1")]]
    expected = np.mean([routed.arm[trie.arms(n)["reply"][0]] for n in lookups])
    assert shares[3].arms["reply"] == pytest.approx(expected)
    assert shares[3].observations == 40


# -- promises ----------------------------------------------------------------------------------------------------


def test_a_plan_promises_less_than_its_estimate_where_the_choice_was_optimistic(routed):
    curve = {"cost_usd": [1e-6, 1.0], "accuracy": [0.08, 0.08], "advantage": [0.9, 0.9]}
    checked = replace(routed, meta={**routed.meta, "evidence": {"selection": curve}})
    decision = GraphPlans(checked).decision(BEST)
    assert decision.promise.accuracy == pytest.approx(decision.accuracy - 0.04)
    low, high = decision.intervals["accuracy"]
    assert low < decision.promise.accuracy < high
    unchecked = GraphPlans(routed).decision(BEST)
    assert unchecked.promise.accuracy == unchecked.accuracy


def test_an_advantage_that_selection_alone_makes_is_refused(routed):
    curve = {"cost_usd": [1e-6, 1.0], "accuracy": [0.08, 0.08], "advantage": [0.9, 0.9]}
    checked = replace(routed, meta={**routed.meta, "evidence": {"selection": curve}, "requests": 50})
    plans = GraphPlans(checked)
    cap = max(plan.path_cost_usd for _, plan in plans.single_models())
    decision = plans.decision(Objective(maximize="accuracy", max_cost_usd=cap, mix=False))
    single = max(
        (plan for _, plan in plans.single_models()
         if plan.path_cost_usd <= decision.path_cost_usd and plan.path_latency_s <= decision.path_latency_s),
        key=lambda plan: plan.accuracy, default=None,
    )  # fmt: skip
    if single is None or np.array_equal(single.plan.runs, decision.plan.runs):
        assert decision.promise.reference is None
        return
    assert decision.promise.reference == single.text
    assert decision.promise.advantage == pytest.approx(decision.accuracy - single.accuracy)
    with pytest.raises(EvidenceError, match="optimism decides") as error:
        require_evidence(decision)
    assert "\n" not in str(error.value)


def test_frames_and_tables_of_a_trie_that_branches(routed):
    frame = routed.to_pandas()
    assert {"reach", "arm", "arm_success", "arm_se", "success", "stage"} <= set(frame.columns)
    assert not {"accuracy", "path_cost_usd", "path_latency_s"} & set(frame.columns)
    assert frame["arm"].to_list() == routed.arm[1:].tolist()
    assert "plans over it are contingent" in routed._repr_html_()
