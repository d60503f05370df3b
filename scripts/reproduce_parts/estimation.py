"""Table 1 and Figure 8: errors of the estimators, and the fits at 2 % coverage that Figures 7 and 9 plan with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from bench_estimator import buy
from reproduce_parts.tables import NL2SQL_2, Case
from simulated_truths import N_REQUESTS, make_truth

from vinelm.estimator import RateEstimator, make_estimator
from vinelm.trie.annotated_trie import AnnotatedTrie

PAPER_SIX = ("average", "prefix-average", "prefix-impute", "prefix-xgboost", "cascade", "cascade-svd")
"""In the order of the paper's Table 1; the last is its VineLM, the one before it VineLM-Lite."""
OURS = "latent"
ESTIMATORS = (*PAPER_SIX, OURS)
SLOW = frozenset({"prefix-impute", "prefix-xgboost"})
MOST_PATHS_SLOW = 1_000
"""The two slow baselines are left out on larger tries."""
COVERAGES = (0.002, 0.005, 0.01, 0.02, 0.05)
TABLE_COVERAGE = 0.02
SAMPLER = "cascade"
"""The paper's: requests and models drawn uniformly, going on where an answer is wrong. All estimators read the same rows."""


@dataclass(frozen=True)
class Fits:
    """What the estimators made of sparse rows of one case.

    Args:
        case: the workload.
        errors: (estimator, coverage) to one {signed, mae, max_abs} per seed, fractions over all paths.
        at_2_percent: estimator to one annotated trie per seed.
        bought_usd: coverage to the dollars that were spent, one per seed.
        rows: coverage to the number of invocations that were bought, one per seed.
    """

    case: Case
    errors: dict[tuple[str, float], list[dict[str, float]]] = field(default_factory=dict)
    at_2_percent: dict[str, list[AnnotatedTrie]] = field(default_factory=dict)
    bought_usd: dict[float, list[float]] = field(default_factory=dict)
    rows: dict[float, list[int]] = field(default_factory=dict)


def fit_all(
    case: Case, seeds: Sequence[int], coverages: Sequence[float] = COVERAGES, names: Sequence[str] | None = None
) -> Fits:
    """Buy rows to each coverage with each seed, and fit every estimator to them; ``names``: some of them only."""
    found = Fits(case)
    table, truth = case.table, case.table.annotate().accuracy[1:]
    for coverage in coverages:
        for seed in seeds:
            bought = buy(table, SAMPLER, coverage, seed)
            found.bought_usd.setdefault(coverage, []).append(float(table.cost_usd[bought].sum()))
            found.rows.setdefault(coverage, []).append(int(bought.sum()))
            rows = table.cells(bought)
            for name in names or estimators_of(case):
                estimator = make_estimator(name)
                assert isinstance(estimator, RateEstimator)
                fitted = estimator.fit_cells(rows, table.template, table.catalog).annotated_
                error = fitted.accuracy[1:] - truth
                figures = {"signed": error.mean(), "mae": np.abs(error).mean(), "max_abs": np.abs(error).max()}
                found.errors.setdefault((name, coverage), []).append({k: float(v) for k, v in figures.items()})
                if coverage == TABLE_COVERAGE:
                    found.at_2_percent.setdefault(name, []).append(fitted)
    return found


def estimators_of(case: Case) -> tuple[str, ...]:
    """All seven, or those that are fast enough for the case's trie."""
    is_large = case.table.trie.n_nodes > MOST_PATHS_SLOW
    return tuple(name for name in ESTIMATORS if not (is_large and name in SLOW))


def table_1(fits: Sequence[Fits]) -> dict[str, Any]:
    """Case to estimator to errors at 2 %, means over seeds; a case of 30 paths is no test of sparse filling and is left out."""
    return {
        one.case.name: {
            name: _means(one.errors[name, TABLE_COVERAGE]) | {"seeds": len(one.errors[name, TABLE_COVERAGE])}
            for name in estimators_of(one.case)
        }
        for one in fits
        if one.case.name != NL2SQL_2
    }


def figure_8(fits: Sequence[Fits]) -> dict[str, Any]:
    """Case to estimator to [{coverage, mae}], means over seeds."""
    found: dict[str, Any] = {}
    for one in fits:
        coverages = sorted({coverage for _, coverage in one.errors})
        found[one.case.name] = {
            name: [{"coverage": c, "mae": _means(one.errors[name, c])["mae"]} for c in coverages]
            for name in estimators_of(one.case)
        }
    return found


def more_requests(count: int, seeds: Sequence[int]) -> list[Fits]:
    """Fits at 2 % on a simulated truth of eight models and three turns, with ``count`` requests and with the first 500 of them.

    The slow baselines are left out.
    The same share of the dollars of more requests is more rows, which is what an estimator has to go by.
    """
    found = []
    whole = make_truth("three-skills", "8x3", 0, count)
    for requests in (N_REQUESTS, count):
        case = Case(str(requests), "simulated truth", whole.rows(range(requests)))
        found.append(fit_all(case, seeds, (TABLE_COVERAGE,), [name for name in ESTIMATORS if name not in SLOW]))
    return found


def more_rows(fits: Sequence[Fits]) -> dict[str, Any]:
    """Requests to the rows that were bought at 2 %, and estimator to errors."""
    return {
        one.case.name: {name: _means(errors) for (name, _), errors in one.errors.items()}
        | {"rows": float(np.mean(one.rows[TABLE_COVERAGE]))}
        for one in fits
    }


def _means(results: Sequence[dict[str, float]]) -> dict[str, float]:
    return {key: float(np.mean([result[key] for result in results])) for key in results[0]}
