import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from kit.catalogs import make_catalog
from kit.oracles.brute_force import brute_force
from kit.oracles.random_cases import random_annotated, random_question
from kit.tables import random_table
from kit.templates import make_template

from vinelm.controller import Planner
from vinelm.errors import ConfigError, InfeasibleError
from vinelm.objective import Objective
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import AnnotatedTrie


def annotated_with(n_models=2, depth=2, **arrays):
    trie = Trie.from_template(make_template(n_models, depth))
    zeros = {
        name: np.zeros(len(trie))
        for name in ("success", "stop", "stop_success", "cost_usd", "cost_var", "latency_s", "latency_var")
    }
    given = {name: np.asarray(values, float) for name, values in arrays.items()}
    return AnnotatedTrie(trie, make_template(n_models, depth), make_catalog(n_models), **zeros | given)


@pytest.mark.parametrize("seed", range(100))
def test_planner_equals_the_definition(seed):
    """Fifteen questions on each of 100 random irregular, non-monotone tries; values on a grid, so ties are common."""
    rng = random.Random(seed)
    annotated = random_annotated(rng)
    planner = Planner(annotated)
    for _ in range(15):
        objective, asked = random_question(rng, annotated)
        expected = brute_force(annotated, objective, **asked)
        if expected is None:
            with pytest.raises(InfeasibleError, match="no path leads on"):
                planner.plan(objective, **asked)
            continue
        decision = planner.plan(objective, **asked)
        assert (decision.target, decision.is_feasible) == expected, (objective, asked)
        path = annotated.trie.path(decision.target)[int(annotated.trie.depth[decision.node]) :]
        assert decision.next_model == (annotated.trie.prefix(path[0])[-1] if path else None)
        assert decision.stop == (decision.target == decision.node)


@pytest.mark.parametrize("seed", range(40))
def test_a_decision_explains_itself(seed):
    rng = random.Random(1000 + seed)
    annotated = random_annotated(rng)
    planner = Planner(annotated)
    for _ in range(10):
        objective, asked = random_question(rng, annotated)
        if brute_force(annotated, objective, **asked) is None:
            continue
        decision = planner.plan(objective, **asked)
        asked_for = [f for f in ("min_accuracy", "max_latency_s", "max_cost_usd") if getattr(objective, f) is not None]
        assert sorted(decision.slack) == sorted(asked_for)
        assert decision.is_feasible == all(left >= 0 for left in decision.slack.values())
        assert {bound for bound, left in decision.slack.items() if left < 0} <= set(decision.relaxed)
        assert decision.accuracy == annotated.accuracy[decision.target]
        plain = decision.to_dict()
        assert plain["plan"] == list(annotated.trie.prefix(decision.target))
        assert "\n" not in plain["reason"]


@pytest.mark.parametrize("seed", range(20))
def test_a_plan_that_was_looked_up_explains_itself_as_one_that_was_measured(seed):
    rng = random.Random(2000 + seed)
    annotated = random_annotated(rng)
    planner = Planner(annotated)
    everything = np.ones(len(annotated.trie), bool)
    for _ in range(20):
        objective, asked = random_question(rng, annotated)
        asked.pop("candidates", None)
        if brute_force(annotated, objective, **asked) is None:
            continue
        looked_up, measured = planner.plan(objective, **asked), planner.plan(objective, **asked, candidates=everything)
        assert measured.frontier is None
        assert looked_up.frontier is not None
        assert looked_up.to_dict() == measured.to_dict()


def test_ties_go_to_accuracy_then_cost_then_latency_then_trie_order():
    # nodes: 1 = m0, 2 = m0/m0, 3 = m0/m1, 4 = m1, 5 = m1/m0, 6 = m1/m1
    same = annotated_with(success=[0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5])
    assert Planner(same).plan(Objective(maximize="accuracy")).target == 1
    faster = annotated_with(success=[0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5], latency_s=[0, 2, 0, 0, 1, 0, 0])
    assert Planner(faster).plan(Objective(maximize="accuracy")).target == 4
    cheaper = annotated_with(success=[0, 0.5, 0, 0, 0.5, 0, 0], latency_s=[0, 2, 0, 0, 1, 0, 0], cost_usd=[0, 1, 0, 0, 2, 0, 0])
    assert Planner(cheaper).plan(Objective(maximize="accuracy")).target == 1
    better = annotated_with(success=[0, 0.5, 0, 0, 0.75, 0, 0], cost_usd=[0, 1, 0, 0, 1, 0, 0])
    assert Planner(better).plan(Objective(minimize="cost")).target == 4


def test_accuracy_that_falls_along_a_path_does_not_hide_what_is_behind():
    annotated = annotated_with(success=[0, 0.6, 0.1, 0.9, 0.7, 0.2, 0.3], cost_usd=[0, 1, 1, 1, 5, 1, 1])
    assert Planner(annotated).plan(Objective(minimize="cost", min_accuracy=0.8)).path == ("m0", "m1")
    assert Planner(annotated).plan(Objective(minimize="cost", min_accuracy=0.8), node=4).relaxed == ("min_accuracy",)


def test_elapsed_time_changes_the_next_model_and_then_ends_the_request():
    annotated = annotated_with(success=[0, 0.5, 0.6, 0.9, 0, 0, 0], latency_s=[0, 1, 1, 4, 9, 9, 9])
    planner = Planner(annotated)
    objective = Objective(maximize="accuracy", max_latency_s=6)
    assert planner.plan(objective).path == ("m0", "m1")
    assert planner.plan(objective, node=1, elapsed_s=1).next_model == "m1"
    late = planner.plan(objective, node=1, elapsed_s=3)
    assert (late.next_model, late.binding) == ("m0", "max_latency_s")
    assert planner.plan(objective, node=1, elapsed_s=5.5).stop
    over = planner.plan(objective, node=1, elapsed_s=7)
    assert over.stop
    assert not over.is_feasible
    assert over.binding == "max_latency_s"
    assert over.slack["max_latency_s"] == -1


def test_load_counts_an_engine_as_often_as_it_is_used():
    annotated = annotated_with(success=[0, 0.5, 0.9, 0.6, 0.4, 0.5, 0.5], latency_s=[0, 1, 1, 1, 1, 1, 1])
    planner = Planner(annotated)  # m0 on east, m1 on west
    objective = Objective(maximize="accuracy", max_latency_s=4)
    assert planner.plan(objective).path == ("m0", "m0")
    assert planner.plan(objective, load={"east": 1.0}).path == ("m0", "m0")
    assert planner.plan(objective, load={"east": 1.25}).path == ("m0", "m1")
    assert planner.plan(objective, load={"east": 1.0}).remaining_latency_s == 4
    assert planner.plan(objective, load=np.array([1.25, 0.0])).path == ("m0", "m1")
    assert planner.plan(objective, load={"elsewhere": 100.0}).path == ("m0", "m0")


def test_a_per_request_budget_is_undiscounted_and_counts_what_was_spent():
    annotated = annotated_with(
        success=[0, 0.5, 0, 0.9, 0, 0, 0],
        stop=[0, 0.5, 0, 0, 0, 0, 0],
        stop_success=[0, 0.25, 0, 0, 0, 0, 0],
        cost_usd=[0, 1, 9, 2, 9, 9, 9],
    )
    planner = Planner(annotated)
    assert planner.plan(Objective(maximize="accuracy", max_cost_usd=2)).path == ("m0", "m1")
    each = Objective(maximize="accuracy", max_cost_usd=2, cost_budget="per_request")
    assert planner.plan(each).path == ("m0",)
    three = Objective(maximize="accuracy", max_cost_usd=3, cost_budget="per_request")
    assert planner.plan(three, node=1, spent_usd=1.0).next_model == "m1"
    assert planner.plan(three, node=1, spent_usd=1.1).stop


def test_infeasible_names_the_binding_bound_and_what_is_possible():
    annotated = annotated_with(success=[0, 0.5, 0.6, 0.9, 0.2, 0, 0], latency_s=[0, 1, 1, 4, 9, 9, 9])
    planner = Planner(annotated)
    with pytest.raises(InfeasibleError, match="no path meets max_latency_s") as caught:
        planner.plan(Objective(maximize="accuracy", max_latency_s=0.5, on_infeasible="raise"))
    assert (caught.value.bound, caught.value.limit, caught.value.best) == ("max_latency_s", 0.5, 1.0)
    with pytest.raises(InfeasibleError, match="min_accuracy") as caught:
        planner.plan(Objective(minimize="cost", min_accuracy=0.7, max_latency_s=3, on_infeasible="raise"))
    assert (caught.value.bound, caught.value.best) == ("min_accuracy", 0.6)
    assert planner.plan(Objective(minimize="cost", min_accuracy=0.7, max_latency_s=3)).path == ("m0", "m0")
    assert planner.plan(Objective(maximize="accuracy", max_latency_s=0.5)).path == ("m0",)


def test_models_that_are_gone_take_their_subtrees_along():
    annotated = random_table(1, n_requests=30, n_models=3, depth=3).annotate()
    planner = Planner(annotated, available=("m0", "m2"))
    for target in ("cost", "latency"):
        for node in range(len(annotated.trie)):
            if "m1" not in annotated.trie.prefix(node):
                path = planner.plan(Objective(minimize=target), node=node).path
                assert "m1" not in path
    assert planner.metrics.missing == ("m1",)
    with pytest.raises(InfeasibleError, match="not served any more: m1"):
        planner.plan(Objective(minimize="cost"), node=annotated.trie.node(("m1",)))


def test_bad_questions_are_refused_in_one_line():
    planner = Planner(annotated_with())
    objective = Objective(maximize="accuracy")
    for asked in (
        {"elapsed_s": float("nan")},
        {"elapsed_s": -1.0},
        {"spent_usd": float("nan")},
        {"node": 7},
        {"node": -1},
        {"candidates": np.ones(3, bool)},
        {"load": {"east": -1.0}},
        {"load": {"east": float("nan")}},
        {"load": {"east": float("inf")}},
        {"load": np.zeros(5)},
    ):
        with pytest.raises(ConfigError) as caught:
            planner.plan(objective, **asked)
        assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="standard errors"):
        planner.plan(Objective(maximize="accuracy", confidence=0.9))


@pytest.mark.parametrize(
    "objective", [Objective(maximize="accuracy", max_latency_s=5.0, risk="dp"), Objective(minimize="latency", min_accuracy=0.1)]
)
def test_seconds_are_not_promised_where_no_latency_is_known(objective):
    unknown = annotated_with(success=[0.0] + [0.5] * 6)
    planner = Planner(unknown)
    for _ in range(2):  # a refusal is not remembered as an answer
        with pytest.raises(ConfigError, match="needs latencies"):
            planner.plan(objective)
    told = planner.plan(Objective(maximize="accuracy")).to_dict()
    assert told["path_latency_s"] is None
    assert told["remaining_latency_s"] is None
    known = annotated_with(success=[0.0] + [0.5] * 6, latency_s=[0.0] + [1.0] * 6)
    assert Planner(known).plan(objective).to_dict()["path_latency_s"] == 1.0


def test_many_threads_share_one_planner():
    annotated = random_table(6, n_requests=40, n_models=3, depth=3).annotate()
    rng = random.Random(0)
    questions = [random_question(rng, annotated, has_errors=False) for _ in range(60)]
    questions = [(o, a) for o, a in questions if brute_force(annotated, o, **a) is not None]
    alone = [Planner(annotated).plan(objective, **asked).target for objective, asked in questions]
    shared = Planner(annotated)
    with ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(lambda _: [shared.plan(objective, **asked).target for objective, asked in questions], range(8)))
    assert all(run == alone for run in runs)


def test_a_large_trie_is_prepared_once_for_each_kind_while_requests_are_answered(monkeypatch):
    monkeypatch.setattr("vinelm.controller.planner.SMALL", 20)
    monkeypatch.setattr("vinelm.controller.planning.frontier_cache.LAZY", 0)
    monkeypatch.setattr("vinelm.controller.planning.frontier_cache.AHEAD", 0)
    annotated = random_annotated(random.Random(5))
    planner, plain = Planner(annotated), Planner(annotated)
    loose, tight = (Objective(maximize="accuracy", max_latency_s=bound) for bound in (9.0, 1.0))
    thread = planner.prepare_in_background(loose)
    assert planner.plan(tight).target == plain.plan(tight).target
    thread.join(30)
    assert planner.index_ends > 0
    assert planner.prepare_in_background(tight) is None
    assert planner.prepare_in_background(Objective(maximize="accuracy", max_latency_s=1.0, risk="dp")) is None
    for bound in (0.5, 1.0, 2.0, 5.0):
        asked = Objective(maximize="accuracy", max_latency_s=bound)
        assert planner.plan(asked).target == plain.plan(asked).target
    assert plain.index_ends == 0
    other = planner.prepare_in_background(Objective(minimize="cost", min_accuracy=0.2))
    other.join(30)
    monkeypatch.setattr("vinelm.controller.planner.SMALL", 10_000)
    assert plain.prepare_in_background(loose) is None
