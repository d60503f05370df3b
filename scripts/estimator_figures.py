"""What the pages quote of `bench_estimator.py`, by table and coverage, then by estimator."""

from __future__ import annotations

from typing import Any

LABELS = ("table", "sampler", "coverage", "estimator", "walks")


def page_figures(results: list[dict[str, Any]]) -> dict[str, Any]:
    """The results of a table at a coverage under one key, which also has the ratio of the errors of `latent` and `cascade-svd`.

    Tables in which dear requests are hard are apart, under "dollars": they are judged by dollars alone. Where rows were bought
    by several samplers, an estimator is named with its sampler. Errors are fractions.
    """
    samplers = {one["sampler"] for one in results if "sampler" in one}
    tables: dict[str, dict[str, Any]] = {}
    dollars: dict[str, dict[str, Any]] = {}
    for one in results:
        share = f"{100 * one['coverage']:g} %" if "coverage" in one else f"{one['walks']} walks"
        kind = dollars if "cost_bias" in one else tables
        row = kind.setdefault(f"{one['table']}, {share}", {"table": one["table"], "share": share, "seeds": one["seeds"]})
        name = f"{one['estimator']} by {one['sampler']}" if len(samplers) > 1 else one["estimator"]
        row[name] = {key: value for key, value in one.items() if key not in LABELS}
    for row in tables.values():
        ours, paper = row.get("latent", {}), row.get("cascade-svd", {})
        if "mae" in ours and "mae" in paper:
            row["ratio"] = ours["mae"] / paper["mae"]
    return {"tables": tables, "dollars": dollars}
