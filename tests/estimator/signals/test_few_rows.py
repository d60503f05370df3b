"""Models of few rows: what the prior says of them, and that the fits differ where it decides."""

from dataclasses import replace

import numpy as np
import pytest
from kit.worlds.answers import World

from vinelm.estimator.signals.answer_model import fit_answers
from vinelm.estimator.signals.answers import AnswerTable
from vinelm.estimator.signals.course import Course
from vinelm.estimator.signals.first_answers import FirstAnswers
from vinelm.estimator.signals.predictive import Predictive, prior_means

INVOCATIONS = Course.chain(("generate", "repair", "repair"))


def rows_of(world, dear):
    """First answers of two cheap models to every request, and of the dear one to a few."""
    paths = [[(0,), (1,), (2,)] if request < dear else [(0,), (1,)] for request in range(len(world))]
    return list(world.rows(lambda request: paths[request]))


def test_a_dear_model_of_few_rows_follows_the_trend_of_the_prices():
    """The models' abilities rise with their prices. Priced alike, the dear model is drawn to the mean of the cheap ones."""
    bias = {True: [], False: []}
    for seed in range(6):
        world = World.draw(np.random.default_rng(seed), 150, ability=(-1.5, 0.2, 2.0))
        rows = rows_of(world, 4)
        for is_priced, found_bias in bias.items():
            known = rows if is_priced else [replace(row, cost_usd=1.0) for row in rows]
            found = FirstAnswers.fit(known, ("m0", "m1", "m2"), fits=0)
            found_bias.append(found.accuracy[2] - world.right[:, 2].mean())
    assert np.mean(bias[False]) < -0.1
    assert np.mean(bias[False]) + 0.03 < np.mean(bias[True]) < 0.0


def test_rows_without_a_price_have_no_trend():
    rows = [replace(row, cost_usd=0.0) for row in rows_of(World.draw(np.random.default_rng(1), 60), 10)]
    table = AnswerTable.of(rows, INVOCATIONS)
    assert np.isfinite(fit_answers(table).right_effects).all()


def test_the_fits_differ_most_in_the_model_of_few_rows():
    world = World.draw(np.random.default_rng(2), 150)
    table = AnswerTable.of(rows_of(world, 3), INVOCATIONS)
    found = Predictive.of(table)
    accuracy = np.zeros((3, found.n_fits))
    for i, context in enumerate(found.contexts):
        if not context.is_later:
            mass = np.exp(found.log_types[i, 0] + found.log_weights) * found.n_fits
            accuracy[int(context.model[1:])] = np.bincount(found.fit, mass)
    spread = accuracy.std(axis=1)
    assert spread[2] > 1.5 * spread[:2].max()


def test_prior_means_add_up_to_nothing():
    drawn = prior_means(4, 8, seed=0)
    assert drawn.shape == (8, 2, 4)
    np.testing.assert_allclose(drawn.sum(axis=0), 0.0, atol=1e-12)
    np.testing.assert_array_equal(drawn, prior_means(4, 8, seed=0))
    assert drawn.std() == pytest.approx(1.0, abs=0.3)


def test_each_model_has_its_own_share_of_answers_that_only_agree_with_right_ones():
    """Of m0 every third answer is wrong but equal to a right one, of the others none."""
    world = World.draw(np.random.default_rng(3), 200)
    types = world.types.copy()
    types[::3, 0] = np.where((types[::3, 0] == 0) & (types[::3, 1] == 0), 2, types[::3, 0])
    shown = World(types, world.passed, world.odd)
    found = fit_answers(AnswerTable.of(shown.rows(lambda request: [(0,), (1,), (2,)]), INVOCATIONS))
    of_model = {context.model: float(found.alike[i]) for i, context in enumerate(found.contexts)}
    assert of_model["m0"] > 0.15
    assert max(of_model["m1"], of_model["m2"]) < 0.1


def test_a_long_loop_promises_the_dollars_of_its_later_turns():
    """Prompts carry their history: each turn costs half as much again as the first. Hardly any row is of a late turn."""
    world = World.draw(np.random.default_rng(3), 200)
    deep = [((0, 1, 2, 0), 4), ((2, 0, 1), 24), ((1, 2), 90), ((0, 1), 90), ((2, 0), 90)]
    rows = world.rows(lambda request: [path for path, n in deep if request < n])
    price = {"m0": 1.0, "m1": 2.0, "m2": 8.0}
    course = Course.chain(("generate", *["repair"] * 3))
    rows = list(rows)
    for growth in (0.5, 0.0):
        known = [replace(row, cost_usd=price[row.model] * (1.0 + growth * (row.depth - 1))) for row in rows]
        model = Predictive.of(AnswerTable.of(known, course), fits=0)
        late = [
            (c.model, usd)
            for c, usd in zip(model.contexts, model.cost_usd * model.rise(3), strict=True)
            if c.is_later and not c.is_again
        ]
        assert {name for name, _ in late} == {*price}
        for name, usd in late:  # the mean of all later rows of the model is 1.55 times its first
            assert usd == pytest.approx(price[name] * (1.0 + 3 * growth), rel=0.2), (name, growth)
