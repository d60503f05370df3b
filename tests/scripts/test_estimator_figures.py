"""What the pages quote of the estimators' benchmark is what it measured, in its place."""

import pytest
from estimator_figures import page_figures as figures


def result(estimator, mae, sampler="cascade"):
    return {"table": "t 8x3", "sampler": sampler, "coverage": 0.02, "estimator": estimator, "seeds": 5, "mae": mae}


def test_a_row_has_all_estimators_and_the_ratio_of_their_errors():
    row = figures([result("latent", 0.01), result("cascade-svd", 0.04)])["tables"]["t 8x3, 2 %"]
    assert (row["table"], row["share"], row["seeds"]) == ("t 8x3", "2 %", 5)
    assert row["latent"] == {"seeds": 5, "mae": 0.01}
    assert row["ratio"] == pytest.approx(0.25)


def test_several_samplers_are_told_apart():
    row = figures([result("latent", 0.01), result("latent", 0.02, "priced")])["tables"]["t 8x3, 2 %"]
    assert (row["latent by cascade"]["mae"], row["latent by priced"]["mae"]) == (0.01, 0.02)
    assert "ratio" not in row


def test_dollars_and_long_loops_have_rows_of_their_own():
    dear = {"table": "dear", "sampler": "cascade", "coverage": 0.005, "estimator": "latent", "seeds": 2, "cost_bias": [0.01]}
    found = figures([dear, {"table": "agent", "walks": 300, "estimator": "latent", "seeds": 2, "mae": 0.02}])
    assert found["dollars"]["dear, 0.5 %"]["latent"]["cost_bias"] == [0.01]
    assert list(found["tables"]) == ["agent, 300 walks"]
