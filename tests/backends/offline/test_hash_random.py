import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vinelm.backends.offline.simulated import digest, exp, generator, normal, uniform


def test_draws_are_pinned():
    """Another machine, another Python: the same figures to the last bit."""
    assert normal(7, "q1", "fresh") == 1.3888834842613553
    assert uniform(7, "q1", "kind") == 0.14714271840793214
    assert exp(0.3).hex() == "0x1.599058c151f82p+0"
    assert generator(7, "q1").random() == 0.7202569633958206


def test_names_do_not_run_into_each_other():
    assert digest("ab", "c") != digest("a", "bc")


@given(st.floats(-4, 4))
def test_exp_is_the_exponential(x):
    assert exp(x) == pytest.approx(math.exp(x), rel=1e-4)


def test_normal_has_mean_0_and_variance_1():
    draws = [normal("moments", i) for i in range(20_000)]
    assert abs(statistics.fmean(draws)) < 0.03
    assert statistics.pstdev(draws) == pytest.approx(1.0, abs=0.02)
    assert sum(abs(d) < 1 for d in draws) / len(draws) == pytest.approx(0.683, abs=0.015)


def test_uniform_fills_the_unit_interval():
    draws = sorted(uniform("u", i) for i in range(5_000))
    assert draws[0] >= 0.0
    assert draws[-1] < 1.0
    assert max(abs(d - i / len(draws)) for i, d in enumerate(draws)) < 0.03
