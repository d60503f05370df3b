from typing import Any

import numpy as np
import pytest

from vinelm.api import adaptive_sampler
from vinelm.errors import ConfigError
from vinelm.estimator import Goal
from vinelm.estimator.sampling.goal import LEAST_WEIGHT


@pytest.mark.parametrize("text", ["frontier", "floor:0.9", "cap:0.01", "everything"])
def test_a_goal_reads_back_what_it_says(text: str) -> None:
    assert str(Goal.parse(text)) == text


@pytest.mark.parametrize("text", ["", "best", "floor", "floor:90", "floor:x", "cap:-1", "cap:inf", "cap:nan", "frontier:2"])
def test_other_goals_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(ConfigError, match=r"goal is .*frontier, floor:0\.9"):
        Goal.parse(text)


def weights(made: Any, goal: str, sd: float = 0.05) -> tuple[Any, np.ndarray]:
    exact = made.table(0, models=3, requests=200).annotate()
    return exact, Goal.parse(goal).weights(exact, np.full(len(exact.trie), sd))


def test_where_everything_matters_every_answer_counts_alike(made: Any) -> None:
    exact, found = weights(made, "everything")
    np.testing.assert_array_equal(found, exact.trie.answerable.astype(float))


def test_the_frontier_itself_counts_in_full_and_what_is_beaten_less(made: Any) -> None:
    exact, found = weights(made, "frontier")
    cost, accuracy = exact.path_cost_usd[1:], exact.accuracy[1:]
    gap = np.array([accuracy[cost <= cost[u]].max() - accuracy[u] for u in range(len(cost))])
    np.testing.assert_allclose(found[1:][gap == 0], 1.0)
    order = np.argsort(gap)
    assert np.all(np.diff(found[1:][order]) <= 1e-12)


def test_a_cap_looks_below_it_and_a_floor_near_it(made: Any) -> None:
    exact = weights(made, "frontier")[0]
    cap = float(np.median(exact.path_cost_usd[1:]))
    _, found = weights(made, f"cap:{cap}")
    np.testing.assert_allclose(found[exact.path_cost_usd > 1.2 * cap], LEAST_WEIGHT)
    best = np.argmax(np.where(exact.path_cost_usd <= cap, exact.accuracy, 0.0))
    assert found[best] > 0.5
    floor = float(np.quantile(exact.accuracy[1:], 0.7))
    _, found = weights(made, f"floor:{floor}")
    meets = np.where(exact.accuracy >= floor, exact.path_cost_usd, np.inf)
    assert found[int(np.argmin(meets))] > 0.5
    assert found[1:][exact.accuracy[1:] < floor - 0.3].max(initial=0.0) <= LEAST_WEIGHT


def test_a_goal_that_nothing_meets_still_says_where_to_look(made: Any) -> None:
    for goal in ("cap:0", "floor:1"):
        _, found = weights(made, goal)
        assert np.all(np.isfinite(found))
        assert found.max() > 0


def test_a_goal_changes_what_is_bought(made: Any) -> None:
    table = made.table(0, models=3, requests=120)
    seen = made.sampled_rows(table, 0, 100)
    cap = float(np.quantile(table.annotate().path_cost_usd[1:], 0.2))
    walks = [
        list(adaptive_sampler(table.template, table.catalog, table.request_ids, 0, goal=goal).propose(1, seen))
        for goal in (Goal("everything"), Goal("cap", cap))
    ]
    cost = table.annotate().path_cost_usd
    mean = [np.mean([cost[table.trie.node(walk.path)] for walk in some]) for some in walks]
    assert mean[1] < mean[0]
