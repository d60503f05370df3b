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

import csv
import gzip
import os
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
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
from studies import Options, each, study

from vinelm.controller import Planner
from vinelm.objective import Objective

ARRIVALS = ("idle", "Poisson", "bursty")
SLOTS, SLOPE, OTHERS = 8, 0.06, 2.4  # per engine: concurrent requests, slowdown per request, mean running background requests
BUSY = 1.84  # mean number of our running first calls if each went to the average model: one per second for simulated models
CROWD = 4.0
STOPS = ("oracle", "workflow")
FIGURES = ("violation_rate", "accuracy", "in_slo_accuracy", "cost_usd")


def main() -> int:
    arrivals = (*ARRIVALS, "crowd")
    options = {
        "--workload": ("simulated", "", {"choices": WORKLOADS}),
        "--stop": (STOPS[0], "who ends a request: an oracle, or the workflow's own check", {"choices": STOPS}),
        "--arrivals": (arrivals, "", {"choices": arrivals}),
        "--slos": (float, "seconds [default: the workload's six]", {"nargs": "+"}),
        "--seeds": (5, ""),
        "--first-seed": (0, ""),
        "--late-weight": (float, "of the stochastic program, one or several [default: its own]", {"nargs": "+"}),
        "--workers": (os.cpu_count(), "processes, a seed each [default: all cores]"),
    }
    about = "folder with arrivals/ and outcomes/"
    return study(__doc__, options, measured, lines, page=figures_of, data=about, needs_data=False)


def measured(options: Options) -> dict[str, Any]:
    """The rows of all seeds; by weight of a late answer where several are asked for."""
    started = time.perf_counter()
    workload = workload_of(options.workload, options.data, options.stop)  # before the workers fork, which share it
    weights = options.late_weight or [None]
    asked = Namespace(**{name: vars(options)[name] for name in ("stop", "slos", "arrivals")})
    cells = [(weight, options.first_seed + seed) for weight in weights for seed in range(options.seeds)]
    rows = list(each(partial(rows_of, options.workload, options.data, options=asked), cells, jobs=options.workers))
    told: dict[float | None, Any] = {weight: {} for weight in weights}
    for weight in weights:
        mine = [row for (each_weight, _), found in zip(cells, rows, strict=True) if each_weight == weight for row in found]
        told[weight] = {"summary": summary(mine), "rows": mine}
    return {
        "workload": options.workload, "about": workload.about, "stop": options.stop, "seeds": options.seeds,
        "run_s": round(time.perf_counter() - started, 1),
        **({"late_weights": told} if len(told) > 1 else told[weights[0]]),
    }  # fmt: skip


def lines(found: dict[str, Any]) -> None:
    for weight, told in found.get("late_weights", {None: found}).items():
        print("" if weight is None else f"late_weight {weight:g}")
        report(found, told["rows"])
        print()
        for name, value in told["summary"].items():
            print(f"{name:64} {value}")


@cache
def workload_of(name: str, data: Path | None, stop: str) -> SloWorkload:
    return WORKLOADS[name](data).stopped_by(stop)


def figures_of(found: dict[str, Any]) -> dict[str, object]:
    """What the pages quote."""
    about = {name: found[name] for name in ("workload", "about", "stop", "seeds", "run_s")}
    if "late_weights" in found:
        return {**about, "late_weights": violations_by_weight({w: one["rows"] for w, one in found["late_weights"].items()})}
    return {**about, **page_figures(found["rows"])}


def rows_of(name: str, data: Path | None, cell: tuple[float | None, int], options: Namespace) -> list[dict]:
    """All rows of one weight and seed."""
    late_weight, seed = cell
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
