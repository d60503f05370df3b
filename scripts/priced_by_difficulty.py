"""Dollars and seconds by depth where they follow the request's difficulty, for `bench_estimator.py`.

The requests that get deep into a trie are the hard ones. Here they are dear, too: log sizes correlate by 0.6 with difficulty,
so that a node costs more than its model's mean request does. Every seed has a table of its own, because the few requests that
reach the last depth of one table have sizes by chance. `cost_bias` and `latency_bias` are the mean relative errors of the nodes
of each depth, weighted by how many requests reach a node; the other keys are those of the other tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from science.recorded_table import RecordedTable
from simulated_truths import make_truth

from vinelm.estimator import ObservationTable, RateEstimator, make_estimator
from vinelm.trie.annotated_trie import AnnotatedTrie

SIZE_CORRELATION = 0.6
PRICED = (("three-skills", "8x3"), ("three-skills", "4x6"), ("noisy-verifier", "8x3"))
PRICED_ESTIMATORS = ("latent", "cascade", "cascade-svd")
Z90 = 1.6449
Floats = npt.NDArray[np.float64]


def priced_table(truth: str, shape: str, seed: int) -> RecordedTable:
    """The table of a structure in which dear requests are hard."""
    return make_truth(truth, shape, seed, size_correlation=SIZE_CORRELATION)


def run_priced(
    names: list[str] | None,
    coverages: list[float],
    seeds: int,
    *,
    truth_seed: int,
    rows: Callable[[RecordedTable, float, int], ObservationTable],
) -> Iterator[dict[str, Any]]:
    """Yield one result per table, coverage and estimator; ``rows`` buys a share of a table's dollars with a seed."""
    for truth, shape in PRICED:
        name = f"simulated: dear when hard, {truth} {shape}"
        if names and not any(part in name for part in names):
            continue
        tables = [priced_table(truth, shape, truth_seed + seed) for seed in range(seeds)]
        exact = [table.annotate() for table in tables]
        for coverage in coverages:
            cells = [rows(table, coverage, seed) for seed, table in enumerate(tables)]
            for estimator in PRICED_ESTIMATORS:
                fitted = [_fit(estimator, *each) for each in zip(cells, tables, strict=True)]
                found = [judge_priced(*each) for each in zip(exact, fitted, strict=True)]
                means = {key: np.round(np.mean([each[key] for each in found], axis=0), 5).tolist() for key in found[0]}
                yield {
                    "table": name, "sampler": "cascade", "coverage": coverage, "estimator": estimator, "seeds": seeds, **means
                }  # fmt: skip


def judge_priced(exact: AnnotatedTrie, fitted: AnnotatedTrie) -> dict[str, Any]:
    """Relative bias by depth, relative error of path dollars and, where there are intervals, their coverage."""
    cost = fitted.path_cost_usd[1:] - exact.path_cost_usd[1:]
    latency = fitted.path_latency_s[1:] - exact.path_latency_s[1:]
    found: dict[str, Any] = {
        "cost_bias": bias_by_depth(exact, fitted.cost_usd, exact.cost_usd),
        "latency_bias": bias_by_depth(exact, fitted.latency_s, exact.latency_s),
        "cost_mae_relative": float(np.abs(cost / exact.path_cost_usd[1:]).mean()),
    }
    if fitted.cost_se is not None and fitted.latency_se is not None:
        found["cost_coverage90"] = float(np.mean(np.abs(cost) <= Z90 * fitted.cost_se[1:]))
        found["latency_coverage90"] = float(np.mean(np.abs(latency) <= Z90 * fitted.latency_se[1:]))
    return found


def bias_by_depth(exact: AnnotatedTrie, found: Floats, true: Floats) -> list[float]:
    """Mean relative error of the nodes' amounts at each depth, weighted by how many requests reach a node."""
    error = found / np.maximum(true, 1e-300) - 1.0
    return [float(np.average(error[level], weights=exact.count[level])) for level in exact.trie.levels[1:]]


def priced_line(result: dict[str, Any]) -> str:
    bias = {key: " ".join(f"{100 * each:+5.1f}" for each in result[f"{key}_bias"]) for key in ("cost", "latency")}
    covered = "  in 90 %"
    for key in ("cost", "latency"):
        covered += f" {100 * result[f'{key}_coverage90']:3.0f} %" if f"{key}_coverage90" in result else "     -"
    return (
        f"{result['table']:43} {result['sampler']:9} {100 * result['coverage']:4.1f} %  {result['estimator']:14}"
        f" bias by depth, %: dollars {bias['cost']}  seconds {bias['latency']}"
        f"  path dollars off by {100 * result['cost_mae_relative']:4.1f} %{covered}"
    )


def _fit(name: str, cells: ObservationTable, table: RecordedTable) -> AnnotatedTrie:
    estimator = make_estimator(name)
    assert isinstance(estimator, RateEstimator)
    return estimator.fit_cells(cells, table.template, table.catalog).annotated_
