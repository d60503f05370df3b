"""Commands on a trie that branches: trie show, plan and explain, as tables and as JSON."""

import json

import pytest
from kit.tries import routed_trie

from vinelm.cli.main import main
from vinelm.evaluation.plans.arms import arm_shares
from vinelm.evaluation.plans.graph_plans import GraphPlans
from vinelm.objective import Objective
from vinelm.vinefile import save_trie

BEST = ("--maximize", "accuracy")


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    save_trie("t.vine", routed_trie())
    return "t.vine"


def text_of(capsys, *args, code=0):
    assert main(list(args)) == code
    said = capsys.readouterr()
    assert all(len(line) <= 80 for line in said.out.splitlines())
    return said.out if code == 0 else said.err


def facts_of(capsys, *args):
    assert main([*args, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_trie_show_has_histories_arms_and_plans(file, capsys):
    said = text_of(capsys, "trie", "show", file)
    for words in (
        "Histories by depth and stage",
        "What follows router",
        "What follows lookup",
        "Pareto frontier of accuracy and cost",
    ):
        assert words in said
    for share in arm_shares(routed_trie()):
        assert f"{100 * share.arms['reply']:.1f} %" in said
    assert "The most accurate plan" in said
    assert "router: " in said


def test_trie_show_json(file, capsys):
    found = facts_of(capsys, "trie", "show", file)
    annotated = routed_trie()
    assert [(row["depth"], row["stage"]) for row in found["depths"]] == [
        (1, "router"), (2, "lookup"), (2, "reply"), (3, "lookup"), (3, "reply"), (4, "reply"),
    ]  # fmt: skip
    assert found["depths"][0]["accuracy_max"] is None
    assert sum(row["paths"] for row in found["depths"]) == annotated.trie.n_nodes
    assert len(found["arms"]) == 4
    best = GraphPlans(annotated).decision(Objective(maximize="accuracy"))
    assert found["frontier"][-1]["accuracy"] == pytest.approx(best.accuracy)
    assert found["frontier"][-1]["contingent_plan"]["steps"][0]["stage"] == "router"


def test_plan_prints_the_tree_and_compares(file, capsys):
    said = text_of(capsys, "plan", file, *BEST, "--accept-optimism")
    assert "VineLM's plan (percentages: how often the application takes each way)" in said
    for name in ("VineLM", "best static plan", "best single model"):
        assert name in said
    assert "Simulated models." in said
    found = facts_of(capsys, "plan", file, *BEST, "--accept-optimism")
    best, static, single = found["plans"]
    assert best["accuracy"] >= static["accuracy"] >= single["accuracy"]
    assert set(static["models"]) == {"router", "lookup", "reply"}
    assert len(set(single["models"].values())) == 1
    assert best["contingent_plan"]["accuracy"] == pytest.approx(best["accuracy"])
    assert best["promise"]["estimate"] == pytest.approx(best["accuracy"])


def test_a_plan_that_nothing_meets_is_one_line(file, capsys):
    said = text_of(capsys, "plan", file, *BEST, "--max-cost-usd", "0.0000001", code=2)
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert "--max-cost-usd" in said


def test_explain_shows_every_next_step_of_every_arm(file, capsys):
    said = text_of(capsys, "explain", file, *BEST, "--prefix", "m1")
    assert "So far: router m1" in said
    for stage in ("lookup", "reply"):
        assert said.count(f"  {stage} ") + said.count(f"* {stage} ") >= 2
    assert "The chosen plan" in said
    steps = facts_of(capsys, "explain", file, *BEST, "--prefix", "m1")["candidates"]
    assert {(step["stage"], step["model"]) for step in steps} == {(s, m) for s in ("lookup", "reply") for m in ("m0", "m1")}
    assert sum(step["is_chosen"] for step in steps) == 2
    for stage in ("lookup", "reply"):
        of_stage = [step for step in steps if step["stage"] == stage]
        assert max(of_stage, key=lambda step: step["accuracy"])["is_chosen"]


def test_explain_with_the_arm_that_is_known(file, capsys):
    found = facts_of(capsys, "explain", file, *BEST, "--prefix", "router=m1,lookup=m0", "--arm", "reply")
    assert {step["stage"] for step in found["candidates"]} == {"reply"}
    assert found["prefix"] == ["m1", "m0"]
    assert found["decision"]["next_model"] in ("m0", "m1")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--prefix", "m1,m0"), "name the stage that came next, as in lookup=m0: it may be lookup, reply"),
        (("--prefix", "m1,search=m0"), "it may be lookup, reply"),
        (("--prefix", "m1,lookup=m9"), "'lookup=m9' cannot follow m1: use m0, m1"),
        (("--prefix", "m1,reply=m0,reply=m0"), "the path ends there"),
        (("--prefix", "m1", "--arm", "router"), "--arm router: it cannot come next: use lookup, reply"),
    ],
)
def test_bad_prefixes_and_arms_are_one_line(file, capsys, options, words):
    said = text_of(capsys, "explain", file, *BEST, *options, code=2)
    assert words in said
    assert said.count("\n") == 1


def test_an_arm_of_a_linear_trie_has_no_effect(tmp_path, monkeypatch, capsys):
    from kit.tables import random_table

    monkeypatch.chdir(tmp_path)
    save_trie("t.vine", random_table(0, n_requests=5, n_models=2, depth=2).annotate())
    assert main(["explain", "t.vine", *BEST, "--arm", "reply"]) == 2
    assert "--arm has no effect" in capsys.readouterr().err
