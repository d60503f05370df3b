"""Our distribution function of the normal distribution against SciPy's."""

import numpy as np
from scipy.special import ndtr

from vinelm.controller.planning.contingent.grid import normal_cdf


def test_it_is_that_of_scipy():
    values = np.concatenate([np.linspace(-45.0, 45.0, 20_001), np.random.default_rng(0).normal(0.0, 3.0, 20_000)])
    np.testing.assert_allclose(normal_cdf(values), ndtr(values), rtol=0.0, atol=3e-16)
    inside = values[np.abs(values) < 5.0]
    np.testing.assert_allclose(normal_cdf(inside), ndtr(inside), rtol=1e-9)


def test_it_has_the_shape_of_its_argument_and_keeps_the_ends():
    found = normal_cdf(np.array([[-np.inf, 0.0], [np.inf, np.nan]]))
    assert found.shape == (2, 2)
    assert found[0, 0] < 1e-290
    assert found[0, 1] == 0.5
    assert found[1, 0] == 1.0
    assert np.isnan(found[1, 1])
