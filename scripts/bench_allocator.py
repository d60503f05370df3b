"""Does an allocator buy better rows than uniform ones? Samplers compared on five recorded tables, under their own checks.

The tables and the protocol are those of `signals.py` (text-to-SQL systems on Spider in three choices, exams, generated code;
prices partly assumed): a sampler buys rows worth 2 % of the exhaustive dollars of a training half, plans are chosen from them,
and judged on the held-out half. MAE and cap regret are those of the paths on the training half, in points: regret is what the
path chosen under a cap loses to the best one, the mean over 25 caps. Accuracies are means over nine budgets of $0.5 to $25 per
1,000 requests: of VineLM's plan over what requests show, of the best path, and of the best static plan. Spent is dollars on the
held-out half over dollars promised. Differences are paired by split, with 95 % intervals from their standard error.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from bench_estimator import Truth, judge
from result_files import add_results_option, provenance, write_results
from signals_parts.buying import BUYERS, bought, catalog_of, template_of
from signals_parts.protocol import Settings, serve, split
from signals_parts.systems import load_tables
from signals_parts.vinelm_signals import VineLMSignals

from vinelm.errors import ConfigError, InputError
from vinelm.estimator import make_estimator
from vinelm.evaluation import OutcomeTable
from vinelm.evaluation.rivals import Evidence, PathOnly, StaticPlan

SAMPLERS = "cascade,priced,neyman"
SETTINGS = replace(Settings(), extra_budgets=(), is_checked=False)
FIGURES = {"mae": "MAE", "cap_regret": "cap regret", "vinelm": "VineLM", "path_only": "paths", "static": "static"}
"""What is compared, in points, by its heading."""
METHODS = (VineLMSignals(), PathOnly(), StaticPlan())
Z95 = 1.96


def measure(table: OutcomeTable, sampler: str, depth: int, seed: int, coverage: float) -> dict[str, float]:
    """One split: buy, estimate, plan under each budget, judge on the held-out half."""
    training, kept = split(table.groups, SETTINGS.held_out, seed)
    mine, held_out, catalog = table.rows(training), table.rows(kept), catalog_of(table)
    template = template_of(depth).bind(tuple(catalog))
    exact = mine.as_recorded_table(template, catalog)
    rows = bought(
        mine, template, catalog, sampler=sampler, budget_usd=coverage * exact.exhaustive_cost_usd, seed=seed,
        continued_share=SETTINGS.continued_share,
    )  # fmt: skip
    fitted = make_estimator(SETTINGS.estimator).fit(rows, template, catalog).annotated_
    judged = judge(Truth.of(exact), fitted)
    found = {"rows": float(len(rows)), "mae": judged["mae"], "cap_regret": judged["cap_regret"]}
    evidence = Evidence(rows, fitted, depth)
    for method in METHODS:
        served = serve(method, evidence, held_out, SETTINGS)
        found[method.name] = float(served.success.mean())
        found[f"{method.name}_paid"] = float(served.cost_usd.mean())
        found[f"{method.name}_promised"] = float(served.promised_cost_usd.mean())
    return found


def summary(by_sampler: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Means of each sampler, dollars spent over promised, and its differences to every sampler before it."""
    found: dict[str, Any] = {}
    for place, (sampler, splits) in enumerate(by_sampler.items()):
        mean = {name: float(np.mean([one[name] for one in splits])) for name in splits[0]}
        spent = {method.name: mean[f"{method.name}_paid"] / mean[f"{method.name}_promised"] for method in METHODS}
        found[sampler] = {"rows": mean["rows"], **{name: mean[name] for name in FIGURES}, "spent_over_promised": spent}
        for other in list(by_sampler)[:place]:
            found[sampler][f"less_{other}"] = {
                name: difference([one[name] - its[name] for one, its in zip(splits, by_sampler[other], strict=True)])
                for name in FIGURES
            }
    return found


def difference(values: list[float]) -> dict[str, float]:
    """The mean and its 95 % interval; NaN at the ends for a single value."""
    mean = float(np.mean(values))
    half = Z95 * float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return {"value": mean, "low": mean - half, "high": mean + half}


def pooled(tables: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The mean of the differences over the tables, with the interval that independent tables have."""
    found: dict[str, Any] = {}
    for sampler, figures in next(iter(tables.values())).items():
        for other in (name for name in figures if name.startswith("less_")):
            for name in FIGURES:
                ones = [table[sampler][other][name] for table in tables.values()]
                mean = float(np.mean([one["value"] for one in ones]))
                half = math.sqrt(sum((one["high"] - one["value"]) ** 2 for one in ones)) / len(ones)
                entry = {"value": mean, "low": mean - half, "high": mean + half}
                found.setdefault(sampler, {}).setdefault(other, {})[name] = entry
    return found


def text_of(name: str, samplers: dict[str, Any]) -> str:
    """The figures of one table, or the differences over all, in points."""
    lines = [f"\n{name:30}" + "".join(f"{head:>22}" for head in FIGURES.values()) + "   spent (VineLM, paths)   rows"]
    for sampler, found in samplers.items():
        if "rows" in found:
            spent = found["spent_over_promised"]
            figures = "".join(f"{100 * found[key]:22.2f}" for key in FIGURES)
            lines.append(f"{sampler:30}{figures}{spent['vinelm']:16.2f}{spent['path_only']:8.2f}{found['rows']:7.0f}")
        for other, gaps in found.items():
            if other.startswith("less_"):
                cells = (f"{100 * g['value']:+.2f} ({100 * g['low']:+.2f}, {100 * g['high']:+.2f})" for g in gaps.values())
                lines.append(f"  {sampler} less {other[5:]}".ljust(30) + "".join(f"{cell:>22}" for cell in cells))
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("VINELM_DATA"), help="folder with outcomes/ and nl2sql/")
    parser.add_argument("--tables", default="", help="names of tables, with commas between them (default: all)")
    parser.add_argument("--samplers", default=SAMPLERS, help="with commas between them (default %(default)s)")
    parser.add_argument("--depth", type=int, choices=range(1, 7), default=3, help="most calls per request (default 3)")
    parser.add_argument("--coverage", type=float, default=0.02, help="share of the exhaustive dollars (default %(default)s)")
    parser.add_argument("--splits", type=int, default=8, help="random halves (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    add_results_option(parser)
    arguments = parser.parse_args()
    made = provenance(arguments)
    if arguments.data is None:
        parser.error("say where the recorded data is: --data DIR or VINELM_DATA=DIR")
    try:
        tables = run(arguments)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    over_all = pooled(tables)
    if arguments.results:
        write_results(arguments.results, made, {"splits": arguments.splits, "tables": tables, "over_all": over_all})
    if arguments.json:
        print(json.dumps({"about": " ".join((__doc__ or "").split()), "tables": tables, "over_all": over_all}, indent=1))
        return 0
    for name, samplers in tables.items():
        print(text_of(name, samplers))
    print(text_of("mean of the tables", over_all))
    return 0


def run(arguments: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """The summary of each table."""
    samplers = [name.strip() for name in arguments.samplers.split(",") if name.strip()]
    unknown = [name for name in samplers if name not in BUYERS]
    if unknown or not samplers:
        raise ConfigError(f"--samplers {arguments.samplers!r}: use {', '.join(BUYERS)}")
    if not 0.0 < arguments.coverage <= 1.0 or arguments.splits < 1:
        raise ConfigError("--coverage is a share in (0, 1], --splits at least 1")
    names = tuple(name.strip() for name in arguments.tables.split(",") if name.strip())
    found = {}
    for name, (table, _) in load_tables(arguments.data, None, names).items():
        by_sampler = {
            sampler: [measure(table, sampler, arguments.depth, seed, arguments.coverage) for seed in range(arguments.splits)]
            for sampler in samplers
        }
        found[name] = summary(by_sampler)
        print(f"done: {name}", file=sys.stderr, flush=True)
    return found


if __name__ == "__main__":
    sys.exit(main())
