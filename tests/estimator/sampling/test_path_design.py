"""The gains of single nodes, and the chances with which they are drawn."""

import random
from collections import Counter

import numpy as np
import pytest

from vinelm.estimator.sampling.draws import draw_index
from vinelm.estimator.sampling.path_design import PathDesign, QuestionDesign


class Open:
    """Candidates at some nodes, without end."""

    def __init__(self, is_open):
        self._is_open = np.array(is_open)

    def open_nodes(self):
        return self._is_open

    def is_open(self, node):
        return bool(self._is_open[node])


def test_without_anything_shared_the_gain_is_neymans():
    """Independent effects: one more answer takes w c^2 t / (1 + w c) off, and learning n answers is n single ones."""
    covariance, target = np.diag([0.5, 2.0]), np.diag([1.0, 3.0])
    design = QuestionDesign(np.eye(2), covariance, target, np.array([0.25, 0.1]))
    np.testing.assert_allclose(design.gain(), [0.25 * 0.25 / 1.125, 0.1 * 4.0 * 3.0 / 1.2])
    one, many = (QuestionDesign(np.eye(2), covariance, target, np.array([0.25, 0.1])) for _ in range(2))
    for _ in range(3):
        one.condition(1, 1)
    many.condition(1, 3)
    np.testing.assert_allclose(one.covariance, many.covariance)
    assert many.gain()[1] < design.gain()[1]


def new_design(portion=1):
    rows = np.vstack((np.zeros(3), np.eye(3)))
    question = QuestionDesign(rows, np.diag([1.0, 1.1, 0.9]), np.eye(3), np.full(4, 0.2))
    return PathDesign([question], np.array([1.0, 1.0, 1.05, 0.9]), portion)


def test_the_chance_of_a_node_is_how_often_it_is_drawn():
    candidates = Open([False, True, True, False])
    drawn = [new_design().draw(candidates, random.Random(seed)) for seed in range(3000)]
    chance = dict(drawn)
    assert sum(chance.values()) == pytest.approx(1.0)
    assert set(chance) == {1, 2}
    for node, n in Counter(found.node for found in drawn).items():
        assert n / 3000 == pytest.approx(chance[node], abs=4 * 0.5 / 3000**0.5)


def test_a_node_that_was_asked_is_worth_less_and_a_closed_one_nothing():
    design, rng, candidates = new_design(portion=20), random.Random(0), Open([False, True, True, True])
    before = design.draw(candidates, rng)
    for _ in range(40):
        design.draw(candidates, rng)
    later = design.draw(candidates, rng)
    assert later.chance != before.chance
    assert new_design().draw(Open([False] * 4), rng) is None


def test_an_index_is_drawn_in_proportion_to_its_weight():
    weights = np.array([0.0, 3.0, 1.0, 0.0])
    drawn = [draw_index(weights, random.Random(seed)) for seed in range(4000)]
    assert dict(drawn) == {1: 0.75, 2: 0.25}
    assert np.mean([found.node == 1 for found in drawn]) == pytest.approx(0.75, abs=0.03)
