"""Workloads of `bench_slo.py`: simulated requests, and two sets of recorded answers of real models (need the data)."""

from __future__ import annotations

import csv
import gzip
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

import numpy as np
from science.recorded_table import RecordedTable

from vinelm.catalog import Catalog, Model, Price
from vinelm.template import Loop, Stage, Template
from vinelm.trie import Trie

MODELS = (  # name, skill, seconds at zero load, dollars, sigma of log latency
    ("tiny", -0.2, 0.55, 0.0002, 0.30),
    ("small", 0.25, 1.1, 0.0008, 0.35),
    ("medium", 0.7, 2.1, 0.003, 0.45),
    ("large", 1.1, 3.6, 0.012, 0.50),
)
DEPTH, TRAINING, SERVED = 3, 1500, 400
SPIDER_S = {  # assumed mean seconds of one call; the record has none
    "gpt-4__dea_sql": 12.0,
    "gpt-4__dail_sql": 8.0,
    "gpt-4__zero_shot": 5.0,
    "gpt-3.5__c3": 6.0,
    "codes-7b__sft": 2.5,
    "codes-1b__sft": 1.0,
    "mistral-7b__dts_sql": 2.0,
    "codellama-13b__lora": 3.0,
}
PASSES = 0.95, 0.4
"""Chance that the simulated workflow's check passes a right and a wrong answer."""
SPIDER_SIGMA = 0.45, 0.3  # of the log-normals over calls, and over requests (shared by all systems)


@dataclass(frozen=True)
class SloWorkload:
    """A set of requests. ``split(seed)`` returns the table to annotate the trie with, and the table to serve."""

    name: str
    about: str
    slos_s: tuple[float, ...]
    seconds: dict[str, float]
    split: Callable[[int], tuple[RecordedTable, RecordedTable]]

    def stopped_by(self, stop: str) -> SloWorkload:
        """The same requests, ended by an ``oracle`` or by the ``workflow``'s own check."""

        def split(seed: int) -> tuple[RecordedTable, RecordedTable]:
            training, served = self.split(seed)
            return training.with_stop(stop), served.with_stop(stop)

        return replace(self, split=split)


def simulated(data: Path | None) -> SloWorkload:
    """Four simulated models, up to three invocations; all seeds share the training requests."""
    training = simulated_requests(TRAINING, seed=999)
    return SloWorkload(
        "simulated",
        "requests, models and their latencies simulated",
        (2.0, 3.0, 4.0, 6.0, 8.0, 12.0),
        mean_seconds(training),
        lambda seed: (training, simulated_requests(SERVED, seed=seed)),
    )


def exams(data: Path | None) -> SloWorkload:
    """Nine real models on 600 exam questions, asked twice at most: answers, dollars and latencies (whole seconds) as recorded.

    A second try of the same model is its recorded retry; of another one, that one's own first answer.
    """
    table = recorded_exams(needed(data) / "outcomes" / "exam_retries.csv.gz")
    return recorded("exams", "recorded answers, dollars and latencies of nine real models; load simulated", table)


def spider(data: Path | None) -> SloWorkload:
    """Eight real text-to-SQL systems, up to three tries; answers executed here, latency assumed (SPIDER_S)."""
    from recorded_spider import Study  # imports the profiler, which the other workloads do not need

    with tempfile.TemporaryDirectory() as folder:
        table = Study.load(needed(data), Path(folder), "").table
    rng = np.random.default_rng(20261121)
    mean = np.array([SPIDER_S[name] for name in table.trie.models])
    over_calls, over_requests = SPIDER_SIGMA
    noise = over_calls * rng.standard_normal((len(table.request_ids), len(mean)))
    noise += over_requests * rng.standard_normal((len(table.request_ids), 1))
    latency = (mean * np.exp(noise - (over_calls**2 + over_requests**2) / 2))[:, table.trie.model]
    latency[:, 0] = 0.0
    about = "recorded answers of eight real systems, executed here; latency assumed, load simulated"
    return recorded("spider", about, replace(table, latency_s=latency))


WORKLOADS = {"simulated": simulated, "exams": exams, "spider": spider}


def recorded(name: str, about: str, table: RecordedTable) -> SloWorkload:
    """Use half of the requests to annotate the trie and serve the others.

    The six SLOs are spaced geometrically from twice the fastest model's mean to twice the slowest's.
    """
    seconds = mean_seconds(table)
    slos_s = np.geomspace(2 * min(seconds.values()), 2 * max(seconds.values()), 6)

    def split(seed: int) -> tuple[RecordedTable, RecordedTable]:
        order = np.random.default_rng([seed, 5]).permutation(len(table.request_ids))
        half = len(order) // 2
        return table.rows(order[:half]), table.rows(order[half:])

    return SloWorkload(name, about, tuple(round(float(slo), 1) for slo in slos_s), seconds, split)


def needed(data: Path | None) -> Path:
    if data is None:
        raise SystemExit("error: recorded requests need the real data: --data DIR or VINELM_DATA=DIR")
    return Path(data)


def mean_seconds(table: RecordedTable) -> dict[str, float]:
    """Return the mean seconds of each model's first call."""
    trie = table.trie
    return {trie.models[int(trie.model[node])]: float(table.latency_s[:, node].mean()) for node in trie.levels[1]}


def simulated_requests(count: int, *, seed: int) -> RecordedTable:
    """Simulate requests: difficulty shared by all models, a persistent effect per (request, model), and noise."""
    rng = np.random.default_rng([seed, 7])
    names = tuple(name for name, *_ in MODELS)
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
    passed = np.random.default_rng([seed, 8]).random(success.shape) < np.where(success, *PASSES)
    passed[:, 0] = False
    return RecordedTable(template, catalog_of(names, "simulated"), trie, ids, success, passed, cost, latency)


def recorded_exams(path: Path) -> RecordedTable:
    """Return the table of all questions over all pairs of models. A retry without a record repeats the first, wrong answer."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as lines:
        found = {((row["dataset"], row["question_id"]), row["model"], row["round"]): row for row in csv.DictReader(lines)}
    ids = sorted({key[0] for key in found})
    names = tuple(sorted({key[1] for key in found}))
    template = Template((Stage("answer", names), Loop((Stage("reflect", names),), 1)), "oracle")
    trie = Trie.from_template(template)
    fields = ("correct", "cost_usd", "latency_s")
    values = {field: np.zeros((len(ids), len(trie))) for field in (*fields, "passed")}
    for node in range(1, len(trie)):
        path_models = trie.prefix(node)
        is_retry = len(path_models) == 2 and path_models[0] == path_models[1]
        for row, question in enumerate(ids):
            first = found[question, path_models[-1], "1"]
            record = found.get((question, path_models[-1], "2"), first) if is_retry else first
            for field in fields:
                values[field][row, node] = float(record[field] or "nan")
            values["passed"][row, node] = re.fullmatch("[A-J]", record["answer"]) is not None  # as an application checks
    latency = values["latency_s"]
    unknown = np.isnan(latency)
    latency[unknown] = np.broadcast_to(np.nanmean(latency, axis=0), latency.shape)[unknown]
    success = values["correct"] == 1.0
    request_ids = tuple("/".join(question) for question in ids)
    cost = np.nan_to_num(values["cost_usd"])
    passed = values["passed"] == 1.0
    return RecordedTable(template, catalog_of(names, "recorded"), trie, request_ids, success, passed, cost, latency)


def catalog_of(names: tuple[str, ...], provider: str) -> Catalog:
    """Return a catalog with one engine per model."""
    price = Price(input=1, output=1, source="not used here", as_of=date(2026, 1, 1))
    return Catalog(Model(name=name, provider=provider, model_id=name, engine=name, price=price) for name in names)
