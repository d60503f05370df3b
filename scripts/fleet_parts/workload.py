"""What the simulated fleet serves: engines, requests, and real arrivals; the requests are those of `bench_slo.py`."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from functools import cache
from pathlib import Path

import numpy as np
from science.recorded_table import RecordedTable
from science.simulator import SimulatedEngine, simulated_slowdown
from slo_workloads import TRAINING, simulated_requests

from vinelm.catalog import Catalog, Model, Price, ReplicaGroup
from vinelm.controller import Planner, SlowdownCurve
from vinelm.controller.load.slowdown import spread_curve
from vinelm.trie.arrays import FloatArray

REPLICAS = {"tiny": 1, "small": 2, "medium": 4, "large": 4}
"""Engines of each model; those of one model are a replica group if there are several."""
SLOTS, SLOPE = 8, 0.06
"""Requests that an engine runs at once, and its slowdown per running request, as in `bench_slo.py`."""
TRACES = {"azure": "azure_2023_conv.csv.gz", "mooncake": "mooncake_conversation.csv.gz"}


@dataclass(frozen=True)
class FleetWorkload:
    """What all runs share.

    Attributes:
        planner: plans over the trie of other requests than those served.
        engines: every engine by name.
        replicas: the engines of each choice of the trie.
        curves: slowdown curve by engine, and by replica group; measured in the simulator.
    """

    planner: Planner
    engines: Mapping[str, SimulatedEngine]
    replicas: Mapping[str, tuple[str, ...]]
    curves: Mapping[str, SlowdownCurve]

    @property
    def catalog(self) -> Catalog:
        """The models that serve."""
        return self.planner.annotated.catalog


@cache
def fleet_workload() -> FleetWorkload:
    """Four models on eleven engines, and a trie of up to three invocations."""
    training = simulated_requests(TRAINING, seed=999)
    trie = training.trie
    catalog = Catalog(
        Model(
            name=engine, provider="simulated", model_id=name, engine=engine, price=_price(), group=name if count > 1 else None
        )
        for name, count in REPLICAS.items()
        for engine in _engines(name, count)
    )
    first = {trie.models[int(trie.model[node])]: training.latency_s[:, node] for node in trie.levels[1]}
    replicas = {name: _engines(name, count) for name, count in REPLICAS.items()}
    engines = {name: SimulatedEngine(name, slots=SLOTS, slope=SLOPE) for names in replicas.values() for name in names}
    curves: dict[str, SlowdownCurve] = {}
    for model, names in replicas.items():
        measured = simulated_slowdown(engines[names[0]], first[model].tolist())  # replicas are equal
        curves |= dict.fromkeys(names, measured)
        if isinstance(catalog[model], ReplicaGroup):
            curves[model] = spread_curve([measured] * len(names))
    return FleetWorkload(Planner(replace(training, catalog=catalog).annotate()), engines, replicas, curves)


def requests(count: int, seed: int) -> RecordedTable:
    """What each request would see from each model: the table that is served, never the one behind the trie."""
    return replace(simulated_requests(count, seed=seed), catalog=fleet_workload().catalog)


def arrivals(data: Path, trace: str, count: int, per_second: float, seed: int) -> FloatArray:
    """Return ``count`` consecutive arrivals of a real trace from a random place, in seconds at this mean rate."""
    times = _times(data / "arrivals" / TRACES[trace])
    start = int(np.random.default_rng([seed, 23]).integers(0, len(times) - count))
    part = times[start : start + count] - times[start]
    return part * (count / per_second) / part[-1]


@cache
def _times(path: Path) -> FloatArray:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as lines:
        return np.array([float(row["arrival_s"]) for row in csv.DictReader(lines)])


def _engines(model: str, count: int) -> tuple[str, ...]:
    return (model,) if count == 1 else tuple(f"{model}-{i}" for i in range(count))


def _price() -> Price:
    return Price(input=1, output=1, source="not used here", as_of=date(2026, 1, 1))
