"""Two groups are told apart, whatever the share, and equal ones are not."""

import numpy as np
import pytest

from vinelm.estimator.drift.e_process import GroupComparison

RUNS, ALPHA = 300, 0.05


def ever(share, requests, draw, *, margin=0.0, ratio=1.0, most=1.0, runs=RUNS, seed=0):
    """The share of runs in which the new group is shown to be worse."""
    rng = np.random.default_rng(seed)
    compared, highest = GroupComparison(share, margin=margin), np.zeros(runs)
    for at in range(requests):
        is_new = rng.random(runs) < share
        wealth = compared.add(is_new, draw(rng, is_new, at), ratio=ratio, most=most)
        highest = np.maximum(highest, wealth)
    return float((highest >= np.log(1 / ALPHA)).mean())


def wrong(new, old):
    return lambda rng, is_new, at: (rng.random(len(is_new)) < np.where(is_new, new, old)).astype(float)


def dollars(factor, spread=1.0):
    return lambda rng, is_new, at: rng.lognormal(-(spread**2) / 2, spread, len(is_new)) * np.where(is_new, factor, 1.0)


@pytest.mark.parametrize("share", [0.05, 0.5, 0.95])
def test_equal_groups_are_rarely_told_apart(share):
    assert ever(share, 600, wrong(0.3, 0.3)) <= ALPHA
    assert ever(share, 600, dollars(1.0), most=10.0) <= ALPHA


def test_a_difference_of_just_the_margin_or_the_ratio_is_none():
    assert ever(0.5, 600, wrong(0.35, 0.3), margin=0.05) <= ALPHA
    assert ever(0.5, 600, dollars(1.5), ratio=1.5, most=10.0) <= ALPHA


def test_requests_that_become_harder_are_no_difference():
    def harder(rng, is_new, at):
        return (rng.random(len(is_new)) < (0.1 if at < 300 else 0.8)).astype(float)

    assert ever(0.3, 600, harder) <= ALPHA


@pytest.mark.parametrize(
    ("draw", "how"),
    [
        (wrong(0.5, 0.3), {"margin": 0.01}),
        (dollars(1.6, 0.6), {"ratio": 1.1, "most": 10.0}),
        (wrong(0.3, 0.3), {"margin": -0.25}),  # not better by so much
    ],
)
def test_a_real_difference_is_found(draw, how):
    assert ever(0.5, 1500, draw, **how, runs=100) >= 0.95
