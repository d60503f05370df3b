"""Promised against served: does a plan's accuracy on further requests lie in the interval that was promised?

Two simulated applications (a retry loop over eight models; answer, critique and rewrite over three) and, where --data (or
VINELM_DATA) has them, the recorded Spider systems and exam questions. Each seed is another world and another sample: some
requests are profiled to a coverage, estimated and validated; a plan is chosen for the highest accuracy under a cost cap; then
held-out requests are served along it. A figure is the share of the plans whose served accuracy lies in the 90 % interval, and
the interval's mean width in points. `old`: the interval without selection, as `vinelm plan` printed it before; `old + n`:
the same with the sampling of the served requests; `promise`: the present interval for as many requests (Promise.prediction).
`gap` is promised less served accuracy. `accepted` leaves out what `vinelm estimate` refuses at its default --max-error.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from bench_estimator import SPIDER_USD_PER_1000, buy, catalog_of, exam_table, spider_table
from science.recorded_table import RecordedTable
from science.replay import replay
from simulated_evaluator import make_evaluator
from simulated_truths import make_truth
from studies import Options, study

from vinelm.controller import Planner
from vinelm.errors import EvidenceError
from vinelm.estimator import make_estimator
from vinelm.estimator.validation.checks import validate_estimate
from vinelm.objective import Objective
from vinelm.plans.promise import Z90, single_model_paths
from vinelm.trie.annotated_trie import AnnotatedTrie

MAX_ERROR = 0.15
"""The default of `vinelm estimate --max-error`."""
FIRST_SEED = 7000
"""Seeds from here on were not looked at while the promise was designed; those were 3000 to 3031."""
CAPS = (0.02, 0.1, 0.3, 1.0)
"""Cost caps, as fractions of the most expensive path's estimated dollars."""
Sample = tuple[RecordedTable, RecordedTable]
"""The requests to profile, and those to serve."""


# -- applications ----------------------------------------------------------------------------------------------


def applications(data: Path | None, served: int, *, deep: bool = False) -> dict[str, Callable[[int], Sample]]:
    """Each application's sample of a seed; ``deep`` adds one of 29,523 paths."""
    three = catalog_of(["m0", "m1", "m2"])
    found: dict[str, Callable[[int], Sample]] = {
        "simulated: retry 8x3": lambda seed: _cut(make_truth("three-skills", "8x3", seed, 300 + served), 300),
        "simulated: evaluator 3x6": lambda seed: _cut(make_evaluator(three, 2, seed, 200 + served), 200),
    }
    if deep:
        found["simulated: evaluator 3x9"] = lambda seed: _cut(make_evaluator(three, 3, seed, 100 + served), 100)
    if data is not None and data.is_dir():
        spider, exams = spider_table(data, SPIDER_USD_PER_1000), exam_table(data)
        found["real: spider 8x3"] = lambda seed: _shuffled(spider, seed, served)
        found["real: exams 9x2"] = lambda seed: _shuffled(exams, seed, served)
    return found


def _cut(table: RecordedTable, profiled: int) -> Sample:
    return table.rows(range(profiled)), table.rows(range(profiled, len(table.request_ids)))


def _shuffled(table: RecordedTable, seed: int, served: int) -> Sample:
    order = np.random.default_rng(seed).permutation(len(table.request_ids))
    return table.rows(order[served:].tolist()), table.rows(order[:served].tolist())


# -- one seed --------------------------------------------------------------------------------------------------


def trial(sample: Sample, coverage: float, seed: int) -> Iterator[dict[str, Any]]:
    """Profile, estimate, plan under each cap, and serve."""
    profiled, held_out = sample
    bought = buy(profiled, "cascade", coverage, seed)
    cells = profiled.cells(bought)
    fitted = make_estimator("latent").fit_cells(cells, profiled.template, profiled.catalog).annotated_  # type: ignore[attr-defined]
    report = validate_estimate(cells, profiled.template, profiled.catalog, fitted)
    fitted = replace(fitted, meta={**fitted.meta, "evidence": report.to_dict()})
    is_accepted = _passes(report.require)
    planner, right = Planner(fitted), held_out.answer_success
    most = float(fitted.path_cost_usd.max())
    for cap in CAPS:
        objective = Objective(maximize="accuracy", max_cost_usd=max(cap * most, _cheapest(fitted)))
        decision = planner.plan(objective)
        served = float(replay(held_out, decision.path).success.mean())
        yield _judged(decision.promise, served, len(held_out.request_ids)) | {
            "cap": cap, "is_accepted": is_accepted, "requests": cells.n_requests, "rows": len(cells),
            "true_advantage": _advantage(right, decision.promise.reference, served),
        }  # fmt: skip


def _passes(require: Callable[..., None]) -> bool:
    try:
        require(MAX_ERROR, spent_usd=1.0, everything_usd=100.0)
    except EvidenceError:
        return False
    return True


def _cheapest(fitted: AnnotatedTrie) -> float:
    return float(fitted.path_cost_usd[single_model_paths(fitted.trie)].min())


def _judged(promise: Any, served: float, n: int) -> dict[str, Any]:
    error, middle = promise.standard_error, promise.estimate
    share = (middle * n + 1.0) / (n + 2.0)
    kinds = {
        "old": _around(middle, error),
        "old + n": _around(middle, math.sqrt(error**2 + share * (1.0 - share) / n)),
        "promise": promise.prediction(n),
    }
    intervals = {kind: {"holds": low <= served <= high, "width": high - low} for kind, (low, high) in kinds.items()}
    return {
        **intervals, "old_gap": middle - served, "gap": promise.accuracy - served, "is_refused": promise.is_decided_by_optimism,
    }  # fmt: skip


def _around(middle: float, error: float) -> tuple[float, float]:
    return max(middle - Z90 * error, 0.0), min(middle + Z90 * error, 1.0)


def _advantage(right: Any, reference: int | None, served: float) -> float | None:
    return None if reference is None else served - float(right[:, reference].mean())


# -- figures ---------------------------------------------------------------------------------------------------


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over plans; widths, gaps and advantages in points."""
    kinds = ("old", "old + n", "promise")
    found: dict[str, Any] = {
        "plans": len(rows),
        "requests": round(float(np.mean([row["requests"] for row in rows]))),
        "rows": round(float(np.mean([row["rows"] for row in rows]))),
        "accepted": _mean(rows, lambda row: row["is_accepted"]),
    }
    for label, some in (("all", rows), ("accepted_only", [row for row in rows if row["is_accepted"]])):
        found[label] = {
            kind: {"in_interval": _mean(some, lambda row, k=kind: row[k]["holds"]), "width": _points(some, kind)}
            for kind in kinds
        } | {"gap_old": _mean(some, lambda row: 100 * row["old_gap"]), "gap": _mean(some, lambda row: 100 * row["gap"])}
    compared = [row for row in rows if row["true_advantage"] is not None]
    for label, is_refused in (("refused", True), ("kept", False)):
        some = [row for row in compared if row["is_refused"] is is_refused]
        found[label] = {
            "plans": len(some),
            "advantage": _mean(some, lambda row: 100 * row["true_advantage"]),
            "worse_than_single": _mean(some, lambda row: row["true_advantage"] < 0),
        }
    return found


def _points(rows: list[dict[str, Any]], kind: str) -> float | None:
    return _mean(rows, lambda row: 100 * row[kind]["width"])


def _mean(rows: list[dict[str, Any]], value: Callable[[Any], float]) -> float | None:
    return round(float(np.mean([value(row) for row in rows])), 3) if rows else None


def _line(name: str, coverage: float, found: dict[str, Any]) -> str:
    parts = [f"{name:26} {100 * coverage:4.1f} %  rows {found['rows']:5}"]
    for kind in ("old", "old + n", "promise"):
        one = found["all"][kind]
        parts.append(f"{kind} {100 * one['in_interval']:3.0f} % of {one['width']:4.1f}")
    parts.append(
        f"gap {found['all']['gap_old']:+5.1f} -> {found['all']['gap']:+5.1f}  accepted {100 * found['accepted']:3.0f} %"
    )
    refused, kept = found["refused"], found["kept"]
    parts.append(f"refused {refused['plans']} (advantage {refused['advantage']}), kept {kept['plans']} ({kept['advantage']})")
    return "  ".join(parts)


def main() -> int:
    options = {
        "--seeds": (50, ""),
        "--first-seed": (FIRST_SEED, ""),
        "--served": (100, "requests served per plan"),
        "--coverage": (float, "repeatable [0.002, 0.02, 0.1]", {"action": "append", "dest": "coverages"}),
        "--deep": (False, "also the evaluator with three turns: 29,523 paths, 10 s per seed"),
        "--app": (None, "only applications whose name contains this"),
    }
    return study(__doc__, options, measured, page=page_figures, data="folder of the real data", needs_data=False)


def measured(options: Options) -> dict[str, Any]:
    results = []
    for name, sample in applications(options.data, options.served, deep=options.deep).items():
        if options.app and options.app not in name:
            continue
        rows: dict[float, list[dict[str, Any]]] = defaultdict(list)
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            drawn = sample(seed)
            for coverage in options.coverages or (0.002, 0.02, 0.1):
                rows[coverage].extend(trial(drawn, coverage, seed))
        for coverage, found in rows.items():
            results.append({"app": name, "coverage": coverage, "served": options.served, **summary(found)})
            options.say(_line(name, coverage, results[-1]))
        print(f"done: {name}", file=sys.stderr, flush=True)
    return {"head": " ".join((__doc__ or "").split()), "seeds": options.seeds, "caps": CAPS, "results": results}


def page_figures(found: dict[str, Any]) -> dict[str, Any]:
    apps = {f"{one['app']}, {100 * one['coverage']:g} %": one for one in found["results"]}
    return {"seeds": found["seeds"], "apps": apps}


if __name__ == "__main__":
    sys.exit(main())
