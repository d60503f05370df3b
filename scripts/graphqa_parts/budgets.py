"""Plans by stage against the best static plan and the best single model, on held-out requests of simulated worlds.

Each world plans on half of the bundled questions, from rows of whole runs with random models, and serves the other half under
nine budgets. All models are simulated; programs are really executed.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from graphqa_parts.worlds import World

from vinelm.backends.offline.presets import simulated_catalog, simulated_tables
from vinelm.catalog import Catalog
from vinelm.evaluation.comparison.comparison import Comparison
from vinelm.evaluation.comparison.fit import Fit
from vinelm.objective import Objective
from vinelm.requests.workflow import Workflow
from vinelm.workflows.graphqa import GraphSource

BUDGETS, RUNS = 9, 600
PAIRS = (("gemma-27b", "sonnet"), ("qwen-32b", "sonnet"), ("gpt-oss-120b", "kimi-k2"))
SEEDS = (0, 1)
"""Simulated models of each catalog, and seeds of their answers."""
RIVALS = ("static", "single")
DRAWS = 2000

Outcomes = tuple[np.ndarray, np.ndarray]
"""Right answers and dollars of one policy, each of shape (budgets, requests)."""


def served_under_budgets(world: World, planning: Sequence[str], held_out: Sequence[str], seed: int) -> dict[str, Outcomes]:
    """What each policy does on the held-out requests under nine budgets, from the cheapest plan to the most accurate one."""
    half = Fit(world.bought(planning, RUNS, seed), world.template, world.catalog, "latent")
    ends = half.plans.frontier_range()
    found: dict[str, list[list[tuple[float, float]]]] = {name: [] for name in ("vinelm", *RIVALS)}
    for cap in np.geomspace(1.01 * ends.cheapest_usd, ends.dearest_usd, BUDGETS):
        chosen: Mapping[str, Any] = half.choose(Objective(maximize="accuracy", max_cost_usd=float(cap)), votes=False)
        chosen = {"vinelm": chosen.get("signals") or chosen["paths"], **{name: chosen[name] for name in RIVALS}}
        for name, policy in chosen.items():
            parts = [(share, [world.served(steps, request) for request in held_out]) for share, steps in policy.parts]
            found[name].append(np.sum([share * np.array(rows, float) for share, rows in parts], axis=0).tolist())
    return {name: (np.array(rows)[:, :, 0], np.array(rows)[:, :, 1]) for name, rows in found.items()}


def at_dollars(rival: Outcomes, usd: float) -> np.ndarray:
    """Right answers of a rival by request where it spends so many dollars: of two of its budgets, mixed; its dearest beyond."""
    right, cost = rival[0], rival[1].mean(axis=1)
    order = np.argsort(cost, kind="stable")
    above = int(np.searchsorted(cost[order], usd))
    if above in (0, len(order)):
        return right[order[min(above, len(order) - 1)]]
    low, high = order[above - 1], order[above]
    share = (usd - cost[low]) / (cost[high] - cost[low])
    return share * right[high] + (1 - share) * right[low]


def gains(found: Mapping[str, Outcomes], rival: str) -> np.ndarray:
    """By request, the mean gain over the budgets at equal dollars."""
    right, cost = found["vinelm"]
    return np.mean([right[i] - at_dollars(found[rival], float(cost[i].mean())) for i in range(len(right))], axis=0)


def interval(gain: np.ndarray) -> dict[str, float]:
    """The mean in points with its 95 % interval over requests."""
    drawn = np.random.default_rng(0).integers(0, len(gain), (DRAWS, len(gain)))
    low, high = np.quantile(gain[drawn].mean(axis=1), (0.025, 0.975))
    return {"value": 100 * float(gain.mean()), "low": 100 * float(low), "high": 100 * float(high)}


def catalog_of(models: Sequence[str]) -> Catalog:
    """A catalog of these simulated models."""
    by_name = {entry["model"]: entry for entry in simulated_tables("paper")["model"]}
    return Catalog.from_dict({"model": [by_name[name] for name in models]}, where="simulated")


def measured(workflow: Workflow, sources: Mapping[str, GraphSource]) -> dict[str, Any]:
    """Gains over both rivals of each world, and of all together."""
    names = [request.id for request in workflow.requests]
    result: dict[str, Any] = {"requests": len(names[1::2]), "budgets": BUDGETS, "worlds": {}}
    pooled: dict[str, list[np.ndarray]] = {rival: [] for rival in RIVALS}
    for models, seed in itertools.product(PAIRS, SEEDS):
        world = World(workflow, sources, catalog_of(models), seed)
        found = served_under_budgets(world, names[::2], names[1::2], seed)
        one = {f"right_{name}": 100 * float(right.mean()) for name, (right, _) in found.items()}
        for rival in RIVALS:
            pooled[rival].append(gains(found, rival))
            one[f"over_{rival}"] = interval(pooled[rival][-1])
        result["worlds"][f"{' and '.join(models)}, seed {seed}"] = one
    return result | {f"over_{rival}": interval(np.mean(rows, axis=0)) for rival, rows in pooled.items()}


def verdict(workflow: Workflow, sources: Mapping[str, GraphSource], seed: int = 0) -> dict[str, Any]:
    """What `vinelm evaluate` says where one model is the most accurate, the cheapest and the fastest."""
    world, names = World(workflow, sources, simulated_catalog("one-wins"), seed), [request.id for request in workflow.requests]
    rows = world.bought(names, 2 * RUNS, seed)
    found = Comparison(requests=names, rows=rows, template=world.template, catalog=world.catalog, seed=seed).verdict()
    return {"preset": "one-wins", "verdict": found.advice, "opponent": found.opponent, "sentence": found.sentence}
