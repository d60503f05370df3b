"""The model of first answers finds what its rows were drawn from."""

import math
from dataclasses import replace

import numpy as np
import pytest
from random_outcomes import random_outcomes

from vinelm.errors import EvidenceError
from vinelm.evaluation.rivals import AnswerModel, TwoAgreePolicy
from vinelm.protocols import RequestPath
from vinelm.template import Loop, Stage, Template

TEMPLATE = Template((Stage("answer"), Loop((Stage("retry"),), times=3)))


@pytest.fixture(scope="module")
def everything():
    """Every system's answer to every request."""
    table = random_outcomes(600, 4, seed=6)
    paths = [RequestPath(request_id, table.systems, goes_on=True) for request_id in table.request_ids]
    return table, table.observations(paths, TEMPLATE)


def test_shares_that_were_seen_are_drawn_again(everything):
    table, rows = everything
    drawn = AnswerModel.fit(rows, table.systems).draw(20_000)
    assert np.allclose(drawn.success.mean(axis=0), table.success.mean(axis=0), atol=0.03)
    assert np.allclose(drawn.passed.mean(axis=0), table.passed.mean(axis=0), atol=0.03)
    assert np.allclose(drawn.cost_usd.mean(axis=0), table.cost_usd.mean(axis=0), rtol=0.01)
    assert np.allclose((drawn.answer_class < 0).mean(axis=0), (table.answer_class < 0).mean(axis=0), atol=0.03)
    together = (table.success[:, 0] & table.success[:, 3]).mean()
    assert (drawn.success[:, 0] & drawn.success[:, 3]).mean() == pytest.approx(together, abs=0.03)


def test_wrong_answers_agree_as_often_as_they_did(everything):
    table, rows = everything
    model = AnswerModel.fit(rows, table.systems)
    assert model.usual**2 == pytest.approx(1 / 3, abs=0.1)  # three kinds of wrong answer, and answers missing
    drawn = model.draw(20_000)
    wrong = ~drawn.success[:, :2].any(axis=1) & (drawn.answer_class[:, :2] >= 0).all(axis=1)
    same = drawn.answer_class[wrong, 0] == drawn.answer_class[wrong, 1]
    assert same.mean() == pytest.approx(model.usual**2, abs=0.04)


def test_a_policy_is_judged_on_drawn_requests_as_on_real_ones(everything):
    table, rows = everything
    policy = TwoAgreePolicy(("a", "c", "d"), ("d", "c", "b", "a"))
    drawn, real = policy.run(AnswerModel.fit(rows, table.systems).draw(20_000)), policy.run(table)
    assert drawn.success.mean() == pytest.approx(real.success.mean(), abs=0.04)
    assert drawn.cost_usd.mean() == pytest.approx(real.cost_usd.mean(), rel=0.05)


def test_equal_rows_give_equal_draws_in_any_order(everything):
    table, rows = everything
    one, other = (AnswerModel.fit(some, table.systems).draw(50) for some in (rows[:200], rows[:200][::-1]))
    assert np.array_equal(one.success, other.success)
    assert np.array_equal(one.answer_class, other.answer_class)


def test_a_system_without_rows_is_beyond_every_budget(everything):
    table, rows = everything
    model = AnswerModel.fit([row for row in rows if row.model != "b"], table.systems)
    assert math.isinf(model.cost_usd[1])
    assert model.draw(10).cost_usd[:, 1].min() > 1e200


def test_without_outcomes_nothing_can_be_said(everything):
    table, rows = everything
    with pytest.raises(EvidenceError, match="no row says"):
        AnswerModel.fit([replace(rows[0], success=None, stopped=None, failure="timeout")], table.systems)
