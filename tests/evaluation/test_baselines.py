import numpy as np
import pytest
from conftest import make_catalog, make_template, random_table

from vinelm.annotated_trie import AnnotatedTrie
from vinelm.clock import VirtualClock
from vinelm.controller import Planner
from vinelm.errors import ConfigError
from vinelm.evaluation import best_single_model, best_workflow_level, greedy_cascade, single_model_nodes, workflow_level_nodes
from vinelm.objective import Objective
from vinelm.policies import StaticPolicy
from vinelm.policies.policy import Policy
from vinelm.trie import Trie


def blank(n_models, depth):
    trie = Trie.from_template(make_template(n_models, depth))
    zeros = [np.zeros(len(trie))] * 7
    return AnnotatedTrie(trie, make_template(n_models, depth), make_catalog(n_models), *zeros)


@pytest.mark.parametrize(("n_models", "depth", "configurations"), [(8, 3, 136), (2, 4, 14)])
def test_workflow_level_plans_are_as_many_as_the_paper_counts(n_models, depth, configurations):
    assert workflow_level_nodes(blank(n_models, depth)).sum() == configurations


def test_workflow_level_plans_repeat_one_model_per_stage():
    annotated = blank(3, 4)
    trie = annotated.trie
    allowed = workflow_level_nodes(annotated)
    for node in range(1, len(trie)):
        repairs = [model for stage, model in trie.edges(node) if stage == "repair"]
        assert allowed[node] == (len(set(repairs)) <= 1)


def test_single_model_plans_are_one_per_depth():
    annotated = blank(3, 4)
    alone = single_model_nodes(annotated, "m1")
    assert [annotated.trie.prefix(int(node)) for node in np.flatnonzero(alone)] == [("m1",) * k for k in (1, 2, 3, 4)]
    with pytest.raises(ConfigError, match="unknown model 'm9'"):
        single_model_nodes(annotated, "m9")


@pytest.mark.parametrize("seed", range(5))
def test_the_wider_the_space_the_better_the_plan(seed):
    planner = Planner(random_table(seed, n_requests=80, n_models=3, depth=3).annotate())
    objective = Objective(maximize="accuracy", max_cost_usd=0.008)

    def accuracy(path):
        return planner.annotated.accuracy[planner.trie.node(path)]

    single, static = accuracy(best_single_model(planner, objective)), accuracy(best_workflow_level(planner, objective))
    assert single <= static <= planner.plan(objective).accuracy
    assert accuracy(greedy_cascade(planner, objective)) <= planner.plan(objective).accuracy


def test_a_greedy_cascade_stops_where_the_next_step_does_not_help():
    annotated = random_table(2, n_requests=80, n_models=2, depth=3).annotate()
    planner = Planner(annotated)
    path = greedy_cascade(planner, Objective(maximize="accuracy"))
    node = annotated.trie.node(path)
    near = [node, *annotated.trie.children(node)]
    assert max(near, key=lambda at: annotated.accuracy[at]) == node
    assert greedy_cascade(planner, Objective(minimize="cost")) == planner.plan(Objective(minimize="cost")).path


def test_a_static_policy_follows_its_path_and_ends_at_its_cap():
    policy = StaticPolicy(make_template(2, 3), ("m1", "m0"), clock=VirtualClock())
    assert isinstance(policy, Policy)
    assert policy.next_model("generate", ()) == "m1"
    assert policy.should_continue(("m1",), False, {}) is True
    assert policy.should_continue(("m1",), True, {}) is False
    assert policy.next_model("repair", ("m1",)) == "m0"
    assert policy.should_continue(("m1", "m0"), False, {}) is False
    assert policy.next_model("repair", ("m1", "m0")) == "m0"
    with pytest.raises(ConfigError, match="at least one model"):
        StaticPolicy(make_template(2, 3), ())
    with pytest.raises(ConfigError, match="judge"):
        StaticPolicy(make_template(2, 3, "oracle"), ("m0",))
    judged = StaticPolicy(make_template(2, 3, "oracle"), ("m1", "m0"), judge=lambda state: state)
    assert judged.should_continue(("m1",), True, False) is True
