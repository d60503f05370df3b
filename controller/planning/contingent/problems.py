"""Makes the planning problems of a tree, in which plans meet a request's bounds exactly."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property

import numpy as np

from vinelm.controller.planning.contingent.limits import Admissible, Cap, PathTotals, caps_of
from vinelm.controller.planning.contingent.problem import WITHIN, Problem
from vinelm.controller.planning.contingent.values import PlanGoal
from vinelm.controller.planning.metric import Metric, Remaining, bounds_averages
from vinelm.controller.planning.path_metrics import PathMetrics
from vinelm.controller.planning.plan_request import PlanRequest
from vinelm.errors import ConfigError
from vinelm.objective import Objective
from vinelm.trie.arrays import FloatArray
from vinelm.trie.decision_graph import DecisionGraph


class Problems:
    """Makes the planning problems of a graph that is a tree.

    Args:
        metrics: The trie's path metrics, and the models that cannot be served.
    """

    def __init__(self, graph: DecisionGraph, metrics: PathMetrics) -> None:
        self.graph, self.metrics = graph, metrics

    def below(
        self,
        request: PlanRequest,
        start: int,
        groups: Sequence[int],
        *,
        within_s: float | None = None,
        without: Collection[str] = (),
        is_joint: bool = False,
    ) -> Problem:
        """Return the planning problem of a request: the choices after its node, ``start``.

        Args:
            request: The planning request.
            start: The request's position.
            groups: The branches that may come next.
            within_s: The limit on the request's time from the root at zero load, in seconds; None without such a limit.
            without: Models that must not run next.
            is_joint: Whether the request must end on all branches or on none.
        """
        caps = caps_of(self._totals, request, start)
        if within_s is not None:
            caps[WITHIN] = Cap(self._totals, 0, Remaining(Metric.LATENCY), within_s)
        seconds = None
        if minimizes_time(request.objective):
            seconds = Cap(self._totals, start, Remaining(Metric.LATENCY), np.inf, request.load_s)
        admission = Admissible(self.graph, caps, self.metrics.servable, without)
        return Problem(self.graph, start, groups, admission, request.may_stop, is_joint, seconds)

    def times(self, objective: Objective) -> FloatArray:
        """Return limits on a request's time in seconds, ascending, to be tried when latency is minimized.

        The search looks for the lowest limit under which a plan meets the bounds on averages over requests. The last limit
        allows all plans.
        """
        return np.unique(Cap(self._totals, 0, Remaining(Metric.LATENCY), np.inf).used(1, len(self.graph.nodes)))

    def goal(self, objective: Objective) -> PlanGoal | None:
        """Return the goal of plans if it is the same for all requests; None if it depends on bounds on averages."""
        return None

    def require_plannable(self, objective: Objective) -> None:
        """Raise :class:`ConfigError` if no contingent plan can be made for the objective over this trie."""
        if (objective.max_latency_s is not None or objective.target == "latency") and not self.metrics.annotated.knows_latency:
            asked = "max_latency_s" if objective.max_latency_s is not None else 'minimize="latency"'
            raise ConfigError(
                f"{asked} needs latencies, and the trie's observations have none: leave it out, or profile to measure them"
            )

    def prepare(self, problem: Problem, goal: PlanGoal) -> None:
        """Do nothing: requests need nothing computed in advance except the plan from the root. Subclasses may override this."""

    @cached_property
    def _totals(self) -> PathTotals:
        return PathTotals(self.graph, self.metrics)


def minimizes_time(objective: Objective) -> bool:
    """Return whether each request minimizes its own latency.

    False if latency is not the target, or if there are bounds on averages, under which one plan serves all requests.
    """
    return objective.target == "latency" and not bounds_averages(objective)
