"""Latency SLOs under load: SLO violations and right answers in time of static plans, the paper's and risk-aware policies.

Engines and their load are simulated (`scripts/science/simulator.py`); requests are simulated or recorded
(`slo_workloads.py`). Requests end by --stop: an oracle's, as in the paper, or the workflow's own check. Bursty arrivals come
from a real trace if --data (or VINELM_DATA) has one. The trie is annotated on other requests than those served. Objective:
highest accuracy within the SLO. "crowd" arrivals come four times as fast, with load reports that are fresh, old, or old and
corrected by our own dispatches since.

There are two static plans. That of the paper is the best by the trie's means, which are those of idle engines. The strong one
is the best of the same plans in simulations under the load that is served, with other requests and seeds (`slo_rivals.py`);
it is also served with a guard (no further call that does not fit now) and hedged (a late call is made again, of the fastest
other model). Reactive greedy takes, of the models whose expected time × 1.5 fits now, the most accurate. All policies but the
last plan over a complete annotation; the last is the program over a sparse one, bought for 2 % of the dollars of up to 500
requests.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from result_files import add_results_option, provenance, write_results
from science.recorded_table import RecordedTable
from science.restricted_plans import best_workflow_level
from science.simulator import (
    ModelChooser,
    SimulatedEngine,
    SimulationSettings,
    replanning_chooser,
    simulate,
    simulated_slowdown,
    static_chooser,
)
from slo_figures import (
    AWARE,
    DEVIATION,
    FRESH,
    GREEDY,
    GUARDED,
    HEDGED,
    LOAD_AWARE,
    OLD,
    OLD_CORRECTED,
    PROGRAM,
    SPARSE,
    STATIC,
    STRONG,
    UNAWARE,
    page_figures,
    report,
    summary,
    violations_by_weight,
)
from slo_rivals import PlansUnderLoad, greedy_chooser, guarded_chooser, hedged_chooser, sparse_annotation
from slo_workloads import WORKLOADS, SloWorkload

from vinelm.controller import Planner
from vinelm.objective import Objective

ARRIVALS = ("idle", "Poisson", "bursty")
SLOTS, SLOPE, OTHERS = 8, 0.06, 2.4  # per engine: concurrent requests, slowdown per request, mean running background requests
BUSY = 1.84  # mean number of our running first calls if each went to the average model: one per second for simulated models
CROWD = 4.0
STOPS = ("oracle", "workflow")
FIGURES = ("violation_rate", "accuracy", "in_slo_accuracy", "cost_usd")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", choices=WORKLOADS, default="simulated")
    parser.add_argument("--data", type=Path, default=os.environ.get("VINELM_DATA"), help="folder with arrivals/ and outcomes/")
    parser.add_argument(
        "--stop",
        choices=STOPS,
        default=STOPS[0],
        help="who ends a request: an oracle, or the workflow's own check",
    )
    parser.add_argument("--arrivals", nargs="+", choices=(*ARRIVALS, "crowd"), default=(*ARRIVALS, "crowd"))
    parser.add_argument("--slos", nargs="+", type=float, help="seconds [default: the workload's six]")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument(
        "--late-weight", type=float, nargs="+", help="of the stochastic program, one or several [default: its own]"
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes, a seed each [default: all cores]")
    parser.add_argument("--json", action="store_true")
    add_results_option(parser)
    options = parser.parse_args()
    made = provenance(options)
    started = time.perf_counter()
    workload = workload_of(options.workload, options.data, options.stop)  # before the workers fork, which share it
    by_weight = measured(options)
    about = {
        "workload": options.workload,
        "about": workload.about,
        "stop": options.stop,
        "seeds": options.seeds,
        "run_s": round(time.perf_counter() - started, 1),
    }
    if options.results:
        write_results(options.results, made, {**about, **figures_of(by_weight)})
    told = {weight: {"summary": summary(rows), "rows": rows} for weight, rows in by_weight.items()}
    if options.json:
        found = told if len(told) > 1 else next(iter(told.values()))
        print(json.dumps({**about, **({"late_weights": found} if len(told) > 1 else found)}))
        return 0
    for weight, rows in by_weight.items():
        print("" if weight is None else f"late_weight {weight:g}")
        report(about, rows)
        print()
        for name, value in told[weight]["summary"].items():
            print(f"{name:64} {value}")
    return 0


def measured(options: argparse.Namespace) -> dict[float | None, list[dict]]:
    """The rows of all seeds, by weight of a late answer; None stands for the program's own."""
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    with ProcessPoolExecutor(options.workers) as pool:
        jobs = {
            weight: [pool.submit(rows_of, options.workload, options.data, seed, options, weight) for seed in seeds]
            for weight in options.late_weight or [None]
        }
        return {weight: [row for job in mine for row in job.result()] for weight, mine in jobs.items()}


def figures_of(by_weight: dict[float | None, list[dict]]) -> dict[str, object]:
    """What the pages quote."""
    if len(by_weight) > 1:
        return {"late_weights": violations_by_weight(by_weight)}
    return page_figures(next(iter(by_weight.values())))


@cache
def workload_of(name: str, data: Path | None, stop: str) -> SloWorkload:
    return WORKLOADS[name](data).stopped_by(stop)


def rows_of(name: str, data: Path | None, seed: int, options: argparse.Namespace, late_weight: float | None) -> list[dict]:
    """All rows of one seed."""
    workload = workload_of(name, data, options.stop)
    if options.slos:
        workload = replace(workload, slos_s=tuple(options.slos))
    bench = Bench.of(workload, seed, late_weight)
    return [row for arrivals in options.arrivals for row in bench.rows(arrivals, data)]


@dataclass(frozen=True)
class Bench:
    """One seed's requests and engines, and planners over tries of other requests: a complete and a sparse annotation."""

    workload: SloWorkload
    planner: Planner
    sparse: Planner
    training: RecordedTable
    served: RecordedTable
    engines: tuple[SimulatedEngine, ...]
    curves: dict
    seed: int
    late_weight: float | None

    @classmethod
    def of(cls, workload: SloWorkload, seed: int, late_weight: float | None = None) -> Bench:
        """Create one engine per model, with its slowdown curve measured in the simulator."""
        training, served = workload.split(seed)
        engines = tuple(
            SimulatedEngine(name, slots=SLOTS, slope=SLOPE, others_per_s=OTHERS / seconds, others_mean_s=seconds)
            for name, seconds in workload.seconds.items()
        )
        trie = training.trie
        first = {trie.models[int(trie.model[node])]: training.latency_s[:, node] for node in trie.levels[1]}
        curves = {engine.name: simulated_slowdown(engine, first[engine.name]) for engine in engines}
        planner, sparse = Planner(training.annotate()), Planner(sparse_annotation(training, seed))
        return cls(workload, planner, sparse, training, served, engines, curves, seed, late_weight)

    def rows(self, arrivals: str, data: Path | None) -> Iterator[dict]:
        """Simulate every policy at every SLO under these arrivals."""
        per_second = self.per_second(arrivals)
        times, source = self.times(arrivals, data, self.seed)
        reports = (FRESH, OLD, OLD_CORRECTED) if arrivals == "crowd" else (FRESH, OLD_CORRECTED)
        plans = PlansUnderLoad(
            self.planner,
            self.training,
            len(self.served.request_ids),
            lambda seed: self.times(arrivals, data, seed)[0],
            lambda seed: self.settings(arrivals, seed),
            self.seed,
        )
        for slo_s in self.workload.slos_s:
            for policy, choose in self.choosers(slo_s, plans).items():
                for age_s, has_correction in reports if policy in LOAD_AWARE else (FRESH,):
                    setting = replace(self.settings(arrivals, self.seed), load_age_s=age_s, has_correction=has_correction)
                    found = simulate(self.served, times, choose, setting)
                    in_time = found.latency_s <= slo_s
                    figures = (~in_time, found.success, found.success & in_time, found.cost_usd)
                    yield {
                        "policy": policy,
                        "slo_s": slo_s,
                        "arrivals": source,
                        "per_second": round(float(per_second), 3) if arrivals != "idle" else None,
                        "load_age_s": (age_s or 0.0) if policy in LOAD_AWARE else None,
                        "has_dispatch_correction": has_correction,
                        "seed": self.seed,
                        **{name: float(values.mean()) for name, values in zip(FIGURES, figures, strict=True)},
                    }

    def per_second(self, arrivals: str) -> float:
        """Return the mean rate of our requests; of no meaning for idle engines."""
        return BUSY / np.mean(list(self.workload.seconds.values())) * (CROWD if arrivals == "crowd" else 1.0)

    def times(self, arrivals: str, data: Path | None, seed: int) -> tuple[np.ndarray, str]:
        """Return the arrival times of as many requests as are served, and what they are."""
        idle_s = 30 * max(self.workload.seconds.values())
        return arrival_times(arrivals, len(self.served.request_ids), self.per_second(arrivals), idle_s, data, seed)

    def settings(self, arrivals: str, seed: int) -> SimulationSettings:
        """Return the engines with the background traffic of a seed, none where they are idle, and fresh load reports."""
        idle = tuple(SimulatedEngine(e.name, e.slots, e.slope) for e in self.engines)
        return SimulationSettings(engines=self.engines if arrivals != "idle" else idle, curves=self.curves, seed=seed)

    def choosers(self, slo_s: float, plans: PlansUnderLoad) -> dict[str, ModelChooser]:
        """Return the policies; all have the same target and latency cap."""
        objective = Objective(maximize="accuracy", max_latency_s=slo_s)
        program = replace(objective, risk="dp", late_weight=self.late_weight)
        strong = plans.best(slo_s, self.late_weight)
        return {
            STATIC: static_chooser(best_workflow_level(self.planner, objective), self.planner),
            STRONG: static_chooser(strong, self.planner),
            HEDGED: hedged_chooser(strong, self.planner),
            UNAWARE: replanning_chooser(self.planner, objective, has_load=False),
            GUARDED: guarded_chooser(strong, self.planner, slo_s),
            GREEDY: greedy_chooser(self.planner, slo_s),
            AWARE: replanning_chooser(self.planner, objective),
            DEVIATION: replanning_chooser(self.planner, replace(objective, risk="mean+sd")),
            PROGRAM: replanning_chooser(self.planner, program),
            SPARSE: replanning_chooser(self.sparse, program),
        }


def arrival_times(kind: str, count: int, per_second: float, idle_s: float, data: Path | None, seed: int):  # noqa: PLR0917
    rng = np.random.default_rng([seed, 11])
    if kind == "idle":
        return np.arange(count) * idle_s, "idle"
    if kind != "bursty":
        return np.cumsum(rng.exponential(1 / per_second, count)), kind
    trace = data and data / "arrivals" / "azure_2023_conv.csv.gz"
    if not trace or not trace.is_file():
        return np.cumsum(rng.gamma(0.15, 1 / (0.15 * per_second), count)), "bursty (gamma; no trace at hand)"
    with gzip.open(trace, "rt", encoding="utf-8") as lines:
        times = np.array([float(row["arrival_s"]) for row in csv.DictReader(lines)])
    start = int(rng.integers(0, len(times) - count))
    part = times[start : start + count] - times[start]
    return part * (count / per_second) / part[-1], "bursty (Azure 2023 conversations)"


if __name__ == "__main__":
    sys.exit(main())
