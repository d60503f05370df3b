"""The bound on mean dollars follows what requests really cost, slowly and within its limits."""

import random
import threading
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vinelm.money.spend_control import EVERY, MOST, SpendControl
from vinelm.objective import Objective

BOUND = Objective(maximize="accuracy", max_cost_usd=0.01)


def served(control, ratio, requests, rng=None):
    """Serve requests whose plans use the whole bound and that cost ``ratio`` times as much; return their mean dollars."""
    total = 0.0
    for _ in range(requests):
        planned = control.begin().max_cost_usd
        control.planned(planned)
        usd = planned * ratio * (1.0 if rng is None else rng.lognormvariate(-0.125, 0.5))
        control.spent(usd)
        total += usd
    return total / requests


@pytest.mark.parametrize("ratio", [0.75, 0.9, 1.0, 1.2, 1.4])
def test_what_is_spent_comes_to_the_bound(ratio):
    control = SpendControl(BOUND)
    served(control, ratio, 1_000)
    assert served(control, ratio, 500) == pytest.approx(0.01, rel=0.03)


def test_it_holds_with_noise_and_follows_a_change():
    control, rng = SpendControl(BOUND), random.Random(1)
    served(control, 1.0, 1_000, rng)
    served(control, 1.3, 1_000, rng)
    assert served(control, 1.3, 3_000, rng) == pytest.approx(0.01, rel=0.06)


@given(st.lists(st.floats(0.0, 100.0), min_size=1, max_size=20))
def test_the_limits_hold_whatever_is_spent(ratios):
    control = SpendControl(BOUND)
    for ratio in ratios:
        served(control, ratio, EVERY)
        assert 0.01 / MOST * 0.98 <= control.begin().max_cost_usd <= 0.01 * MOST * 1.02


def test_without_requests_or_dollars_nothing_moves():
    control = SpendControl(BOUND)
    assert control.begin() is BOUND
    for _ in range(3 * EVERY):
        control.planned(0.0)
        control.begin()
    assert control.factor == 1.0


def test_few_plans_are_made_where_none_are_mixed():
    control, rng = SpendControl(replace(BOUND, mix=False)), random.Random(2)
    bounds = set()
    for _ in range(5_000):
        objective = control.begin()
        bounds.add(objective.max_cost_usd)
        control.planned(objective.max_cost_usd)
        control.spent(objective.max_cost_usd * rng.lognormvariate(0.0, 0.5))
    assert len(bounds) <= 45


def test_where_plans_are_mixed_the_bound_moves_continuously():
    control = SpendControl(BOUND)
    served(control, 1.0 + 1e-3, EVERY)
    assert BOUND.max_cost_usd / 1.002 < control.begin().max_cost_usd < BOUND.max_cost_usd


def test_bounds_per_request_are_not_touched():
    assert SpendControl.applies_to(BOUND)
    assert not SpendControl.applies_to(Objective(maximize="accuracy"))
    assert not SpendControl.applies_to(Objective(maximize="accuracy", max_cost_usd=0.01, cost_budget="per_request"))


def test_threads_share_one_correction():
    control = SpendControl(BOUND)
    threads = [threading.Thread(target=served, args=(control, 1.2, 500)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert control.factor == pytest.approx(1 / 1.2, rel=0.05)
