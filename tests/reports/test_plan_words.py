import pytest

from vinelm.reports.budgets import PlanNode, PlanTree
from vinelm.reports.plan_words import MOST_STEPS, plan_line


def node(stage, model, share, *children, when=""):
    return PlanNode(stage=stage, model=model, when=when, seen=(), share=share, children=children)


def end(share):
    return node("", None, share)


def test_a_path_is_a_line_with_the_share_of_each_branch():
    tree = PlanTree(roots=(node("write", "a", 1.0, node("retry", "b", 0.29, node("retry", "b", 0.29), end(0.0)), end(0.71)),))
    assert plan_line(tree) == "write a → retry b (29 %) → retry b"


def test_ways_that_part_stand_in_brackets_with_what_tells_them_apart():
    reply = node("reply", "b", 0.6, when="failed")
    tree = PlanTree(roots=(node("ask", "a", 1.0, reply, node("check", "c", 0.3), end(0.1)),))
    assert plan_line(tree) == "ask a → [if failed: reply b (60 %) | check c (30 %) | done (10 %)]"


def test_a_rare_branch_is_no_nothing():
    assert plan_line(PlanTree(roots=(node("ask", "a", 1.0, node("again", "b", 0.002)),))) == "ask a → again b (under 1 %)"


@pytest.mark.parametrize("n", [MOST_STEPS, MOST_STEPS + 3])
def test_a_long_line_says_how_many_steps_it_leaves_out(n):
    shares = [0.3 - i / 100 for i in range(n - 1)]
    line = plan_line(PlanTree(roots=(node("ask", "a", 1.0, *(node(f"s{i}", "b", share) for i, share in enumerate(shares))),)))
    assert line.count(" b (") == MOST_STEPS - 1
    assert line.endswith("; 3 rarer steps") == (n > MOST_STEPS)


def test_no_plan_is_no_words():
    assert plan_line(PlanTree(roots=())) == ""
