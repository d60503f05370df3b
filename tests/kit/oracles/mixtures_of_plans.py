"""Mixed plans against the linear program over all deterministic plans of small random tries, of every kind."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count

import numpy as np
from freeze_parts.tries import Draw, merged, signals
from scipy.optimize import linprog

from kit.oracles.branching_cases import annotated_at_random
from kit.oracles.contingent_brute_force import ContingentQuestion
from kit.oracles.contingent_checks import MOST_PLANS, number_of_plans, small_branching
from kit.oracles.merged_plans import all_plans, arm_rates, worth
from kit.oracles.random_cases import _model, random_annotated
from vinelm.catalog import Catalog
from vinelm.controller.planner import Planner
from vinelm.objective import Objective
from vinelm.template import Branch, Loop, Stage, Template
from vinelm.template.kinds import of_kinds
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.decision_graph import DecisionGraph

KINDS = ("paths", "branching", "merged", "signals", "kinds")
"""Of tries; the last ones tell kinds of request apart."""

TOLERANCE = 1e-5
Figures = tuple[float, float]
"""Accuracy and dollars of one deterministic plan."""


def best_of_all(objective: Objective, plans: Sequence[Figures]) -> float | None:
    """Return the highest accuracy, or the least dollars, that shares of deterministic plans reach; None if none can."""
    accuracy, cost = (np.array(column) for column in zip(*plans, strict=True))
    rows, limits = [], []
    if objective.max_cost_usd is not None:
        rows.append(cost)
        limits.append(objective.max_cost_usd)
    if objective.min_accuracy is not None:
        rows.append(-accuracy)
        limits.append(-objective.min_accuracy)
    goal = -accuracy if objective.target == "accuracy" else cost
    found = linprog(goal, A_ub=np.array(rows), b_ub=np.array(limits), A_eq=np.ones((1, len(plans))), b_eq=[1.0])
    return None if found.status == 2 else abs(float(found.fun))


def check_mixture(objective: Objective, planner: Planner, plans: Sequence[Figures]) -> str | None:
    """Compare the mixed plan for an objective with the linear program; None if they agree."""
    expected = best_of_all(objective, plans)
    decision = planner.mixed(objective)
    if expected is None:
        return None if decision.relaxed else f"{objective}: nothing meets the bounds, but {decision.words} was found"
    found = decision.accuracy if objective.target == "accuracy" else decision.path_cost_usd
    wrong = [] if abs(found - expected) <= TOLERANCE else [f"expected {expected}, found {found}"]
    if objective.max_cost_usd is not None and decision.path_cost_usd > objective.max_cost_usd + TOLERANCE:
        wrong.append(f"${decision.path_cost_usd} exceeds the bound")
    if objective.min_accuracy is not None and decision.accuracy < objective.min_accuracy - TOLERANCE:
        wrong.append(f"{decision.accuracy} is below the floor")
    return f"{objective}: {', '.join(wrong)}" if wrong else None


def random_objective(rng: random.Random, plans: Sequence[Figures]) -> Objective:
    """Return an objective with a bound on a mean between plans, at one, or beyond all; sometimes with two bounds."""
    (one, other), at = rng.choices(plans, k=2), rng.choice((0.0, rng.random(), rng.random(), 1.02))
    floor, budget = (low + at * (high - low) for low, high in zip(one, other, strict=True))
    floor, budget = min(max(floor, 0.0), 1.0), max(budget, 0.0)
    both = rng.random() < 0.2
    if rng.random() < 0.5:
        return Objective(maximize="accuracy", max_cost_usd=budget, min_accuracy=floor * 0.9 if both else None)
    return Objective(minimize="cost", min_accuracy=floor, max_cost_usd=budget * 1.2 if both else None)


def small_tries(kind: str, tries: int, seed: int = 0) -> Iterator[tuple[random.Random, Planner, list[Figures]]]:
    """Yield so many random tries of a kind, each with its planner and the figures of all its deterministic plans."""
    made = {"paths": _paths, "branching": _branching, "merged": _merged, "signals": _signals, "kinds": _kinds}[kind]
    found = 0
    for number in count():
        rng = random.Random(f"{seed}:{kind}:{number}")
        trie = made(rng, number)
        if trie is not None:
            yield rng, Planner(trie[0]), trie[1]
            found += 1
            if found == tries:
                return


def check_mixtures(tries: int, seed: int, mismatches: list[str]) -> dict[str, int]:
    """Check a few mixed plans on so many tries of every kind; how many of the answers were mixed."""
    mixed = 0
    for kind in KINDS:
        for rng, planner, plans in small_tries(kind, tries, seed):
            for objective in (random_objective(rng, plans) for _ in range(3)):
                wrong = check_mixture(objective, planner, plans)
                mismatches += [] if wrong is None else [f"mixture, {kind}: {wrong}"]
                mixed += planner.mixture(objective) is not None
    return {"mixture_tries": tries * len(KINDS), "mixture_queries": 3 * tries * len(KINDS), "mixed": mixed}


_Made = tuple[AnnotatedTrie, list[Figures]] | None


def _paths(rng: random.Random, number: int) -> _Made:
    annotated = random_annotated(rng)
    return annotated, plans_of(annotated)


def _branching(rng: random.Random, number: int) -> _Made:
    annotated = small_branching(rng)
    return annotated, plans_of(annotated)


def _kinds(rng: random.Random, number: int) -> _Made:
    models = tuple(f"m{i}" for i in range(rng.randint(2, 3)))
    first, second = Stage("a", answerable=rng.random() < 0.6), Stage("b")
    steps = rng.choice((
        (second,), (first, second), (second, Loop((replace(second, name="c"),), times=1)),
        (first, Branch({"x": (second,), "y": (replace(second, name="c"),)})),
    ))  # fmt: skip
    template = of_kinds(Template(steps).bind(models), ("code", "prose", "other")[-rng.randint(2, 3) :])
    catalog = Catalog(_model(name, engine="e") for name in models)
    annotated = annotated_at_random(rng, Trie.from_template(template), template, catalog)
    is_small = 2 <= number_of_plans(annotated, 0, False) <= MOST_PLANS
    return (annotated, plans_of(annotated)) if is_small else None


def _signals(rng: random.Random, number: int) -> _Made:
    annotated = signals(Draw(rng, is_coarse=number % 4 == 0))
    is_small = 2 <= number_of_plans(annotated, 0, False) <= MOST_PLANS
    return (annotated, plans_of(annotated)) if is_small else None


def _merged(rng: random.Random, number: int) -> _Made:
    annotated = replace(merged(Draw(rng, is_coarse=number % 4 == 0)), difficulty=None)
    trie, options = annotated.trie, 1
    for node in range(len(trie)):
        for below in trie.arms(node).values():
            options *= len(below) + bool(trie.answerable[node])
    if options > MOST_PLANS or DecisionGraph.of(annotated).loses:
        return None
    return annotated, plans_of(annotated)


def plans_of(annotated: AnnotatedTrie) -> list[Figures]:
    """Return the figures of all deterministic plans over a small trie; in the same order whatever its rates are."""
    if annotated.trie.is_merged:
        rates, begun = arm_rates(annotated), float(annotated.cost_usd[0])
        found = (worth(annotated, plan, rates) for plan in all_plans(annotated.trie, annotated.trie.answerable))
        return [(accuracy, usd + begun) for accuracy, usd, _ in found]
    if not annotated.is_contingent:
        ends = np.flatnonzero(annotated.trie.answerable)
        return [(float(annotated.accuracy[end]), float(annotated.path_cost_usd[end])) for end in ends if end]
    plans = ContingentQuestion(annotated, Objective(maximize="accuracy")).plans()
    return [(plan.accuracy, plan.cost_usd) for plan in plans if not plan.lost]
