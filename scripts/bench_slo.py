"""Latency SLOs under load: SLO violations and right answers in time of static plans, the paper's and risk-aware policies.

Engines and their load are simulated (`vinelm/evaluation/simulator.py`); requests are simulated or recorded
(`slo_workloads.py`). Bursty arrivals come from a real trace if --data (or VINELM_DATA) has one. The trie is annotated on other
requests than those served. Objective: highest accuracy within the SLO. "crowd" arrivals come four times as fast, with load
reports that are fresh, old, or old and corrected by our own dispatches since.

There are two static plans. That of the paper is the best by the trie's means, which are those of idle engines. The strong one
is the best of the same plans in simulations under the load that is served, with other requests and seeds (`slo_rivals.py`).
All policies but the last plan over a complete annotation; the last is the program over a sparse one, bought for 2 % of the
dollars of up to 500 requests.
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
from scipy.special import stdtrit
from slo_rivals import PlansUnderLoad, sparse_annotation
from slo_workloads import WORKLOADS, SloWorkload

from vinelm.controller import Planner
from vinelm.evaluation import (
    ModelChooser,
    SimulatedEngine,
    SimulationSettings,
    best_workflow_level,
    replanning_chooser,
    simulate,
    simulated_slowdown,
    static_chooser,
)
from vinelm.objective import Objective
from vinelm.recorded_table import RecordedTable

STATIC, STRONG, UNAWARE, AWARE, DEVIATION, PROGRAM, SPARSE = POLICIES = (
    "static, idle", "static, under load", "paper, load-unaware", "paper, load-aware", "mean + sd", "stochastic DP",
    "stochastic DP, 2 %",
)  # fmt: skip
LOAD_AWARE = POLICIES[3:]
ARRIVALS = ("idle", "Poisson", "bursty")
SLOTS, SLOPE, OTHERS = 8, 0.06, 2.4  # per engine: concurrent requests, slowdown per request, mean running background requests
BUSY = 1.84  # mean number of our running first calls if each went to the average model: one per second for simulated models
OLD_S, CROWD = 10.0, 4.0
FRESH = (
    None,
    True,
)  # seconds between load reports (None: before every decision), and whether they are corrected by our own calls
OLD, OLD_CORRECTED = (OLD_S, False), (OLD_S, True)
FIGURES = ("violation_rate", "accuracy", "in_slo_accuracy", "cost_usd")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", choices=WORKLOADS, default="simulated")
    parser.add_argument("--data", type=Path, default=os.environ.get("VINELM_DATA"), help="folder with arrivals/ and outcomes/")
    parser.add_argument("--arrivals", nargs="+", choices=(*ARRIVALS, "crowd"), default=(*ARRIVALS, "crowd"))
    parser.add_argument("--slos", nargs="+", type=float, help="seconds [default: the workload's six]")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--late-weight", type=float, help="of the stochastic program [default: its own]")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes, a seed each [default: all cores]")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    started = time.perf_counter()
    data = options.data and Path(options.data)
    workload = workload_of(options.workload, data)  # computed before the workers fork, so that they share it
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    with ProcessPoolExecutor(options.workers) as pool:
        jobs = [pool.submit(rows_of, options.workload, data, seed, options) for seed in seeds]
        rows = [row for job in jobs for row in job.result()]
    about = {
        "workload": options.workload,
        "about": workload.about,
        "seeds": options.seeds,
        "run_s": round(time.perf_counter() - started, 1),
    }
    found = summary(rows)
    if options.json:
        print(json.dumps({**about, "summary": found, "rows": rows}))
    else:
        report(about, rows)
        print()
        for name, value in found.items():
            print(f"{name:64} {value}")
    return 0


@cache
def workload_of(name: str, data: Path | None) -> SloWorkload:
    return WORKLOADS[name](data)


def rows_of(name: str, data: Path | None, seed: int, options: argparse.Namespace) -> list[dict]:
    """All rows of one seed."""
    workload = workload_of(name, data)
    if options.slos:
        workload = replace(workload, slos_s=tuple(options.slos))
    bench = Bench.of(workload, seed, options.late_weight)
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
        return {
            STATIC: static_chooser(best_workflow_level(self.planner, objective), self.planner),
            STRONG: static_chooser(plans.best(slo_s, self.late_weight), self.planner),
            UNAWARE: replanning_chooser(self.planner, objective, has_load=False),
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


# -- summary -----------------------------------------------------------------------------------------------------


def of(rows: list[dict], field: str, **labels) -> np.ndarray:
    """Return the mean of a field per seed, over the rows with these labels; a tuple allows several values."""
    wanted = {name: value if isinstance(value, tuple) else (value,) for name, value in labels.items()}
    mine = [row for row in rows if all(row[name] in values for name, values in wanted.items())]
    seeds = sorted({row["seed"] for row in mine})
    return np.array([np.mean([row[field] for row in mine if row["seed"] == seed]) for seed in seeds])


def stated(values: np.ndarray) -> str:
    """Format mean and half the 95 % interval over seeds in percent; a dash if there are no values."""
    n = len(values)
    if not n:
        return "-"
    half = stdtrit(n - 1, 0.975) * values.std(ddof=1) / np.sqrt(n) if n > 1 else float("nan")
    return f"{100 * values.mean():5.1f} +-{100 * half:4.1f} %"


def loaded(rows: list[dict]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(row["arrivals"] for row in rows if row["arrivals"] not in ("idle", "crowd")))


def summary(rows: list[dict]) -> dict[str, str]:
    """Summarise the loaded arrivals with fresh reports. "Tight" are the three smallest SLOs; differences are paired by seed."""
    slos = sorted({row["slo_s"] for row in rows})
    tight = tuple(slos[:3])
    now = {"arrivals": loaded(rows), "load_age_s": (None, 0.0)}
    found = {}
    for name, field in (("violations", "violation_rate"), ("right in time", "in_slo_accuracy")):
        for policy in POLICIES:
            found[f"{name} at tight SLOs, {policy}"] = stated(of(rows, field, policy=policy, slo_s=tight, **now))
    for other in (STRONG, AWARE):
        for field, words in (("violation_rate", "violations"), ("in_slo_accuracy", "right in time")):
            mine, theirs = (of(rows, field, policy=p, slo_s=tight, **now) for p in (PROGRAM, other))
            found[f"{words} at tight SLOs, {PROGRAM} over {other}"] = stated(mine - theirs)
        for slo_s in slos:
            mine, theirs = (of(rows, "in_slo_accuracy", policy=p, slo_s=slo_s, **now) for p in (PROGRAM, other))
            found[f"right in time at {slo_s:g} s, {PROGRAM} over {other}"] = stated(mine - theirs)
    for policy in LOAD_AWARE:
        for words, (age_s, is_corrected) in {"fresh": FRESH, "old": OLD, "old, corrected": OLD_CORRECTED}.items():
            labels = {"arrivals": "crowd", "load_age_s": age_s or 0.0, "has_dispatch_correction": is_corrected}
            found[f"crowd, reports {words}: violations, {policy}"] = stated(of(rows, "violation_rate", policy=policy, **labels))
    return found


def report(about: dict, rows: list[dict]) -> None:
    print(f"{about['about']}; mean over {about['seeds']} seeds, +- half the 95 % t interval; {about['run_s']:g} s")
    keys = dict.fromkeys(
        (row["arrivals"], row["load_age_s"], row["has_dispatch_correction"]) for row in rows if row["load_age_s"] is not None
    )
    for arrivals, age_s, corrected in keys:
        aged = "fresh" if age_s == 0 else f"{age_s:g} s old" + (", own dispatches counted" if corrected else ", as reported")
        print(f"\n{arrivals}; load reports {aged}: violation rate (right in time)")
        print(f"{'SLO':>5}  " + "  ".join(f"{policy:>24}" for policy in POLICIES))
        for slo_s in sorted({row["slo_s"] for row in rows}):
            cells = []
            for policy in POLICIES:
                aged_as = {"load_age_s": age_s, "has_dispatch_correction": corrected} if policy in LOAD_AWARE else {}
                labels = {"arrivals": arrivals, "slo_s": slo_s, "policy": policy, **aged_as}
                right = of(rows, "in_slo_accuracy", **labels).mean()
                cells.append(f"{stated(of(rows, 'violation_rate', **labels))} ({100 * right:4.1f} %)")
            print(f"{slo_s:5g}  " + "  ".join(f"{cell:>24}" for cell in cells))


if __name__ == "__main__":
    sys.exit(main())
