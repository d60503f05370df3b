"""The subtree below a request's node, measured as one objective sees it: every quantity that a plan is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from vinelm.controller.planning.path_metrics import IntArray, PathMetrics
from vinelm.controller.planning.plan_request import PlanRequest
from vinelm.objective import Objective
from vinelm.trie import BoolArray, FloatArray

FLOOR = "min_accuracy"
LATENCY_CAP = "max_latency_s"
COST_CAP = "max_cost_usd"
BOUNDS = (FLOOR, LATENCY_CAP, COST_CAP)
"""In the order in which they give way: a floor before a promise of time, that before a promise of money."""
DEFAULT_Z = 1.0
"""Standard deviations added under ``risk="mean+sd"`` where the objective names none."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A node to end at, and the bounds that had to give way for it (none: it meets them all)."""

    target: int
    relaxed: tuple[str, ...] = ()


class SubtreeView:
    """Arrays over the subtree of ``query.node``, or over the node and some ``ends`` below it, which are then in the objective's
    order; item 0 is the node itself (DESIGN §5). Computed when asked for, but for the ``columns`` that are given by name.
    """

    def __init__(
        self,
        known: PathMetrics,
        query: PlanRequest,
        ends: IntArray | None = None,
        columns: Mapping[str, FloatArray] | None = None,
    ) -> None:
        self.known = known
        self.query = query
        self.objective: Objective = query.objective
        self.root = query.node
        self.span = known.trie.subtree(query.node)
        self._nodes = self.span if ends is None else np.concatenate(([query.node], ends))
        self.__dict__.update(columns or {})

    # -- quantities --------------------------------------------------------------------------------------------

    @cached_property
    def accuracy(self) -> FloatArray:
        """A(v), or its lower bound under ``confidence``."""
        return self.known.accuracy(self.objective.confidence)[self._nodes]

    @cached_property
    def cost_usd(self) -> FloatArray:
        """C(v), expected dollars from the root."""
        return self.known.cost_usd[self._nodes]

    @cached_property
    def latency_s(self) -> FloatArray:
        """T(v) at zero load, seconds from the root."""
        return self.known.latency_s[self._nodes]

    @cached_property
    def live_s(self) -> FloatArray:
        """Seconds still to come under the present load: T(v) - T(u) + load(u→v)."""
        remaining: FloatArray = self.latency_s - self.known.latency_s[self.root]
        if self.query.load_s is None:
            return remaining
        group = self.known.visit_group
        delay_s = (self.known.visits - self.known.visits[group[self.root]]).dot(self.query.load_s)
        return np.asarray(remaining + delay_s[group[self._nodes]])

    @cached_property
    def bounded_s(self) -> FloatArray:
        """What the latency cap is compared with: :attr:`live_s`, plus z standard deviations of the suffix where asked."""
        if self.objective.risk != "mean+sd":
            return self.live_s
        variance = self.known.latency_var[self._nodes] - self.known.latency_var[self.root]
        z = DEFAULT_Z if self.objective.z is None else self.objective.z
        return np.asarray(self.live_s + z * np.sqrt(np.maximum(variance, 0.0)))

    @cached_property
    def bounded_usd(self) -> FloatArray:
        """What the cost cap is compared with: C(v), or K(v) - K(u) plus z standard deviations for a per-request budget."""
        if self.objective.cost_budget == "population":
            return self.cost_usd
        remaining: FloatArray = self.known.full_cost_usd[self._nodes] - self.known.full_cost_usd[self.root]
        if not self.objective.z:
            return remaining
        variance = self.known.full_cost_var[self._nodes] - self.known.full_cost_var[self.root]
        return np.asarray(remaining + self.objective.z * np.sqrt(np.maximum(variance, 0.0)))

    # -- bounds ------------------------------------------------------------------------------------------------

    @cached_property
    def bounds(self) -> tuple[str, ...]:
        """The fields of the objective that bound something."""
        return tuple(name for name in BOUNDS if getattr(self.objective, name) is not None)

    def values(self, bound: str) -> FloatArray:
        """What that bound is compared with."""
        if bound == FLOOR:
            return self.accuracy
        return self.bounded_s if bound == LATENCY_CAP else self.bounded_usd

    def used(self, bound: str) -> float:
        """What of that bound is already used up, in its unit."""
        if bound == LATENCY_CAP:
            return self.query.elapsed_s
        return self.query.spent_usd if bound == COST_CAP and self.objective.cost_budget == "per_request" else 0.0

    def limit(self, bound: str) -> float:
        """What is left of that bound."""
        whole: float = getattr(self.objective, bound)
        return whole - self.used(bound)

    def meets(self, bound: str) -> BoolArray:
        """Where the bound holds."""
        values, limit = self.values(bound), self.limit(bound)
        return values >= limit if bound == FLOOR else values <= limit

    @cached_property
    def allowed(self) -> BoolArray:
        """Nodes that this query may end at, bounds aside."""
        allowed = self.known.endings[self._nodes].copy()
        if self.query.candidates is not None:
            allowed &= self.query.candidates[self._nodes]
        if not self.query.may_stop:
            allowed[0] = False
        return allowed

    def feasible(self, *, without: Sequence[str] = ()) -> BoolArray:
        """Allowed nodes that meet every bound but those in ``without``."""
        feasible = self.allowed
        for bound in self.bounds:
            if bound not in without:
                feasible = feasible & self.meets(bound)
        return feasible

    def among(self, allowed: BoolArray) -> SubtreeView:
        """The same question with other nodes to end at; shape as that of every array here."""
        other = copy(self)
        other.__dict__["allowed"] = allowed
        return other

    # -- choice ------------------------------------------------------------------------------------------------

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The quantities that are compared in turn: the target, then accuracy, cost, latency (trie order settles the rest)."""
        target = {"accuracy": (), "cost": ("cost_usd",), "latency": ("live_s",)}[self.objective.target]
        return (*target, "accuracy", "cost_usd", "latency_s")

    def first_of(self, mask: BoolArray, order: Sequence[str]) -> int:
        """Item of the mask that is best by those quantities: the highest accuracy, the least of all others. At least one must
        be in the mask.
        """
        found = np.flatnonzero(mask)
        for name in order:
            if len(found) == 1:
                break
            values = getattr(self, name)[found]
            found = found[values == (values.max() if name == "accuracy" else values.min())]
        return int(found[0])

    def choose(self) -> Choice | None:
        """The best node to end at, bounds relaxed where they must be (DESIGN §5); None where nothing is allowed."""
        feasible = self.feasible()
        if feasible.any():
            return Choice(self.node(self.first_of(feasible, self.order)))
        return self._best_effort() if self.allowed.any() else None

    def node(self, item: int) -> int:
        """The node of that item of the arrays."""
        return self.root + item if isinstance(self._nodes, slice) else int(self._nodes[item])

    def _best_effort(self) -> Choice:
        caps = [bound for bound in self.bounds if bound != FLOOR]
        if self.allowed[0] and not self.feasible(without=(FLOOR,)).any():  # an answer exists: no step past a cap
            missed = [bound for bound in self.bounds if not self.meets(bound)[0]]
            return Choice(self.root, tuple(sorted(missed, key=lambda bound: bound not in caps)))
        for count in range(1, len(self.bounds) + 1):
            for relaxed in combinations(self.bounds, count):
                feasible = self.feasible(without=relaxed)
                if feasible.any():
                    return Choice(
                        self.node(self.first_of(feasible, (*self._sacrificed(relaxed), *self.order))), self._blame(relaxed)
                    )
        raise AssertionError("without bounds every allowed node is feasible")

    @staticmethod
    def _sacrificed(relaxed: Sequence[str]) -> list[str]:
        """Least time, least cost, highest accuracy of what gave way."""
        names = {LATENCY_CAP: "bounded_s", COST_CAP: "bounded_usd", FLOOR: "accuracy"}
        return [name for bound, name in names.items() if bound in relaxed]

    def _blame(self, relaxed: tuple[str, ...]) -> tuple[str, ...]:
        """The same bounds, those that no node meets by itself in front."""
        return tuple(sorted(relaxed, key=lambda bound: bool((self.allowed & self.meets(bound)).any())))
