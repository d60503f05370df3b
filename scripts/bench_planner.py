"""Time of one plan, from 30 to 2.4 million paths, beside a pruned depth-first search (VineLM paper §4.3) and an array scan.

fresh_median_us: with an objective that was never asked before: other bounds than all earlier ones, so that nothing kept from an
earlier plan helps. median_us: with one that was used before. The medians of plans are by the wall clock; building, questions
without an answer, and the other ways to answer are processor time, which a busy machine does not prolong.

Tries that branch are planned over by backward induction; python_us is the same induction node by node in plain Python, and
path_us a plan over a linear trie of about the same size.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
from planner_rivals import dfs_time, python_induction_time, slice_time
from planner_tries import KINDS, branching_trie, impossible, objectives, synthetic
from stage_overhead import stage_overhead
from studies import Options, study, table

from vinelm.controller import Planner
from vinelm.objective import Objective
from vinelm.trie.annotated_trie import AnnotatedTrie

SHAPES = ((2, 4), (8, 3), (4, 6), (8, 5), (8, 6), (8, 7))
BRANCHING = ((4, 3, 1_000), (8, 3, 30_000), (4, 6, 1_000_000))
"""Models, turns of the branching loop, and nodes in round figures."""
FRESH = 24
"""Objectives of their own that are asked of a trie that branches. A budget takes a search for a price of accuracy."""


def main() -> int:
    options = {"--max-nodes": (3_000_000, ""), "--queries": (400, ""), "--seed": (0, "")}
    return study(__doc__, options, measured, page=page_figures)


def measured(options: Options) -> dict[str, Any]:
    rows = []
    for n_models, depth in SHAPES:
        if sum(n_models**k for k in range(1, depth + 1)) > options.max_nodes:
            continue
        annotated = synthetic(n_models, depth, options.seed)
        for kind in KINDS:
            found = bench(annotated, kind, options)
            for line in chain.from_iterable(map(row_lines, found[-2:])):
                options.say(line)
            rows += found
    known = [(n_models, turns) for n_models, turns, size in BRANCHING if size <= options.max_nodes]
    branching = [row for n_models, turns in known for row in bench_branching(n_models, turns, options)]
    overhead = stage_overhead()
    told = ["-" if row["python_us"] is None else f"{row['python_us']:.0f}" for row in branching]
    for line in table([row | {"python": text} for row, text in zip(branching, told, strict=True)], BRANCHING_COLUMNS):
        options.say(line)
    options.say(", ".join(f"{name} {value:.0f}" for name, value in overhead.items()))
    return {"replans": rows, "branching": branching, **overhead}


def page_figures(measured: dict[str, Any]) -> dict[str, Any]:
    """The rows by question, then by number of paths; those of tries that branch by number of nodes, then by objective."""
    found: dict[str, Any] = {**measured, "replans": {}, "branching": {}}
    for row in measured["replans"]:
        question = f"{row['objective'].replace(' | ', ' under ')}, {'loaded' if row['loaded_engines'] else 'no load'}"
        found["replans"].setdefault(question, {})[f"{row['nodes']:,}"] = row
    for row in measured["branching"]:
        found["branching"].setdefault(f"{row['nodes']:,}", {})[row["objective"].replace(" | ", " under ")] = row
    return found


def row_lines(row) -> Iterator[str]:
    if row["nodes"] == 30 and row["objective"] == KINDS[0] and not row["loaded_engines"]:
        yield (
            f"{'nodes':>9} {'objective':14} loaded fresh_us reused_us    p99 (cpu)  step_us    p99  none fits    dfs_us"
            "  slice_us  build_s bytes/node"
        )
    plans = " ".join(f"{row[name]:{width}.{digits}f}" for name, width, digits in (
        ("fresh_median_us", 8, 1), ("median_us", 9, 1), ("p99_us", 6, 0), ("p99_cpu_us", 5, 0),
        ("step_median_us", 8, 1), ("step_p99_us", 6, 0),
        ("infeasible_us", 10, 1), ("python_dfs_us", 9, 0), ("numpy_slice_us", 9, 0), ("build_s", 8, 2),
        ("bytes_per_node", 10, 1),
    ))  # fmt: skip
    yield f"{row['nodes']:9,} {row['objective']:14} {row['loaded_engines']:6} {plans}"


def bench(annotated: AnnotatedTrie, kind: str, options) -> list[dict[str, object]]:
    rng = np.random.default_rng(options.seed + 1)
    asked = objectives(annotated, kind, options.queries, rng)
    planner = Planner(annotated)
    started = time.process_time()
    planner.prepare(asked[0])
    build_s = time.process_time() - started
    rows = []
    for is_loaded in (False, True):
        loads = [
            {f"e{i}": float(s) for i, s in enumerate(rng.exponential(0.3, 8))} if is_loaded else None
            for _ in range(options.queries)
        ]
        root_us, cpu_us, step_us, feasible = replans(planner, asked, loads, rng)
        few = max(2, min(options.queries, 400_000 // len(annotated.trie)))
        rows.append(
            {
                "nodes": annotated.trie.n_nodes,
                "objective": kind,
                "loaded_engines": 8 if is_loaded else 0,
                "feasible": feasible,
                "infeasible_us": infeasible_time(planner, impossible(annotated, kind), loads),
                "fresh_median_us": fresh_time(planner, unasked(annotated, kind, options.queries, options.seed), loads),
                "median_us": statistics.median(root_us),
                "p99_us": float(np.quantile(root_us, 0.99)),
                "p99_cpu_us": float(np.quantile(cpu_us, 0.99)),
                "step_median_us": statistics.median(step_us),
                "step_p99_us": float(np.quantile(step_us, 0.99)),
                "build_s": build_s,
                "bytes_per_node": planner.index_bytes / annotated.trie.n_nodes,
                "ends_kept": planner.index_ends,
                "python_dfs_us": dfs_time(annotated, asked[:few], loads[:few]),
                "numpy_slice_us": slice_time(planner, asked[:few], loads[:few]),
            }
        )
    return rows


def bench_branching(n_models: int, turns: int, options) -> list[dict[str, object]]:
    """Plans at the root of a trie that branches: without a clock, with time left, and with time left and load."""
    annotated = branching_trie(n_models, turns, options.seed)
    rng = np.random.default_rng(options.seed + 1)
    planner = Planner(annotated)
    dearest = planner.plan(Objective(maximize="accuracy")).plan
    cost = [Objective(maximize="accuracy", max_cost_usd=float(u) * dearest.cost_usd) for u in rng.uniform(0.1, 0.9, FRESH)]
    timed = [
        Objective(maximize="accuracy", max_latency_s=float(u) * dearest.latency_s) for u in rng.uniform(0.2, 0.9, 2 * FRESH)
    ]
    load = {f"e{i}": float(s) for i, s in enumerate(rng.exponential(0.3, n_models))}
    few = 8 if len(annotated.trie) < 100_000 else 2
    rows: list[dict[str, object]] = []
    for kind, asked, extra in (
        ("max A | C", cost, None),
        ("max A | T", timed[:FRESH], None),
        ("max A | T, load", timed[FRESH:], load),
    ):
        fresh_us, fresh_cpu_us = plan_times(planner, asked, extra)
        again_us, _ = plan_times(planner, asked, extra)
        rows.append(
            {
                "nodes": annotated.trie.n_nodes,
                "objective": kind,
                "fresh_median_us": statistics.median(fresh_us),
                "fresh_median_cpu_us": statistics.median(fresh_cpu_us),
                "p99_us": float(np.quantile(fresh_us, 0.99)),
                "again_median_us": statistics.median(again_us),
                "python_us": None if asked is cost else python_induction_time(annotated, asked[:few], extra),
            }
        )
    path_us = path_time(annotated.trie.n_nodes, options)
    return [row | {"path_us": path_us} for row in rows]


def plan_times(planner, asked, load) -> tuple[list[float], list[float]]:
    """Microseconds of a plan at the root for each objective, by the wall clock and of the processor."""
    wall_us, cpu_us = [], []
    for objective in asked:
        before_cpu, before = time.thread_time_ns(), time.perf_counter_ns()
        planner.plan(objective, load=load)
        wall_us.append((time.perf_counter_ns() - before) / 1000)
        cpu_us.append((time.thread_time_ns() - before_cpu) / 1000)
    return wall_us, cpu_us


def path_time(nodes: int, options) -> float:
    """Median microseconds of a plan within a budget over the linear trie whose size is the nearest."""
    n_models, depth = min(SHAPES, key=lambda shape: abs(sum(shape[0] ** k for k in range(1, shape[1] + 1)) - nodes))
    annotated = synthetic(n_models, depth, options.seed)
    planner = Planner(annotated)
    asked = objectives(annotated, "max A | C", 100, np.random.default_rng(options.seed))
    planner.prepare(asked[0])
    return fresh_time(planner, unasked(annotated, "max A | C", 200, options.seed), [None] * 200)


BRANCHING_COLUMNS = {
    "nodes": "{nodes:,}", "branching": "{objective}", "fresh_us": "{fresh_median_us:.1f}", "p99_us": "{p99_us:.0f}",
    "(cpu)": "{fresh_median_cpu_us:.0f}", "again_us": "{again_median_us:.1f}", "python_us": "{python}",
    "path_us": "{path_us:.1f}",
}  # fmt: skip
"""By head, of the table of tries that branch; the comparison in Python is made on small tries alone."""


def unasked(annotated: AnnotatedTrie, kind: str, count: int, seed: int) -> list[Objective]:
    """Objectives of the kind with bounds of their own: each differs from all others, and from those asked before."""
    rng = np.random.default_rng(seed + 2)
    made = objectives(annotated, kind, count, rng)
    bounds = ("min_accuracy", "max_cost_usd", "max_latency_s")
    given = [{name: getattr(one, name) for name in bounds if getattr(one, name) is not None} for one in made]
    nudges = rng.uniform(0.999, 1.0, count)
    return [
        replace(one, **{name: value * float(nudge) for name, value in found.items()})
        for one, found, nudge in zip(made, given, nudges, strict=True)
    ]


def fresh_time(planner, asked, loads) -> float:
    """Median microseconds of a feasible plan at the root with each of these objectives, which were never asked before."""
    times = []
    for objective, load in zip(asked, loads, strict=True):
        before = time.perf_counter_ns()
        decision = planner.plan(objective, load=load)
        after = time.perf_counter_ns()
        if decision.is_feasible:
            times.append((after - before) / 1000)
    return statistics.median(times)


def infeasible_time(planner, objective, loads) -> float:
    times = []
    for load in loads:
        before = time.thread_time_ns()
        decision = planner.plan(objective, load=load)
        times.append((time.thread_time_ns() - before) / 1000)
        assert not decision.is_feasible
    return statistics.median(times)


def replans(planner, asked, loads, rng):
    """Microseconds of each plan at the root by the wall clock and of the processor, the mean wall time over each request's
    steps, and the share of feasible requests. On a busy machine the slowest wall times are due to the scheduler.
    """
    for _ in range(2):  # the first pass builds what prepare() leaves to the first request
        root_us, cpu_us, step_us, feasible = [], [], [], 0
        for objective, load in zip(asked, loads, strict=True):
            node, elapsed, steps = 0, 0.0, []
            while True:
                before_cpu = time.thread_time_ns()
                before = time.perf_counter_ns()
                decision = planner.plan(objective, node=node, elapsed_s=elapsed, load=load)
                steps.append((time.perf_counter_ns() - before) / 1000)
                cpu = (time.thread_time_ns() - before_cpu) / 1000
                if node == 0:
                    if not decision.is_feasible:
                        break
                    feasible += 1
                    root_us.append(steps[0])
                    cpu_us.append(cpu)
                if decision.stop or not decision.is_feasible:
                    break
                node = planner.trie.child(node, decision.next_model)
                elapsed += float(planner.annotated.latency_s[node]) * float(rng.lognormal(-0.03, 0.25))
            if decision.is_feasible or len(steps) > 1:
                step_us.append(statistics.mean(steps))
    return root_us, cpu_us, step_us, feasible / len(asked)


if __name__ == "__main__":
    sys.exit(main())
