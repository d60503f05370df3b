from dataclasses import replace

import numpy as np
import pytest
from kit.catalogs import make_catalog
from kit.templates import make_template

from vinelm.clock import VirtualClock
from vinelm.errors import ConfigError
from vinelm.evaluation.plans.path_plans import PathPlans, workflow_level_nodes
from vinelm.policies import StaticPolicy
from vinelm.policies.policy import Policy
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import AnnotatedTrie


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


def test_a_single_model_runs_to_the_last_invocation():
    alone = dict(PathPlans(blank(3, 4)).single_models())
    assert {model: plan.path for model, plan in alone.items()} == {f"m{k}": (f"m{k}",) * 4 for k in range(3)}


def test_a_plan_whose_steps_too_few_requests_have_run_is_left_out():
    """`vinelm plan` compares with the single models that are left, and does not fail."""
    annotated = blank(3, 4)
    model = annotated.trie.model[annotated.trie.target]
    plans = PathPlans(replace(annotated, tried=model != 1))
    assert set(dict(plans.single_models())) == {"m0", "m2"}
    assert plans.having({"path": ("m1",) * 4}) is None
    assert plans.having({"path": ("m2",) * 4}).path == ("m2",) * 4


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
