"""The latent estimator on a simulated agent of 25 turns over 8 models, for `bench_estimator.py`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from simulated_agent import AgentTruth

from vinelm.estimator import make_estimator
from vinelm.plans.promise import Z90
from vinelm.plans.static_plans import StaticPlans

NAME = "simulated: agent 8x25 memory=2"
TURNS = (1, 2, 3, 5, 8, 12, 18, 25)
WALKS = (500, 2000)


def run_long_loop(wanted: list[str] | None, seeds: int) -> Iterator[dict[str, Any]]:
    """Yield a result for each number of walks: single-model plans, cut after some turns, against the exact truth."""
    if wanted and not any(part in NAME for part in wanted):
        return
    for walks in WALKS:
        found = [_once(seed, walks) for seed in range(min(seeds, 3))]
        means = {key: round(float(np.mean([one[key] for one in found])), 5) for key in found[0]}
        yield {"table": NAME, "walks": walks, "estimator": "latent", "seeds": len(found), **means}


def long_loop_line(result: dict[str, Any]) -> str:
    """The result as a line of text."""
    return (
        f"{result['table']:34} {result['walks']:5} walks  {result['rows']:6.0f} rows  mae {100 * result['mae']:5.2f}"
        f"  max {100 * result['max_abs']:5.1f}  in 90 % {100 * result['coverage90']:4.0f} %  {1000 * result['fit_s']:6.0f} ms"
    )


def _once(seed: int, walks: int) -> dict[str, float]:
    truth = AgentTruth(8, 25, 0.5, seed)
    rows = truth.profile(300, walks, seed)
    start = time.perf_counter()
    fitted = make_estimator().fit(rows, truth.template(memory=2), truth.catalog).annotated_
    seconds = time.perf_counter() - start
    errors, covered = [], []
    plans = StaticPlans.of(fitted)
    for row, (model,) in enumerate(plans.models.tolist()):
        for turns in TURNS:
            plan = row * plans.depth + turns - 1
            errors.append(plans.accuracy[plan] - truth.path_accuracy((model,) * turns)[0])
            covered.append(abs(errors[-1]) <= Z90 * plans.error[plan])
    error = np.abs(errors)
    return {
        "rows": float(len(rows)), "mae": float(error.mean()), "max_abs": float(error.max()),
        "coverage90": float(np.mean(covered)), "fit_s": seconds,
    }  # fmt: skip
