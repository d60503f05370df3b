"""One objective planned three ways from the same trie: VineLM, the best static plan, the best single model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from vinelm.annotated_trie import AnnotatedTrie
from vinelm.controller import Decision, Planner
from vinelm.errors import InfeasibleError
from vinelm.evaluation.baselines import single_model_nodes, workflow_level_nodes
from vinelm.evaluation.policy_run import Role
from vinelm.objective import Objective
from vinelm.trie import BoolArray, Trie

NAMES: dict[Role, str] = {"vinelm": "VineLM", "static": "best static plan", "single": "best single model"}
"""Policies by role, as every table calls them."""


def path_text(trie: Trie, node: int) -> str:
    """A path in words: ``generate a, repair b, repair c``; ``a, up to 3 invocations`` where one model does it all."""
    edges = list(trie.edges(node))
    if len(edges) > 1 and len({model for _, model in edges}) == 1:
        return f"{edges[0][1]}, up to {len(edges)} invocations"
    return ", ".join(f"{stage} {model}" for stage, model in edges) or "no invocation"


@dataclass(frozen=True, slots=True)
class Planned:
    """Who planned what: ``decision`` is None where that policy has no plan that meets the bounds."""

    policy: str
    role: Role
    decision: Decision | None
    plan: str


class Plans:
    """Plans over one trie, also within the workflow-level plans (§5.1) and the single models that it contains."""

    def __init__(self, annotated: AnnotatedTrie) -> None:
        self.annotated = annotated
        self.trie = annotated.trie
        self.planner = Planner(annotated)

    def decision(self, objective: Objective, role: Role = "vinelm") -> Decision:
        """What the policy of that role plans before a request. Errors are the planner's."""
        return self.planner.plan(objective, candidates=self._mask(role), elapsed_s=float(self.annotated.latency_s[0]))

    def node(self, objective: Objective, role: Role = "vinelm") -> int | None:
        """The node to end at; None where no plan of that role meets the bounds."""
        try:
            decision = self.decision(objective, role)
        except InfeasibleError:
            return None
        return decision.target if decision.is_feasible else None

    def compared(self, objective: Objective) -> list[Planned]:
        """VineLM first, then its rivals. Where VineLM has no feasible plan, the planner's error comes through."""
        best = self.decision(objective)
        found = [Planned(NAMES["vinelm"], "vinelm", best, path_text(self.trie, best.target))]
        for role in ("static", "single"):
            node = self.node(objective, role)
            decision = None if node is None else self.decision(objective, role)
            plan = "none meets the bounds" if node is None else path_text(self.trie, node)
            found.append(Planned(NAMES[role], role, decision, plan))
        return found

    def throughout(self) -> Iterator[tuple[str, int]]:
        """(model, node) of each model that every stage allows, run to the last invocation."""
        deepest = self.trie.max_depth
        for model in self.trie.models:
            nodes = np.flatnonzero(single_model_nodes(self.annotated, model))
            full = [int(node) for node in nodes if self.trie.depth[node] == deepest]
            if full:
                yield model, full[0]

    def model_at(self, node: int) -> str:
        """The model of the node's own invocation."""
        return self.trie.models[int(self.trie.model[node])]

    @property
    def best_single_accuracy(self) -> float:
        """The highest estimated accuracy that one model reaches alone."""
        return float(self.annotated.accuracy[self._single].max())

    def _mask(self, role: Role) -> BoolArray | None:
        return {"static": self._static, "single": self._single}.get(role)

    @cached_property
    def _static(self) -> BoolArray:
        return workflow_level_nodes(self.annotated)

    @cached_property
    def _single(self) -> BoolArray:
        alone = np.zeros(len(self.trie), np.bool_)
        for model in self.trie.models:
            alone |= single_model_nodes(self.annotated, model)
        return alone
