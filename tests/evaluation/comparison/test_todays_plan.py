"""What is in use where the application's stages do not say it: a model, or a plan from a file."""

import json

import pytest
from kit.stores import made_store

import vinelm
from vinelm.errors import ConfigError
from vinelm.evaluation.comparison.todays_plan import TodaysPlan
from vinelm.objective import Objective
from vinelm.reports.store.page import store_page

PRICES = {"small": 0.001, "large": 0.01}


# -- stores ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cascade(tmp_path_factory):
    """A store and its trie: a small model and a check spare most calls of a large one."""
    path = tmp_path_factory.mktemp("in-use") / "s.db"
    made_store(path, {"small": 0.6, "large": 0.8}, PRICES, requests=200, walks=12, depth=2)
    return path, vinelm.estimate(path, check=False)


def test_a_cascade_saves_dollars_against_the_large_model_in_use(cascade):
    path, trie = cascade
    plan = TodaysPlan.of("large", trie)
    assert (plan.name, plan.settings) == ("large", {"path": ("large", "large")})
    found = vinelm.evaluate(path, trie, in_use="large").verdict
    assert (found.advice, found.opponent, found.is_today) == ("switch", "large", True)
    assert found.is_fixed
    assert found.plan.saved_low > 0.3 * found.cost_usd
    assert found.plan.gain_low > -0.03
    assert store_page(path, trie, in_use="large").headline == found.sentence


def test_a_plan_in_use_goes_with_no_objective_and_no_serving(cascade):
    path, trie = cascade
    best = Objective(maximize="accuracy")
    with pytest.raises(ConfigError, match="leave the objective out"):
        vinelm.evaluate(path, trie, best, in_use="large")
    with pytest.raises(ConfigError, match="no effect"):
        vinelm.evaluate(path, trie, best, in_use="large", serve=5)


def test_a_plan_in_use_that_vinelm_would_choose_is_not_left(cascade, tmp_path):
    """The file of `vinelm plan --json`, or one plan of it."""
    path, trie = cascade
    steps = {"stages": [["generate", "small"], ["repair", "large"]]}
    for content in ({"plans": [steps, {"policy": "best static plan"}]}, steps):
        file = tmp_path / "plan.json"
        file.write_text(json.dumps(content))
        plan = TodaysPlan.of(file, trie)
        assert (plan.name, plan.settings) == ("today's plan", {"path": ("small", "large")})
    found = vinelm.evaluate(path, trie, in_use=file).verdict
    assert found.opponent == "today's plan"
    assert all(plan.words != "generate small, repair large" for plan in found.plans if not plan.is_same)
    assert found.advice != "switch" or found.plan.saved_usd < 0.0  # nothing cheaper


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
        TodaysPlan.of(file, cascade[1])
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)
