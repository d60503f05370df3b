from types import SimpleNamespace

import pytest
from kit.tries import routed_trie

from vinelm.evaluation.plans.arms import by_kind
from vinelm.evaluation.plans.graph_plans import GraphPlans
from vinelm.objective import Objective
from vinelm.reports.plan_tree import MOST_NODES, plan_tree


def step(stage, model, probability, *steps):
    return {"stage": stage, "model": model, "probability": probability, "steps": list(steps)}


def tree_of(*steps):
    return plan_tree(SimpleNamespace(steps=list(steps)))


def test_a_path_is_a_chain_and_its_last_step_has_the_answer():
    (root,) = tree_of(step("draft", "m", 1.0, step("fix", "n", 0.4, step("fix", "m", 0.5)))).roots
    fix, end = root.children
    assert (root.stage, root.model, root.share, root.when) == ("draft", "m", 1.0, "")
    assert (fix.model, fix.share, end.model, end.share) == ("n", 0.4, None, pytest.approx(0.6))
    again, _ = fix.children
    assert (again.share, again.children) == (pytest.approx(0.2), ())


def test_ways_that_go_on_alike_are_one_and_are_told_by_what_they_share():
    (root,) = tree_of(
        step(
            "draft", "m", 1.0,
            step("fix [failed, empty, answer 1]", "n", 0.1), step("fix [failed, error, no answer]", "n", 0.2),
            step("fix [passed, rows, answer 1]", None, 0.7),
        )
    ).roots  # fmt: skip
    fix, end = root.children
    assert (fix.stage, fix.when, fix.share) == ("fix", "failed", pytest.approx(0.3))
    assert fix.seen == ("failed, empty, answer 1", "failed, error, no answer")
    assert (end.when, end.model, end.share) == ("passed", None, 0.7)


def test_two_words_where_one_does_not_do_and_none_where_the_stage_tells():
    (root,) = tree_of(
        step(
            "draft", "m", 1.0,
            step("fix [failed, empty]", "m", 0.1), step("fix [failed, error]", "n", 0.2),
            step("fix [passed, empty]", "k", 0.1), step("send [passed, rows]", "m", 0.6),
        )
    ).roots  # fmt: skip
    assert {child.model: child.when for child in root.children if child.stage == "fix"} == {
        "m": "failed, empty", "n": "error", "k": "passed",
    }  # fmt: skip
    assert next(child.when for child in root.children if child.stage == "send") == ""


def test_shares_of_a_node_add_up_and_rare_steps_are_left_out():
    many = [step(f"s{i}", "m", 0.01 + i / 1000, step("t", f"n{i}", 1.0)) for i in range(30)]
    tree = tree_of(step("draft", "m", 1.0, *many))
    (root,) = tree.roots
    shown = 1 + sum(1 + len(child.children) for child in root.children)
    assert shown <= MOST_NODES
    assert tree.left_out == 62 - shown, "the steps, and the requests that have their answer after the first"
    assert [child.share for child in root.children if child.model] == sorted(
        (child.share for child in root.children if child.model), reverse=True
    )


def test_no_steps_are_no_tree():
    assert tree_of().roots == ()


@pytest.mark.parametrize("seed", range(3))
def test_a_fixed_plan_of_a_graph_is_a_tree_as_well(seed):
    fixed = GraphPlans(routed_trie(seed)).fixed(Objective(maximize="accuracy"), "static")
    roots = plan_tree(fixed.plan).roots
    assert sum(root.share for root in roots) == pytest.approx(1.0)
    assert all(root.model == fixed.models[root.stage] for root in roots)
    assert by_kind(fixed) == []
