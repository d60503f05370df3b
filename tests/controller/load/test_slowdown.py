import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vinelm.controller import SlowdownCurve
from vinelm.controller.load.slowdown import fit_slowdown, spread_curve
from vinelm.errors import EvidenceError


@given(st.lists(st.tuples(st.integers(0, 8), st.floats(0, 50)), min_size=1, max_size=40))
def test_a_fitted_curve_never_falls_and_is_the_best_of_those_that_do_not(points):
    requests, latency = zip(*points, strict=True)
    curve = fit_slowdown(requests, latency)
    values = [curve.at(n) for n in np.linspace(0, 12, 49)]
    assert values[0] == 0
    assert (np.diff(values) >= -1e-9).all()
    levels = sorted(set(requests))
    mean = {n: np.mean([y for x, y in points if x == n]) for n in levels}
    weight = {n: sum(x == n for x in requests) for n in levels}
    fitted = np.array([curve.at(n) for n in levels])
    offset = sum(weight[n] * (mean[n] - f) for n, f in zip(levels, fitted, strict=True)) / len(points)

    def misfit(heights):
        return sum(weight[n] * (mean[n] - h) ** 2 for n, h in zip(levels, heights, strict=True))

    best = misfit(fitted + offset)
    rng = np.random.default_rng(0)
    for _ in range(20):  # every other rising line fits worse
        other = np.maximum.accumulate(fitted + offset + rng.normal(0, 1, len(levels)))
        assert misfit(other) >= best - 1e-6


def test_between_and_beyond_the_points_it_is_linear():
    curve = SlowdownCurve((0.0, 2.0, 4.0), (0.0, 1.0, 3.0))
    assert [curve.at(n) for n in (0, 1, 2, 3, 4, 6)] == [0, 0.5, 1, 2, 3, 5]
    assert SlowdownCurve.from_dict(curve.to_dict()) == curve


def test_without_measurements_there_is_no_curve():
    with pytest.raises(EvidenceError, match="measurements"):
        fit_slowdown([], [])


def test_a_group_of_engines_is_as_slow_as_its_engines_with_their_part_of_the_requests():
    slow, fast = SlowdownCurve((0.0, 4.0), (0.0, 8.0)), SlowdownCurve((0.0, 2.0), (0.0, 2.0))
    both = spread_curve([slow, fast])
    assert [both.at(n) for n in (0.0, 4.0, 8.0, 16.0)] == pytest.approx([0.0, 3.0, 6.0, 12.0])
    assert spread_curve([slow]) == slow
