"""First answers drawn from the latent model are those that the rows were drawn from."""

import numpy as np
import pytest

from vinelm.errors import EvidenceError
from vinelm.estimator.signals.first_answers import FirstAnswers
from vinelm.rows.observation import Observation

MODELS = ("a", "b", "c")
ABILITY = np.array([-0.5, 0.5, 1.5])
COST_USD = np.array([0.001, 0.003, 0.009])


def rows(n, seed=0, *, label_of_class=False):
    """First answers to ``n`` requests: right ones agree, a wrong one is the usual mistake or its own, one in six is missing."""
    rng = np.random.default_rng(seed)
    found = []
    for r in range(n):
        ease, popular, shown = rng.normal(0, 1.5), rng.random() < 0.5, rng.random(9) < 0.5
        for m, name in enumerate(MODELS):
            right = rng.random() < 1 / (1 + np.exp(-ABILITY[m] - ease))
            missing = not right and rng.random() < 1 / 6
            kind = None if missing else 0 if right else 1 if popular and rng.random() < 0.8 else 2 + m
            passed = not missing and (bool(shown[kind]) if label_of_class else rng.random() < (0.9 if right else 0.4))
            found.append(
                Observation(
                    request_id=f"q{r}", prefix=(name,), stage="answer", success=bool(right), stopped=passed,
                    cost_usd=COST_USD[m], latency_s=1.0, answer_class=kind, signal="long" if passed else "short",
                )
            )  # fmt: skip
    return found


def share(found, what):
    return np.array([np.mean([what(row) for row in found if row.model == name]) for name in MODELS])


@pytest.fixture(scope="module")
def fitted():
    found = rows(500)
    return found, FirstAnswers.fit(found, MODELS, fits=2)


def test_shares_that_were_seen_are_expected_and_drawn(fitted):
    found, model = fitted
    drawn = model.draw(20_000, seed=1)
    right = share(found, lambda row: row.success)
    assert np.allclose(model.accuracy, right, atol=0.03)
    assert np.allclose(drawn.right.mean(axis=0), model.accuracy, atol=0.01)
    missing = share(found, lambda row: row.answer_class is None)
    assert np.allclose((drawn.answer_class < 0).mean(axis=0), missing, atol=0.03)
    passed = np.array([label.passed for label in drawn.labels])[drawn.label]
    assert np.allclose(passed.mean(axis=0), share(found, lambda row: row.stopped), atol=0.03)
    assert np.allclose(drawn.cost_usd.mean(axis=0), COST_USD, rtol=0.03)


def test_wrong_answers_agree_as_often_as_they_did(fitted):
    found, model = fitted
    drawn = model.draw(20_000, seed=1)
    kinds, right = ({row.request_id: {} for row in found} for _ in range(2))
    for row in found:
        kinds[row.request_id][row.model], right[row.request_id][row.model] = row.answer_class, row.success
    wrong = [(k["a"], k["b"]) for q, k in kinds.items() if not (right[q]["a"] or right[q]["b"]) and None not in k.values()]
    seen = np.mean([one == other for one, other in wrong])
    both = ~drawn.right[:, :2].any(axis=1) & (drawn.answer_class >= 0).all(axis=1)
    assert np.mean(drawn.answer_class[both, 0] == drawn.answer_class[both, 1]) == pytest.approx(seen, abs=0.08)


def test_right_answers_agree_and_nothing_agrees_with_an_own_mistake(fitted):
    drawn = fitted[1].draw(3_000, seed=2)
    assert (drawn.answer_class[drawn.right] == 0).all()
    own = drawn.answer_class >= 3
    assert own.any()
    assert ((drawn.answer_class == drawn.answer_class.max(axis=1, keepdims=True)) & own).sum(axis=1).max() == 1


def test_difficulty_makes_answers_depend_on_each_other(fitted):
    drawn = fitted[1].draw(20_000, seed=3)
    together = (drawn.right[:, 0] & drawn.right[:, 2]).mean()
    assert together > drawn.right[:, 0].mean() * drawn.right[:, 2].mean() + 0.03


def test_a_label_of_the_answer_is_that_of_its_class():
    model = FirstAnswers.fit(rows(300, label_of_class=True), MODELS, fits=0)
    assert model.predictive.label_follows_class
    drawn = model.draw(2_000, seed=1)
    same = (drawn.answer_class[:, 0] == drawn.answer_class[:, 2]) & (drawn.answer_class[:, 0] >= 0)
    assert same.any()
    assert (drawn.label[same, 0] == drawn.label[same, 2]).all()
    assert (drawn.label[~same, 0] != drawn.label[~same, 2]).any()


def test_the_order_of_rows_does_not_matter():
    found = rows(40)
    one, other = (FirstAnswers.fit(some, MODELS, fits=1).draw(100, seed=4) for some in (found, found[::-1]))
    assert np.array_equal(one.right, other.right)
    assert np.array_equal(one.answer_class, other.answer_class)
    assert np.array_equal(one.label, other.label)


def test_a_model_without_rows_is_never_right_and_never_paid_for():
    model = FirstAnswers.fit([row for row in rows(60) if row.model != "b"], MODELS, fits=0)
    drawn = model.draw(50, seed=1)
    assert model.accuracy[1] == 0.0
    assert not drawn.right[:, 1].any()
    assert (drawn.answer_class[:, 1] == -1).all()
    assert np.isinf(model.cost_usd[1])
    assert np.isinf(drawn.cost_usd[:, 1]).all()
    assert np.isfinite(drawn.cost_usd[:, [0, 2]]).all()


def test_without_first_answers_nothing_can_be_said():
    with pytest.raises(EvidenceError, match="no row is scored"):
        FirstAnswers.fit([], MODELS)
    later = Observation(
        request_id="q",
        prefix=("a", "b"),
        stage="retry",
        success=True,
        stopped=True,
        cost_usd=1.0,
        latency_s=1.0,
        answer_class=0,
    )
    with pytest.raises(EvidenceError, match="first answer"):
        FirstAnswers.fit([later], MODELS)
