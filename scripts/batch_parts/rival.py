"""A batch against its honest rival, a loop with fixed plans, on recorded answers: answers and hours for the same dollars.

Every split buys rows of one half of a table's recorded requests (as `signals.py` does) and estimates one trie. On the other
half the batch is steered under a budget for all requests: its plans are chosen anew as the dollars of the requests so far are
known, and each call's answer and dollars are the recorded ones. The recorded requests are few: each stands for several of a
batch. The rivals choose from the same rows, and have every advantage: each mixes two of its plans by request, and is told what
these really cost on the held-out requests, so that it spends exactly what the batch has spent, where a loop over ``app.batch``
would have to hit that. Its order is the batch's. "In hindsight" it is told, too, which two plans are best on these requests.

"one plan": a fixed sequence of models, whatever the requests show. "two models": one call each. "a loop of ours": VineLM's own
plans, mixed by hand, without the steering: what is left of the lead is the steering's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from batch_parts.landing import simulated
from science.mixtures import mixture_at
from science.path_rivals import MixedSingle, StaticPlan
from signals_parts import exams
from signals_parts.buying import catalog_of, template_of
from signals_parts.curves import Curve, Held
from signals_parts.equal_dollars import Resamples
from signals_parts.figures import Comparison
from signals_parts.protocol import Settings, Task, estimated, rows_of, split
from signals_parts.record import number, read_rows
from signals_parts.systems import load_tables
from signals_parts.vinelm_signals import SignalChooser, SignalPolicy, VineLMSignals

from vinelm.batches.plan_shares import DrawnPlan
from vinelm.controller import Planner
from vinelm.evaluation import OutcomeTable
from vinelm.evaluation.rivals import Evidence
from vinelm.trie.arrays import FloatArray

TABLES, DEPTH, SAMPLER = ("exams", "spider"), 3, "cascade"
TIMED = "exams"
"""The table whose seconds are recorded, too."""
SPLITS, BUDGETS, WORKERS = 10, 5, 16
REQUESTS = 5_000
"""Of a batch, at least."""
PLANS = {"one plan": StaticPlan(), "two models": MixedSingle(), "a loop of ours": VineLMSignals()}
LEADS = {"over": False, "over_in_hindsight": True}
"""How a rival's two plans are chosen, by the key of the lead over it."""


class Replayed:
    """The held-out requests as recorded, in turn until a batch is full: a :class:`~batch_parts.landing.World`.

    Args:
        table: Their answers and dollars.
        seconds: Of each answer, shape (requests, systems).
        most_usd: What the dearest call of each system costs on the whole table, (systems,): what is reserved for a call.
    """

    def __init__(self, table: OutcomeTable, seconds: FloatArray, most_usd: FloatArray) -> None:
        self.table = table
        self.timed = replace(table, cost_usd=seconds)
        self._bounded = replace(table, cost_usd=np.broadcast_to(most_usd, seconds.shape))
        self._known: dict[int, tuple[DrawnPlan, FloatArray, float]] = {}
        self.times = -(-REQUESTS // len(table))

    def __len__(self) -> int:
        return len(self.table) * self.times

    def of(self, plan: DrawnPlan) -> FloatArray:
        """Success, dollars and seconds of every request under a plan, shape (3, requests)."""
        return self._replayed(plan)[1]

    def took(self, plan: DrawnPlan, planner: Planner, place: int) -> tuple[float, float]:
        """See :class:`~batch_parts.landing.World`."""
        _, usd, seconds = self.of(plan)[:, place % len(self.table)]
        return float(usd), float(seconds)

    def bound_usd(self, plan: DrawnPlan) -> float:
        """See :class:`~batch_parts.landing.World`: the bounds of the calls that the plan makes at its dearest."""
        return self._replayed(plan)[2]

    def _replayed(self, plan: DrawnPlan) -> tuple[DrawnPlan, FloatArray, float]:
        found = self._known.get(id(plan))
        if found is None:
            policy = SignalPolicy(plan.planner, plan.objective)
            success, usd = policy.run(self.table)
            took = np.array([success, usd, policy.run(self.timed).cost_usd])
            # Holds the plan, so that no other one gets its id.
            found = self._known[id(plan)] = (plan, took, float(policy.run(self._bounded).cost_usd.max()))
        return found


def rival(options: Any) -> dict[str, Any]:
    """Measure: for each budget what the batch spends and answers, and its lead over each rival at these dollars."""
    return {"rival": [_of_table(name, options) for name in TABLES]}


def _of_table(name: str, options: Any) -> dict[str, Any]:
    splits, n = (2, 2) if options.quick else (SPLITS, BUDGETS)
    one = load_tables(options.recorded, None, (name,))[name]
    table = one.table
    seconds = latencies(options.recorded, table) if name == TIMED else np.zeros(table.cost_usd.shape)
    settings = replace(Settings(is_checked=False), splits=splits).for_table(table, own_budgets=True, depth=DEPTH)
    prices = np.sort(table.cost_usd.mean(axis=0))
    budgets = np.geomspace(1.5 * prices[0], prices[-1], n).tolist()
    tasks = [
        Task(table=table, depth=DEPTH, sampler=SAMPLER, seed=seed, settings=settings, asked=one.asked) for seed in range(splits)
    ]
    with ProcessPoolExecutor(options.jobs) as pool:
        found = list(pool.map(one_split, tasks, [seconds] * splits, [budgets] * splits))
    held = [Held(tuple(each["held_out"]), {}, {}) for each in found]
    drawn = Resamples.of(Comparison.of_rows(table, [each.held_out for each in held]), splits)
    return {
        "table": name,
        "recorded": len(table),
        "splits": splits,
        "by_budget": [described(found, held, drawn, b, usd, is_timed=name == TIMED) for b, usd in enumerate(budgets)],
        **{lead: leads(found, held, drawn, lead, range(n)) for lead in LEADS},
    }


def latencies(data: Path, table: OutcomeTable) -> FloatArray:
    """The recorded seconds of each first answer, as a table's ``cost_usd``."""
    path = data / exams.FILE
    rows = read_rows(path, ("dataset", "question_id", "model", "round", "latency_s"))
    found = {
        (f"{row['dataset']}/{row['question_id']}", row["model"]): number(row, "latency_s", path)
        for row in rows
        if row["round"] == "1"
    }
    return np.array([[found[request, system] for system in table.systems] for request in table.request_ids])


def one_split(task: Task, seconds: FloatArray, budgets: Sequence[float]) -> dict[str, Any]:
    """Buy, estimate, then serve the held-out half under each budget: by the batch, and by every rival at its dollars."""
    training, kept = split(task.table.groups, task.settings.held_out, task.seed)
    catalog = catalog_of(task.table)
    template = template_of(task.depth).bind(tuple(catalog))
    rows = rows_of(task, task.table.rows(training), template, catalog)
    evidence = Evidence(rows, estimated(rows, template, catalog, task.settings), task.depth)
    held_out = task.table.rows(kept)
    world = Replayed(held_out, seconds[kept], task.table.cost_usd.max(axis=0))
    chooser = VineLMSignals().fit(evidence)
    assert isinstance(chooser, SignalChooser)
    curves = {}
    for name, method in PLANS.items():
        fitted = method.fit(evidence)
        curves[name] = tuple(Curve.of(fitted, one, task.settings.curve)[0] for one in (held_out, world.timed))
    return {"held_out": kept, "budgets": [_served(chooser.planner, world, curves, usd) for usd in budgets]}


def _served(planner: Planner, world: Replayed, curves: Mapping[str, tuple[Curve, ...]], usd: float) -> dict[str, Any]:
    """Serve the batch under so many dollars a request, and every rival at what it spent."""
    run = simulated(planner, world, usd * len(world), None, workers=WORKERS)
    took = np.zeros((3, len(world.table)))
    for place, plan in run.plans.items():
        took[:, place % len(world.table)] += world.of(plan)[:, place % len(world.table)] / world.times
    success, cost, seconds = took
    found: dict[str, Any] = {"success": success, "usd": cost, "seconds": seconds, "spent": run.spent / (usd * len(world))}
    found |= {"unanswered": 1.0 - len(run.plans) / len(world), "slower": {}, "planned": {}}
    found |= {name: {} for name in LEADS}
    for name, (curve, timed) in curves.items():
        for lead, hindsight in LEADS.items():
            theirs = curve.spending(float(cost.mean()), hindsight=hindsight)
            found[lead][name] = success - theirs.success - theirs.slope * (cost - theirs.cost_usd)
        mixed = curve.by_promise
        shares = mixture_at(mixed.cost_usd.mean(axis=1).tolist(), float(cost.mean()))
        times = shares.of([one.of(timed.cost_usd) for one in curve.mixed])
        found["slower"][name] = float(times.mean() / max(seconds.mean(), 1e-300))
        # What a loop spends whose mixture is to cost the budget, by the promises of its plans.
        at = int(np.abs(mixed.promised[:, 1] - usd).argmin())
        found["planned"][name] = float(mixed.cost_usd[at].mean() / mixed.promised[at, 1])
    return found


def described(
    found: Sequence[dict[str, Any]], held: Sequence[Held], drawn: Resamples, b: int, usd: float, *, is_timed: bool
) -> dict[str, Any]:
    """Everything under one budget, as plain JSON types; accuracies are fractions, dollars and seconds those of a request."""
    here = [one["budgets"][b] for one in found]
    names = ("success", "usd", *(("seconds",) if is_timed else ()))
    told: dict[str, Any] = {
        "budget_usd": usd,
        **{name: float(drawn.mean(held, [one[name] for one in here])[0]) for name in names},
        "most_of_budget": max(one["spent"] for one in here),
        "unanswered": float(np.mean([one["unanswered"] for one in here])),
        **{lead: leads(found, held, drawn, lead, (b,)) for lead in LEADS},
        "planned": {name: [min(values), max(values)] for name in PLANS if (values := [one["planned"][name] for one in here])},
    }
    if is_timed:
        told["slower"] = {name: float(np.mean([one["slower"][name] for one in here])) for name in PLANS}
    return told


def leads(
    found: Sequence[dict[str, Any]], held: Sequence[Held], drawn: Resamples, lead: str, budgets: Iterable[int]
) -> dict[str, Any]:
    """The batch's mean lead in right answers over each rival at equal dollars, with 95 % intervals over requests and splits."""
    places = list(budgets)
    return {
        name: drawn.interval(held, [np.mean([one["budgets"][b][lead][name] for b in places], axis=0) for one in found])
        for name in PLANS
    }
