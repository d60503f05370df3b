"""The promises of `scripts/promises.py` hold more often than the intervals that ignored the choice of the best path."""

import numpy as np
import promises
import pytest


@pytest.mark.long
def test_promises_are_kept_more_often_and_are_less_optimistic():
    """Ten worlds, not those of the documented figures."""
    sample = promises.applications(None, 100)["simulated: retry 8x3"]
    rows = [row for seed in range(400, 410) for row in promises.trial(sample(seed), 0.002, seed)]
    found = promises.summary(rows)
    assert found["plans"] == 40
    assert found["all"]["promise"]["in_interval"] >= 0.85 > found["all"]["old"]["in_interval"]
    assert abs(found["all"]["gap"]) < found["all"]["gap_old"]
    assert promises._line("app", 0.002, found).startswith("app")


@pytest.mark.long
def test_intervals_are_no_wider_than_they_have_to_be():
    sample = promises.applications(None, 100)["simulated: retry 8x3"]
    found = promises.summary([row for seed in range(400, 403) for row in promises.trial(sample(seed), 0.02, seed)])
    assert found["all"]["promise"]["width"] <= 1.25 * found["all"]["old + n"]["width"] <= 25.0


def test_the_same_seed_gives_the_same_rows():
    sample = promises.applications(None, 40)["simulated: evaluator 3x6"]
    first, second = (list(promises.trial(sample(3), 0.002, 3)) for _ in range(2))
    assert first == second


def test_without_plans_nothing_is_averaged():
    table, _ = promises.applications(None, 40)["simulated: evaluator 3x6"](3)
    assert table.template.stop == "workflow"
    assert not table.success[:, ~table.trie.answerable].any()
    assert np.isfinite(table.cost_usd).all()
    assert promises._mean([], lambda row: row) is None
