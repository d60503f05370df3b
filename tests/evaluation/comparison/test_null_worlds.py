"""How often the verdict is to switch where nothing is as good, and whether it sees a gain that is there."""

import pytest
from kit.worlds.verdicts import World


def switched(kind, seeds, folder):
    """Whether the verdict is to switch, by world."""
    return [World(kind, seed).evaluation(folder).verdict.advice == "switch" for seed in seeds]


@pytest.mark.long
def test_no_switch_from_the_model_that_is_best_and_cheapest_in_a_few_worlds(tmp_path):
    assert sum(switched("one-wins", range(4), tmp_path)) <= 1  # P(more | 5 %) = 1.4 %; the long test measures the share


def test_a_gain_is_seen(tmp_path):
    assert sum(switched("gain", range(3), tmp_path)) >= 2


@pytest.mark.long
def test_a_switch_from_the_best_and_cheapest_model_comes_in_at_most_five_percent_of_worlds(tmp_path):
    assert sum(switched("one-wins", range(1000, 1100), tmp_path)) <= 10


@pytest.mark.long
def test_most_gains_are_seen(tmp_path):
    assert sum(switched("gain", range(12), tmp_path)) >= 9
