"""The study of labels: its plans, its judges, and its races on a small table."""

import numpy as np
import proof_labels
import pytest
from proof_labels import Cell, measure_cell, verdicts
from proof_parts.draws import given
from proof_parts.plans import plans_of

from vinelm.evaluation import OutcomeTable


@pytest.fixture(scope="module")
def plans():
    """Two cheap models and a dear one. The cheap ones agree in three of four requests, and are right there."""
    kind = np.array([[0, 0, 0], [1, 1, 1], [0, 1, 1], [2, 2, 2]] * 10)
    success = np.array([[1, 1, 1], [1, 1, 1], [0, 1, 1], [1, 1, 1]] * 10, dtype=bool)
    table = OutcomeTable(
        request_ids=tuple(f"q{at}" for at in range(40)),
        systems=("weak", "good", "today"),
        success=success,
        signal=np.full((40, 3), -1),
        labels=(),
        passed=kind != 1,
        answer_class=kind,
        cost_usd=np.tile([0.1, 0.2, 1.0], (40, 1)),
        groups=tuple(f"q{at}" for at in range(40)),
    )
    return plans_of(table)


def test_a_plan_falls_back_to_todays_answer_and_pays_for_it(plans):
    at = plans.names.index("good and weak agree")
    assert plans.today == "today"
    assert plans.same[:, at].all()
    assert plans.saved()[at] == pytest.approx(1 - 0.3 - 0.25)
    weak = plans.names.index("weak")
    assert (plans.differing()[weak], plans.diff()[weak]) == (0.25, -0.25)


def test_a_check_then_another_check(plans):
    """The weak model passes where it does not say 1; then the good one passes where it does not."""
    at = plans.names.index("check weak, then good")
    assert plans.usd[:4, at] == pytest.approx([0.1, 1.3, 0.1, 0.1])
    assert plans.score[:4, at].tolist() == [0.0, 0.0, -1.0, 0.0]


def test_a_judge_is_right_as_often_as_he_should_be():
    rng = np.random.default_rng(5)
    scores = rng.choice([-1.0, 0.0, 1.0], 20000)
    for judge, right in proof_labels.JUDGES.items():
        assert np.mean(verdicts(judge, scores, rng) == scores) == pytest.approx(right, abs=0.015)
    assert np.mean(verdicts("biased", scores, rng)) > 0.3


def test_races_repeat_and_count_what_they_took(plans):
    at = plans.names.index("good")
    first, again = (given(plans, at, 3, 0.02, labels=50) for _ in range(2))
    assert first == again
    assert first.reason == "proven"
    found = measure_cell(Cell("one", "toy", 0.02, (at,)), tables={"toy": plans}, draws=5)
    assert (found["proven"], found["false"], found["diff"]) == (1.0, 0, 0.0)


def test_a_false_proof_is_counted(plans):
    """A margin that the plan loses by far, and a limit of labels: whatever is proven is false, and next to nothing is."""
    at = plans.names.index("weak")
    found = measure_cell(Cell("false", "toy", 0.25, (at,)), tables={"toy": plans}, draws=20)
    assert found["false"] == round(found["proven"] * 20) <= 4
