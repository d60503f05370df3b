"""Frontiers keep what nothing dominates."""

from hypothesis import given
from hypothesis import strategies as st

from vinelm.evaluation.plans.path_plans import pareto_frontier


def test_a_frontier_keeps_the_first_of_equal_points_and_rises():
    points = [(2.0, 0.5), (1.0, 0.4), (1.0, 0.4), (3.0, 0.5), (4.0, 0.9)]
    assert pareto_frontier(points) == [1, 0, 4]


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=12))
def test_pareto_keeps_exactly_the_undominated_points(points):
    kept = {points[i] for i in pareto_frontier(points)}
    undominated = {p for p in points if not any((q[0] <= p[0] and q[1] >= p[1]) and q != p for q in points)}
    assert kept == undominated
    assert len(pareto_frontier(points)) == len(kept)
