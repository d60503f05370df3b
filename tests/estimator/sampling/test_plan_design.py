"""Rows for the decision: which models and nodes are drawn, and with what chance."""

import random
from collections import Counter

import numpy as np
import pytest
from answer_worlds import World, path_trie

from vinelm.estimator.observation_table import ObservationTable
from vinelm.estimator.sampling.contested import PlanContest
from vinelm.estimator.sampling.goal import Goal
from vinelm.estimator.sampling.plan_design import PlanDesign


class Open:
    """Candidates at the nodes that are named, without end."""

    def __init__(self, *nodes):
        self._nodes = set(nodes)

    def is_open(self, node):
        return node in self._nodes


@pytest.fixture(scope="module")
def trie():
    return path_trie().trie


def design(trie, contested, n_rows, usd=1.0):
    share = np.zeros(len(trie))
    for node, value in contested.items():
        share[node] = value
    return PlanDesign(trie, share, np.array(n_rows, float), np.full(len(trie), usd))


def test_the_chance_of_a_node_is_how_often_it_is_drawn(trie):
    first = [trie.child(0, name) for name in trie.models]
    deep = trie.child(first[0], trie.models[1])
    contested = {first[0]: 0.2, first[1]: 0.1, deep: 0.3}
    for candidates in (Open(*first, deep), Open(*first), Open(first[0], deep)):
        drawn = [design(trie, contested, [9, 9, 9]).draw(candidates, random.Random(seed)) for seed in range(2000)]
        chance = dict(drawn)
        assert sum(chance.values()) == pytest.approx(1.0)
        for node, n in Counter(found.node for found in drawn).items():
            assert candidates.is_open(node)
            assert n / 2000 == pytest.approx(chance[node], abs=4 * 0.5 / 2000**0.5)


def test_a_node_without_a_request_stands_aside_for_the_models_first_answer(trie):
    first = [trie.child(0, name) for name in trie.models]
    deep = trie.child(first[0], trie.models[1])
    assert design(trie, {deep: 0.3}, [9, 9, 9]).draw(Open(*first), random.Random(0)).node == first[1]
    assert design(trie, {deep: 0.3}, [9, 9, 9]).draw(Open(first[0]), random.Random(0)) is None
    assert design(trie, {}, [9, 9, 9]).draw(Open(*first), random.Random(0)) is None


def test_rows_follow_what_is_contested_and_the_price(trie):
    """n in proportion to D / sqrt(c), rows that exist included."""
    first = [trie.child(0, name) for name in trie.models]
    usd = np.ones(len(trie))
    usd[first[1]] = 4.0
    share = np.zeros(len(trie))
    share[first[0]], share[first[1]] = 0.3, 0.6
    made, rng = PlanDesign(trie, share, np.array([300.0, 0.0, 0.0]), usd), random.Random(0)
    drawn = Counter(made.draw(Open(*first), rng).node for _ in range(1700))
    assert (300 + drawn[first[0]]) / drawn[first[1]] == pytest.approx(1.0, abs=0.1)


def test_a_cap_and_a_floor_look_at_the_plans_next_to_them():
    contests = [
        PlanContest(usd, right, np.eye(4)[i]) for i, (usd, right) in enumerate([(4, 0.9), (3, 0.8), (2, 0.7), (1, 0.5)])
    ]
    for goal, nodes in {
        "everything": [1, 1, 1, 1], "frontier": [1, 1, 1, 1], "cap:2.5": [0, 1, 1, 0], "cap:0.5": [0, 0, 0, 1],
        "cap:9": [1, 0, 0, 0], "floor:0.6": [0, 0, 1, 1], "floor:0.8": [1, 1, 0, 0],
    }.items():  # fmt: skip
        np.testing.assert_array_equal(Goal.parse(goal).contested(contests), nodes)


def test_it_is_made_from_rows_that_show_answers():
    annotated = path_trie()
    world = World.draw(np.random.default_rng(0), 60)
    rows = list(world.rows(lambda request: ((0, 1), (1, 2)) if request % 2 else ((2, 0),)))
    cells = ObservationTable.from_observations(rows, annotated.template, annotated.trie)
    made = PlanDesign.of(rows, cells, annotated.template, Goal(), np.ones(len(annotated.trie)))
    first = [annotated.trie.child(0, name) for name in annotated.trie.models]
    assert made.draw(Open(*first), random.Random(0)).node in first
