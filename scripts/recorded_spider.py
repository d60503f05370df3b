"""Eight recorded text-to-SQL systems as a retry cascade: exact table, sparse profile, frontier on held-out requests.

Reads the real data's `nl2sql/` and `outcomes/spider_sql.csv.gz` from --data (or VINELM_DATA). Every recorded answer is executed
again against its database here; nothing but the SQL text is taken from the record.

Methods are compared at equal dollars on the held-out requests. Each chooses a plan for every budget; at each spend the two of
its plans that bracket it are mixed (`science/mixtures.py`), so that none is ahead because it overspent. The oracle
knows the held-out answers and has the best mixture of all paths: no mixture of paths does better.
"""

from __future__ import annotations

import csv
import gzip
import math
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from science.mixtures import concave_frontier, mixture_at
from science.recorded_table import RecordedTable
from science.replay import follow
from science.restricted_plans import best_single_model, best_workflow_level
from studies import Options, study

from vinelm import AnnotatedTrie, Catalog, Model, Objective, Price, Workflow
from vinelm.backends import create_backends
from vinelm.clock import VirtualClock
from vinelm.controller import Planner
from vinelm.errors import DatasetError
from vinelm.estimator import ESTIMATORS, make_estimator
from vinelm.profiler import ProfileSettings, profile
from vinelm.profiler.execution.fingerprint import store_identity
from vinelm.requests.dataset import split_requests
from vinelm.requests.protocols import Backend, CallContext
from vinelm.requests.workflow import Request
from vinelm.rows.observation import Usage
from vinelm.template import StopRule
from vinelm.traces import ObservationStore
from vinelm.workflows.nl2sql import nl2sql
from vinelm.workflows.nl2sql.graph import finished, shown
from vinelm.workflows.nl2sql.prompts import extract_sql

HEAD = (
    "answers and accuracy real; prices assumed; repairs are independent first answers of another system, "
    "without feedback; latency unknown"
)
USD_PER_1000_CALLS = {
    "gpt-4__dea_sql": 20.0,
    "gpt-4__dail_sql": 15.0,
    "gpt-4__zero_shot": 6.0,
    "gpt-3.5__c3": 1.0,
    "codes-7b__sft": 0.3,
    "codes-1b__sft": 0.05,
    "mistral-7b__dts_sql": 0.3,
    "codellama-13b__lora": 0.4,
}
COST_SIGMA = 0.5  # of the log-normal over requests
COST_SEED = 20261120
N_BUDGETS = 12


@dataclass(frozen=True)
class Study:
    """The recorded systems as a workflow, and its exact table (every rule's; see ``RecordedTable.with_stop``)."""

    workflow: Workflow
    catalog: Catalog
    backends: dict[str, Backend]
    table: RecordedTable
    folder: Path
    estimator: str
    sampler: str

    @classmethod
    def load(cls, data: Path, folder: Path, estimator: str, sampler: str = "cascade") -> Study:
        """Execute each system's answer to each question, and lay the outcomes out over all paths."""
        workflow = nl2sql(data / "nl2sql")
        answers = folder / "answers.csv"
        priced_answers(data / "outcomes" / "spider_sql.csv.gz", answers)
        price = Price(input=0.0, output=0.0, source="assumed per call, see USD_PER_1000_CALLS", as_of=date(2026, 11, 20))
        catalog = Catalog(
            [Model(name=name, provider="recorded", model_id=name, engine=name, price=price) for name in USD_PER_1000_CALLS],
            {"recorded": {"table": str(answers), "cost_column": "cost_usd"}},
        )
        backends = create_backends(catalog, workflow=workflow)
        say(f"executing {len(workflow.requests) * len(catalog):,} recorded answers")
        return cls(workflow, catalog, backends, exact_cascade(workflow, catalog, backends), folder, estimator, sampler)

    def measure(self, rule: StopRule, coverage: float, held_out: float, seeds: int) -> dict[str, Any]:
        """Estimation error over all requests, and the frontier chosen on a training half, measured on the other."""
        truth = self.table.with_stop(rule)
        errors, bought = [], []
        frontiers = []
        for seed in range(seeds):
            estimate, spent_usd = self.estimate(rule, self.workflow.requests, coverage, seed)
            errors.append((estimate.accuracy - truth.annotate().accuracy)[1:])
            bought.append(spent_usd / truth.exhaustive_cost_usd)
            training, kept = split_requests(self.workflow.requests, held_out, seed)
            estimate, _ = self.estimate(rule, training, coverage, seed)
            rows = {request_id: row for row, request_id in enumerate(truth.request_ids)}
            frontiers.append(frontier(estimate, truth.rows([rows[request.id] for request in kept])))
        error = np.array(errors)
        return {
            "stop": rule,
            "coverage": float(np.mean(bought)),
            "mae": float(np.abs(error).mean()),
            "max_abs": float(np.abs(error).max(axis=1).mean()),
            "signed": float(error.mean()),
            "n_held_out": int(np.mean([len(split_requests(self.workflow.requests, held_out, s)[1]) for s in range(seeds)])),
            "frontier": [
                {key: float(np.mean([points[i][key] for points in frontiers])) for key in frontiers[0][i]}
                for i in range(len(frontiers[0]))
            ],
        }

    def estimate(self, rule: StopRule, requests: Sequence[Request], coverage: float, seed: int) -> tuple[AnnotatedTrie, float]:
        """A sparse profile through the real graph and store, and what it was estimated to; with the dollars it took."""
        workflow = replace(self.workflow, template=self.workflow.template.with_stop(rule))
        path = self.folder / f"{rule}-{seed}-{len(requests)}.db"
        with ObservationStore.create(path, store_identity(workflow, self.catalog, self.backends)) as store:
            result = profile(
                workflow, self.catalog, self.backends, store,
                ProfileSettings(requests=requests, sampler=self.sampler, coverage=coverage, seed=seed),
            )  # fmt: skip
            rows = store.observations()
        return make_estimator(self.estimator).fit(rows, workflow.template, self.catalog).annotated_, result.spent_usd


def priced_answers(recorded: Path, answers: Path) -> None:
    """The rows of the eight systems, each with an assumed cost: log-normal over requests, mean as in USD_PER_1000_CALLS."""
    try:
        with gzip.open(recorded, "rt", encoding="utf-8", newline="") as lines:
            rows = [row for row in csv.DictReader(lines) if row["model"] in USD_PER_1000_CALLS]
    except (OSError, EOFError, KeyError, csv.Error) as error:
        raise DatasetError(f"{recorded}: cannot read the recorded answers: {error!r}") from error
    rng = np.random.default_rng(COST_SEED)
    with answers.open("w", encoding="utf-8", newline="") as target:
        writer = csv.writer(target)
        writer.writerow(("question_id", "model", "prediction", "cost_usd"))
        for row in rows:
            factor = math.exp(COST_SIGMA * rng.standard_normal() - COST_SIGMA**2 / 2)
            cost_usd = USD_PER_1000_CALLS[row["model"]] / 1000 * factor
            writer.writerow((row["question_id"], row["model"], row["prediction"], repr(cost_usd)))


def exact_cascade(workflow: Workflow, catalog: Catalog, backends: dict[str, Backend]) -> RecordedTable:
    """Each answer asked of the backend and executed once: systems are independent, so that makes every path's outcome."""
    template = workflow.template.bind(tuple(catalog))
    stage = template.invocations[0].name
    shape = (len(workflow.requests), len(catalog))
    success, stopped, cost_usd = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_), np.zeros(shape)
    databases = workflow.score.databases
    for r, request in enumerate(workflow.requests):
        for m, name in enumerate(catalog):
            usages: list[Usage] = []
            call = CallContext(stage=stage, prefix=(name,), clock=VirtualClock(), on_usage=usages.append, request=request)
            sql = extract_sql(str(backends["recorded"].chat_model(catalog[name], call).invoke("").content))
            state = {**request.data, "sql": sql, **shown(databases.recall(request.data["db_id"], sql))}
            success[r, m] = workflow.score(request, state)
            stopped[r, m] = finished(state)
            cost_usd[r, m] = usages[0].cost_usd
    return RecordedTable.from_answers(
        template,
        catalog,
        [request.id for request in workflow.requests],
        success=success,
        stopped=stopped,
        cost_usd=cost_usd,
        latency_s=np.zeros(shape),
    )


def frontier(estimate: AnnotatedTrie, held_out: RecordedTable) -> list[dict[str, float]]:
    """Each method's accuracy on held-out requests at each spend: mixtures of the plans that it chose under all budgets.

    ``*_cost_usd`` is what the mixture spends: the spend asked for, but above a method's dearest plan and below its cheapest.
    ``promised_cost_usd`` is what VineLM's plan for this budget was expected to spend, ``unmixed_cost_usd`` what it spent.
    """
    planner, truth = Planner(estimate), held_out.annotate()
    objectives = [Objective(maximize="accuracy", max_cost_usd=budget) for budget in budgets()]
    vinelm = [planner.plan(objective) for objective in objectives]
    answerable = np.flatnonzero(truth.trie.answerable)
    every = [(float(truth.path_cost_usd[node]), float(truth.accuracy[node])) for node in answerable]
    chosen = {  # the oracle mixes whatever is best on the held-out requests themselves
        "oracle": [truth.trie.prefix(int(answerable[i])) for i in concave_frontier(every)],
        "vinelm": [decision.path for decision in vinelm],
        "static": [best_workflow_level(planner, objective) for objective in objectives],
        "best_single": [best_single_model(planner, objective) for objective in objectives],
    }
    points: list[dict[str, float]] = [{"max_cost_usd": budget} for budget in budgets()]
    for name, paths in chosen.items():
        runs = {path: follow(held_out, held_out.trie.node(path)) for path in dict.fromkeys(paths)}
        accuracy = [float(run.success.mean()) for run in runs.values()]
        spends = [float(run.cost_usd.mean()) for run in runs.values()]
        for point in points:
            mixture = mixture_at(spends, point["max_cost_usd"])
            point[f"{name}_accuracy"], point[f"{name}_cost_usd"] = float(mixture.of(accuracy)), float(mixture.of(spends))
        if name == "vinelm":
            for point, decision, path in zip(points, vinelm, paths, strict=True):
                point["promised_cost_usd"] = decision.path_cost_usd
                point["unmixed_cost_usd"] = float(runs[path].cost_usd.mean())
    return points


def budgets() -> list[float]:
    """From the cheapest system's price to the dearest's and a little over, evenly in the logarithm."""
    prices = [price / 1000 for price in USD_PER_1000_CALLS.values()]
    return [round(float(b), 7) for b in np.geomspace(min(prices) * 1.1, max(prices) * 1.25, N_BUDGETS)]


def as_text(result: dict[str, Any]) -> str:
    """A table per stop rule, at most 80 columns wide."""
    size = f"{result['n_requests']} requests x {result['n_paths']} paths"
    lines = [*textwrap.wrap(HEAD, 78), f"{size}, {result['estimator']}, mean of {result['seeds']} sparse profiles"]
    for part in (result, result["workflow_stop"]):
        points = {name: 100 * part[name] for name in ("mae", "max_abs", "signed")}
        lines += [
            "",
            f"{part['stop']} stop: coverage {part['coverage']:.2%}, error of path accuracies in points:",
            "mean abs {mae:.2f}, max abs {max_abs:.1f}, signed {signed:+.2f}".format(**points),
            f"accuracy on {part['n_held_out']} held-out requests at equal spend:",
            f"{'$ per 1,000':>12} {'oracle':>8} {'VineLM':>8} {'static':>8} {'1 model':>8}",
        ]
        for point in part["frontier"]:
            names = ("oracle", "vinelm", "static", "best_single")
            accuracies = " ".join(f"{point[f'{name}_accuracy']:8.3f}" for name in names)
            lines.append(f"{1000 * point['max_cost_usd']:12.3f} {accuracies}")
    return "\n".join(lines)


def main() -> int:
    options = {
        "--coverage": (0.02, "share of the exhaustive dollars to spend (default 0.02)"),
        "--held-out": (0.5, "share of requests kept for the frontier (default 0.5)"),
        "--seeds": (5, "independent sparse profiles to average over (default 5)"),
        "--estimator": (ESTIMATORS[0], "default: %(default)s", {"choices": ESTIMATORS}),
        "--sampler": ("cascade", "cascade (the paper's, default), priced or exhaustive"),
    }
    return study(__doc__, options, run, as_text, data="folder with nl2sql/ and outcomes/")


def run(options: Options) -> dict[str, Any]:
    """Both stop rules; the oracle's keys at the top, as in the paper, the workflow's own check under ``workflow_stop``."""
    with tempfile.TemporaryDirectory() as folder:
        recorded = Study.load(Path(options.data), Path(folder), options.estimator, options.sampler)
        by_rule = {}
        for rule in ("oracle", "workflow"):
            say(f"{rule} stop: {options.seeds} sparse profiles")
            by_rule[rule] = recorded.measure(rule, options.coverage, options.held_out, options.seeds)
        return {
            "about": HEAD,
            "estimator": options.estimator,
            "sampler": options.sampler,
            "n_requests": len(recorded.workflow.requests),
            "n_paths": recorded.table.trie.n_nodes,
            "seeds": options.seeds,
            **by_rule["oracle"],
            "workflow_stop": by_rule["workflow"],
        }


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
