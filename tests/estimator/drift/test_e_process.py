"""Wealth that does not grow while the hypothesis holds, and grows once it does not."""

import numpy as np
import pytest

from vinelm.estimator.drift.e_process import EProcess, MeanAbove, MeanBelow, ShareAbove, ShareBelow

GAMMA = np.random.default_rng(0)


def worst(bets, values):
    """The most that the mean factor of any bet is over 1, in standard errors."""
    factors = np.exp(bets.log_factors(values))
    return float(((factors.mean(0) - 1.0) / (factors.std(0) / np.sqrt(len(values)) + 1e-12)).max())


@pytest.mark.parametrize(
    ("bets", "values"),
    [
        (ShareAbove(0.3), GAMMA.random(200_000) < 0.3),
        (ShareAbove(0.3), GAMMA.random(200_000) < 0.1),
        (ShareBelow(0.3), GAMMA.random(200_000) < 0.3),
        (ShareBelow(0.3), GAMMA.random(200_000) < 0.6),
        (MeanAbove(2.0), GAMMA.gamma(0.5, 4.0, 200_000)),
        (MeanAbove(2.0), GAMMA.gamma(0.5, 3.0, 200_000)),
        (MeanBelow(2.0, 8.0), GAMMA.gamma(0.5, 4.0, 200_000)),
        (MeanBelow(2.0, 8.0), GAMMA.gamma(1.0, 2.2, 200_000)),
    ],
)
def test_no_bet_gains_on_average_while_the_hypothesis_holds(bets, values):
    assert worst(bets, values.astype(float)) < 4.0


@pytest.mark.parametrize(
    ("bets", "values"),
    [
        (ShareAbove(0.3), GAMMA.random(400) < 0.6),
        (ShareBelow(0.3), GAMMA.random(400) < 0.1),
        (MeanAbove(2.0), GAMMA.gamma(2.0, 2.0, 400)),
        (MeanBelow(2.0, 8.0), GAMMA.gamma(2.0, 0.5, 400)),
    ],
)
def test_wealth_passes_a_thousand_after_a_change_late_or_early(bets, values):
    early, late = EProcess(bets), EProcess(bets)
    for value in values.astype(float):
        early.add(float(value))
    assert float(early.log_wealth) > np.log(1000)
    quiet = {"ShareAbove": 0.0, "ShareBelow": 1.0, "MeanAbove": 1.0, "MeanBelow": 3.0}[type(bets).__name__]
    for _ in range(300):
        late.add(quiet)
    assert float(late.log_wealth) < np.log(20)
    for value in values.astype(float):
        late.add(float(value))
    assert float(late.log_wealth) > np.log(1000)
    assert abs(late.before_change - 300) < 20


def test_the_weights_of_all_starts_sum_to_one():
    class Nothing:
        def log_factors(self, value):
            return np.zeros((*np.shape(value), 1))

    process = EProcess(Nothing())
    for _ in range(1000):
        process.add(1.0)
    assert float(process.log_wealth) == pytest.approx(0.0, abs=1e-9)
