"""How much slower an engine answers the more requests it holds: a monotone curve, fitted to measurements (§5.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vinelm.errors import EvidenceError
from vinelm.trie import FloatArray


@dataclass(frozen=True, slots=True)
class SlowdownCurve:
    """Extra seconds of one invocation by the number of other requests in its engine; linear between the points and beyond the
    last two. ``requests`` rises from 0; ``extra_s`` never falls and is 0 at 0.
    """

    requests: tuple[float, ...]
    extra_s: tuple[float, ...]

    def at(self, requests: float) -> float:
        """Extra seconds with that many other requests in the engine."""
        if requests <= self.requests[-1] or len(self.requests) == 1:
            return float(np.interp(requests, self.requests, self.extra_s))
        (x0, x1), (y0, y1) = self.requests[-2:], self.extra_s[-2:]
        return y1 + (requests - x1) * (y1 - y0) / (x1 - x0)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {"requests": list(self.requests), "extra_s": list(self.extra_s)}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> SlowdownCurve:
        """The curve that :meth:`to_dict` wrote."""
        return cls(tuple(map(float, plain["requests"])), tuple(map(float, plain["extra_s"])))


def fit_slowdown(requests: Sequence[float], latency_s: Sequence[float]) -> SlowdownCurve:
    """The monotone curve nearest to the measurements by least squares: latency with so many other requests in the engine.

    Its zero is the fitted latency at the fewest requests seen. :class:`EvidenceError` without measurements.
    """
    if not len(requests):
        raise EvidenceError("a slowdown curve needs measurements: latencies at several numbers of requests in the engine")
    levels, inverse = np.unique(np.asarray(requests, np.float64), return_inverse=True)
    weight = np.bincount(inverse).astype(np.float64)
    mean = np.bincount(inverse, weights=np.asarray(latency_s, np.float64)) / weight
    fitted = _isotonic(mean, weight)
    return SlowdownCurve((*([0.0] if levels[0] > 0 else []), *levels.tolist()),
                         (*([0.0] if levels[0] > 0 else []), *(fitted - fitted[0]).tolist()))  # fmt: skip


def _isotonic(values: FloatArray, weight: FloatArray) -> FloatArray:
    """Least squares under values that never fall: neighbours that fall are pooled."""
    pools: list[tuple[float, float, int]] = []  # mean, weight, members
    for value, mass in zip(values.tolist(), weight.tolist(), strict=True):
        pools.append((value, mass, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (m1, w1, n1), (m2, w2, n2) = pools[-2:]
            pools[-2:] = [((m1 * w1 + m2 * w2) / (w1 + w2), w1 + w2, n1 + n2)]
    return np.repeat([mean for mean, _, _ in pools], [members for _, _, members in pools])
