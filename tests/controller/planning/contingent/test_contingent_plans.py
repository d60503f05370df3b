"""What a contingent plan says about itself, on a router with two arms (tests/branching.py)."""

import json

import numpy as np
import pytest
from kit.tries import routed

from vinelm.controller import Planner
from vinelm.controller.planning.contingent.decision import ContingentDecision
from vinelm.errors import ConfigError, InfeasibleError
from vinelm.objective import Objective
from vinelm.plans.plan import Plan
from vinelm.plans.static_plans import StaticPlans
from vinelm.trie.decision_graph import DecisionGraph

BEST = Objective(maximize="accuracy")


@pytest.fixture(scope="module")
def planner():
    return Planner(routed())


def node(planner, *steps):
    models = [model for _, model in steps]
    return planner.trie.node(models, [stage for stage, _ in steps])


def test_each_arm_has_its_own_model(planner):
    decision = planner.plan(Objective(maximize="accuracy", max_cost_usd=0.6))
    assert isinstance(decision, ContingentDecision)
    router = node(planner, ("router", "m0"))
    assert decision.next_model == "m0"
    assert decision.plan.next_model(router, "billing") == "m0"
    assert decision.plan.next_model(router, "technical") == "m0"
    assert decision.plan.next_model(node(planner, ("router", "m0"), ("technical", "m0")), "review") == "m1"
    assert decision.plan.cost_usd == 0.125 + 0.75 * 0.125 + 0.25 * (0.125 + 1.0)
    with pytest.raises(KeyError):
        decision.plan.next_model(router, "router")


def test_its_figures_are_those_of_its_histories(planner):
    plan = planner.plan(BEST).plan
    runs = [tuple(planner.trie.edges(at)) for at in np.flatnonzero(plan.runs)]
    assert runs == [
        (("router", "m1"),),
        (("router", "m1"), ("billing", "m1")),
        (("router", "m1"), ("technical", "m0")),
        (("router", "m1"), ("technical", "m0"), ("review", "m1")),
    ]
    assert plan.accuracy == 0.75 * 0.875 + 0.25 * 0.875
    assert plan.cost_usd == 1.0 + 0.75 * 1.0 + 0.25 * 1.125
    assert (plan.latency_s, plan.expected_latency_s) == (4 + 1 + 4, 4 + 0.75 * 4 + 0.25 * 5)
    assert plan.standard_error is None
    assert plan.lost == 0.0


def test_it_is_a_tree_of_text_and_json(planner):
    decision = planner.plan(BEST)
    assert decision.plan.lines() == [
        "router: m1",
        "   75% billing: m1",
        "   25% technical: m0",
        "    review: m1",
    ]
    assert decision.plan.lines(limit=2) == ["router: m1", "..."]
    plain = json.loads(json.dumps(decision.to_dict()))
    (router,) = plain["contingent_plan"]["steps"]
    assert (router["stage"], router["model"], router["probability"]) == ("router", "m1", 1.0)
    assert [(step["stage"], step["model"], step["probability"]) for step in router["steps"]] == [
        ("billing", "m1", 0.75),
        ("technical", "m0", 0.25),
    ]
    assert "accuracy" in decision._repr_html_()


def test_it_explains_why_other_models_do_not_run(planner):
    decision = planner.plan(BEST, node=node(planner, ("router", "m0")), stage="billing")
    found = decision.alternatives()
    assert [(option.next_model, option.is_chosen, option.why) for option in found] == [
        ("m0", False, "less accurate by 0.125"),
        ("m1", True, ""),
    ]
    assert "-> billing: m1" in decision.explain()
    assert "\n" not in decision.reason


def test_a_deadline_is_carried_down_each_arm(planner):
    decision = planner.plan(Objective(maximize="accuracy", max_latency_s=6.0))
    assert decision.plan.lines() == ["router: m0", "   75% billing: m1", "   25% technical: m0", "    review: m1"]
    router = node(planner, ("router", "m0"))
    loaded = planner.plan(decision.request.objective, node=router, elapsed_s=1.0, load={planner.engine_of["m1"]: 3.0})
    assert loaded.next_models == {"billing": "m0", "technical": "m0"}
    assert loaded.slack["max_latency_s"] == pytest.approx(5.0 - 1.0 - 1.0)


def test_a_choice_before_the_arm_is_known_weighs_the_arms(planner):
    """After a first technical answer the request ends in all arms or in none; there is one arm, so both readings agree."""
    technical = node(planner, ("router", "m1"), ("technical", "m1"))
    objective = Objective(minimize="cost")
    assert planner.plan(objective, node=technical).stop
    assert planner.plan(objective, node=technical, stage=frozenset({"review"})).stop
    assert planner.plan(objective, node=technical, may_stop=False).next_model == "m0"
    assert planner.plan(objective, node=technical, may_stop=False, without={"m0"}).next_model == "m1"


def test_no_model_fits_and_there_is_no_answer(planner):
    objective = Objective(maximize="accuracy", max_latency_s=1.5)
    decision = planner.plan(objective)
    assert (decision.relaxed, decision.is_feasible, decision.next_model) == (("max_latency_s",), False, "m0")
    router = node(planner, ("router", "m1"))
    late = planner.plan(objective, node=router, stage="technical", elapsed_s=4.0)
    assert (late.relaxed, late.next_model, late.plan.latency_s) == (("max_latency_s",), "m0", 1.0)
    with pytest.raises(InfeasibleError, match=r"max_latency_s = 1\.5 s: the fastest is 2 s: raise it to that") as error:
        planner.plan(Objective(maximize="accuracy", max_latency_s=1.5, on_infeasible="raise"))
    assert (error.value.bound, error.value.limit, error.value.best) == ("max_latency_s", 1.5, 2.0)


def test_a_floor_that_no_plan_meets_names_the_best(planner):
    with pytest.raises(InfeasibleError, match=r"min_accuracy = 0\.9: the highest accuracy is 0\.875: lower it to that"):
        planner.plan(Objective(minimize="cost", min_accuracy=0.9, on_infeasible="raise"))
    relaxed = planner.plan(Objective(minimize="cost", min_accuracy=0.9))
    assert (relaxed.relaxed, relaxed.accuracy) == (("min_accuracy",), 0.875)
    dear = planner.plan(Objective(maximize="accuracy", max_cost_usd=0.1))
    assert (dear.relaxed, dear.path_cost_usd) == (("max_cost_usd",), planner.plan(Objective(minimize="cost")).path_cost_usd)


def test_what_is_not_served_any_more_is_not_planned():
    planner = Planner(routed(), available=["m0"])
    assert set(planner.plan(BEST).plan.to_dict()["steps"][0]["steps"][0]["model"]) == set("m0")
    with pytest.raises(InfeasibleError, match="no path leads on"):
        planner.plan(BEST, without={"m0"})


def test_confidence_compares_whole_plans():
    """An interval of the dear billing model that is too wide makes the cheap one the better choice."""
    sure = np.zeros(len(routed().trie))
    trie = routed().trie
    sure[[at for at in range(1, len(trie)) if list(trie.edges(at))[-1] == ("billing", "m1")]] = 0.25
    planner = Planner(routed(accuracy_se=sure))
    unsure = planner.plan(BEST)
    assert unsure.plan.standard_error == 0.25
    assert unsure.intervals["accuracy"][0] == pytest.approx(0.875 - 1.645 * 0.25, abs=1e-3)
    cautious = planner.plan(Objective(maximize="accuracy", confidence=0.9))
    assert cautious.plan.standard_error == 0.0
    assert cautious.accuracy < unsure.accuracy
    with pytest.raises(ConfigError, match="confidence needs standard errors"):
        Planner(routed()).plan(Objective(maximize="accuracy", confidence=0.9))


def test_only_whole_histories_where_nothing_can_end_the_request(planner):
    technical = node(planner, ("router", "m1"), ("technical", "m1"))
    leaves = planner.trie.is_leaf
    assert not planner.plan(Objective(minimize="cost"), node=technical, candidates=leaves).stop
    with pytest.raises(ConfigError, match="candidates has shape"):
        planner.plan(BEST, candidates=np.ones(3, bool))


def test_a_plan_for_averages_is_the_same_wherever_the_request_is(planner):
    objective = Objective(maximize="accuracy", max_cost_usd=0.8)
    whole = planner.plan(objective)
    waiting = [0]
    while waiting:
        at = waiting.pop()
        for stage in planner.trie.arms(at):
            model = whole.plan.next_model(at, stage)
            assert planner.plan(objective, node=at, stage=stage).next_model == model
            waiting += [] if model is None else [planner.trie.child(at, model, stage)]


def test_the_shortest_longest_history_that_reaches_a_floor(planner):
    decision = planner.plan(Objective(minimize="latency", min_accuracy=0.75))
    assert decision.is_feasible
    assert decision.accuracy >= 0.75
    assert decision.plan.latency_s == 6.0
    quick = planner.plan(Objective(minimize="latency"))
    assert quick.plan.latency_s == 2.0
    assert quick.plan.lines() == ["router: m0", "   75% billing: m0", "   25% technical: m0", "    review: end"]


@pytest.mark.parametrize("requests", [None, 200])
def test_the_error_of_a_fixed_plan_is_that_of_the_same_contingent_plan(requests):
    errors = np.linspace(0.01, 0.05, len(routed().trie))
    annotated = routed(accuracy_se=errors, meta={} if requests is None else {"requests": requests})
    graph = DecisionGraph.of(annotated)
    fixed = StaticPlans(graph, None)
    for number in range(len(fixed.accuracy)):
        choice = fixed.choice(number)
        plan = Plan(graph, 0, {0: int(choice[0])}, choice)
        assert plan.accuracy == pytest.approx(fixed.accuracy[number])
        assert plan.cost_usd == pytest.approx(fixed.cost_usd[number])
        assert plan.latency_s == fixed.longest_s[number]
        assert plan.standard_error == pytest.approx(fixed.error[number])


@pytest.mark.parametrize(
    ("objective", "said"),
    [
        (Objective(maximize="accuracy", max_cost_usd=0.6), "max_cost_usd bounds the mean of all requests, from their start"),
        (Objective(minimize="cost", min_accuracy=0.5), "min_accuracy bounds the mean of all requests, from their start"),
        (
            Objective(minimize="cost", min_accuracy=0.5, max_cost_usd=2.0),
            "min_accuracy and max_cost_usd bound the mean of all requests, from their start",
        ),
        (Objective(maximize="accuracy", max_latency_s=20.0), "max_latency_s has"),
        (Objective(maximize="accuracy", max_cost_usd=3.0, cost_budget="per_request"), "max_cost_usd has"),
        (BEST, "there is no bound"),
    ],
)
def test_a_request_under_way_is_told_which_bound_its_plan_keeps(planner, objective, said):
    """From the second decision on `session.explain()` said that there was no bound, where it holds for the mean of all."""
    under_way = planner.plan(objective, node=node(planner, ("router", "m0")), stage="billing")
    assert f"; {said}" in under_way.reason
    assert ("there is no bound" in under_way.explain()) == (objective == BEST)
