"""VineLM's plans against what an application runs today: what two paired intervals allow to say."""

import json
from dataclasses import replace

import pytest
from kit.stores import made_store

import vinelm
from vinelm.errors import ConfigError
from vinelm.evaluation import Evaluation, JudgedPolicy, OffPolicyEstimate
from vinelm.evaluation.judging.plan_in_use import PlanInUse
from vinelm.objective import Objective
from vinelm.reports.evaluation_text import evaluation_lines, evaluation_sentence, evaluation_tables
from vinelm.reports.store.page import store_page

PRICES = {"small": 0.001, "large": 0.01}


def between(low, high, **fields):
    plain = {"standard_error": 0.01, "effective": 100.0, "unsupported": 0.0, "is_identified": True, **fields}
    return OffPolicyEstimate(value=(low + high) / 2, low=low, high=high, **plain)


def compared(target, gain, saved):
    """An evaluation against a plan in use of 1 dollar."""
    objective = Objective(minimize="cost", min_accuracy=0.9) if target == "cost" else Objective(maximize="accuracy")
    own, keeps = (saved, gain) if target == "cost" else (gain, saved)
    shared = {"plans": ("p",), "accuracy": between(0.5, 0.6), "latency_s": between(1.0, 1.1), "promised_accuracy": 0.5}
    policies = (
        JudgedPolicy(name="paths", cost_usd=between(0.4, 0.5), against={"in_use": own}, **shared),
        JudgedPolicy(name="in_use", cost_usd=between(0.9, 1.1), **shared),
    )
    return Evaluation(objectives=(objective,), policies=policies, keeps=keeps, requests=9, rows=9, spent_usd=1.0, level=0.975)


@pytest.mark.parametrize(
    ("target", "gain", "saved", "verdict"),
    [
        ("cost", (-0.01, 0.02), (0.3, 0.5), "gain"),
        ("cost", (-0.03, 0.02), (0.3, 0.5), "open"),
        ("cost", (-0.01, 0.02), (-0.1, 0.5), "open"),
        ("cost", (-0.09, -0.03), (0.3, 0.5), "no gain"),
        ("cost", (-0.01, 0.02), (-0.1, 0.01), "no gain"),
        ("accuracy", (0.01, 0.08), (-0.01, 0.2), "gain"),
        ("accuracy", (0.01, 0.08), (-0.2, 0.2), "open"),
        ("accuracy", (-0.01, 0.08), (0.0, 0.2), "open"),
        ("accuracy", (-0.05, 0.01), (0.0, 0.2), "no gain"),
        ("accuracy", (0.01, 0.08), (-0.4, -0.1), "no gain"),
    ],
)
def test_both_intervals_count(target, gain, saved, verdict):
    assert compared(target, between(*gain), between(*saved)).verdict == verdict


def test_the_same_plan_gains_nothing_and_what_is_unknown_is_said():
    same = between(0.0, 0.0, is_same=True)
    assert compared("cost", same, same).verdict == "no gain"
    unknown = between(0.0, 0.1, is_identified=False)
    found = compared("cost", unknown, between(0.1, 0.2))
    assert found.verdict == "not identified"
    assert evaluation_sentence(found).startswith("The rows cannot say")


@pytest.mark.parametrize("target", ["cost", "accuracy"])
def test_no_serving_is_offered_against_a_plan_that_is_not_served(target):
    unknown = between(-0.1, 0.2, is_identified=False)
    for found in (compared(target, unknown, unknown), compared(target, between(-0.1, 0.1), between(-0.1, 0.1))):
        assert found.verdict in ("not identified", "open")
        assert found.offers() == ()
        assert not any("--serve" in line for line in evaluation_lines(found))


def test_what_is_lost_is_said():
    found = compared("cost", between(-0.09, -0.03), between(0.3, 0.5))
    assert found.loses
    assert evaluation_sentence(found).startswith("Do not use VineLM over paths instead of the plan in use (p): ")
    assert "with -6.0 (-9.0 to -3.0) points of accuracy" in evaluation_sentence(found)


def test_a_missed_promise_of_the_plan_in_use_is_not_held_against_vinelm():
    """Both are below what the plan in use promised; what counts is that nothing is lost."""
    found = compared("cost", between(-0.01, 0.02), between(0.3, 0.5))
    assert replace(found, keeps=None).breaks_bounds
    assert found.verdict == "gain"


# -- stores ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cascade(tmp_path_factory):
    """A store and its trie: a small model and a check spare most calls of a large one."""
    path = tmp_path_factory.mktemp("in-use") / "s.db"
    made_store(path, {"small": 0.6, "large": 0.8}, PRICES, requests=200, walks=12, depth=2)
    return path, vinelm.estimate(path, check=False)


def test_a_cascade_saves_dollars_against_the_large_model_in_use(cascade):
    path, trie = cascade
    plan = PlanInUse.of("large", trie)
    assert (plan.name, plan.settings) == ("large", {"path": ("large", "large")})
    found = vinelm.evaluate(path, trie, in_use="large")
    assert (found.verdict, found.target, found.rival.name, found.level) == ("gain", "cost", "in_use", 0.975)
    assert found.rival.plans == ("large, up to 2 invocations",)
    assert found.gain.value == pytest.approx(found.rival.cost_usd.value - found.headline.cost_usd.value)
    assert found.keeps.low >= -0.02
    assert [one.target for one in found.aims] == ["cost", "accuracy"]
    said = evaluation_sentence(found)
    assert said.startswith("Use VineLM over paths: $5.")
    assert "for the plan in use (large, up to 2 invocations)" in said
    assert "points of accuracy." in said
    assert any("needs no controller" in line for line in evaluation_lines(found))
    policies, gains, *_ = evaluation_tables(found)
    assert {row.cells[0] for row in policies.rows} == {"VineLM, paths", "best static plan", "plan in use"}
    assert all(len(row.cells) == len(gains.columns) for row in gains.rows)
    assert store_page(path, trie, in_use="large").headline == said
    with pytest.raises(ConfigError, match="in_use to both"):
        store_page(path, trie, evaluation=found)


def test_a_plan_in_use_goes_with_no_objective_and_no_serving(cascade):
    path, trie = cascade
    best = Objective(maximize="accuracy")
    with pytest.raises(ConfigError, match="leave the objective out"):
        vinelm.evaluate(path, trie, best, in_use="large")
    with pytest.raises(ConfigError, match="no effect"):
        vinelm.evaluate(path, trie, best, in_use="large", serve=5)


def test_models_that_are_alike_gain_nothing(tmp_path):
    prices = {"small": 0.01, "large": 0.01}
    path = made_store(tmp_path / "s.db", {"small": 0.7, "large": 0.7}, prices, requests=200, depth=1)
    assert vinelm.evaluate(path, in_use="large").verdict != "gain"


def test_a_plan_in_use_that_vinelm_would_choose_is_not_left(cascade, tmp_path):
    """The file of `vinelm plan --json`, or one plan of it."""
    path, trie = cascade
    steps = {"stages": [["generate", "small"], ["repair", "large"]]}
    for content in ({"plans": [steps, {"policy": "best static plan"}]}, steps):
        file = tmp_path / "plan.json"
        file.write_text(json.dumps(content))
        plan = PlanInUse.of(file, trie)
        assert (plan.name, plan.settings) == ("today's plan", {"path": ("small", "large")})
    found = vinelm.evaluate(path, trie, in_use=file)
    assert [one.verdict for one in found.aims] == ["no gain", "no gain"]
    assert evaluation_sentence(found).startswith("Do not bother: VineLM over paths does what the plan in use")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "neither a model of this trie (small, large) nor a file"),
        ("{", "is no JSON"),
        ("[]", "holds no plan"),
        ('{"plans": []}', "holds no plan"),
        ('{"plans": [{"contingent_plan": {}}]}', "depends on what a request shows"),
        ('{"stages": [["generate", "gone"]]}', "today's plan is no fixed plan of this trie"),
    ],
)
def test_what_is_no_fixed_plan_is_refused_in_one_line(cascade, tmp_path, content, words):
    file = tmp_path / "plan.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ConfigError) as raised:
        PlanInUse.of(file, cascade[1])
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)
