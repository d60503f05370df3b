"""What the paper prints, in the units of our results: fractions, dollars, seconds. Its figures have no numbers but these."""

from __future__ import annotations

from typing import Any

TABLE_1: dict[str, dict[str, float]] = {
    "average": {"signed": -0.4953, "mae": 0.4953, "max_abs": 0.7646},
    "prefix-average": {"signed": 0.2050, "mae": 0.2050, "max_abs": 0.3317},
    "prefix-impute": {"signed": 0.0478, "mae": 0.0478, "max_abs": 0.1298},
    "prefix-xgboost": {"signed": 0.0308, "mae": 0.0473, "max_abs": 0.1557},
    "cascade": {"signed": 0.0004, "mae": 0.0145, "max_abs": 0.0629},
    "cascade-svd": {"signed": 0.0007, "mae": 0.0104, "max_abs": 0.0433},
}
"""Errors at 2 % coverage on NL2SQL. ``cascade`` is VineLM-Lite, ``cascade-svd`` is VineLM."""

TABLE_2: dict[str, dict[str, float]] = {
    "MathQA-4": {"sparse_usd": 28.16, "checkpointed_usd": 563.18, "naive_usd": 15073.67, "ratio": 535.29},
    "NL2SQL-2": {"sparse_usd": 5.28, "checkpointed_usd": 105.56, "naive_usd": 250.49, "ratio": 47.44},
    "NL2SQL-8": {"sparse_usd": 48.19, "checkpointed_usd": 963.89, "naive_usd": 2764.21, "ratio": 57.36},
}
"""Dollars of a profile. The first column is 5.0 % of the second in every row."""
for _row in TABLE_2.values():
    _row["sparse_share"] = _row["sparse_usd"] / _row["checkpointed_usd"]
    _row["naive_over_checkpointed"] = _row["naive_usd"] / _row["checkpointed_usd"]

TABLE_3: dict[str, dict[str, float]] = {
    "MathQA-4": {"mean_us": 6921.2, "overhead": 0.00592},
    "NL2SQL-2": {"mean_us": 33.0, "overhead": 0.00001},
    "NL2SQL-8": {"mean_us": 1312.0, "overhead": 0.00052},
}
"""Microseconds of one replanning step, and their share of the mean latency of the fastest call."""

FIGURE_7: dict[str, Any] = {"highest_gain": 0.18}
"""Over all workloads and budgets; the text does not say whether points or a ratio, nor for which workload."""
FIGURE_8: dict[str, Any] = {"cascade-svd at 2 %": 0.01}
FIGURE_9: dict[str, Any] = {"average ends at accuracy": 0.57}
FIGURE_10: dict[str, Any] = {"largest_cut": 0.85}
"""Of the violations of the static plan."""
