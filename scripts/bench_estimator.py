"""Estimators against known truths: error, regret, interval coverage and time, per table, coverage, sampler and estimator.

Tables are simulated truths (`simulated_truths.py`) and, where --data (or VINELM_DATA) has them, exact tables of real answers:
eight recorded Spider systems as a retry cascade, and exam questions with real same-model retries, to depth 2. Prices of the
Spider systems are assumed; everything else there is real. `coverage` is dollars of executed cells over dollars of running
every request on every reached node once. Accuracies and errors are fractions; cap_regret judges by true costs what a cap
allows; a floor is missed where the chosen path's true accuracy is over a point below it; fit_s starts from encoded rows.
Tables that branch are simulated (`branching_truths.py`) and judged by plans of one model per stage (`branching_bench.py`):
arm_mae is the error of the arms' probabilities, arm_coverage90 the share of them in their 90 % intervals. Tables in which dear
requests are hard (`priced_by_difficulty.py`) show the bias of dollars and seconds by depth.
"""

from __future__ import annotations

import csv
import gzip
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from branching_bench import branching_line, run_branching
from estimator_figures import page_figures
from long_loop_bench import long_loop_line, run_long_loop
from priced_by_difficulty import priced_line, run_priced
from science.recorded_answers import answers_table
from science.recorded_table import RecordedTable
from simulated_truths import SHAPES, TRUTHS, make_truth
from studies import Options, study

from vinelm.catalog import Catalog
from vinelm.estimator import ObservationTable, RateEstimator, make_estimator
from vinelm.profiler import make_sampler
from vinelm.requests.protocols import Sampler
from vinelm.template import Loop, Stage, Template
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import AnnotatedTrie

COVERAGES = (0.002, 0.005, 0.01, 0.02, 0.05)
EVERYWHERE = ("latent", "cascade", "cascade-svd", "average", "prefix-average")
SLOW = ("prefix-impute", "prefix-xgboost")  # at 2 % on 8x3 only
Z90 = 1.6449
SPIDER_USD_PER_1000 = {
    "gpt-4__dea_sql": 20.0, "gpt-4__dail_sql": 15.0, "gpt-4__zero_shot": 6.0, "gpt-3.5__c3": 1.0,
    "codes-7b__sft": 0.3, "codes-1b__sft": 0.05, "mistral-7b__dts_sql": 0.3, "codellama-13b__lora": 0.4,
}  # fmt: skip
HELD_OUT_USD_PER_1000 = {
    "codes-15b__sft": 0.5, "codes-3b__sft": 0.15, "codex__din_sql": 12.0, "codex__few_shot": 4.0, "deepseek-7b__dts_sql": 0.3,
    "gpt-4__dail_sql_sc": 45.0, "gpt-4__din_sql": 40.0, "gpt-4__few_shot": 10.0, "gpt-4__mac_sql": 25.0, "graphix_t5_3b": 0.15,
}  # fmt: skip
"""The ten recorded systems that no estimator was developed on; the first and the last eight of them, by name."""
HELD_OUT_SEED = 9001
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


# -- tables ----------------------------------------------------------------------------------------------------


def tables(data: Path | None, names: list[str] | None, *, held_out: bool = False) -> Iterator[tuple[str, RecordedTable]]:
    """The development tables, or those that were kept back: other systems, other seeds of the truths."""
    makers: dict[str, Callable[[], RecordedTable]] = {}
    if data is not None and data.is_dir() and held_out:
        usd = HELD_OUT_USD_PER_1000
        makers["held out, real: spider a 8x3"] = lambda: spider_table(data, dict(list(usd.items())[:8]))
        makers["held out, real: spider b 8x3"] = lambda: spider_table(data, dict(list(usd.items())[-8:]))
    elif data is not None and data.is_dir():
        makers["real: spider 8x3"] = lambda: spider_table(data, SPIDER_USD_PER_1000)
        makers["real: exams 9x2"] = lambda: exam_table(data)
    kind, seed = ("held out, simulated", HELD_OUT_SEED) if held_out else ("simulated", 0)
    for truth in TRUTHS:
        for shape in SHAPES:
            makers[f"{kind}: {truth} {shape}"] = lambda truth=truth, shape=shape: make_truth(truth, shape, seed)
    for name, make in makers.items():
        if not names or any(part in name for part in names):
            yield name, make()


def spider_table(data: Path, usd_per_1000: dict[str, float]) -> RecordedTable:
    """Recorded systems; asking the same one again repeats its answer, so the table is exact at every depth."""
    catalog = catalog_of(list(usd_per_1000))
    template = Template((Stage("generate"), Loop((Stage("repair"),), times=2)), "oracle").bind(tuple(catalog))
    rng = np.random.default_rng(20261120)

    def cost(requests: Any, models: Any) -> Floats:
        size = rng.lognormal(-0.125, 0.5, (len(requests), 1))
        return np.asarray(size * np.array([usd_per_1000[model] / 1000 for model in models]))

    return answers_table(data / "outcomes" / "spider_sql.csv.gz", template, catalog, cost)


def exam_table(data: Path) -> RecordedTable:
    """Exam questions, nine models, two turns. Round 2 of the same model is its recorded retry; another model after a failure is
    that model's own first answer. Exact to depth 2 and no further. Questions that some model left without an answer are out.
    """
    with gzip.open(data / "outcomes" / "exam_retries.csv.gz", "rt", encoding="utf-8", newline="") as text:
        rows = list(csv.DictReader(text))
    cell = {((row["dataset"], row["question_id"]), row["model"], row["round"]): row for row in rows}
    models = sorted({row["model"] for row in rows})

    def is_whole(question: tuple[str, str]) -> bool:
        first = [cell.get((question, model, "1")) for model in models]
        return all(row and (row["correct"] == "1" or (question, row["model"], "2") in cell) for row in first)

    questions = sorted({(row["dataset"], row["question_id"]) for row in rows})
    questions = [question for question in questions if is_whole(question)]
    catalog = catalog_of(models)
    template = Template((Stage("answer"), Loop((Stage("retry"),), times=1)), "oracle").bind(tuple(catalog))
    trie = Trie.from_template(template)
    shape = (len(questions), len(trie))
    success, cost, latency = np.zeros(shape, np.bool_), np.zeros(shape), np.zeros(shape)
    for i, question in enumerate(questions):
        for node in range(1, len(trie)):
            path = trie.prefix(node)
            again = len(path) == 2 and path[0] == path[1]
            row = cell.get((question, path[-1], "2" if again else "1"), cell[question, path[-1], "1"])
            success[i, node] = row["correct"] == "1"
            cost[i, node], latency[i, node] = float(row["cost_usd"] or 0.0), float(row["latency_s"] or 0.0)
    names = tuple("/".join(question) for question in questions)
    return RecordedTable(template, catalog, trie, names, success, success.copy(), cost, latency)


def catalog_of(models: list[str]) -> Catalog:
    price = {"input": 1.0, "output": 1.0, "source": "not used: the table has its own costs", "as_of": "2025-01-01"}
    return Catalog.from_dict({"model": [{"name": n, "provider": "recorded", "model": n, "price": price} for n in models]})


# -- sampling --------------------------------------------------------------------------------------------------


def buy(table: RecordedTable, sampler: str | Sampler, coverage: float, seed: int) -> Bools:
    """Cells bought until their dollars reach the coverage, shape (requests, n + 1). The seed is that of a sampler by name."""
    budget = coverage * table.exhaustive_cost_usd
    row = {name: i for i, name in enumerate(table.request_ids)}
    nodes: dict[tuple[str, ...], list[int]] = {}
    bought = np.zeros(table.success.shape, np.bool_)
    spent, round_ = 0.0, 0
    make: Any = sampler
    if isinstance(sampler, str):
        make = make_sampler(sampler, table.template, table.request_ids, seed)
    while spent < budget:
        seen = [table.observation(int(r), int(u)) for r, u in np.argwhere(bought)] if round_ else []
        before = spent
        for walk in make.propose(round_, seen):
            request = row[walk.request_id]
            if walk.path not in nodes:
                nodes[walk.path] = table.trie.path(table.trie.node(walk.path))
            for node in nodes[walk.path]:
                if not bought[request, node]:
                    bought[request, node] = True
                    spent += table.cost_usd[request, node]
                if table.ended[request, node]:
                    break
            if spent >= budget:
                break
        round_ += 1
        if spent == before:
            break
    return bought


# -- judging ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Truth:
    """Exact path accuracies and costs, shape (nodes,) without the root, and the caps and floors that plans are tried at."""

    accuracy: Floats
    cost_usd: Floats
    latency_s: Floats
    caps: Floats
    floors: Floats

    @classmethod
    def of(cls, table: RecordedTable) -> Truth:
        """Caps at quantiles of the paths' costs, floors evenly over their accuracies."""
        exact = table.annotate()
        accuracy, cost = exact.accuracy[1:], exact.path_cost_usd[1:]
        caps = np.quantile(cost, np.linspace(0.02, 1.0, 25))
        floors = np.linspace(np.quantile(accuracy, 0.05), accuracy.max() - 0.005, 20)
        return cls(accuracy, cost, exact.path_latency_s[1:], caps, floors)


def judge(truth: Truth, fitted: AnnotatedTrie) -> dict[str, float]:
    error = fitted.accuracy[1:] - truth.accuracy
    found = {
        "mae": float(np.abs(error).mean()), "max_abs": float(np.abs(error).max()), "signed": float(error.mean()),
        "cap_regret": float(np.mean([_regret(truth, fitted.accuracy[1:], cap) for cap in truth.caps])),
        "floor_miss_rate": float(np.mean([_misses(truth, fitted, floor) for floor in truth.floors])),
        "cost_mae_relative": float(np.abs(fitted.path_cost_usd[1:] / truth.cost_usd - 1.0).mean()),
    }  # fmt: skip
    if truth.latency_s.any():
        found["latency_mae_relative"] = float(np.abs(fitted.path_latency_s[1:] / truth.latency_s - 1.0).mean())
    found |= _covered("coverage90", error, fitted.accuracy_se)
    found |= _covered("cost_coverage90", fitted.path_cost_usd[1:] - truth.cost_usd, fitted.cost_se)
    if truth.latency_s.any():
        found |= _covered("latency_coverage90", fitted.path_latency_s[1:] - truth.latency_s, fitted.latency_se)
    return found


def _covered(name: str, error: Floats, standard_error: Floats | None) -> dict[str, float]:
    """Share of the paths whose true value lies in the 90 % interval; nothing where the estimator gives none."""
    return {} if standard_error is None else {name: float(np.mean(np.abs(error) <= Z90 * standard_error[1:]))}


def _regret(truth: Truth, estimate: Floats, cap: float) -> float:
    allowed = truth.cost_usd <= cap
    return float(truth.accuracy[allowed].max() - truth.accuracy[allowed][np.argmax(estimate[allowed])])


def _misses(truth: Truth, fitted: AnnotatedTrie, floor: float) -> bool:
    meets = fitted.accuracy[1:] >= floor
    if not meets.any():
        return False
    chosen = np.flatnonzero(meets)[np.argmin(fitted.path_cost_usd[1:][meets])]
    return bool(truth.accuracy[chosen] < floor - 0.01)


# -- running ---------------------------------------------------------------------------------------------------


def run(name: str, table: RecordedTable, settings: Options) -> Iterator[dict[str, Any]]:
    truth = Truth.of(table)
    for sampler in settings.samplers:
        for coverage in settings.coverages:
            n_seeds = settings.seeds
            found: dict[str, list[dict[str, float]]] = {}
            depths: list[list[int]] = []
            for seed in range(n_seeds):
                cells = table.cells(buy(table, sampler, coverage, seed))
                depths.append(cells.count_by_depth)
                for estimator in estimators(name, table, coverage, settings.slow):
                    found.setdefault(estimator, []).append(fit_and_judge(estimator, cells, table, truth))
            for estimator, results in found.items():
                means = {key: float(np.mean([result[key] for result in results])) for key in results[0]}
                by_depth = [round(float(n), 1) for n in np.mean(depths, axis=0)]
                yield {
                    "table": name, "sampler": sampler, "coverage": coverage, "estimator": estimator, "seeds": n_seeds,
                    "cells_by_depth": by_depth, **{key: round(value, 5) for key, value in means.items()},
                }  # fmt: skip


def estimators(name: str, table: RecordedTable, coverage: float, slow: bool) -> list[str]:
    known = [each for each in EVERYWHERE if table.template.stop == "oracle" or not each.startswith("prefix")]
    if slow and coverage == 0.02 and table.template.stop == "oracle" and "8x3" in name:
        known += SLOW
    return known


def fit_and_judge(name: str, cells: ObservationTable, table: RecordedTable, truth: Truth) -> dict[str, float]:
    estimator = make_estimator(name)
    assert isinstance(estimator, RateEstimator)
    start = time.perf_counter()
    fitted = estimator.fit_cells(cells, table.template, table.catalog).annotated_
    seconds = time.perf_counter() - start
    return judge(truth, fitted) | {"fit_s": seconds}


def main() -> int:
    options = {
        "--quick": (False, "5 seeds, 0.5 and 2 %%, no slow baselines"),
        "--table": (None, "only tables whose name contains this (repeatable)", {"action": "append"}),
        "--held-out": (False, "systems and truths kept back from development"),
        "--seeds": (int, ""),
        "--sampler": (None, "cascade (the default), priced; repeatable", {"action": "append", "dest": "samplers"}),
        "--coverage": (float, "", {"action": "append", "dest": "coverages"}),
    }
    data = "folder of the real data"
    return study(__doc__, options, measured, page=lambda found: page_figures(found["results"]), data=data, needs_data=False)


def measured(options: Options) -> dict[str, Any]:
    options.slow = not options.quick
    options.seeds = options.seeds or (5 if options.quick else 20)
    options.samplers = options.samplers or ["cascade"]
    options.coverages = options.coverages or ([0.005, 0.02] if options.quick else list(COVERAGES))
    asked, truth_seed = (options.table, options.coverages, options.seeds), HELD_OUT_SEED if options.held_out else 0
    results = []

    def tell(found: Iterable[dict[str, Any]], line: Callable[[dict[str, Any]], str]) -> None:
        for result in found:
            results.append(result)
            options.say(line(result))

    for name, table in tables(options.data, options.table, held_out=options.held_out):
        tell(run(name, table, options), line)
        print(f"done: {name}", file=sys.stderr, flush=True)
    tell(run_branching(*asked, truth_seed=truth_seed), branching_line)
    tell(run_priced(*asked, truth_seed=truth_seed, rows=lambda of, *how: of.cells(buy(of, "cascade", *how))), priced_line)
    tell(run_long_loop(options.table, options.seeds), long_loop_line)
    return {"head": " ".join((__doc__ or "").split()), "results": results}


def line(result: dict[str, Any]) -> str:
    covered = f"{100 * result['coverage90']:4.0f} %" if "coverage90" in result else "     -"
    return (
        f"{result['table']:34} {result['sampler']:9} {100 * result['coverage']:4.1f} %  {result['estimator']:14}"
        f" mae {100 * result['mae']:5.2f}  max {100 * result['max_abs']:5.1f}  signed {100 * result['signed']:+6.2f}"
        f"  cap {100 * result['cap_regret']:5.2f}  floor {100 * result['floor_miss_rate']:3.0f} %  in 90 % {covered}"
        f"  {1000 * result['fit_s']:6.0f} ms  cells {result['cells_by_depth']}"
    )


if __name__ == "__main__":
    sys.exit(main())
