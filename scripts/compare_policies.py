"""All policies at equal spend on recorded real answers: accuracy at five cost caps, and at five caps on seconds.

Reads --data (or VINELM_DATA): text-to-SQL systems on Spider, exam questions with real dollars and seconds, and generated code
(ClassEval); `signals_parts` says what is real in each. For each of --splits random halves, a sampler buys rows worth 2 % of the
dollars of an exhaustive profile of the training half. Each method chooses a plan for every budget from these rows, and the
plans are replayed on the held-out half. At each cap the two plans of a method that bracket it in held-out spend are mixed, so
that all methods spend the same (`science/mixtures.py`). Hindsight is the best mixture of all paths on the held-out
requests themselves: an upper bound for paths, which plans over signals may pass.

Seconds were recorded for the exams only. A cap there is on the mean seconds of a request, one call after another; rows are
still bought with dollars. Intervals are paired bootstraps over groups of requests, with the choices of the splits as they are.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from signals_parts.equal_spend import AMOUNTS, METHODS, compare_split, seconds_of
from signals_parts.figures import Comparison
from signals_parts.protocol import Settings
from signals_parts.systems import load_tables
from signals_parts.text import of_equal_spend
from studies import study

from vinelm.errors import ConfigError

TABLES = "spider,exams,classeval"
DEPTH = 3
TITLES = {
    "spider": "eight text-to-SQL systems",
    "spider-1": "another eight",
    "spider-2": "a third eight",
    "exams": "exam questions",
    "classeval": "ClassEval",
}


def main() -> int:
    options = {
        "--tables": (TABLES, "names of tables, with commas between them (default %(default)s)"),
        "--splits": (10, "random halves (default %(default)s)"),
        "--coverage": (Settings().coverage, "share of the dollars (default %(default)s)"),
        "--depth": (DEPTH, "most calls per request, 1 to 4 (default %(default)s)"),
    }
    return study(__doc__, options, run, of_equal_spend, page=page_figures, data="folder with outcomes/ and nl2sql/")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Compare all methods on every table, under caps on dollars and, where they were recorded, on seconds."""
    if arguments.splits < 1 or not 0.0 < arguments.coverage <= 1.0 or not 1 <= arguments.depth <= 4:
        raise ConfigError("--splits: at least 1; --coverage: a share in (0, 1]; --depth: 1 to 4")
    names = tuple(name.strip() for name in arguments.tables.split(",") if name.strip())
    tables = load_tables(Path(arguments.data), None, names)
    settings = Settings(splits=arguments.splits, coverage=arguments.coverage, is_checked=False)
    found: dict[str, Any] = {"splits": settings.splits, "coverage": settings.coverage, "depth": arguments.depth, "tables": {}}
    for name, one in tables.items():
        table, about = one.table, one.about
        seconds = seconds_of(Path(arguments.data), table) if name == "exams" else None
        found["tables"][name] = {"about": about, "requests": len(table), "bounds": {}}
        for amount in AMOUNTS if seconds is not None else AMOUNTS[:1]:
            started = time.monotonic()
            paid = table.cost_usd if amount == "dollars" else seconds
            splits = [compare_split(table, paid, arguments.depth, seed, settings) for seed in range(settings.splits)]
            found["tables"][name]["bounds"][amount] = summary(table, splits)
            print(f"{name}, {amount}: {settings.splits} splits in {time.monotonic() - started:.0f} s", file=sys.stderr)
    return found


def page_figures(result: dict[str, Any]) -> dict[str, Any]:
    """One row per table and cap, and at how many of these caps VineLM is ahead of each method, or behind it, beyond chance."""
    rows, ahead = [], {}
    for name, table in result["tables"].items():
        for amount, points in table["bounds"].items():
            for point in points:
                cap = f"${1000 * point['cap']:.3g}" if amount == "dollars" else f"{point['cap']:.3g} s"
                methods = {method: one["accuracy"]["value"] for method, one in point["methods"].items()}
                leads = {method: one["vinelm_over_it"] for method, one in point["methods"].items() if "vinelm_over_it" in one}
                rows.append({"table": TITLES.get(name, name), "cap": cap, "accuracy": methods, "lead": leads})
    for method in rows[0]["lead"]:
        leads = [row["lead"][method] for row in rows]
        ahead[method] = {"ahead": sum(one["low"] > 0 for one in leads), "behind": sum(one["high"] < 0 for one in leads)}
    return {"splits": result["splits"], "depth": result["depth"], "n_caps": len(rows), "caps": rows, "vinelm": ahead}


def summary(table, splits) -> list[dict[str, Any]]:
    """Per cap: each method's accuracy and spend, and VineLM's lead over it in paired bootstrap intervals."""
    compare = Comparison.of_rows(table, [one.held_out for one in splits])
    caps = [float(cap) for cap in np.mean([one.caps for one in splits], axis=0)]
    pooled = {name: np.zeros((2, len(caps), len(table))) for name in METHODS}
    for one in splits:
        for name in METHODS:
            pooled[name][:, :, list(one.held_out)] += one.served[name]
    rows = []
    for i, cap in enumerate(caps):
        row: dict[str, Any] = {"cap": cap, "methods": {}}
        for name in METHODS:
            success, spent = pooled[name][:, i]
            row["methods"][name] = {"accuracy": compare.interval(success), "spent": compare.mean(spent)}
            for ours in ("vinelm", "path_only"):
                if name != ours:
                    row["methods"][name][f"{ours}_over_it"] = compare.interval(pooled[ours][0, i] - success)
        rows.append(row)
    return rows


if __name__ == "__main__":
    sys.exit(main())
