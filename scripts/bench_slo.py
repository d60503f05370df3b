"""Latency SLOs under load, simulated: violations and accuracy of a static plan, the paper's policies, and risk-aware ones.

Requests, models and engines are simulated (see `controller/simulator.py`); the bursty arrivals are a real trace where --data
(or VINELM_DATA) has one. The trie is annotated on other requests than those served. Objective: highest accuracy within the SLO.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import sys
from datetime import date
from pathlib import Path

import numpy as np

from vinelm.catalog import Catalog, Model, Price
from vinelm.controller.baselines import best_workflow_level
from vinelm.controller.planner import Planner
from vinelm.controller.simulator import Engine, Setting, calibrate, planned, simulate, static
from vinelm.objective import Objective
from vinelm.outcomes import OutcomeTable
from vinelm.template import Loop, Stage, Template
from vinelm.trie import Trie

SLOS_S = (2.0, 3.0, 4.0, 6.0, 8.0, 12.0)
POLICIES = ("static plan", "paper, load-unaware", "paper, load-aware", "mean + sd", "stochastic DP")
MODELS = (  # name, skill, seconds at zero load, dollars, sigma of log latency
    ("tiny", -0.2, 0.55, 0.0002, 0.30),
    ("small", 0.25, 1.1, 0.0008, 0.35),
    ("medium", 0.7, 2.1, 0.003, 0.45),
    ("large", 1.1, 3.6, 0.012, 0.50),
)
DEPTH = 3
REQUESTS = 400


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--data", type=Path, default=os.environ.get("VINELM_DATA"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--per-second", type=float, default=1.0, help="requests per second of the loaded arrivals")
    options = parser.parse_args()
    rows = []
    training = requests(1500, seed=999)
    planner = Planner(training.annotate())
    engines = tuple(
        Engine(f"e-{name}", slots=8, slope=0.06, others_per_s=2.4 / seconds, others_mean_s=seconds)
        for name, _, seconds, _, _ in MODELS
    )
    curves = {engine.name: calibrate(engine, base_s(training, engine.name)) for engine in engines}
    for seed in range(options.seeds):
        table = requests(REQUESTS, seed=seed)
        for kind in ("idle", "Poisson", "bursty"):
            arrivals, source = arrival_times(kind, options, seed)
            busy = engines if kind != "idle" else tuple(Engine(e.name, e.slots, e.slope) for e in engines)
            for slo_s in SLOS_S:
                rows.extend(compare(planner, table, arrivals, busy, curves, slo_s, {"arrivals": source, "seed": seed}))
    if options.json:
        print(json.dumps({"simulated": True, "summary": summary(rows), "rows": rows}))
    else:
        report(rows)
        for name, value in summary(rows).items():
            print(f"{name:56} {value:.3f}")
    return 0


def compare(planner, table, arrivals, engines, curves, slo_s, labels):  # noqa: PLR0917
    objective = Objective(maximize="accuracy", max_latency_s=slo_s)
    deviation = Objective(maximize="accuracy", max_latency_s=slo_s, risk="mean+sd")
    program = Objective(maximize="accuracy", max_latency_s=slo_s, risk="dp")
    choosers = {
        "static plan": static(best_workflow_level(planner, objective), planner),
        "paper, load-unaware": planned(planner, objective, has_load=False),
        "paper, load-aware": planned(planner, objective),
        "mean + sd": planned(planner, deviation),
        "stochastic DP": planned(planner, program),
    }
    for policy, choose in choosers.items():
        reads_load = policy not in POLICIES[:2]
        ages = ((0.0, True), (10.0, True), (10.0, False)) if reads_load else ((0.0, True),)
        for age, has_correction in ages:
            setting = Setting(
                engines=engines, curves=curves, load_age_s=age or None, has_correction=has_correction, seed=labels["seed"]
            )
            found = simulate(table, arrivals, choose, setting)
            in_time = found.latency_s <= slo_s
            yield {
                "policy": policy,
                "slo_s": slo_s,
                "load_age_s": age if reads_load else None,
                "has_dispatch_correction": has_correction,
                **labels,
                "violation_rate": float((~in_time).mean()),
                "accuracy": float(found.success.mean()),
                "in_slo_accuracy": float((found.success & in_time).mean()),
                "cost_usd": float(found.cost_usd.mean()),
            }


def requests(count: int, *, seed: int) -> OutcomeTable:
    """Simulated requests: hardness shared by all models, an effect per (request, model) that a second try keeps, and noise."""
    rng = np.random.default_rng([seed, 7])
    price = Price(input=1, output=1, source="made up", as_of=date(2026, 1, 1))
    names = tuple(name for name, *_ in MODELS)
    catalog = Catalog(Model(name=n, provider="simulated", model_id=n, engine=f"e-{n}", price=price) for n in names)
    template = Template((Stage("answer", names), Loop((Stage("repair", names),), DEPTH - 1)), "oracle")
    trie = Trie.from_template(template)
    skill, seconds, dollars, sigma = (np.array([model[i] for model in MODELS]) for i in (1, 2, 3, 4))
    hardness = rng.normal(0, 0.9, (count, 1))
    own = rng.normal(0, 0.8, (count, len(names)))
    margin = (skill - hardness + own)[:, trie.model] + rng.normal(0, 0.4, (count, len(trie)))
    length = rng.lognormal(-0.045, 0.3, (count, 1))  # long questions are slow for every model
    spread = rng.lognormal(0, 1, (count, len(trie))) ** sigma[trie.model]
    latency = seconds[trie.model] * length * spread / np.exp(sigma[trie.model] ** 2 / 2)
    cost = dollars[trie.model] * length
    success = margin > 0
    for values in (success, latency, cost):
        values[:, 0] = 0
    ids = tuple(f"r{i}" for i in range(count))
    return OutcomeTable(template, catalog, trie, ids, success, success.copy(), cost, latency)


def base_s(table: OutcomeTable, engine: str):
    """Zero-load times seen on one engine."""
    nodes = [n for n in table.trie.levels[1] if table.catalog[table.trie.models[int(table.trie.model[n])]].engine == engine]
    return table.latency_s[:, nodes].ravel()


def arrival_times(kind: str, options, seed: int):
    rng = np.random.default_rng([seed, 11])
    if kind == "idle":
        return np.arange(REQUESTS) * 200.0, "idle"
    if kind == "Poisson":
        return np.cumsum(rng.exponential(1 / options.per_second, REQUESTS)), "Poisson"
    trace = options.data and Path(options.data) / "arrivals" / "azure_2023_conv.csv.gz"
    if not trace or not Path(trace).is_file():
        gaps = rng.gamma(0.15, 1 / (0.15 * options.per_second), REQUESTS)
        return np.cumsum(gaps), "bursty (gamma; no trace at hand)"
    with gzip.open(trace, "rt", encoding="utf-8") as lines:
        times = np.array([float(row["arrival_s"]) for row in csv.DictReader(lines)])
    start = int(rng.integers(0, len(times) - REQUESTS))
    part = times[start : start + REQUESTS] - times[start]
    return part * (REQUESTS / options.per_second) / part[-1], "bursty (Azure 2023 conversations)"


def report(rows) -> None:
    print("simulated requests, models and engines; mean over seeds, +- half the 95 % t interval")
    keys = dict.fromkeys(
        (row["arrivals"], row["load_age_s"], row["has_dispatch_correction"]) for row in rows if row["load_age_s"] is not None
    )
    for arrivals, age, corrected in keys:
        aged = "fresh" if age == 0 else f"{age:g} s old" + (", own dispatches counted" if corrected else ", as reported")
        print(f"\n{arrivals}; load reports {aged}: violation rate (accuracy within the SLO)")
        print(f"{'SLO':>5}  " + "  ".join(f"{policy:>24}" for policy in POLICIES))
        for slo_s in SLOS_S:
            cells = []
            for policy in POLICIES:
                mine = [
                    row
                    for row in rows
                    if (row["arrivals"], row["slo_s"], row["policy"]) == (arrivals, slo_s, policy)
                    and (row["load_age_s"], row["has_dispatch_correction"]) in ((None, True), (age, corrected))
                ]
                rate = np.array([row["violation_rate"] for row in mine])
                accuracy = np.mean([row["in_slo_accuracy"] for row in mine])
                half = t95(len(rate)) * rate.std(ddof=1) / np.sqrt(len(rate)) if len(rate) > 1 else float("nan")
                cells.append(f"{rate.mean():7.3f} +-{half:.3f} ({accuracy:.3f})")
            print(f"{slo_s:5g}  " + "  ".join(f"{cell:>24}" for cell in cells))


def summary(rows) -> dict[str, float]:
    """Means over loaded arrivals and seeds; "tight" are the three smallest SLOs."""
    loaded = [row for row in rows if row["arrivals"] != "idle" and row["load_age_s"] in (None, 0.0)]

    def mean(field: str, policy: str, slos) -> float:
        return float(np.mean([row[field] for row in loaded if row["policy"] == policy and row["slo_s"] in slos]))

    tight = SLOS_S[:3]
    found = {}
    for policy in POLICIES:
        found[f"violations at tight SLOs, {policy}"] = mean("violation_rate", policy, tight)
        found[f"accuracy within tight SLOs, {policy}"] = mean("in_slo_accuracy", policy, tight)
    for policy in POLICIES[2:]:
        found[f"largest cut of the static plan's violations, {policy}"] = max(
            1 - mean("violation_rate", policy, (slo,)) / max(mean("violation_rate", POLICIES[0], (slo,)), 1e-9)
            for slo in SLOS_S
        )
    return found


def t95(n: int) -> float:
    from scipy.stats import t

    return float(t.ppf(0.975, n - 1))


if __name__ == "__main__":
    sys.exit(main())
