"""Reach and the mass of "class j is right" of every history, against all sequences of answers written out."""

import numpy as np
import pytest
from kit.worlds.outcomes import chain, every_history, random_predictive, sequences

from vinelm.estimator.signals.histories import _numbered, histories
from vinelm.estimator.signals.history_level import best_class

SMALL = [(2, 2, 2), (2, 2, 3), (3, 2, 2), (1, 3, 3), (2, 3, 2)]


def stages_of(models, depth):
    return [("generate" if d == 0 else "repair", models) for d in range(depth)]


@pytest.mark.parametrize("goes_on", [False, True])
@pytest.mark.parametrize("follows", [False, True])
@pytest.mark.parametrize(("n_models", "depth", "n_labels"), SMALL)
def test_histories_are_the_sums_over_all_sequences_of_answers(n_models, depth, n_labels, follows, goes_on):
    rng = np.random.default_rng([n_models, depth, n_labels, follows, goes_on])
    models = tuple(f"m{i}" for i in range(n_models))
    stages = stages_of(models, depth)
    fits = int(rng.integers(1, 3))
    model = random_predictive(rng, n_models=n_models, depth=depth, n_labels=n_labels, fits=fits, follows=follows)
    levels = histories(model, chain(stages), models, goes_on=goes_on, least_reach=0.0)
    reach, right, by_fit = every_history(model, stages, models, goes_on=goes_on)
    found = sequences(levels)
    assert {history for level in found for history in level} == set(reach)
    for level, known in zip(levels, found, strict=True):
        assert known == sorted(known, key=lambda history: [(m, kind, label) for m, label, kind in history])
        np.testing.assert_allclose(level.reach, [reach[h] for h in known], rtol=0, atol=1e-12)
        np.testing.assert_allclose(level.right, [[right[h][j] for j in range(depth)] for h in known], rtol=0, atol=1e-12)
        best = level.right.argmax(axis=1).tolist()
        np.testing.assert_allclose(
            level.spread, [by_fit[h][j] + np.zeros(fits) for h, j in zip(known, best, strict=True)], rtol=0, atol=1e-12
        )
        np.testing.assert_allclose(level.spread.mean(axis=1), level.right.max(axis=1), rtol=0, atol=1e-12)


def test_of_very_many_histories_only_the_likeliest_are_continued(monkeypatch):
    """The histories that are left keep their reach: the bound drops whole histories and changes none."""
    rng = np.random.default_rng(3)
    models = ("m0", "m1")
    model = random_predictive(rng, depth=5, n_labels=2, fits=2, follows=False)
    stages = stages_of(models, 5)
    everything = histories(model, chain(stages), models, goes_on=True)
    monkeypatch.setattr("vinelm.estimator.signals.histories.MOST_ROWS", 60)
    monkeypatch.setattr("vinelm.estimator.signals.histories.MOST_LAST_ROWS", 90)
    fewer = histories(model, chain(stages), models, goes_on=True)
    assert [len(level) for level in fewer[:2]] == [len(level) for level in everything[:2]]
    assert len(fewer[-1]) < len(everything[-1]) / 4
    whole = dict(zip(sequences(everything)[-1], everything[-1].reach.tolist(), strict=True))
    for history, reach in zip(sequences(fewer)[-1], fewer[-1].reach.tolist(), strict=True):
        assert reach == pytest.approx(whole[history])
    for level in fewer[1:-1]:
        if not level.is_open.all() and level.is_open.any():
            assert level.reach[level.is_open].min() >= np.median(level.reach[~level.is_open])


@pytest.mark.parametrize("seed", range(10))
def test_the_outcomes_of_each_model_sum_to_its_history(seed):
    rng = np.random.default_rng(seed)
    models = ("m0", "m1")
    model = random_predictive(rng, depth=3, n_labels=3, fits=2, follows=bool(seed % 2))
    before = None
    for level in histories(model, chain(stages_of(models, 3)), models, goes_on=bool(seed % 3), least_reach=0.0):
        parents = np.ones(1) if before is None else before.reach
        is_open = np.ones(1, bool) if before is None else before.is_open
        for m in range(2):
            total = np.bincount(level.parent, level.reach * (level.model == m), len(parents))
            np.testing.assert_allclose(total, np.where(is_open, parents, 0.0), rtol=0, atol=1e-12)
        assert (level.right <= level.reach[:, None] + 1e-12).all()
        before = level


def test_the_size_is_the_mean_over_the_requests_with_the_history():
    rng = np.random.default_rng(5)
    model = random_predictive(rng, points=3)
    (first, _) = histories(model, chain(stages_of(("m0", "m1"), 2)), ("m0", "m1"), goes_on=True, least_reach=0.0)
    for m in range(2):
        at = first.model == m
        assert first.reach[at] @ first.size[at] == pytest.approx(1.0, abs=1e-12)
    assert np.ptp(first.size) > 0.01


def test_unlikely_histories_are_not_continued():
    model = random_predictive(np.random.default_rng(1), depth=3, n_labels=3)
    every = histories(model, chain(stages_of(("m0", "m1"), 3)), ("m0", "m1"), goes_on=True, least_reach=0.0)
    likely = histories(model, chain(stages_of(("m0", "m1"), 3)), ("m0", "m1"), goes_on=True, least_reach=0.05)
    for level in likely[:-1]:
        np.testing.assert_array_equal(level.is_open, level.reach >= 0.05)
    kept = dict(zip(sequences(every)[1], every[1].reach, strict=True))
    assert 0 < len(likely[1]) < len(every[1])
    for history, reach in zip(sequences(likely)[1], likely[1].reach, strict=True):
        assert reach == pytest.approx(kept[history], abs=1e-12)


def test_a_history_that_no_known_model_can_continue_is_closed():
    """No row has asked a model again: after m0 the repair stage, which runs on m0 alone, has nothing to offer."""
    model = random_predictive(np.random.default_rng(2), again=False)
    stages = [("generate", ("m0", "m1")), ("repair", ("m0",))]
    first, second = histories(model, chain(stages), ("m0", "m1"), goes_on=True, least_reach=0.0)
    np.testing.assert_array_equal(first.is_open, first.model == 1)
    assert set(second.model.tolist()) == {0}
    (alone,) = histories(model, chain([stages[0], ("repair", ("m9",))]), ("m0", "m1", "m9"), goes_on=True, least_reach=0.0)
    assert not alone.is_open.any()


def test_of_equally_probable_classes_the_first_is_returned_whatever_the_rounding():
    right = np.array([[0.3, 0.3 + 1e-16, 0.1], [0.2 - 1e-16, 0.1, 0.2], [0.1, 0.1 + 1e-9, 0.0], [0.0, 0.0, 0.0]])
    assert best_class(right).tolist() == [0, 0, 1, 0]


@pytest.mark.parametrize("spread", [1, 1 << 24])
def test_codes_are_numbered_as_by_unique(spread):
    code = np.random.default_rng(3).integers(0, 50, 400) * spread
    codes, of = np.unique(code, return_inverse=True)
    first, numbers = _numbered(code)
    np.testing.assert_array_equal(code[first], codes)
    np.testing.assert_array_equal(numbers, of)
