"""The learned scorer and its thresholds, against the same rules for one request at a time."""

import numpy as np
import pytest
from kit.outcome_tables import evidence, random_outcomes
from science.scored_cascade import AnswerScorer, ScoredCascade, ScoredCascadePolicy

from vinelm.requests.protocols import RequestPath
from vinelm.template import Loop, Stage, Template

TEMPLATE = Template((Stage("answer"), Loop((Stage("retry"),), times=3)))
TABLE = random_outcomes(400, 4, seed=7)


@pytest.fixture(scope="module")
def scorer():
    paths = [RequestPath(request_id, TABLE.systems, goes_on=True) for request_id in TABLE.request_ids]
    return AnswerScorer.fit(TABLE.observations(paths, TEMPLATE), TABLE.systems)


def test_agreement_speaks_for_an_answer_and_a_missing_one_scores_low(scorer):
    score = scorer.scores(TABLE, ("a", "b"))[:, 1]
    both = (TABLE.answer_class[:, :2] >= 0).all(axis=1)
    agree = both & (TABLE.answer_class[:, 0] == TABLE.answer_class[:, 1])
    assert score[agree].min() > score[both & ~agree].mean()
    assert score[TABLE.answer_class[:, 1] < 0].max() < 0.1


def test_scores_are_chances(scorer):
    score = scorer.scores(TABLE, ("d",))[:, 0]
    assert score.mean() == pytest.approx(TABLE.success[:, 3].mean(), abs=0.05)
    sure = score > score.mean()
    assert TABLE.success[sure, 3].mean() > TABLE.success[~sure, 3].mean()


def test_an_answer_is_returned_once_its_score_reaches_the_threshold(scorer):
    order, columns = ("b", "a", "d"), TABLE.columns(("b", "a", "d"))
    scores = scorer.scores(TABLE, order)
    thresholds = tuple(float(np.quantile(scores[:, i], 0.6)) for i in range(2))
    success, cost = ScoredCascadePolicy(order, thresholds, scorer).run(TABLE)
    ends = set()
    for row in range(len(TABLE)):
        end = next((i for i, level in enumerate(thresholds) if scores[row, i] >= level), 2)
        ends.add(end)
        assert success[row] == TABLE.success[row, columns[end]]
        assert cost[row] == pytest.approx(TABLE.cost_usd[row, columns[: end + 1]].sum())
    assert ends == {0, 1, 2}


def test_the_choice_is_the_best_estimate_within_the_budget():
    chooser = ScoredCascade().fit(evidence(random_outcomes(200, 4, seed=5)))
    for budget in (0.002, 0.005, 0.02):
        chosen = chooser.choose(budget)
        assert chosen.promised_cost_usd <= budget
        assert chosen.promised_accuracy == chooser.accuracy[chooser.cost_usd <= budget].max()
    assert chooser.choose(1e-6).promised_cost_usd == chooser.cost_usd.min()


def test_labels_that_were_never_bought_are_scored_without_them(scorer):
    one = random_outcomes(20, 4, seed=8)
    assert np.isfinite(AnswerScorer(scorer.systems, (), np.delete(scorer.coefficients, slice(5, 8))).scores(one, ("a",))).all()
