"""Checks of plans over tries that merge histories: exact where nothing is bounded for each request, else the gap to the best.

The best is found by trying every choice at every node and amount left that occurs (`science/merged_plans.py`).
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from freeze_parts.tries import Draw, merged

from kit.oracles.merged_plans import all_plans, arm_rates, best_within, worth
from vinelm.controller import Planner
from vinelm.objective import Objective
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.decision_graph import DecisionGraph

MOST_PLANS = 20_000
"""Largest number of plans of a trie that are all tried for a bound on mean dollars."""
# A cap on each request's dollars counts every call by its upper end.
USES = {
    "max_latency_s": ("latency_s", "elapsed_s", {}),
    "max_cost_usd": ("most_usd", "spent_usd", {"cost_budget": "per_request"}),
}
_EQUAL = 1e-9


def check_merged(tries: int, seed: int, mismatches: list[str]) -> dict[str, float]:
    """Check so many tries, with a question of each kind on each."""
    gaps: dict[str, list[float]] = {"per_request": [], "averages": []}
    for number in range(tries):
        rng = random.Random(f"{seed}:merged:{number}")
        annotated = replace(merged(Draw(rng, is_coarse=number % 4 == 0)), difficulty=None)
        wrong = [check_free(annotated), check_bound(rng, annotated, gaps["per_request"])]
        wrong.append(check_budget(rng, annotated, gaps["averages"]))
        mismatches += [f"merged {number}: {line}" for line in wrong if line is not None]
    found: dict[str, float] = {"merged_tries": tries}
    for name, values in gaps.items():
        found[f"merged_{name}_questions"] = len(values)
        found[f"merged_{name}_gap_mean"] = sum(values) / max(len(values), 1)
        found[f"merged_{name}_gap_max"] = max(values, default=0.0)
        found[f"merged_{name}_best"] = sum(value <= _EQUAL for value in values) / max(len(values), 1)
    return found


def check_free(annotated: AnnotatedTrie) -> str | None:
    """Without bounds the plan has the highest accuracy of all."""
    best = best_within(annotated, arm_rates(annotated), annotated.trie.answerable, 0.0, float("inf"))
    found = Planner(annotated).plan(Objective(maximize="accuracy")).accuracy
    return None if abs(found - best) <= _EQUAL else f"highest accuracy: expected {best}, found {found}"


def check_bound(rng: random.Random, annotated: AnnotatedTrie, gaps: list[float]) -> str | None:
    """Requests that plan anew before each invocation stay within their bound; their accuracy, against the best."""
    bound = rng.choice(sorted(USES))
    use, spent, fields = USES[bound]
    amounts, trie, rates = getattr(annotated, use), annotated.trie, arm_rates(annotated)
    cap = float(amounts.sum() / len(trie) * trie.max_depth * rng.uniform(0.3, 1.3)) + float(amounts[0])
    objective, planner = Objective(maximize="accuracy", **{bound: cap}, **fields), Planner(annotated)
    left = cap - float(amounts[0])
    best = best_within(annotated, rates, trie.answerable, 0.0, left, use=use)
    asked: dict[str, Any] = {"may_stop": False}
    if planner.plan(objective, **{spent: float(amounts[0])}, **asked).relaxed:
        return None

    def followed(node: int, used: float) -> float:
        """Accuracy from a node on, of a request that has used so much."""
        arms = trie.arms(node)
        if not arms:
            return float(annotated.success[node] if trie.answerable[node] else annotated.stop_success[node])
        decision = planner.plan(objective, node=node, **{spent: used}, may_stop=bool(node))
        total = float(annotated.stop_success[node])
        for stage, model in decision.next_models.items():
            going, right = rates[node, stage]
            child = None if model is None else trie.child(node, model, stage)
            if child is None:
                total += right if trie.answerable[node] else 0.0
            elif used + float(amounts[child]) > cap * (1 + _EQUAL):
                beyond.append(f"{objective}: {used + float(amounts[child])} used after {stage} {model}")
            else:
                total += going * followed(child, used + float(amounts[child]))
        return total

    beyond: list[str] = []
    found = followed(0, float(amounts[0]))
    gaps.append(max(best - found, 0.0))
    if found > best + _EQUAL:
        beyond.append(f"{objective}: accuracy {found}, the best has {best}")
    return beyond[0] if beyond else None


def check_budget(rng: random.Random, annotated: AnnotatedTrie, gaps: list[float]) -> str | None:
    """A bound on mean dollars is kept; the accuracy, against the best of all plans that keep it."""
    trie = annotated.trie
    options = 1
    for node in range(len(trie)):
        for children in trie.arms(node).values():
            options *= len(children) + bool(trie.answerable[node])
    if options > MOST_PLANS:
        return None
    rates = arm_rates(annotated)
    plans = [worth(annotated, plan, rates) for plan in all_plans(trie, trie.answerable)]
    low, high = min(plan[1] for plan in plans), max(plan[1] for plan in plans)
    budget = rng.uniform(low, high) + float(annotated.cost_usd[0])
    decision = Planner(annotated).plan(Objective(maximize="accuracy", max_cost_usd=budget), may_stop=False)
    if decision.relaxed:
        return None if DecisionGraph.of(annotated).loses else f"${budget} is kept by a plan, and the planner finds none"
    if decision.path_cost_usd > budget * (1 + _EQUAL):
        return f"${decision.path_cost_usd} of ${budget} on average"
    best = max(accuracy for accuracy, usd, _ in plans if usd + float(annotated.cost_usd[0]) <= budget * (1 + _EQUAL))
    gaps.append(max(best - decision.accuracy, 0.0))
    return None
