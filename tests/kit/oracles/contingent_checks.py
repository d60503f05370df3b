"""Checks of the contingent planner against all plans of small random tries. Each returns what differs, as text."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product
from typing import Any

from kit.oracles.branching_cases import random_branching
from kit.oracles.contingent_brute_force import ContingentQuestion, Measured, rank_of
from vinelm.controller.planner import Planner
from vinelm.controller.planning.contingent.decision import ContingentDecision
from vinelm.controller.planning.contingent.limits import Admissible
from vinelm.controller.planning.contingent.problem import Problem
from vinelm.controller.planning.contingent.values import PlanGoal
from vinelm.errors import InfeasibleError
from vinelm.objective import Objective
from vinelm.plans.plan import Plan
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.decision_graph import DecisionGraph

LEAST_PLANS, MOST_PLANS = 8, 1500
"""Fewest and most contingent plans of a trie that is checked."""
PRICES = (0.0, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 1.0, 2.0, 8.0)
_AVERAGES = ("min_accuracy", "max_cost_usd")


def plan_at(annotated: AnnotatedTrie, price: float) -> Plan:
    """Return the best plan from the root on by accuracy less ``price`` times dollars, over a trie of any kind."""
    graph = DecisionGraph.of(annotated)
    problem = Problem(graph, 0, graph.groups_at(0), Admissible(graph, {}, None), may_stop=False)
    return problem.best(PlanGoal("accuracy", price)).plan(graph, 0)


def small_branching(rng: random.Random) -> AnnotatedTrie:
    """Make a random annotated trie that branches and has few enough plans to write them all out."""
    while True:
        annotated = random_branching(rng)
        if LEAST_PLANS <= number_of_plans(annotated, 0, False) <= MOST_PLANS:
            return annotated


def check_request_bounds(rng: random.Random, annotated: AnnotatedTrie, planner: Planner) -> str | None:
    """Compare one random question with bounds for each request and load; None if the plans agree."""
    question, asked = _random_question(rng, annotated)
    expected = question.best()
    try:
        decision = planner.plan(question.objective, **asked)
    except InfeasibleError as error:
        return None if expected is None else f"{question.objective}, {asked}: expected {expected}, but {error}"
    if expected is None:
        return f"{question.objective}, {asked}: expected no plan"
    assert isinstance(decision, ContingentDecision)
    found = question.measure(decision.plan.next_model)
    if rank_of(question.objective, found) != rank_of(question.objective, expected[0]):
        return f"{question.objective}, {asked}: expected {expected}, found {found}"
    return None


def check_prices(annotated: AnnotatedTrie) -> list[str]:
    """Compare the best plan at each of some prices of accuracy with the best of all plans."""
    question = ContingentQuestion(annotated, Objective(maximize="accuracy"))
    plans, wrong = question.plans(), []
    for price in PRICES:
        found = question.measure(plan_at(annotated, price).next_model)
        best = min(plans, key=lambda plan: rank_of(question.objective, plan, price))
        if rank_of(question.objective, found, price) != rank_of(question.objective, best, price):
            wrong.append(f"price {price}: expected {best}, found {found}")
    return wrong


def check_averages(rng: random.Random, annotated: AnnotatedTrie, planner: Planner) -> tuple[str | None, float]:
    """Compare a plan for bounds on averages with the best of all corners of the hull and all fixed plans.

    Returns what differs, and by how much the best contingent plan of all is better than the best of those (in accuracy, or as a
    share of the dollars): what not seeking the plans between corners costs.
    """
    plans = ContingentQuestion(annotated, Objective(maximize="accuracy")).plans()
    objective = _objective_of_averages(rng, plans)
    question = ContingentQuestion(annotated, objective)
    competing = [*_corners(plans), *_fixed_plans(question)]
    allowed = [plan for plan in competing if _meets(objective, plan)]
    decision = planner.plan(objective)
    assert isinstance(decision, ContingentDecision)
    found = question.measure(decision.plan.next_model)
    if not allowed:
        return (None if decision.relaxed else f"{objective}: expected no plan within the bounds, found {found}"), 0.0
    expected = min(allowed, key=lambda plan: rank_of(objective, plan))
    best = min((plan for plan in plans if _meets(objective, plan)), key=lambda plan: rank_of(objective, plan))
    gap = best.accuracy - expected.accuracy
    if objective.target == "cost":
        gap = (expected.cost_usd - best.cost_usd) / (best.cost_usd or 1.0)
    is_corner = found in competing or _is_on_hull(plans, found)
    if not _meets(objective, found) or not is_corner or rank_of(objective, found)[:3] > rank_of(objective, expected)[:3]:
        return f"{objective}: expected {expected}, found {found}", gap
    return None, gap


def number_of_plans(annotated: AnnotatedTrie, node: int, can_end: bool) -> int:
    """Return the number of contingent plans below a node, or a number beyond :data:`MOST_PLANS`."""
    total = 1
    for below in annotated.trie.arms(node).values():
        total *= can_end + sum(number_of_plans(annotated, child, bool(annotated.trie.answerable[child])) for child in below)
        if total > MOST_PLANS:
            break
    return total


def _random_question(rng: random.Random, annotated: AnnotatedTrie) -> tuple[ContingentQuestion, dict[str, Any]]:
    trie, arm = annotated.trie, annotated.arm
    assert arm is not None
    target = rng.choice(("accuracy", "accuracy", "cost", "latency"))
    fields: dict[str, Any] = {"maximize": target} if target == "accuracy" else {"minimize": target}
    if rng.random() < 0.6:
        fields |= {"max_latency_s": rng.randint(0, 40) / 8, "risk": rng.choice(("mean", "mean", "mean+sd"))}
    if rng.random() < 0.4:
        fields |= {"max_cost_usd": rng.randint(0, 32) / 8, "cost_budget": "per_request"}
    if (fields.get("risk") == "mean+sd" or "cost_budget" in fields) and rng.random() < 0.5:
        fields["z"] = rng.randint(0, 4) / 2
    asked: dict[str, Any] = {
        "elapsed_s": rng.randint(0, 24) / 8 if rng.random() < 0.5 else 0.0,
        "spent_usd": rng.randint(0, 16) / 8 if rng.random() < 0.5 else 0.0,
        "may_stop": rng.random() < 0.7,
    }
    if rng.random() < 0.5:
        asked["load"] = {f"e{i}": rng.randint(0, 12) / 8 for i in range(2) if rng.random() < 0.8}
    inner = [node for node in range(len(trie)) if any(arm[child] > 0 for child in trie.children(node))]
    node = rng.choice(inner) if rng.random() < 0.6 else 0
    arms = [stage for stage, below in trie.arms(node).items() if arm[below[0]] > 0]
    stages = rng.choice((None, [rng.choice(arms)], rng.sample(arms, rng.randint(1, len(arms)))))
    is_joint = stages is not None and len(stages) > 1
    question = ContingentQuestion(annotated, Objective(**fields), node, stages, is_joint, **asked)
    return question, asked | {"node": node, "stage": frozenset(stages) if stages and is_joint else stages and stages[0]}


def _objective_of_averages(rng: random.Random, plans: list[Measured]) -> Objective:
    """An objective with bounds on averages that some plan just meets, or none does."""
    fields: dict[str, Any] = rng.choice(({"maximize": "accuracy"}, {"minimize": "cost"}))
    kinds = rng.choice((_AVERAGES[:1], _AVERAGES[1:], _AVERAGES))
    bounds: dict[str, Any] = {"min_accuracy": rng.choice(plans).accuracy, "max_cost_usd": rng.choice(plans).cost_usd}
    if rng.random() < 0.1:
        bounds = {"min_accuracy": 1.0, "max_cost_usd": 1 / 16}
    return Objective(**fields, **{kind: bounds[kind] for kind in kinds})


def _meets(objective: Objective, plan: Measured) -> bool:
    floor, budget = objective.min_accuracy, objective.max_cost_usd
    return (floor is None or plan.accuracy >= floor) and (budget is None or plan.cost_usd <= budget)


def _corners(plans: list[Measured]) -> list[Measured]:
    """The corners of the upper hull of cost and accuracy, from the least cost to the highest accuracy."""
    cheapest = min(plans, key=lambda plan: (plan.cost_usd, -plan.accuracy, plan.longest_s))
    corners = [cheapest]
    while True:
        last = corners[-1]
        above = [plan for plan in plans if plan.accuracy > last.accuracy and plan.cost_usd > last.cost_usd]
        if not above:
            return corners
        slope = max((plan.accuracy - last.accuracy) / (plan.cost_usd - last.cost_usd) for plan in above)
        steepest = [p for p in above if (p.accuracy - last.accuracy) / (p.cost_usd - last.cost_usd) == slope]
        corners.append(max(steepest, key=lambda plan: (plan.accuracy, -plan.longest_s)))


def _is_on_hull(plans: list[Measured], plan: Measured) -> bool:
    """True if no mixture of two plans is more accurate at the same cost."""
    left = [other for other in _corners(plans) if other.cost_usd <= plan.cost_usd]
    right = [other for other in _corners(plans) if other.cost_usd > plan.cost_usd]
    if not left or not right:
        return bool(left) and plan.accuracy >= left[-1].accuracy
    run, rise = right[0].cost_usd - left[-1].cost_usd, right[0].accuracy - left[-1].accuracy
    return (plan.accuracy - left[-1].accuracy) * run >= rise * (plan.cost_usd - left[-1].cost_usd)


def _fixed_plans(question: ContingentQuestion) -> Iterator[Measured]:
    """Every model for every stage, with an end after every number of invocations; those that answer every request."""
    trie, template = question.annotated.trie, question.annotated.template
    names = [stage.name for stage in template.stages]
    for models in product(*(template.stage(name).models or () for name in names)):
        fixed = dict(zip(names, models, strict=True))
        for length in range(1, trie.max_depth + 1):

            def next_model(node: int, stage: str, fixed: dict[str, str] = fixed, length: int = length) -> str | None:
                return None if trie.depth[node] >= length and trie.answerable[node] else fixed[stage]

            measured = question.measure(next_model)
            if measured.lost == 0.0:
                yield measured
