"""Figure 10: shares of the requests that break a latency SLO under load, from the machinery of `bench_slo.py`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from bench_slo import Bench, workload_of
from slo_figures import AWARE, POLICIES, STATIC, UNAWARE

FRESH = (None, 0.0)
"""Load reports that are made before every decision, as in the paper."""


def figure_10(workload: str, data: Path | None, seeds: Sequence[int], arrivals: Sequence[str] = ("Poisson",)) -> dict[str, Any]:
    """Per policy and SLO the share of late requests, and of right answers in time; means over seeds and kinds of arrivals.

    Args:
        workload: a name of `slo_workloads.py`.
        data: folder of the real data, for recorded workloads.
        seeds: each is other requests, arrivals and background traffic.
        arrivals: kinds of `bench_slo.py` with load.
    """
    found = workload_of(workload, data, "oracle")
    rows = [row for seed in seeds for kind in arrivals for row in Bench.of(found, seed).rows(kind, data)]
    rows = [row for row in rows if row["load_age_s"] in FRESH]
    policies = {
        name: {field: _by_slo(rows, name, field, found.slos_s) for field in ("violation_rate", "in_slo_accuracy")}
        for name in POLICIES
    }
    static, aware = (np.array(policies[name]["violation_rate"]) for name in (STATIC, AWARE))
    return {
        "about": found.about,
        "slos_s": list(found.slos_s),
        "seeds": len(seeds),
        "arrivals": list(arrivals),
        "policies": policies,
        "mean": {name: {field: float(np.mean(values)) for field, values in of.items()} for name, of in policies.items()},
        "largest_cut": float(np.max(1.0 - aware / np.maximum(static, 1e-12))),
        "slos_better_than_static": {
            name: int((np.array(policies[name]["violation_rate"]) < static).sum()) for name in (UNAWARE, AWARE)
        },
    }


def _by_slo(rows: Sequence[dict[str, Any]], policy: str, field: str, slos_s: Sequence[float]) -> list[float]:
    return [float(np.mean([row[field] for row in rows if row["policy"] == policy and row["slo_s"] == slo])) for slo in slos_s]
