"""Sizes of requests relative to the mean request, shrunken towards what a request's outcomes let one expect."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vinelm.estimator.observation_table import ObservationTable
from vinelm.trie.arrays import FloatArray

SLOPE_SD = 0.5
"""Prior standard deviation of the slope of log size on what the outcomes say."""
LARGEST_STEP = 0.3
TINY = 1e-6


@dataclass(frozen=True, eq=False)
class RequestSizes:
    """Sizes of requests relative to the mean request.

    Args:
        factor: size of each request, shrunken towards the expected one; shape (requests,), mean 1.
        mean: mean ratio of the request's amounts to those of a request of size 1; same shape.
        error: variance of ``mean`` around the expected size; same shape.
        spread: variance of sizes.
        noise: share of a cell's variance that is not due to size.
        unknown: share of it that is due to the part of the size that ``factor`` does not capture.
    """

    factor: FloatArray
    mean: FloatArray
    error: FloatArray
    spread: float
    noise: float
    unknown: float

    @classmethod
    def of(cls, cells: ObservationTable, ratio: FloatArray, expected: FloatArray) -> RequestSizes:
        """Estimate from each cell's ratio to the amount of a request of size 1; ``expected`` has shape (requests,)."""
        n_rows = np.bincount(cells.request, minlength=cells.n_requests).astype(np.float64)
        total = np.bincount(cells.request, ratio, cells.n_requests)
        mean = total / n_rows
        within = np.bincount(cells.request, (ratio - mean[cells.request]) ** 2, cells.n_requests).sum()
        noise = within / max(float((n_rows - 1.0).sum()), 1.0)
        rest = max(float(((mean - expected) ** 2).mean() - noise * float((1.0 / n_rows).mean())), 0.0)
        error = np.maximum(rest + noise / n_rows, TINY)
        if not (n_rows > 1).any():  # nothing tells a long request from a dear invocation
            return cls(np.ones(cells.n_requests), mean, error, 0.0, 1.0, 0.0)
        explained = float(expected.var())
        if rest <= 1e-9:
            every = noise + explained
            return cls(expected / expected.mean(), mean, error, explained, noise / every if every > 0.0 else 1.0, 0.0)
        weight = noise / rest
        factor = (total + weight * expected) / (n_rows + weight)
        missed = rest * float((weight / (n_rows + weight))[cells.request].mean())
        spread = rest + explained
        return cls(factor / factor.mean(), mean, error, spread, noise / (noise + spread), missed / (noise + spread))

    @property
    def is_known(self) -> bool:
        """Whether some request has several rows, so that its size shows."""
        return self.noise < 1.0 or self.spread > 0.0


def improved_slope(sizes: RequestSizes, expected: FloatArray, change: FloatArray, slope: float) -> tuple[float, float]:
    """Return (the slope after one Gauss-Newton step, its standard error).

    The mean ratios are regressed on the expected sizes. The errors of a size estimated from few rows are in the ratio, not in
    what predicts it, so that the slope is not attenuated. Errors count as proportional to the size.

    Args:
        sizes: the sizes with their mean ratios.
        expected: expected size of each request at the given slope, shape (requests,).
        change: its derivative by the slope, shape (requests,).
        slope: the slope so far.
    """
    weight = 1.0 / (sizes.error * expected**2)
    columns = np.stack([expected, change], axis=1)  # the level is free: typical amounts are estimated elsewhere
    information = columns.T @ (weight[:, None] * columns)
    score = columns.T @ (weight * (sizes.mean - expected))
    information[1, 1] += 1.0 / SLOPE_SD**2
    score[1] -= slope / SLOPE_SD**2
    inverse = np.linalg.inv(information)
    step = float(np.clip((inverse @ score)[1], -LARGEST_STEP, LARGEST_STEP))
    return slope + step, float(np.sqrt(inverse[1, 1]))
