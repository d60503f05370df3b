"""Which answers change the best mixtures most per dollar."""

import numpy as np
import pytest

from vinelm.profiler.sampling.mixtures import (
    AT_ONCE,
    Gains,
    Mixtures,
    chances_to_be_strongest,
    posterior,
    purchases,
)


def brute_value(accuracy, usd, budgets):
    """The best mixture of two models under each budget, by trying a thousand shares."""
    total = 0.0
    shares = np.linspace(0.0, 1.0, 1001)
    for budget in budgets:
        best = accuracy[int(np.argmin(usd))]
        for i in range(len(usd)):
            for j in range(len(usd)):
                cost, right = shares * usd[i] + (1 - shares) * usd[j], shares * accuracy[i] + (1 - shares) * accuracy[j]
                best = max(best, right[cost <= budget * (1 + 1e-9)].max(initial=0.0))
        total += best
    return total / len(budgets)


@pytest.mark.parametrize("seed", range(5))
def test_the_value_is_that_of_the_best_mixture_of_two(seed):
    rng = np.random.default_rng(seed)
    usd, accuracy = rng.uniform(0.1, 5.0, 5), rng.random(5)
    budgets = np.geomspace(usd.min(), usd.max(), 9)
    found = float(Mixtures(usd.tolist()).value(accuracy))
    assert found == pytest.approx(brute_value(accuracy, usd, budgets), abs=2e-3)


def test_models_of_one_price_are_worth_the_best_of_them():
    assert float(Mixtures([1.0, 1.0]).value(np.array([0.2, 0.7]))) == pytest.approx(0.7)


def test_the_gain_is_what_draws_from_the_posterior_show():
    mixtures, right, asked = Mixtures([1.0, 3.0, 9.0]), [12.0, 5.0, 6.0], [20, 8, 8]
    gains, rng, n = Gains(mixtures, right, asked), np.random.default_rng(0), 8
    mean = np.mean([12 / 20, 5 / 8, 6 / 8])
    a = np.array(right) + 2 * mean
    b = np.array(asked) - np.array(right) + 2 * (1 - mean)
    drawn = rng.binomial(n, rng.beta(a[1], b[1], 40_000))
    after = np.tile(a / (a + b), (len(drawn), 1))
    after[:, 1] = (a[1] + drawn) / (a[1] + b[1] + n)
    found = mixtures.value(after).mean() - float(mixtures.value(a / (a + b)))
    assert gains.of(1, n) == pytest.approx(found, abs=1e-3)
    assert gains.of(1, 0) == 0.0
    assert all(gains.of(m, k) >= -1e-12 for m in range(3) for k in (1, 4, 16))


def test_a_model_that_cannot_be_best_any_more_is_not_asked():
    mixtures = Mixtures([1.0, 2.0, 4.0])
    bought = purchases(Gains(mixtures, [32.0, 0.0, 30.0], [40, 60, 40]), [1.0, 2.0, 4.0], [99] * 3, 60.0, 1000.0)
    assert bought
    assert 1 not in bought


def test_a_round_is_filled_by_dollars_and_no_batch_exceeds_what_is_left():
    usd = [1.0, 2.0, 4.0]
    gains = Gains(Mixtures(usd), [1.0, 1.0, 1.0], [2, 2, 2])
    bought = purchases(gains, usd, [99] * 3, 30.0, 1000.0)
    assert 30.0 <= sum(usd[model] for model in bought) <= 30.0 + max(AT_ONCE) * max(usd)
    assert sum(usd[model] for model in purchases(gains, usd, [99] * 3, 30.0, 7.0)) <= 7.0
    assert purchases(gains, usd, [0, 0, 0], 30.0, 1000.0) == []


def test_nothing_known_asks_all():
    usd = [1.0, 1.5, 2.0]
    bought = purchases(Gains(Mixtures(usd), [0.0] * 3, [0] * 3), usd, [99] * 3, 60.0, 1000.0)
    assert set(bought) == {0, 1, 2}


def test_the_chance_to_be_the_strongest_is_that_of_draws():
    right, asked = [27.0, 6.0, 3.5, 0.0], [40, 8, 4, 0]
    a, b = posterior(right, asked)
    drawn = np.random.default_rng(0).beta(a, b, (200_000, 4)).argmax(axis=1)
    found = chances_to_be_strongest(right, asked)
    assert found == pytest.approx(np.bincount(drawn, minlength=4) / len(drawn), abs=0.005)
    assert found.sum() == pytest.approx(1.0)


def test_few_answers_of_a_good_model_may_outweigh_many_of_a_worse_one():
    """By means that are pulled together the model with many rows would be named."""
    assert chances_to_be_strongest([60.0, 4.0, 20.0], [100, 5, 60]).argmax() == 1
