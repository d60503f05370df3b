"""Represents the subtree below a request's node as arrays, and searches all its nodes for the best node to end at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from vinelm.controller.planning.metric import COST_CAP, FLOOR, LATENCY_CAP, Metric, Quantity, Remaining, bounded_quantities
from vinelm.controller.planning.path_metrics import IntArray, PathMetrics
from vinelm.controller.planning.plan_request import PlanRequest
from vinelm.objective import Objective
from vinelm.trie.arrays import BoolArray, FloatArray


@dataclass(frozen=True, slots=True)
class Choice:
    """The result of a search: the node at which the request should end.

    ``relaxed`` names the bounds that this node violates and that were therefore relaxed; it is empty if the node meets all
    bounds.
    """

    target: int
    relaxed: tuple[str, ...] = ()


class SubtreeView:
    """The nodes at which a request may end, with the quantities that its objective compares (docs/architecture.md#objectives).

    Every array has one item per node of the view; item 0 is the request's own node. Arrays are computed when first used.

    Args:
        ends: Nodes below the request's node, best first according to the objective; None for the whole subtree in trie order.
        columns: The values that the caller has already computed: an array over the nodes of the view for each quantity. None
            without such values.
    """

    def __init__(
        self,
        metrics: PathMetrics,
        request: PlanRequest,
        ends: IntArray | None = None,
        columns: Mapping[Quantity, FloatArray] | None = None,
    ) -> None:
        self.metrics = metrics
        self.request = request
        self.objective: Objective = request.objective
        self.root = request.node
        self.span = metrics.trie.subtree(request.node)
        self._nodes = self.span if ends is None else np.concatenate(([request.node], ends))
        self._columns: dict[Quantity, FloatArray] = dict(columns or {})

    # -- quantities --------------------------------------------------------------------------------------------

    def column(self, quantity: Quantity) -> FloatArray:
        """Return the quantity at each node; for accuracy, its lower bound if the objective sets ``confidence``."""
        found = self._columns.get(quantity)
        if found is None:
            delay_s = self._delay_s if isinstance(quantity, Remaining) and quantity.metric is Metric.LATENCY else None
            found = self.metrics.quantity(quantity, self._nodes, self.root, self.objective.confidence, delay_s)
            self._columns[quantity] = found
        return found

    @property
    def remaining_s(self) -> FloatArray:
        """The expected latency from the request's node to each node under the present load, in seconds."""
        return self.column(Remaining(Metric.LATENCY))

    # -- bounds ------------------------------------------------------------------------------------------------

    @cached_property
    def bounds(self) -> Mapping[str, Quantity]:
        """The quantity that each bound limits, by the objective's field, in the order in which bounds are relaxed."""
        return bounded_quantities(self.objective)

    def values(self, bound: str) -> FloatArray:
        """Return the value at each node of the quantity that this bound limits."""
        return self.column(self.bounds[bound])

    def used(self, bound: str) -> float:
        """Return the seconds or dollars of the bound that the request has used already; 0 for a bound on an average."""
        if bound == LATENCY_CAP:
            return self.request.elapsed_s
        return self.request.spent_usd if bound == COST_CAP and self.objective.cost_budget == "per_request" else 0.0

    def limit(self, bound: str) -> float:
        """Return the part of the bound that the request has not used yet, in seconds, dollars or as a fraction."""
        whole: float = getattr(self.objective, bound)
        return whole - self.used(bound)

    def meets(self, bound: str) -> BoolArray:
        """Return a mask of the nodes that meet the bound."""
        values, limit = self.values(bound), self.limit(bound)
        return values >= limit if bound == FLOOR else values <= limit

    @cached_property
    def allowed(self) -> BoolArray:
        """A mask of the nodes at which the request may end, whether or not they meet the bounds."""
        allowed = self.metrics.endings[self._nodes].copy()
        if self.request.candidates is not None:
            allowed &= self.request.candidates[self._nodes]
        if not self.request.may_stop:
            allowed[0] = False
        return allowed

    def feasible(self, *, without: Sequence[str] = ()) -> BoolArray:
        """Return a mask of the allowed nodes that meet every bound not named in ``without``."""
        feasible = self.allowed
        for bound in self.bounds:
            if bound not in without:
                feasible = feasible & self.meets(bound)
        return feasible

    def among(self, allowed: BoolArray) -> SubtreeView:
        """Return a copy of this view in which the request may end only at the nodes of the mask ``allowed``."""
        other = copy(self)
        other.allowed = allowed
        return other

    # -- choice ------------------------------------------------------------------------------------------------

    @cached_property
    def order(self) -> tuple[Quantity, ...]:
        """The quantities by which nodes are compared, in order: the target, accuracy, cost, latency (then trie order)."""
        target = Metric.of_target(self.objective)
        first: tuple[Quantity, ...] = (Remaining(target),) if target is Metric.LATENCY else (target,)
        return (*first, Metric.ACCURACY, Metric.COST, Metric.LATENCY)

    def first_of(self, mask: BoolArray, order: Sequence[Quantity]) -> int:
        """Return the index of the best item of the view for which ``mask`` is True; at least one must be.

        Items are compared by each quantity of ``order`` in turn. Higher is better for accuracy, lower for every other quantity.
        """
        found = np.flatnonzero(mask)
        for quantity in order:
            if len(found) == 1:
                break
            values = self.column(quantity)[found]
            found = found[values == (values.max() if quantity is Metric.ACCURACY else values.min())]
        return int(found[0])

    def choose(self) -> Choice | None:
        """Return the best node to end at; None if no node is allowed. Bounds are relaxed if no node meets them all."""
        feasible = self.feasible()
        if feasible.any():
            return Choice(self.node(self.first_of(feasible, self.order)))
        return self._best_effort() if self.allowed.any() else None

    def node(self, item: int) -> int:
        """Return the trie's node at the index ``item`` of the view's arrays."""
        return self.root + item if isinstance(self._nodes, slice) else int(self._nodes[item])

    @cached_property
    def _delay_s(self) -> FloatArray | None:
        load_s = self.request.load_s
        return None if load_s is None else self.metrics.delay_s(self._nodes, self.root, load_s)

    def _best_effort(self) -> Choice:
        caps = [bound for bound in self.bounds if bound != FLOOR]
        if self.allowed[0] and not self.feasible(without=(FLOOR,)).any():  # there is an answer: break no cap for a better one
            missed = [bound for bound in self.bounds if not self.meets(bound)[0]]
            return Choice(self.root, tuple(sorted(missed, key=lambda bound: bound not in caps)))
        # As few bounds as possible are broken. Of the plans that keep the others, the one that exceeds the broken bounds least
        # comes first, since somebody pays or waits for the excess.
        for count in range(1, len(self.bounds) + 1):
            for relaxed in combinations(self.bounds, count):
                feasible = self.feasible(without=relaxed)
                if feasible.any():
                    least_violation = [self.bounds[bound] for bound in (LATENCY_CAP, COST_CAP, FLOOR) if bound in relaxed]
                    item = self.first_of(feasible, (*least_violation, *self.order))
                    return Choice(self.node(item), self._binding_first(relaxed))
        raise AssertionError("without bounds every allowed node is feasible")

    def _binding_first(self, relaxed: tuple[str, ...]) -> tuple[str, ...]:
        """Return the relaxed bounds in a new order: first those that no allowed node meets, then the others."""
        return tuple(sorted(relaxed, key=lambda bound: bool((self.allowed & self.meets(bound)).any())))
