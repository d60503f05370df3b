"""A batch against its honest rival, a loop with fixed plans, on recorded answers: right answers and hours for the same dollars.

Every split buys rows of one half of the recorded exam questions (as `signals.py` does) and estimates one trie. On the other
half the batch is steered under a budget for all requests: its plans are chosen anew as the dollars of the requests so far are
known, and each call's answer, dollars and seconds are the recorded ones. The rivals choose from the same rows, and have every
advantage: each mixes two of its plans by request, is told what these really cost on the held-out requests, and so spends
exactly what the batch has spent, where a loop over ``app.batch`` would have to hit that. It takes the same order.

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
from signals_parts.equal_dollars import Drawn as Resamples
from signals_parts.figures import Comparison
from signals_parts.protocol import Settings, Task, estimated, rows_of, split
from signals_parts.record import number, read_rows
from signals_parts.systems import load_tables
from signals_parts.vinelm_signals import SignalChooser, SignalPolicy, VineLMSignals

from vinelm.batches.plan_shares import Drawn
from vinelm.controller import Planner
from vinelm.evaluation import OutcomeTable
from vinelm.evaluation.rivals import Evidence
from vinelm.trie.arrays import FloatArray

TABLE, DEPTH, SAMPLER = "exams", 3, "cascade"
SPLITS, BUDGETS, WORKERS = 20, 5, 16
PLANS = {"one plan": StaticPlan(), "two models": MixedSingle(), "a loop of ours": VineLMSignals()}


class Replayed:
    """The held-out requests as recorded: a :class:`~batch_parts.landing.World`.

    Args:
        table: Their answers and dollars.
        seconds: Of each answer, shape (requests, systems).
        most_usd: What the dearest call of each system costs on the whole table, (systems,): what is reserved for a call.
    """

    def __init__(self, table: OutcomeTable, seconds: FloatArray, most_usd: FloatArray) -> None:
        self.table = table
        self.timed = replace(table, cost_usd=seconds)
        self._bounded = replace(table, cost_usd=np.broadcast_to(most_usd, seconds.shape))
        self._known: dict[int, tuple[Drawn, FloatArray, float]] = {}

    def __len__(self) -> int:
        return len(self.table)

    def of(self, plan: Drawn) -> FloatArray:
        """Success, dollars and seconds of every request under a plan, shape (3, requests)."""
        return self._replayed(plan)[1]

    def took(self, plan: Drawn, planner: Planner, place: int) -> tuple[float, float]:
        """See :class:`~batch_parts.landing.World`."""
        _, usd, seconds = self.of(plan)[:, place]
        return float(usd), float(seconds)

    def bound_usd(self, plan: Drawn) -> float:
        """See :class:`~batch_parts.landing.World`: the bounds of the calls that the plan makes at its dearest."""
        return self._replayed(plan)[2]

    def _replayed(self, plan: Drawn) -> tuple[Drawn, FloatArray, float]:
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
    splits, n = (2, 2) if options.quick else (SPLITS, BUDGETS)
    table = load_tables(options.recorded, None, (TABLE,))[TABLE]
    seconds = latencies(options.recorded, table.table)
    settings = replace(Settings(is_checked=False), splits=splits).for_table(table.table, own_budgets=True, depth=DEPTH)
    prices = np.sort(table.table.cost_usd.mean(axis=0))
    budgets = np.geomspace(prices[1], prices[-1], n).tolist()
    tasks = [
        Task(table=table.table, depth=DEPTH, sampler=SAMPLER, seed=seed, settings=settings, asked=table.asked)
        for seed in range(splits)
    ]
    with ProcessPoolExecutor(options.jobs) as pool:
        found = list(pool.map(one_split, tasks, [seconds] * splits, [budgets] * splits))
    held = [Held(tuple(one["held_out"]), {}, {}) for one in found]
    drawn = Resamples.of(Comparison.of_rows(table.table, [one.held_out for one in held]), splits)
    return {
        "rival": {
            "table": TABLE,
            "requests": len(table.table) // 2,
            "splits": splits,
            "workers": WORKERS,
            "by_budget": [described(found, held, drawn, b, usd) for b, usd in enumerate(budgets)],
            "all": leads(found, held, drawn, range(n)),
        }
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
    run = simulated(planner, world, usd * len(world), None, workers=WORKERS, names=world.table.request_ids)
    took = np.zeros((3, len(world)))
    for place, plan in run.plans.items():
        took[:, place] = world.of(plan)[:, place]
    success, cost, seconds = took
    found: dict[str, Any] = {"success": success, "usd": cost, "seconds": seconds, "spent": run.spent / (usd * len(world))}
    found |= {"unanswered": len(world) - len(run.plans), "over": {}, "slower": {}, "planned": {}}
    for name, (curve, timed) in curves.items():
        theirs, mixed = curve.spending(float(cost.mean()), hindsight=False), curve.by_promise
        found["over"][name] = success - theirs.success - theirs.slope * (cost - theirs.cost_usd)
        shares = mixture_at(mixed.cost_usd.mean(axis=1).tolist(), float(cost.mean()))
        times = shares.of([one.of(timed.cost_usd) for one in curve.mixed])
        found["slower"][name] = float(times.mean() / seconds.mean())
        # What a loop spends whose mixture is to cost the budget, by the promises of its plans.
        at = int(np.abs(mixed.promised[:, 1] - usd).argmin())
        found["planned"][name] = float(mixed.cost_usd[at].mean() / mixed.promised[at, 1])
    return found


def described(found: Sequence[dict[str, Any]], held: Sequence[Held], drawn: Resamples, b: int, usd: float) -> dict[str, Any]:
    """Everything under one budget, as plain JSON types; accuracies are fractions, dollars and seconds those of a request."""
    here = [one["budgets"][b] for one in found]
    told: dict[str, Any] = {name: drawn.mean(held, [one[name] for one in here])[0] for name in ("success", "usd", "seconds")}
    return {
        "budget_usd": usd,
        **{name: float(value) for name, value in told.items()},
        "most_of_budget": max(one["spent"] for one in here),
        "least_of_budget": min(one["spent"] for one in here),
        "unanswered": float(np.mean([one["unanswered"] / len(one["success"]) for one in here])),
        "over": leads(found, held, drawn, (b,)),
        "slower": {name: float(np.mean([one["slower"][name] for one in here])) for name in PLANS},
        "planned": {
            name: {"most": max(values), "over_budget": float(np.mean([value > 1.0 for value in values]))}
            for name in PLANS
            if (values := [one["planned"][name] for one in here])
        },
    }


def leads(found: Sequence[dict[str, Any]], held: Sequence[Held], drawn: Resamples, budgets: Iterable[int]) -> dict[str, Any]:
    """The batch's mean lead in right answers over each rival at equal dollars, with its 95 % interval over requests and splits."""
    places = list(budgets)
    return {
        name: drawn.interval(held, [np.mean([one["budgets"][b]["over"][name] for b in places], axis=0) for one in found])
        for name in PLANS
    }
