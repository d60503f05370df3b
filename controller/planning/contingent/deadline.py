"""Plans for ``risk="dp"`` on a trie without branches, by the probability distribution of the calls' times."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from vinelm.controller.planning.contingent.grid import GridCap, LeftGrid, least_need
from vinelm.controller.planning.contingent.grid_problem import GridProblem, late_weight, log_sigma, require_small
from vinelm.controller.planning.contingent.limits import Admissible
from vinelm.controller.planning.contingent.values import Induction, PlanGoal
from vinelm.controller.planning.metric import LATENCY_CAP, Metric
from vinelm.controller.planning.subtree import SubtreeView
from vinelm.trie.arrays import FloatArray
from vinelm.trie.decision_graph import DecisionGraph, PositionRates


def end_in_time(graph: DecisionGraph, view: SubtreeView) -> int:
    """Return the node at which a request ends if it follows the best plan and every call takes its mean time.

    The best plan takes into account that calls take random times (``risk="dp"``). The first step towards this node is the
    choice to make now. Later steps depend on the time that is left then.

    Args:
        graph: The decision graph of the trie.
        view: The nodes at which the request may end; at least one of them meets every bound other than the latency bound.

    Raises:
        ConfigError: The subtree has more than ``MOST_IN_TIME`` nodes.
    """
    require_small(view.span.stop - view.span.start)
    if not graph.groups_at(int(graph.position[view.root])):
        return view.root
    problem = _problem(graph, view)
    solution, at = problem.solved(_goal(view)), problem.start
    first = dict(solution.first)
    while groups := problem.graph.groups_at(at):
        edge = first.pop(groups[0], None)
        edge = int(solution.choice[groups[0]]) if edge is None else edge
        if edge < 0:
            break
        at = int(problem.graph.target[edge])
    return int(graph.nodes[at])


def _problem(graph: DecisionGraph, view: SubtreeView) -> GridProblem:
    metrics, left_s = view.metrics, view.limit(LATENCY_CAP)
    ends = np.zeros(len(graph.nodes), np.bool_)
    ends[view.span] = view.feasible(without=(LATENCY_CAP,))
    answers, stop = metrics.answers(view.objective.confidence), metrics.annotated.stop
    at, success = graph.nodes, answers.stopped + (1.0 - stop) * answers.right
    source = at[graph.source]  # the only stage follows unless the request stops
    arm, right = 1.0 - stop[source], (success - answers.stopped)[source]
    rates = PositionRates(success[at], stop[at], answers.stopped[at], arm, right)
    graph = replace(graph, may_end=ends[at]).with_rates(rates)
    seconds = _seconds(view)[at[graph.target]]
    paid = {"latency": seconds, "cost": graph.cost_usd, "accuracy": np.zeros(len(seconds))}[view.objective.target]
    graph = replace(graph, cost_usd=paid)
    sigma = log_sigma(metrics.annotated)[at[graph.target]]
    cap = GridCap(left_s, seconds, least_need(graph, seconds, None), graph.latency_s, sigma=sigma)
    grid = LeftGrid(graph, {LATENCY_CAP: cap}, None)
    start = int(graph.position[view.root])
    groups = graph.groups_at(start)
    spans = list(graph.spans(start, groups))
    late = late_weight(view.objective)

    @cache
    def induced(goal: PlanGoal) -> tuple[LeftGrid, Induction]:
        return grid, Induction(graph, spans, goal, [grid.admitted(slice(*span.edges)) for span in spans], grid)

    rules = Admissible(graph, {}, None)
    return GridProblem(graph, start, groups, rules, limits={LATENCY_CAP: cap}, late=late, induced=induced)


def _goal(view: SubtreeView) -> PlanGoal:
    """Return the quantity that plans maximize or minimize, scaled so that it is comparable with a probability.

    Accuracy is not scaled. Latency is divided by the remaining time. Cost is divided by the cost, from the request's position
    on, of the most expensive path.
    """
    if view.objective.target == "accuracy":
        return PlanGoal("accuracy")
    if view.objective.target == "latency":
        return PlanGoal("cost", 1.0 / view.limit(LATENCY_CAP))
    full = view.metrics.mean(Metric.FULL_COST)[view.span]
    return PlanGoal("cost", 1.0 / (float(full.max() - full[0]) or 1.0))


def _seconds(view: SubtreeView) -> FloatArray:
    """Return the mean latency of each node's call under the present load, in seconds; shape (nodes,)."""
    annotated, load_s = view.metrics.annotated, view.request.load_s
    if load_s is None:
        return annotated.latency_s
    return np.asarray(annotated.latency_s + np.where(annotated.engine >= 0, load_s[annotated.engine], 0.0))
