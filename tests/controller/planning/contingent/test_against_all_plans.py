"""The contingent planner against every contingent plan of small random tries. check_planner.py does it at length."""

import random

import pytest
from kit.oracles.contingent_checks import check_averages, check_prices, check_request_bounds, small_branching

from vinelm.controller import Planner


@pytest.mark.parametrize("block", range(8))
def test_bounds_for_each_request_and_load(block):
    """Time, money and load carried down every arm; relaxed bounds and ties included."""
    for number in range(20):
        rng = random.Random(f"request:{block}:{number}")
        annotated = small_branching(rng)
        planner = Planner(annotated)
        for _ in range(3):
            assert check_request_bounds(rng, annotated, planner) is None


@pytest.mark.parametrize("block", range(4))
def test_the_best_plan_at_every_price(block):
    for number in range(10):
        assert check_prices(small_branching(random.Random(f"price:{block}:{number}"))) == []


@pytest.mark.parametrize("block", range(4))
def test_bounds_on_averages_get_the_best_of_corners_and_fixed_plans(block):
    for number in range(10):
        rng = random.Random(f"average:{block}:{number}")
        annotated = small_branching(rng)
        planner = Planner(annotated)
        for _ in range(3):
            wrong, gap = check_averages(rng, annotated, planner)
            assert wrong is None
            assert gap >= 0.0


def test_an_arm_for_which_no_model_fits_counts_against_going_on_before_the_arm_is_seen():
    rng = random.Random("20261121:branching:1751")
    annotated = small_branching(rng)
    planner = Planner(annotated)
    for _ in range(4):
        assert check_request_bounds(rng, annotated, planner) is None
