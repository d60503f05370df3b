"""A dollar is worth at a node that the plan from the root does not reach what it is worth to all requests."""

import random
from itertools import pairwise

import pytest
from kit.oracles.contingent_checks import small_branching
from kit.templates import agent
from kit.tries import random_merged

from vinelm.controller import Planner
from vinelm.controller.planning.contingent.hull import Curve
from vinelm.controller.planning.contingent.limits import Admissible
from vinelm.controller.planning.contingent.problem import Problem
from vinelm.controller.planning.contingent.values import PlanGoal
from vinelm.errors import InfeasibleError
from vinelm.objective import Objective
from vinelm.trie.decision_graph import DecisionGraph


def curve_of(annotated):
    graph = DecisionGraph.of(annotated)
    return Curve(Problem(graph, 0, graph.groups_at(0), Admissible(graph, {}, None), may_stop=False))


@pytest.mark.parametrize("seed", range(10))
def test_the_price_at_a_bound_is_the_slope_of_the_hull_there(seed):
    rng = random.Random(f"slope:{seed}")
    known = curve_of(annotated := small_branching(rng))
    corners = known.refined()
    for low, high in pairwise(corners):
        slope = (high.accuracy - low.accuracy) / (high.cost_usd - low.cost_usd)
        between = rng.uniform(low.cost_usd, high.cost_usd), rng.uniform(low.accuracy, high.accuracy)
        for goal in (curve_of(annotated).price_within(between[0]), curve_of(annotated).price_reaching(between[1])):
            assert goal.target == "accuracy"
            assert goal.price == pytest.approx(slope, rel=1e-6)
    assert known.price_within(corners[-1].cost_usd) == PlanGoal("accuracy", 0.0)
    assert known.price_within(corners[0].cost_usd - 1e-6) == PlanGoal("cost")
    assert known.price_reaching(corners[0].accuracy) == PlanGoal("cost")


@pytest.mark.parametrize("kind", ["branching", "merged", "merged with difficulties"])
@pytest.mark.parametrize("seed", [0, 1, 10, 22, 26, 34])
def test_a_budget_that_does_not_bind_changes_nothing_after_a_model_has_failed(kind, seed):
    rng = random.Random(f"narrowed:{seed}")
    is_hard = kind == "merged with difficulties"
    annotated = small_branching(rng) if kind == "branching" else random_merged(agent(2, 3, memory=1), seed, is_hard)
    planner = Planner(annotated)
    for node in range(len(annotated.trie)):
        for model in annotated.trie.models:
            assert accuracy(planner, node, model, max_cost_usd=1e3) == accuracy(planner, node, model)


def accuracy(planner, node, failed, **bounds):
    try:
        return planner.plan(Objective(maximize="accuracy", **bounds), node=node, without=(failed,)).accuracy
    except InfeasibleError:
        return None
