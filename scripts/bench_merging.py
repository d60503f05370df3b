"""What merging histories loses, where the full tree still fits; and one long agent.

All models are simulated (scripts/simulated_agent.py): every number compares with the exact truth of that simulation.
*exact*: the merged trie has the true rates, averaged over the histories of a uniform profile, so that only merging is at
fault. *estimated*: all tries are fitted to the same rows. The long agent is profiled through LangGraph by the profiler.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import places  # noqa: F401 - first: where the oracles are
from kit.oracles.contingent_checks import plan_at
from simulated_agent import AgentTruth
from simulated_agent_graph import profiled_agent
from studies import Options, study

from vinelm.controller import Planner
from vinelm.estimator import make_estimator
from vinelm.evaluation.tries.promises import merging_optimism
from vinelm.objective import Objective
from vinelm.plans import StaticPlans
from vinelm.plans.plan import Plan
from vinelm.plans.promise import SelectionOptimism
from vinelm.template import Template
from vinelm.trie import DecisionGraph, MergedTrie, Trie
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.difficulty import DifficultyRates

Floats = npt.NDArray[np.float64]
POINTS = 21
SHARES = (0.2, 0.4, 0.7, 1.0)
"""Of the dollars of the most accurate plan: the budgets whose promises are judged."""
PRICES = (0.0, 0.5, 2.0, 5.0, 15.0, 40.0, 120.0)
"""Accuracy per dollar at which plans are compared."""
MERGES: dict[str, dict[str, Any]] = {
    "memory=1": {"memory": 1}, "memory=2": {"memory": 2}, "memory=3": {"memory": 3}, "order ignored": {"order": "ignored"},
}  # fmt: skip


def main() -> int:
    options = {
        "--seeds": (3, ""),
        "--rows": (600, "walks of a profile where the tree fits"),
        "--skip-agent": (False, "without the long agent"),
    }
    return study(__doc__, options, measured, page=page_figures)


def measured(options: Options) -> dict[str, Any]:
    found: dict[str, Any] = {"simulated": True, "full_tree_fits": []}
    for line in compare(options.seeds, options.rows):
        found["full_tree_fits"].append(line)
        options.say("  ".join(f"{key} {value}" for key, value in line.items()))
    if not options.skip_agent:
        found["agent_25x8"] = long_agent()
        options.say(json.dumps(found["agent_25x8"], indent=1))
    return found


def page_figures(found: dict[str, Any]) -> dict[str, Any]:
    """The figures by agent, then by trie, with exact and with estimated rates."""
    agents: dict[str, dict[str, Any]] = {}
    for one in found["full_tree_fits"]:
        agent = f"{one['models']} models, {one['turns']} turns, {'ordered' if one['order_effects'] else 'order without effect'}"
        rates, trie = one["trie"].split(", ", 1)
        row = agents.setdefault(agent, {}).setdefault(trie, {"nodes": one["nodes"]})
        row[rates] = {key: value for key, value in one.items() if key.endswith(("_points", "_s"))}
    return {"agents": agents, **{key: value for key, value in found.items() if key != "full_tree_fits"}}


# -- where the tree fits -------------------------------------------------------------------------------------------


def compare(n_seeds: int, walks: int) -> Iterator[dict[str, Any]]:
    for n_models, times in ((3, 6), (4, 5)):
        for effects in (0.0, 1.0):
            found: dict[str, list[dict[str, float]]] = {}
            for seed in range(n_seeds):
                truth = AgentTruth(n_models, times, effects, seed)
                tree = Tree(truth)
                rows = truth.profile(300, walks, seed)
                for name, result in judged(truth, tree, rows):
                    found.setdefault(name, []).append(result)
            for name, results in found.items():
                means = {key: round(float(np.mean([r[key] for r in results])), 4) for key in results[0]}
                yield {"models": n_models, "turns": times, "order_effects": effects, "trie": name, "seeds": n_seeds, **means}


def judged(truth: AgentTruth, tree: Tree, rows: list[Any]) -> Iterator[tuple[str, dict[str, float]]]:
    for name, settings in MERGES.items():
        merged = tree.merged(truth.template(**settings))
        yield f"exact, {name}", judge_merged(tree, merged)
    start = time.perf_counter()
    plain = make_estimator().fit(rows, truth.template(), truth.catalog).annotated_
    yield "estimated, full tree", {**judge_tree(tree, plain), "nodes": plain.trie.n_nodes, "fit_s": time.perf_counter() - start}
    for name, settings in MERGES.items():
        start = time.perf_counter()
        merged = make_estimator().fit(rows, truth.template(**settings), truth.catalog).annotated_
        seconds = time.perf_counter() - start
        promises = judge_promises(truth, merged, merging_optimism(merged, rows))
        yield f"estimated, {name}", {**judge_merged(tree, merged), **promises, "fit_s": seconds}


class Tree:
    """The exact rates of every history, and the accuracy and dollars of every path."""

    def __init__(self, truth: AgentTruth) -> None:
        self.truth = truth
        self.trie = Trie.from_template(truth.template())
        self.grid = np.linspace(-3.5, 3.5, POINTS)
        self.weight = np.exp(-0.5 * self.grid**2) / np.exp(-0.5 * self.grid**2).sum()
        n = len(self.trie)
        self.rates = np.zeros((3, n, POINTS))
        self.amounts = np.zeros((2, n))
        self.mass = np.zeros((n, POINTS))
        self.mass[0] = self.weight
        histories: list[tuple[int, ...]] = [()] * n
        for node in range(1, n):
            up, model = int(self.trie.parent[node]), int(self.trie.model[node])
            histories[node] = (*histories[up], model)
            self.rates[:, node] = truth.rates(histories[up], model, self.grid)
            self.amounts[:, node] = truth.amounts(model, len(histories[node]))
            self.mass[node] = self.mass[up] * (1.0 - self.rates[1, up])
        reach = self.mass.sum(axis=1)
        self.success = (self.mass * self.rates[0]).sum(axis=1) / reach
        stopped = self.trie.accumulate((self.mass * self.rates[2]).sum(axis=1))
        self.accuracy = stopped + (self.mass * (self.rates[0] - self.rates[2])).sum(axis=1)
        self.cost_usd = self.trie.accumulate(reach * self.amounts[0])

    def merged(self, template: Template) -> AnnotatedTrie:
        """The merged trie of the truth: rates averaged over the histories of a uniform profile."""
        trie = MergedTrie.of(template)
        node = self.nodes_in(trie)
        n_models = len(trie.models)
        mass = self.mass / float(n_models) ** self.trie.depth[:, None]
        total = np.zeros((len(trie), POINTS))
        np.add.at(total, node, mass)
        rates = np.zeros((3, len(trie), POINTS))
        for k in range(3):
            np.add.at(rates[k], node, mass * self.rates[k])
        rates /= total
        rates[:, 0] = 0.0
        reach = total.sum(axis=1)
        mean = [(total * rate).sum(axis=1) / reach for rate in rates]
        amounts = np.zeros((2, len(trie)))
        amounts[:, node] = self.amounts  # of the model and the depth, which a node has
        nothing = np.zeros(len(trie))
        return AnnotatedTrie(
            trie=trie, template=template, catalog=self.truth.catalog, success=mean[0], stop=mean[1], stop_success=mean[2],
            cost_usd=amounts[0], cost_var=nothing, latency_s=amounts[1], latency_var=nothing,
            difficulty=DifficultyRates(self.weight, rates[0], rates[1], rates[2]),
        )  # fmt: skip

    def nodes_in(self, trie: MergedTrie) -> npt.NDArray[np.int64]:
        """The merged node of every history."""
        node = np.zeros(len(self.trie), np.int64)
        for at in range(1, len(self.trie)):
            node[at] = trie.child(int(node[self.trie.parent[at]]), trie.models[self.trie.model[at]])
        return node

    def value(self, price: float) -> float:
        """Of the best path at a price; ending at once is worth nothing."""
        return max(0.0, float((self.accuracy - price * self.cost_usd)[1:].max()))

    def value_of(self, path: tuple[str, ...], price: float) -> float:
        """Of a path at a price."""
        node = self.trie.node(path)
        return float(self.accuracy[node] - price * self.cost_usd[node]) if node else 0.0


def judge_merged(tree: Tree, annotated: AnnotatedTrie) -> dict[str, float]:
    trie, known = annotated.trie, annotated.difficulty
    assert isinstance(trie, MergedTrie)
    assert known is not None
    node = tree.nodes_in(trie)
    mass, ended = np.zeros((len(tree.trie), len(known.weight))), np.zeros(len(tree.trie))
    mass[0] = known.weight
    for level in tree.trie.levels[1:]:  # each path's own requests
        up = tree.trie.parent[level]
        mass[level] = mass[up] * (1.0 - known.stop[node[up]])
        ended[level] = ended[up] + (mass[up] * known.stop_success[node[up]]).sum(axis=1)
    accuracy = ended + (mass * known.success[node]).sum(axis=1)
    regrets = []
    for price in PRICES:
        regrets.append(tree.value(price) - tree.value_of(path_of(plan_at(annotated, price)), price))
    return {
        "nodes": trie.n_nodes,
        "success_mae_points": 100 * float(np.abs(annotated.success[node] - tree.success)[1:].mean()),
        "path_mae_points": 100 * float(np.abs(accuracy - tree.accuracy)[1:].mean()),
        "plan_regret_points": 100 * float(np.mean(regrets)),
        "plan_regret_max_points": 100 * float(np.max(regrets)),
    }


def judge_promises(truth: AgentTruth, annotated: AnnotatedTrie, curve: SelectionOptimism | None) -> dict[str, float]:
    """Promised less true accuracy of plans within some dollars, as estimated and less what a longer memory takes off."""
    evidence = {} if curve is None else {"evidence": {"selection": curve.to_dict()}}
    planner = Planner(replace(annotated, meta={**annotated.meta, **evidence}))
    most = planner.plan(Objective(maximize="accuracy")).path_cost_usd
    least = planner.plan(Objective(minimize="cost")).path_cost_usd
    gaps = []
    for share in SHARES:
        found: Any = planner.plan(Objective(maximize="accuracy", max_cost_usd=max(share * most, 1.01 * least), mix=False))
        true, _ = truth.path_accuracy(tuple(annotated.trie.models.index(name) for name in path_of(found.plan)))
        gaps.append((found.promise.estimate - true, found.promise.accuracy - true))
    names = ("estimated_too_much_points", "promised_too_much_points")
    return dict(zip(names, (100 * np.mean(gaps, axis=0)).tolist(), strict=True))


def judge_tree(tree: Tree, annotated: AnnotatedTrie) -> dict[str, float]:
    regrets = []
    for price in PRICES:
        worth = annotated.accuracy - price * annotated.path_cost_usd
        best = int(np.argmax(np.where(annotated.trie.answerable, worth, 0.0)))
        regrets.append(tree.value(price) - tree.value_of(annotated.trie.prefix(best), price))
    return {
        "success_mae_points": 100 * float(np.abs(annotated.success - tree.success)[1:].mean()),
        "path_mae_points": 100 * float(np.abs(annotated.accuracy - tree.accuracy)[1:].mean()),
        "plan_regret_points": 100 * float(np.mean(regrets)),
        "plan_regret_max_points": 100 * float(np.max(regrets)),
    }


def path_of(plan: Plan) -> tuple[str, ...]:
    """The models that a plan over one loop runs, until it ends the request."""
    steps, path = plan.to_dict()["steps"], []
    while steps and steps[0]["model"] is not None:
        path.append(steps[0]["model"])
        steps = steps[0]["steps"]
    return tuple(path)


# -- a long agent --------------------------------------------------------------------------------------------------


def long_agent(n_requests: int = 300, budget_usd: float = 25.0) -> dict[str, Any]:
    """A ReAct agent of 25 turns over 8 models: profiled through LangGraph, estimated, planned, each timed."""
    truth = AgentTruth(8, 25, 0.5, 11)
    template = truth.template(memory=2)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        rows = profiled_agent(truth, template, Path(folder) / "agent.db", n_requests=n_requests, budget_usd=budget_usd)
        profile_s = time.perf_counter() - start
    print(f"profiled: {len(rows)} rows in {profile_s:.0f} s", file=sys.stderr, flush=True)
    start = time.perf_counter()
    annotated = make_estimator().fit(rows, template, truth.catalog).annotated_
    fit_s = time.perf_counter() - start
    errors, differences = [], []
    fixed, by_profile = (StaticPlans(DecisionGraph.of(each), None) for each in (annotated, replace(annotated, difficulty=None)))
    for row, (model,) in enumerate(fixed.models.tolist()):
        for turns in (1, 2, 3, 5, 8, 12, 18, 25):
            at, (exact, _) = row * fixed.depth + turns - 1, truth.path_accuracy((model,) * turns)
            errors.append(abs(fixed.accuracy[at] - exact))
            differences.append(abs(by_profile.accuracy[at] - exact))
    start = time.perf_counter()
    one = plan_at(annotated, 1.0)
    price_s = time.perf_counter() - start
    start = time.perf_counter()
    found = Planner(annotated).plan(Objective(maximize="accuracy", max_cost_usd=0.02))
    budget_s = time.perf_counter() - start
    best: Any = getattr(found, "plan")  # noqa: B009 - a contingent decision has one
    trie = annotated.trie
    own = truth.path_accuracy(tuple(trie.models.index(name) for name in path_of(best)))
    single = [truth.path_accuracy((m,) * k) for m in range(8) for k in range(1, 26)]
    return {
        "histories_unmerged": sum(8**k for k in range(1, 26)), "nodes": trie.n_nodes, "edges": trie.n_edges,
        "rows": len(rows), "requests": n_requests, "profile_usd": round(sum(r.cost_usd for r in rows), 2),
        "profile_s": round(profile_s, 1), "estimate_s": round(fit_s, 1), "plan_at_a_price_ms": round(1e3 * price_s, 1),
        "plan_for_a_budget_ms": round(1e3 * budget_s, 1),
        "fixed_plan_mae_points": round(100 * float(np.mean(errors)), 2),
        "fixed_plan_mae_points_with_the_mix_of_the_profile": round(100 * float(np.mean(differences)), 2),
        "budget_usd": 0.02, "planned_accuracy": round(best.accuracy, 4),
        "planned_accuracy_with_the_mix_of_the_profile": round(best.promised_accuracy, 4),
        "planned_cost_usd": round(best.cost_usd, 4), "true_accuracy": round(own[0], 4),
        "true_cost_usd": round(own[1], 4),
        "best_single_model_true_accuracy": round(max(a for a, c in single if c <= 0.02), 4),
        "price_1_accuracy": round(one.accuracy, 4),
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
