"""The rates of a judge, their correction, and whether its intervals hold the truth as often as they say."""

import numpy as np
import pytest

from vinelm.errors import ConfigError
from vinelm.estimator.judged.agreement import JudgeAgreement
from vinelm.plans.promise import Z90


def pairs(right_yes, right_no, wrong_yes, wrong_no):
    counts = [(True, True, right_yes), (False, True, right_no), (True, False, wrong_yes), (False, False, wrong_no)]
    every = [(verdict, truth) for verdict, truth, n in counts for _ in range(n)]
    return [(f"q{i}", verdict, truth) for i, (verdict, truth) in enumerate(every)]


def test_the_rates_are_those_of_the_table():
    found = JudgeAgreement.of(pairs(36, 4, 2, 18))
    assert (found.requests, found.rows) == (60, 60)
    assert found.agreed == pytest.approx(54 / 60)
    assert found.sensitivity.share == pytest.approx(0.9)
    assert found.specificity.share == pytest.approx(0.9)
    assert found.informedness == pytest.approx(0.8)
    low, high = found.sensitivity.interval()
    assert low < 0.9 < high
    found.require()


def test_the_correction_undoes_the_judges_errors():
    found = JudgeAgreement.of(pairs(36, 4, 2, 18))
    accuracy = np.linspace(0, 1, 11)
    verdicts = 0.9 * accuracy + 0.1 * (1 - accuracy)
    assert np.allclose(found.corrected(verdicts), accuracy)
    assert np.allclose(found.corrected(0.9 * accuracy + 0.1 * (0.7 - np.minimum(accuracy, 0.7)), 0.7)[:8], accuracy[:8])
    assert found.corrected([0.0, 1.0]).tolist() == [0.0, 1.0]


def test_rows_of_one_request_count_once():
    many = [(f"q{i % 10}", True, True) for i in range(1000)] + [(f"r{i % 10}", False, False) for i in range(1000)]
    few = [(f"q{i}", True, True) for i in range(10)] + [(f"r{i}", False, False) for i in range(10)]
    one, other = JudgeAgreement.of(many), JudgeAgreement.of(few)
    assert one.sensitivity == other.sensitivity
    assert one.sensitivity.variance > 0.0  # ten of ten is not certain


@pytest.mark.parametrize(
    "table", [(5, 35, 15, 5), (20, 20, 10, 10), (40, 0, 0, 0), (0, 0, 0, 20), (0, 0, 0, 0), (12, 8, 9, 11)]
)
def test_a_judge_that_may_be_guessing_is_refused(table):
    with pytest.raises(ConfigError, match="the judge does not agree with the labels") as error:
        JudgeAgreement.of(pairs(*table)).require()
    assert error.value.code == "judge-disagrees"
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize(("accuracy", "sensitivity", "specificity"), [(0.7, 0.9, 0.85), (0.5, 0.8, 0.8), (0.85, 0.95, 0.8)])
def test_corrected_intervals_hold_the_truth_and_those_of_verdicts_do_not(accuracy, sensitivity, specificity, apart):
    """1,000 worlds: 400 judged answers and 80 labelled ones, apart or among them: then intervals are wider than needed."""
    rng = np.random.default_rng(20)
    held = taken_at_its_word = 0
    worlds, n, labelled = 1000, 400, 80
    for _ in range(worlds):
        truth = rng.random(n + labelled) < accuracy
        verdict = np.where(truth, rng.random(n + labelled) < sensitivity, rng.random(n + labelled) > specificity)
        found = JudgeAgreement.of(
            (f"q{i}", bool(verdict[i]), bool(truth[i])) for i in range(labelled)
        )  # every label has its own request
        share = float(verdict[labelled:].mean() if apart else verdict[:n].mean())
        half = Z90 * np.sqrt(share * (1 - share) / n)
        estimate = float(found.corrected(share))
        held += abs(estimate - accuracy) <= found.half_width(estimate, half)
        taken_at_its_word += abs(share - accuracy) <= half
    assert 0.87 <= held / worlds <= (0.94 if apart else 0.98)
    if abs(sensitivity * accuracy + (1 - specificity) * (1 - accuracy) - accuracy) > 0.03:
        assert taken_at_its_word / worlds < 0.8
