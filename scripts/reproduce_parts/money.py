"""Table 2: dollars of a sparse profile, of every request on every reached prefix once, and of every path from the root."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from reproduce_parts.estimation import Fits


def table_2(fits: Sequence[Fits]) -> dict[str, Any]:
    """Case to dollars and their ratios. ``sparse_usd`` is at 5 % coverage, which is what the paper's dollars are."""
    found = {}
    for one in fits:
        table = one.case.table
        most = max(one.bought_usd)
        sparse = {coverage: float(np.mean(usd)) for coverage, usd in one.bought_usd.items()}
        found[one.case.name] = {
            "requests": len(table.request_ids),
            "sparse_usd": sparse[most],
            "sparse_share": sparse[most] / table.exhaustive_cost_usd,
            "sparse_usd_at_2_percent": sparse.get(0.02),
            "checkpointed_usd": table.exhaustive_cost_usd,
            "naive_usd": table.naive_cost_usd,
            "naive_over_checkpointed": table.naive_cost_usd / table.exhaustive_cost_usd,
            "ratio": table.naive_cost_usd / sparse[most],
        }
    return found
