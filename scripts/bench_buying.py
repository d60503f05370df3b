"""Which rows to buy: samplers compared by the plans that their rows lead to, on held-out requests.

The protocol is that of `recorded_spider.py` (eight recorded text-to-SQL systems, prices assumed; a profile of 2 % of the
dollars of a training half, plans judged on the other half), but rows are bought from the exact table, without graph and store.
`priced` is the default sampler at several exponents of the price, `cascade` the paper's (uniform).
Accuracy is the mean over ten budgets of $0.5 to $25 per 1,000 requests, in points; MAE is that of the paths' accuracies on the
training half. Promised less achieved is that of VineLM's plan, after the correction for selection with --promises (slower) and
before it without; spend is what the plan costs on the held-out half, divided by what it promised.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from bench_estimator import buy
from recorded_spider import Study
from science.recorded_table import RecordedTable
from science.replay import follow
from science.restricted_plans import best_workflow_level
from studies import Options, study

from vinelm import AnnotatedTrie, Objective
from vinelm.controller import Planner
from vinelm.estimator import make_estimator
from vinelm.estimator.validation.checks import validate_estimate
from vinelm.plans.promise import Promise
from vinelm.profiler import CascadeSampler, PricedSampler
from vinelm.requests.dataset import split_requests
from vinelm.requests.protocols import Sampler
from vinelm.requests.workflow import Request

SAMPLERS = ("cascade", "priced 0.5", "priced 1")
BUDGETS_USD = tuple(float(usd) for usd in np.geomspace(0.5e-3, 25e-3, 10))


def sampler_of(name: str, table: RecordedTable, seed: int) -> Sampler:
    """`cascade`, or `priced` and its exponent; prices are not known before rows are."""
    kind, _, alpha = name.partition(" ")
    if kind == "priced":
        return PricedSampler(table.template, None, table.request_ids, seed, alpha=float(alpha))
    return CascadeSampler(table.template, table.request_ids, seed)


def measure(table: RecordedTable, name: str, coverage: float, seed: int, *, promises: bool) -> dict[str, float]:
    """One split: buy, estimate, plan under each budget, and judge on the held-out half."""
    at = {request_id: row for row, request_id in enumerate(table.request_ids)}
    halves = split_requests([Request(request_id, {}) for request_id in table.request_ids], 0.5, seed)
    training, held_out = (table.rows([at[request.id] for request in half]) for half in halves)
    cells = training.cells(buy(training, sampler_of(name, training, seed), coverage, seed))
    fitted = make_estimator("latent").fit_cells(cells, training.template, training.catalog).annotated_
    if promises:
        evidence = validate_estimate(cells, training.template, training.catalog, fitted)
        fitted = replace(fitted, meta={**fitted.meta, "evidence": evidence.to_dict()})
    found = {"rows": float(len(cells)), "mae": float(np.abs(fitted.accuracy - training.annotate().accuracy)[1:].mean())}
    return found | plans(fitted, held_out)


def plans(fitted: AnnotatedTrie, held_out: RecordedTable) -> dict[str, float]:
    """Means over the budgets of what VineLM's and the best static plan achieve."""
    planner, rows = Planner(fitted), []
    for max_cost_usd in BUDGETS_USD:
        objective = Objective(maximize="accuracy", max_cost_usd=max_cost_usd)
        node = fitted.trie.node(planner.plan(objective).path)
        static = follow(held_out, fitted.trie.node(best_workflow_level(planner, objective)))
        served = follow(held_out, node)
        achieved, promised = float(served.success.mean()), Promise.of(fitted, node).accuracy
        paid, promised_usd = float(served.cost_usd.mean()), float(fitted.path_cost_usd[node])
        rows.append((achieved, float(static.success.mean()), promised - achieved, paid / promised_usd))
    return dict(zip(("vinelm", "static", "promised_less_achieved", "spend"), map(float, np.mean(rows, axis=0)), strict=True))


def run(table: RecordedTable, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Means over the splits, with the standard error of each choice's difference to the first sampler's."""
    results: list[dict[str, Any]] = []
    first: list[dict[str, float]] = []
    for name in arguments.samplers or SAMPLERS:
        one = [measure(table, name, arguments.coverage, seed, promises=arguments.promises) for seed in range(arguments.seeds)]
        first = first or one
        mean = {key: float(np.mean([split[key] for split in one])) for key in one[0]}
        gain = np.array([split["vinelm"] - base["vinelm"] for split, base in zip(one, first, strict=True)])
        error = float(gain.std(ddof=1)) / math.sqrt(len(gain)) if len(gain) > 1 else math.nan
        results.append({"sampler": name, **mean, "gain": float(gain.mean()), "gain_se": error})
        print(f"done: {name}", file=sys.stderr, flush=True)
    return results


def line(result: dict[str, Any]) -> str:
    """One row of the table, in points."""
    names = ("vinelm", "static", "gain", "gain_se", "mae", "promised_less_achieved")
    figures = " ".join(f"{100 * result[name]:8.2f}" for name in names)
    return f"{result['sampler']:12} {figures} {result['spend']:8.2f} {result['rows']:8.0f}"


def main() -> int:
    options = {
        "--stop": ("workflow", "stop rule (default %(default)s)", {"choices": ("workflow", "oracle")}),
        "--coverage": (0.02, "share of the exhaustive dollars to spend (default 0.02)"),
        "--seeds": (10, "splits to average over (default 10)"),
        "--sampler": (None, f"repeatable; default: {', '.join(SAMPLERS)}", {"action": "append", "dest": "samplers"}),
        "--promises": (False, "correct promises for selection, by four more fits"),
    }
    return study(__doc__, options, measured, lines, page=page_figures, data="folder with nl2sql/ and outcomes/")


def measured(options: Options) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        table = Study.load(Path(options.data), Path(folder), "latent").table.with_stop(options.stop)
    about = {name: vars(options)[name] for name in ("stop", "seeds", "coverage")}
    return {"about": " ".join((__doc__ or "").split()), **about, "results": run(table, options)}


def page_figures(found: dict[str, Any]) -> dict[str, Any]:
    by_sampler = {one["sampler"]: one for one in found["results"]}
    return {"stop": found["stop"], "seeds": found["seeds"], "samplers": by_sampler}


def lines(found: dict[str, Any]) -> Iterator[str]:
    yield f"{found['stop']} stop, {found['seeds']} splits, {found['coverage']:.1%} of the exhaustive dollars"
    heads = ("VineLM", "static", "gain", "+/-", "MAE", "promised", "spend", "rows")
    yield f"{'':12} " + " ".join(f"{head:>8}" for head in heads)
    yield from map(line, found["results"])


if __name__ == "__main__":
    sys.exit(main())
