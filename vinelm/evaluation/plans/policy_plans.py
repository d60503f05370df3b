"""Plans for one objective over the same trie: VineLM's, the best static plan and the best single model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from vinelm.controller import Decision, Planner
from vinelm.errors import ConfigError, InfeasibleError
from vinelm.evaluation.plans.baselines import any_single_model_nodes, single_model_nodes, workflow_level_nodes
from vinelm.evaluation.plans.roles import Role
from vinelm.objective import Objective
from vinelm.policies import StaticPolicy
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.arrays import BoolArray

NAMES: dict[Role, str] = {"vinelm": "VineLM", "static": "best static plan", "single": "best single model"}
"""Display name of each policy that is planned, by role."""
PATHS = "VineLM over paths"
"""Display name of VineLM's plans over paths, beside those over what requests show."""


def path_text(trie: Trie, node: int) -> str:
    """Describe a path: ``generate a, repair b, repair c``, or ``a, up to 3 invocations`` for a path on one model."""
    edges = list(trie.edges(node))
    if len(edges) > 1 and len({model for _, model in edges}) == 1:
        return f"{edges[0][1]}, up to {len(edges)} invocations"
    return ", ".join(f"{stage} {model}" for stage, model in edges) or "no invocation"


class PlanFigures(Protocol):
    """What is expected of a plan: of VineLM's (:class:`~vinelm.controller.Decision`) or of a static one."""

    @property
    def accuracy(self) -> float:
        """Expected accuracy."""

    @property
    def path_cost_usd(self) -> float:
        """Expected dollars per request."""

    @property
    def path_latency_s(self) -> float:
        """Expected seconds of a request that runs the longest way through the plan, at zero load."""


class FixedPlan(PlanFigures, Protocol):
    """A plan that does not depend on what happens. Equal plans compare equal."""

    @property
    def text(self) -> str:
        """The plan in words."""

    def policy(self, **settings: Any) -> StaticPolicy:
        """Return a policy that follows it; ``settings`` are ``clock``, ``request`` and ``judge``."""


@dataclass(frozen=True, slots=True)
class PlannedPolicy:
    """One policy's plan. ``decision`` is None where none of its paths meets the bounds; ``plan`` describes the path."""

    policy: str
    role: Role
    decision: Any
    plan: str


@dataclass(frozen=True, slots=True)
class PathPlan:
    """The path to one node, as a :class:`FixedPlan`."""

    annotated: AnnotatedTrie
    node: int

    @property
    def text(self) -> str:
        """See :func:`path_text`."""
        return path_text(self.annotated.trie, self.node)

    @property
    def accuracy(self) -> float:
        """Expected accuracy of ending at the node."""
        return float(self.annotated.accuracy[self.node])

    @property
    def path_cost_usd(self) -> float:
        """Expected dollars, discounted by early stops."""
        return float(self.annotated.path_cost_usd[self.node])

    @property
    def path_latency_s(self) -> float:
        """Expected seconds of a request that runs the whole path."""
        return float(self.annotated.path_latency_s[self.node])

    def policy(self, **settings: Any) -> StaticPolicy:
        """See :meth:`FixedPlan.policy`."""
        return StaticPolicy(self.annotated.template, self.annotated.trie.prefix(self.node), **settings)


class Plans:
    """Plans over one trie for VineLM (all paths), the best static plan (VineLM paper §5.1) and the best single model.

    Raises:
        ConfigError: The trie branches. :func:`~vinelm.evaluation.plans_over` returns the plans of any trie.
    """

    def __init__(self, annotated: AnnotatedTrie) -> None:
        if annotated.is_contingent:
            raise ConfigError(
                "the trie branches, and its plans are contingent: replays and sweeps need a trie without branches"
            )
        self.annotated = annotated
        self.trie = annotated.trie
        self.planner = Planner(annotated)

    def decision(self, objective: Objective, role: Role = "vinelm") -> Decision:
        """Plan for a request that has just arrived, among the paths that a policy of this role may choose.

        Raises:
            InfeasibleError: No path meets the bounds, and the objective asks to raise then.
        """
        return self.planner.plan(objective, candidates=self._mask(role), elapsed_s=float(self.annotated.latency_s[0]))

    def node(self, objective: Objective, role: Role = "vinelm") -> int | None:
        """Return the node that the plan ends at, or None if no path of this role meets the bounds."""
        try:
            decision = self.decision(objective, role)
        except InfeasibleError:
            return None
        return decision.target if decision.is_feasible else None

    def fixed(self, objective: Objective, role: Role) -> PathPlan | None:
        """Return the plan of this role; None if no path of it meets the bounds."""
        node = self.node(objective, role)
        return None if node is None else PathPlan(self.annotated, node)

    def single_models(self) -> Iterator[tuple[str, PathPlan]]:
        """Yield (model, plan) for each model that can run every invocation down to the last."""
        return ((model, PathPlan(self.annotated, node)) for model, node in self.single_model_paths())

    def model_of(self, plan: PathPlan) -> str:
        """Return the model of the plan's last invocation."""
        return self.model_at(plan.node)

    def plan_text(self, decision: Decision) -> str:
        """Return VineLM's plan in words."""
        return path_text(self.trie, decision.target)

    def steps(self, decision: Decision) -> dict[str, Any]:
        """Return the steps of a plan for JSON: the stage and the model of each invocation."""
        return {"stages": list(self.trie.edges(decision.target))}

    def compare(self, objective: Objective) -> list[PlannedPolicy]:
        """Plan for VineLM, the best static plan and the best single model, in this order.

        Raises:
            InfeasibleError: VineLM has no feasible path, and the objective asks to raise then.
        """
        best = self.decision(objective)
        found = [PlannedPolicy(NAMES["vinelm"], "vinelm", best, path_text(self.trie, best.target))]
        for role in ("static", "single"):
            node = self.node(objective, role)
            decision = None if node is None else self.decision(objective, role)
            plan = "none meets the bounds" if node is None else path_text(self.trie, node)
            found.append(PlannedPolicy(NAMES[role], role, decision, plan))
        return found

    def single_model_paths(self) -> Iterator[tuple[str, int]]:
        """Yield (model, node) for each model that can run every invocation down to the last."""
        deepest = self.trie.max_depth
        for model in self.trie.models:
            nodes = np.flatnonzero(single_model_nodes(self.annotated, model))
            full = [int(node) for node in nodes if self.trie.depth[node] == deepest]
            if full:
                yield model, full[0]

    def model_at(self, node: int) -> str:
        """Return the model of the node's last invocation."""
        return self.trie.models[int(self.trie.model[node])]

    @property
    def best_single_accuracy(self) -> float:
        """The highest estimated accuracy of a path that runs on one model."""
        return float(self.annotated.accuracy[self._single].max())

    def _mask(self, role: Role) -> BoolArray | None:
        return {"static": self._static, "single": self._single}.get(role)

    @cached_property
    def _static(self) -> BoolArray:
        return workflow_level_nodes(self.annotated)

    @cached_property
    def _single(self) -> BoolArray:
        return any_single_model_nodes(self.annotated)
