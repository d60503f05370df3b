"""Estimators on simulated tables that branch (`branching_truths.py`), for `bench_estimator.py`.

Judged are the fixed plans (a model for each stage) and the probabilities of arms: `mae`, `max_abs`, `signed` and `cap_regret`
of plan accuracies, `coverage90` of their 90 % intervals, `arm_mae` over the arms of decisions (each weighted by how many
requests reach its node), `arm_mae_plain` without weights, and `arm_coverage90`. All are fractions, and all data are simulated.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from branching_truths import BRANCHING_TRUTHS, make_branching_truth
from science.recorded_table import RecordedTable

from vinelm.estimator import ObservationTable, make_estimator
from vinelm.estimator.arms import arms_of
from vinelm.plans.static_plans import StaticPlans
from vinelm.rows.observation import Observation
from vinelm.trie.annotated_trie import AnnotatedTrie

BRANCHING_ESTIMATORS = ("latent", "cascade", "cascade-svd")
N_CAPS = 15
Z90 = 1.6449


def buy_branching(table: RecordedTable, coverage: float, seed: int) -> list[Observation]:
    """Rows of whole runs until their dollars reach the coverage: random request, random model at every invocation."""
    rng = random.Random(f"branching:{seed}")
    budget, spent = coverage * table.exhaustive_cost_usd, 0.0
    rows: dict[tuple[int, int], Observation] = {}
    while spent < budget:
        request, node = rng.randrange(len(table.request_ids)), 0
        while following := [child for child in table.trie.children(node) if table.reached[request, child]]:
            node = rng.choice(following)
            if (request, node) not in rows:
                rows[request, node] = table.observation(request, node)
                spent += table.cost_usd[request, node]
    return list(rows.values())


def judge_branching(exact: AnnotatedTrie, fitted: AnnotatedTrie) -> dict[str, float]:
    truth, found = StaticPlans.of(exact), StaticPlans.of(fitted)
    whole = truth.is_whole  # those that only the application ends
    error = (found.accuracy - truth.accuracy)[whole]
    caps = np.quantile(truth.cost_usd[whole], np.linspace(0.05, 1.0, N_CAPS))
    regret = []
    for cap in caps:
        allowed = whole & (truth.cost_usd <= cap)
        regret.append(truth.accuracy[allowed].max() - truth.accuracy[allowed][np.argmax(found.accuracy[allowed])])
    assert exact.arm is not None
    assert fitted.arm is not None
    arms = arms_of(exact.trie)
    first = np.unique(arms.of_node[1:], return_index=True)[1] + 1
    weight = exact.reach[exact.trie.parent[first]] * arms.is_choice[arms.source]
    off = np.abs(fitted.arm - exact.arm)[first]
    results = {
        "mae": float(np.abs(error).mean()), "max_abs": float(np.abs(error).max()), "signed": float(error.mean()),
        "cap_regret": float(np.mean(regret)), "arm_mae": float((off * weight).sum() / weight.sum()),
        "arm_mae_plain": float(off[weight > 0].mean()),
    }  # fmt: skip
    if fitted.accuracy_se is not None and fitted.arm_se is not None:
        results["coverage90"] = float(np.mean(np.abs(error) <= Z90 * found.error[whole]))
        results["mean_se"] = float(found.error[whole].mean())
        results["arm_coverage90"] = float(np.mean(off[weight > 0] <= Z90 * fitted.arm_se[first][weight > 0]))
    return results


def run_branching(
    names: list[str] | None, coverages: list[float], seeds: int, *, truth_seed: int = 0
) -> Iterator[dict[str, Any]]:
    for truth in BRANCHING_TRUTHS:
        name = f"simulated: {truth} branching"
        if names and not any(part in name for part in names):
            continue
        table = make_branching_truth(truth, truth_seed)
        exact = table.annotate()
        for coverage in coverages:
            found: dict[str, list[dict[str, float]]] = {}
            rows_by_depth = []
            for seed in range(seeds):
                cells = ObservationTable.from_observations(buy_branching(table, coverage, seed), table.template, table.trie)
                rows_by_depth.append(cells.count_by_depth)
                for estimator in BRANCHING_ESTIMATORS:
                    start = time.perf_counter()
                    fitted = make_estimator(estimator).fit_cells(cells, table.template, table.catalog).annotated_
                    seconds = time.perf_counter() - start
                    found.setdefault(estimator, []).append(judge_branching(exact, fitted) | {"fit_s": seconds})
            for estimator, results in found.items():
                means = {key: round(float(np.mean([result[key] for result in results])), 5) for key in results[0]}
                by_depth = [round(float(n), 1) for n in np.mean(rows_by_depth, axis=0)]
                yield {
                    "table": name, "sampler": "cascade", "coverage": coverage, "estimator": estimator, "seeds": seeds,
                    "cells_by_depth": by_depth, **means,
                }  # fmt: skip


def branching_line(result: dict[str, Any]) -> str:
    covered = f"{100 * result['coverage90']:4.0f} %" if "coverage90" in result else "     -"
    of_arms = f"{100 * result['arm_coverage90']:4.0f} %" if "arm_coverage90" in result else "     -"
    return (
        f"{result['table']:34} {result['sampler']:9} {100 * result['coverage']:4.1f} %  {result['estimator']:14}"
        f" mae {100 * result['mae']:5.2f}  max {100 * result['max_abs']:5.1f}  signed {100 * result['signed']:+6.2f}"
        f"  cap {100 * result['cap_regret']:5.2f}  in 90 % {covered}  arms: mae {100 * result['arm_mae']:5.2f}"
        f"  in 90 % {of_arms}  {1000 * result['fit_s']:6.0f} ms  cells {result['cells_by_depth']}"
    )
