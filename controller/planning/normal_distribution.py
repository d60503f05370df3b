"""The distribution function of the normal distribution, for arrays: a latency-bound request is planned with it.

SciPy has it, too, and is a third of the weight of an installation: serving does without it.
"""

from __future__ import annotations

import numpy as np

from vinelm.trie.arrays import FloatArray

_FAR = 37.0
"""Beyond it the tail is less than 1e-299, and floating point underflows."""
_NUMERATOR = (
    3.52624965998911e-02, 0.700383064443688, 6.37396220353165, 33.912866078383, 112.079291497871, 221.213596169931,
    220.206867912376,
)  # fmt: skip
_DENOMINATOR = (
    8.83883476483184e-02, 1.75566716318264, 16.064177579207, 86.7807322029461, 296.564248779674, 637.333633378831,
    793.826512519948, 440.413735824752,
)  # fmt: skip


def normal_cdf(values: FloatArray) -> FloatArray:
    """Return P(Z <= value) of a standard normal Z; the shape is that of ``values``, NaN stays NaN.

    Within 3e-16 of the exact value everywhere. Tails beyond 7 standard deviations, of less than 2e-12, have few correct digits:
    Hart's rational approximation of exp(z²/2) P(Z <= -z) (Computer Approximations, 1968, no. 5666).
    """
    size = np.minimum(np.abs(values), _FAR)
    tail = _polynomial(_NUMERATOR, size)
    tail /= _polynomial(_DENOMINATOR, size)
    tail *= np.exp(-0.5 * np.square(size))
    return np.where(values > 0.0, 1.0 - tail, tail)


def _polynomial(coefficients: tuple[float, ...], at: FloatArray) -> FloatArray:
    """Horner's rule, in place: highest power first."""
    value = np.full_like(at, coefficients[0])
    for coefficient in coefficients[1:]:
        value *= at
        value += coefficient
    return value
