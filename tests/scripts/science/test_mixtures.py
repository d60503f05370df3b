"""The concave frontier holds what no mixture beats, and mixtures spend what is asked."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from science.mixtures import Mixture, concave_frontier, mixture_at

from vinelm.errors import ConfigError
from vinelm.evaluation.plans.path_plans import pareto_frontier

AMOUNT = st.floats(0.001, 100.0)
POINTS = st.lists(st.tuples(AMOUNT, st.floats(0.0, 1.0)), min_size=1, max_size=12)


def test_a_point_below_the_line_between_two_others_is_not_on_the_concave_frontier():
    points = [(1.0, 0.1), (2.0, 0.2), (3.0, 0.9), (4.0, 0.95)]
    assert pareto_frontier(points) == [0, 1, 2, 3]
    assert concave_frontier(points) == [0, 2, 3]


@given(POINTS, st.floats(0.0, 1.0), st.data())
def test_no_mixture_of_two_points_beats_the_concave_frontier(points, share, data):
    one, other = (data.draw(st.sampled_from(points)) for _ in range(2))
    spend, value = ((1 - share) * a + share * b for a, b in zip(one, other, strict=True))
    best = [points[i] for i in concave_frontier(points)]
    if spend >= best[0][0]:
        assert mixture_at([p[0] for p in best], spend).of([p[1] for p in best]) >= value - 1e-9


@given(st.lists(AMOUNT, min_size=1, max_size=8), AMOUNT)
def test_a_mixture_spends_what_is_asked_between_the_cheapest_and_the_dearest_plan(spends, spend):
    mixture = mixture_at(spends, spend)
    assert 0.0 <= mixture.share < 1.0 or mixture.low == mixture.high
    assert mixture.of(spends) == pytest.approx(np.clip(spend, min(spends), max(spends)))
    nearest = [amount for amount in spends if spends[mixture.low] < amount < spends[mixture.high]]
    assert not nearest


def test_values_of_single_requests_are_mixed_as_well():
    assert mixture_at([3.0, 1.0], 1.5) == Mixture(1, 0, 0.25)
    np.testing.assert_allclose(mixture_at([3.0, 1.0], 1.5).of([[1.0, 0.0], [0.0, 0.0]]), [0.25, 0.0])


@pytest.mark.parametrize(("spends", "spend"), [([], 1.0), ([1.0, float("nan")], 1.0), ([1.0], float("inf"))])
def test_amounts_that_are_none_are_refused(spends, spend):
    with pytest.raises(ConfigError, match="finite"):
        mixture_at(spends, spend)
