"""What planners of contingent plans share: which objectives they plan for, and one planner for each set of ends."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from vinelm.controller.planning.contingent.decision import ContingentDecision
from vinelm.controller.planning.path_metrics import PathMetrics
from vinelm.controller.planning.plan_request import PlanRequest
from vinelm.errors import ConfigError
from vinelm.objective import Objective
from vinelm.trie.arrays import BoolArray

DP = 'risk="dp" does not plan over templates that branch or merge histories: use risk="mean+sd"'
"""Why no objective with a stochastic program is planned for."""
_KEPT = 4


class PlansFromRoot(Protocol):
    """Plans over one trie and one set of nodes that plans may end at."""

    def plan(self, request: PlanRequest, stage: str | Collection[str] | None, without: Collection[str]) -> ContingentDecision:
        """Return the best plan for a request; the arguments are those of :meth:`Planner.plan`."""

    def prepare(self, objective: Objective) -> None:
        """Find the plan from the root on for an objective, so that no request waits for it."""


class ContingentPlanners:
    """The planners of one trie whose plans are contingent: one for each set of nodes that plans may end at.

    Args:
        metrics: The trie, and the models that cannot be served.
        new_planner: Makes a planner of the trie and a set of ends, shape (n + 1,); None for every answerable node.
    """

    def __init__(self, metrics: PathMetrics, new_planner: Callable[[PathMetrics, BoolArray | None], PlansFromRoot]) -> None:
        self._metrics = metrics
        self._new_planner = new_planner
        self._everywhere = new_planner(metrics, None)
        self._others: list[tuple[BoolArray, PlansFromRoot]] = []

    def plan(self, request: PlanRequest, stage: str | Collection[str] | None, without: Collection[str]) -> ContingentDecision:
        """Return the best plan; the arguments are those of :meth:`Planner.plan`."""
        return self._planner(request.candidates).plan(request, stage, without)

    def prepare(self, objective: Objective) -> None:
        """Find the plan from the root on for an objective, so that no request waits for it."""
        self._everywhere.prepare(objective)

    def _planner(self, candidates: BoolArray | None) -> PlansFromRoot:
        if candidates is None:
            return self._everywhere
        if candidates.shape != (len(self._metrics.trie),):
            raise ConfigError(f"candidates has shape {candidates.shape}: this trie needs ({len(self._metrics.trie)},)")
        for known, planner in self._others:
            if known is candidates:
                return planner
        planner = self._new_planner(self._metrics, candidates.copy())
        self._others = [*self._others[1 - _KEPT :], (candidates, planner)]
        return planner


def check_plannable(objective: Objective, metrics: PathMetrics) -> None:
    """Raise :class:`ConfigError` if no contingent plan can be made for the objective over this trie."""
    if objective.risk == "dp":
        raise ConfigError(DP, code="dp-too-large")
    if (objective.max_latency_s is not None or objective.target == "latency") and not metrics.annotated.knows_latency:
        asked = "max_latency_s" if objective.max_latency_s is not None else 'minimize="latency"'
        raise ConfigError(
            f"{asked} needs latencies, and the trie's observations have none: leave it out, or profile to measure them"
        )
