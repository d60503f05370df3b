"""Frontiers keep what nothing dominates."""

from vinelm.evaluation import pareto_frontier


def test_a_frontier_keeps_the_first_of_equal_points_and_rises():
    points = [(2.0, 0.5), (1.0, 0.4), (1.0, 0.4), (3.0, 0.5), (4.0, 0.9)]
    assert pareto_frontier(points) == [1, 0, 4]
