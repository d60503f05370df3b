"""What a trie knows of the outcomes of its nodes."""

from dataclasses import replace

import numpy as np
import pytest

from vinelm.errors import VineLMError
from vinelm.signals import Label, Outcome
from vinelm.trie.outcomes import Outcomes, arm_title

LABELS = (Label(False, None), Label(True, None), Label(False, "no rows"), Label(True, "no rows"))


def outcomes(**fields):
    """After node 1 four outcomes, after node 2 two."""
    given = {
        "labels": LABELS, "stages": (0, 1, 1, 1), "goes_on": True,
        "node": np.array([1, 1, 1, 1, 2, 2], np.int32), "label": np.array([0, 0, 1, 2, 1, 3], np.int16),
        "answer_class": np.array([-1, 0, 0, 0, 0, 1], np.int16), "chance": np.array([0.1, 0.3, 0.4, 0.2, 0.5, 0.5]),
        "right": np.array([0.0, 0.1, 0.4, 0.1, 0.5, 0.4]), "right_last": np.array([0.0, 0.1, 0.4, 0.1, 0.5, 0.1]),
        "returned": np.array([-1, 0, 0, 0, 0, 0], np.int16), "arm": np.array([1, 2, 3, -1, -1, -1], np.int16),
        "spread": np.array([[0.0, 0.0], [0.05, 0.15], [0.4, 0.4], [0.1, 0.1], [0.4, 0.6], [0.3, 0.5]], np.float32),
        "cost_spread": np.zeros((4, 2), np.float32),
    }  # fmt: skip
    return Outcomes(**(given | fields))


def test_whether_the_check_passed_an_arm():
    np.testing.assert_array_equal(outcomes().passed, [False, False, False, True])


@pytest.mark.parametrize(
    ("node", "shown", "passed", "place", "is_exact"),
    [
        (1, Outcome(None, 0), True, 2, True),
        (1, Outcome("no rows", 0), False, 3, True),
        (1, Outcome(None, None), False, 0, True),
        (1, Outcome("failed", 0), False, 1, True),  # the signal only repeats the verdict
        (1, Outcome("passed", 0), True, 2, True),
        (1, Outcome("empty", 0), False, 1, False),  # a new signal: the most probable of this verdict and class
        (1, Outcome("empty", 1), False, 1, False),  # and of no known class: the most probable of this verdict
        (1, Outcome("no rows", 1), False, 3, False),
        (1, Outcome("no rows", 0), True, 2, False),  # the verdict and the class weigh more than the signal
        (2, Outcome(None, 0), False, 0 + 4, False),  # no such verdict: the class
        (2, Outcome("no rows", 1), True, 5, True),
        (3, Outcome(None, 0), True, -1, False),  # the node has none
    ],
)
def test_the_nearest_known_outcome(node, shown, passed, place, is_exact):
    assert outcomes().seen(node, shown, passed=passed) == (place, is_exact)


def test_the_class_to_return():
    known = outcomes()
    assert [known.returned_class(place) for place in (-1, 0, 1, 4, 5)] == [None, None, None, None, 0]
    assert known.returning_last().returned_class(5) is None


def test_returning_last_scales_the_mass_by_fit():
    last = outcomes().returning_last()
    np.testing.assert_allclose(last.spread[5], [0.075, 0.125])
    np.testing.assert_array_equal(last.spread[:5], outcomes().spread[:5])


def test_arrays_that_do_not_fit_are_refused():
    with pytest.raises(VineLMError, match="differ in length"):
        outcomes(right=np.zeros(5))
    with pytest.raises(VineLMError, match="of one dimension, and of two for spread"):
        outcomes(spread=np.zeros(6, np.float32))


def test_it_goes_through_plain_json():
    known = outcomes()
    plain = known.to_dict()
    assert plain == {
        "labels": [[False, None], [True, None], [False, "no rows"], [True, "no rows"]],
        "stages": [0, 1, 1, 1],
        "goes_on": True,
    }
    assert Outcomes.labels_from(plain["labels"]) == LABELS
    assert replace(known, goes_on=False).to_dict()["goes_on"] is False


def test_labels_and_arms_in_words():
    assert [str(label) for label in LABELS] == ["failed", "passed", "failed, no rows", "passed, no rows"]
    assert Label.of(True, "passed") == Label.of(True, None) == Label(True, None)
    assert str(Label.of(False, "passed")) == "failed, passed"
    assert str(Label.of(False, "error")) == "failed, error"
    assert arm_title("repair", LABELS[2], 0) == "repair [failed, no rows, answer 1]"
    assert arm_title("repair", LABELS[0], -1) == "repair [failed, no answer]"
