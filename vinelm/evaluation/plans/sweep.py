"""Values for a sweep over budgets or latency limits."""

from __future__ import annotations

from typing import Literal

import numpy as np

Bound = Literal["max_cost_usd", "max_latency_s"]


def spaced_caps(low: float, high: float, bound: Bound, n_caps: int = 12) -> list[float]:
    """Return ``n_caps`` values from ``low`` to ``high`` for the limit ``bound``: dollars spaced geometrically, or
    seconds evenly.

    The values are raised a little, so that rounding does not exclude a plan that just meets the limit. If ``low`` is
    not above 0 or ``high`` is not above ``low``, the result is only ``high``, unchanged.
    """
    if not 0 < low < high:
        return [high]
    caps = np.geomspace(low, high, n_caps) if bound == "max_cost_usd" else np.linspace(low, high, n_caps)
    # A cap equal to a path's own cost or latency admits that path: rounding must not exclude it.
    return [float(cap) * (1 + 1e-9) for cap in caps]
