"""How often `evaluate` claims a gain where there is none, and whether it sees one that is there."""

import pytest
from kit.worlds.verdicts import World

from vinelm.objective import Objective


def claims(kind, seeds, folder):
    """How many worlds are said to gain over the mean of the budgets, and how many under some budget."""
    found = [World(kind, seed).evaluation(folder) for seed in seeds]
    alone = [any(one.verdict == "gain" for one in world.by_budget) for world in found]
    return sum(world.verdict == "gain" for world in found), sum(alone)


def gains(seeds, folder):
    """Whether a gain is claimed without a budget, by world."""
    free = Objective(maximize="accuracy")
    return [World("gain", seed).evaluation(folder, free).verdict == "gain" for seed in seeds]


@pytest.mark.parametrize("kind", ["alike", "one-wins"])
@pytest.mark.long
def test_a_gain_is_not_claimed_in_a_few_worlds_without_one(kind, tmp_path):
    over_all, alone = claims(kind, range(4), tmp_path)
    assert over_all <= 1  # P(more | 5 %) = 1.4 %; the long test measures the share
    assert alone <= 1


def test_a_gain_is_seen(tmp_path):
    assert sum(gains(range(3), tmp_path)) >= 2


@pytest.mark.long
@pytest.mark.parametrize("kind", ["alike", "one-wins"])
def test_a_gain_is_claimed_in_at_most_five_percent_of_worlds_without_one(kind, tmp_path):
    worlds = 200
    over_all, alone = claims(kind, range(1000, 1000 + worlds), tmp_path)
    assert over_all / worlds <= 0.05
    assert alone / worlds <= 0.05


@pytest.mark.long
def test_most_gains_are_seen(tmp_path):
    assert sum(gains(range(12), tmp_path)) >= 9
