"""What rivals are tried on is drawn from the model of answers that signals are planned by."""

import numpy as np
import pytest
from kit.outcome_tables import catalog, random_outcomes

from vinelm.estimator import make_estimator
from vinelm.estimator.signals.first_answers import FirstAnswers
from vinelm.evaluation.rivals import Evidence
from vinelm.evaluation.rivals.votes import TwoAgreePolicy
from vinelm.requests.protocols import RequestPath
from vinelm.template import Loop, Stage, Template


@pytest.fixture(scope="module")
def everything():
    """Every system's answer to every request, and the evidence of it."""
    table = random_outcomes(300, 4, seed=6)
    template = Template((Stage("answer"), Loop((Stage("retry"),), times=3))).bind(table.systems)
    paths = [RequestPath(request_id, table.systems, goes_on=True) for request_id in table.request_ids]
    rows = table.observations(paths, template)
    return table, Evidence(rows, make_estimator("cascade").fit(rows, template, catalog(table)).annotated_, 4)


def test_a_policy_is_judged_on_drawn_requests_as_on_real_ones(everything):
    table, evidence = everything
    policy = TwoAgreePolicy(("a", "c", "d"), ("d", "c", "b", "a"))
    drawn, real = policy.run(evidence.drawn), policy.run(table)
    assert drawn.success.mean() == pytest.approx(real.success.mean(), abs=0.05)
    assert drawn.cost_usd.mean() == pytest.approx(real.cost_usd.mean(), rel=0.06)


def test_drawn_requests_have_what_the_rows_had(everything):
    table, evidence = everything
    drawn = evidence.drawn
    assert drawn.systems == table.systems == evidence.systems
    assert drawn.labels == table.labels
    assert np.allclose(drawn.passed.mean(axis=0), table.passed.mean(axis=0), atol=0.05)
    for signal in range(len(table.labels)):
        assert np.allclose((drawn.signal == signal).mean(axis=0), (table.signal == signal).mean(axis=0), atol=0.05)


def test_a_system_without_rows_is_beyond_every_budget(everything):
    table, evidence = everything
    rows = [row for row in evidence.rows if "b" not in row.prefix]
    lacking = Evidence(rows, evidence.estimate, 4)
    assert isinstance(lacking.model, FirstAnswers)
    assert lacking.drawn.cost_usd[:, table.column["b"]].min() > 1e200
