"""Intervals of scores: those of a plain paired mean where everything is there, no wider than needed, silent where rows lack."""

import numpy as np
import pytest

from vinelm.evaluation.off_policy.intervals import LEAST_EFFECTIVE, HalfScores, estimate_mean, served_scores
from vinelm.evaluation.off_policy.scores import Scores


def served(values):
    return served_scores(values, np.zeros(len(values)), np.zeros(len(values)))


def test_served_requests_give_the_paired_mean_and_nearly_its_standard_error():
    rng = np.random.default_rng(1)
    one, two = (rng.random(400) < p for p in (0.8, 0.7))
    found = estimate_mean([HalfScores(served(one), served(two))], "accuracy", bound=1.0)
    difference = one.astype(float) - two
    assert found.value == pytest.approx(difference.mean())
    assert found.standard_error == pytest.approx(difference.std(ddof=1) / 20, rel=0.02)
    assert found.low < found.value < found.high
    assert found.effective == pytest.approx(400)


def test_what_the_chances_explain_is_no_error():
    """A sampled mean has the same interval whatever was expected of the requests without a row."""
    rng = np.random.default_rng(2)
    right, has = rng.random(500) < 0.9, rng.random(500) < 0.2
    share = has.mean()
    found = []
    for q in (0.0, 0.9):
        success = q + has / share * (right - q)
        column = {(((), None), "m"): has / share - 1.0}
        zeros = np.zeros(500)
        found.append(Scores(success, zeros, zeros, has / share, zeros, column))
    intervals = [estimate_mean([HalfScores(one)], "accuracy") for one in found]
    assert intervals[0].value == pytest.approx(right[has].mean()) == pytest.approx(intervals[1].value)
    assert intervals[0].standard_error == pytest.approx(intervals[1].standard_error)
    assert intervals[0].standard_error == pytest.approx(right[has].std(ddof=1) / np.sqrt(has.sum()), rel=0.02)
    assert intervals[0].effective == pytest.approx(has.sum())


def test_the_same_policy_has_no_difference_and_no_error():
    scores = served([1, 0, 1, 1])
    found = estimate_mean([HalfScores(scores, scores)] * 2, "accuracy", bound=1.0)
    assert found.is_same
    assert (found.value, found.low, found.high) == (0.0, 0.0, 0.0)


def test_scores_that_never_vary_still_have_an_interval():
    found = estimate_mean([HalfScores(served(np.ones(50)))], "accuracy", bound=1.0)
    assert 0.02 < found.value - found.low < 0.1


def part(n, right):
    """A part of ``n`` requests of which the policy was followed on ``len(right)``."""
    followed = np.arange(n) < len(right)
    weight = followed * n / max(len(right), 1)
    success = weight * np.pad(np.array(right, float), (0, n - len(right)))
    return Scores(success, *np.zeros((2, n)), weight, np.zeros(n), {(((), None), "m"): weight - 1.0})


def test_a_part_of_the_requests_that_was_hardly_followed_is_not_taken_for_known():
    """Two right answers of 80 requests do not prove that the plan of that part is always right."""
    parts = [part(80, [1, 0, 1] * 13), part(80, [1, 1])]
    found = estimate_mean([HalfScores(one) for one in parts], "accuracy", bound=1.0)
    assert found.value == pytest.approx((2 / 3 + 1.0) / 2)
    alike = estimate_mean([HalfScores(part(80, [1, 0, 1] * 13))] * 2, "accuracy", bound=1.0)
    assert found.standard_error > 4 * alike.standard_error


def test_a_part_that_was_followed_on_no_request_identifies_nothing():
    found = estimate_mean([HalfScores(part(80, [1, 0, 1] * 13)), HalfScores(part(80, []))], "accuracy", bound=1.0)
    assert found.effective >= LEAST_EFFECTIVE
    assert not found.is_identified


@pytest.mark.parametrize(
    ("n", "unsupported", "identified"), [(100, 0.0, True), (100, 0.04, True), (100, 0.2, False), (5, 0.0, False)]
)
def test_few_rows_or_missing_steps_are_not_identified(n, unsupported, identified):
    success = (np.arange(n) % 2).astype(float)
    zeros, lost = np.zeros(n), (np.arange(n) < unsupported * n).astype(float)
    found = estimate_mean([HalfScores(Scores(success, zeros, zeros, 1.0 - lost, lost))], "accuracy", bound=1.0)
    assert found.is_identified is identified
    assert (found.effective >= LEAST_EFFECTIVE) is (n > 5)
    assert found.unsupported == pytest.approx(unsupported)
    assert (found.to_dict()["interval"] is None) is not identified


def test_what_rests_on_the_estimate_widens_the_interval_by_the_most_it_may_be_off():
    n = 100
    success, zeros, lost = (np.arange(n) % 2).astype(float), np.zeros(n), (np.arange(n) < 4).astype(float)
    whole, part = (
        estimate_mean([HalfScores(Scores(success, zeros, zeros, np.ones(n), unsupported))], "accuracy", bound=1.0)
        for unsupported in (zeros, lost)
    )
    assert (part.high - part.low) - (whole.high - whole.low) == pytest.approx(0.08)


def test_dollars_are_negated_so_that_more_is_better():
    scores = served_scores([1, 1, 0, 1], [1.0, 2.0, 3.0, 4.0], [5.0] * 4)
    assert estimate_mean([HalfScores(scores)], "cost").value == -2.5
    assert estimate_mean([HalfScores(scores)], "latency").value == -5.0
