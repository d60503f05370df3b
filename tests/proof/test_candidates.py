"""Labels that are expected beforehand, and the choice of candidates."""

import math

import pytest

from vinelm.errors import ConfigError
from vinelm.proof import PlanFacts, choose_candidates, labels_needed


def test_twice_the_difference_takes_four_times_the_labels_and_half_the_room_too():
    assert labels_needed(0.06, 0.02) == pytest.approx((40.5, 72.0))
    assert labels_needed(0.12, 0.02) == pytest.approx((162.0, 288.0))
    assert labels_needed(0.06, 0.02, diff=-0.01) == pytest.approx((162.0, 288.0))


def test_a_plan_that_loses_the_margin_can_never_be_proven():
    assert labels_needed(0.06, 0.02, diff=-0.02) == (math.inf, math.inf)


def test_candidates_are_those_that_save_and_are_within_reach_the_best_first():
    plans = [
        PlanFacts("differs little", 0.3, 5, 150),
        PlanFacts("saves little", 0.1, 1, 150),
        PlanFacts("saves more", 0.6, 8, 150),
        PlanFacts("differs much", 0.9, 60, 150),
    ]
    found = choose_candidates(plans, margin=0.02, labels=100)
    assert [one.name for one in found] == ["saves more", "differs little"]
    assert found[1].differing == pytest.approx(6 / 152)


def test_nothing_races_if_nothing_can_be_proven_within_the_labels():
    plans = [PlanFacts("a", 0.5, 40, 150), PlanFacts("b", 0.7, 45, 150)]
    assert choose_candidates(plans, margin=0.02, labels=140) == []
    assert len(choose_candidates(plans, margin=0.02, labels=None)) == 2


def test_no_more_race_than_wanted():
    plans = [PlanFacts(f"p{at}", 0.5, at, 150) for at in range(9)]
    assert [one.name for one in choose_candidates(plans, margin=0.05, labels=300)] == ["p0", "p1", "p2", "p3"]
    assert len(choose_candidates(plans, margin=0.05, labels=300, most=6)) == 6


@pytest.mark.parametrize(
    "call",
    [
        lambda: labels_needed(1.2, 0.02),
        lambda: labels_needed(0.1, 0.0),
        lambda: labels_needed(0.1, 0.02, diff=math.nan),
        lambda: choose_candidates([PlanFacts("a", 0.5, 7, 3)], margin=0.02, labels=9),
        lambda: choose_candidates([PlanFacts("a", 1.5, 1, 3)], margin=0.02, labels=9),
        lambda: choose_candidates([], margin=0.02, labels=-1),
    ],
)
def test_bad_input_is_one_clear_line(call):
    with pytest.raises(ConfigError) as caught:
        call()
    assert "\n" not in str(caught.value)
