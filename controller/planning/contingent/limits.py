"""Per-request caps: computes which calls after a request's position fit into its remaining time and money."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from vinelm.controller.planning.metric import COST_CAP, LATENCY_CAP, Metric, Remaining, bounded_quantities
from vinelm.controller.planning.path_metrics import PathMetrics
from vinelm.controller.planning.plan_request import PlanRequest
from vinelm.plans.plan import Plan
from vinelm.trie.arrays import BoolArray, FloatArray, Integers
from vinelm.trie.decision_graph import DecisionGraph, Span


class PathTotals:
    """The latency and cost of the calls from the root to each position of a tree; computed when first used."""

    def __init__(self, graph: DecisionGraph, metrics: PathMetrics) -> None:
        self.graph, self.metrics = graph, metrics
        self._totals: dict[tuple[Metric, bool], FloatArray] = {}

    def mean(self, metric: Metric) -> FloatArray:
        """Return the mean latency or cost of all calls from the root to each position, in seconds or dollars."""
        return self._total(metric, False)

    def variance(self, metric: Metric) -> FloatArray:
        """Return the variance of the latency or full cost from the root to each position."""
        return self._total(metric, True)

    def delay_s(self, start: int, load_s: FloatArray) -> FloatArray:
        """Return the seconds that load adds on the way from ``start`` to other positions.

        The result has one value for each distinct combination of calls per engine (:attr:`PathMetrics.visits`), because all
        positions with the same combination have the same delay. :attr:`visit_group` gives the index of a position's value.
        ``load_s`` has the extra seconds per call, by engine.
        """
        visits = self.metrics.visits
        return np.asarray((visits - visits[self.visit_group[start]]).dot(load_s))

    @cached_property
    def visit_group(self) -> Integers:
        """For each position, its row in :attr:`PathMetrics.visits` (calls per engine); shape (positions,)."""
        return self.metrics.visit_group[self.graph.nodes].astype(np.intp)

    def _total(self, metric: Metric, is_variance: bool) -> FloatArray:
        found = self._totals.get((metric, is_variance))
        if found is None:
            of_nodes = self.metrics.variance(metric) if is_variance else self.metrics.mean(metric)
            found = self._totals[metric, is_variance] = of_nodes[self.graph.nodes]
        return found


@dataclass(frozen=True)
class Cap:
    """A limit on the seconds (under the current load) or dollars that a request's calls after its position may use.

    Args:
        totals: The latency and cost from the root to each position of the tree.
        start: The position that the request is at.
        quantity: The limited quantity.
        limit: The amount of the quantity that may be used after the start.
        load_s: Extra seconds per call, by engine; None without load.
    """

    totals: PathTotals
    start: int
    quantity: Remaining
    limit: float
    load_s: FloatArray | None = None

    def used(self, low: int, high: int) -> FloatArray:
        """Return the seconds or dollars used from the start to each of the positions ``low`` to ``high`` - 1."""
        metric, z, totals, start = self.quantity.metric, self.quantity.z, self.totals, self.start
        mean = totals.mean(metric)
        # The use below the start is a difference of totals from the root: one subtraction instead of a walk per request.
        values = mean[low:high] - mean[start]
        if self._delay_s is not None:
            values = values + self._delay_s[totals.visit_group[low:high]]
        if z:
            # Invocations are assumed independent, so that variances add up along a history, and their difference is the
            # variance below the start. Rounding can make it slightly negative.
            variance = totals.variance(metric)
            values = values + z * np.sqrt(np.maximum(variance[low:high] - variance[start], 0.0))
        return np.asarray(values)

    def admits(self, low: int, high: int) -> BoolArray:
        """Return for each of the positions ``low`` to ``high`` - 1 whether the calls up to it stay within the limit."""
        return self.used(low, high) <= self.limit

    def most_used(self, plan: Plan) -> float:
        """Return the seconds (or dollars) of a plan's longest (or most expensive) sequence of calls."""
        return float(self.used(0, len(self.totals.graph.nodes))[self.totals.graph.position[plan.runs]].max(initial=0.0))

    def holds(self, plan: Plan) -> bool:
        """Return whether every sequence of calls under the plan stays within the limit."""
        return self.most_used(plan) <= self.limit

    @property
    def kind(self) -> tuple[object, ...]:
        """A cache key: two caps with equal keys allow the same sequences of calls from the root."""
        return self.quantity, self.limit

    def at(self, limit: float) -> Cap:
        """Return a copy of this cap with another ``limit``."""
        return replace(self, limit=limit)

    @cached_property
    def _delay_s(self) -> FloatArray | None:
        if self.load_s is None or self.quantity.metric is not Metric.LATENCY:
            return None
        return self.totals.delay_s(self.start, self.load_s)


def caps_of(totals: PathTotals, request: PlanRequest, start: int) -> dict[str, Cap]:
    """Return the caps on the calls after ``start``, keyed by the name of the objective's field.

    They are in the order in which they are relaxed. The limit of each cap is the part of the bound that the request has not
    used yet.
    """
    objective, found = request.objective, {}
    for bound, quantity in bounded_quantities(objective).items():
        if not isinstance(quantity, Remaining):
            continue
        used = {LATENCY_CAP: request.elapsed_s, COST_CAP: request.spent_usd}[bound]
        found[bound] = Cap(totals, start, quantity, getattr(objective, bound) - used, request.load_s)
    return found


def within_all(caps: Iterable[Cap], size: int) -> BoolArray:
    """Return for each position whether the calls that lead there stay within all caps; shape (``size``,).

    ``size`` is the number of positions.
    """
    fits = np.ones(size, np.bool_)
    for cap in caps:
        fits &= cap.admits(0, size)
    return fits


@dataclass(frozen=True)
class Admissible:
    """The rule that says which calls (edges of the graph) a plan may choose after a given position.

    Args:
        graph: The decision graph.
        caps: The caps that each sequence of calls has to meet, by name.
        servable: Whether each edge's model can be served; None if all can.
        barred: Models that must not run next.
    """

    graph: DecisionGraph
    caps: Mapping[str, Cap]
    servable: BoolArray | None
    barred: Collection[str] = ()

    def admitted(self, spans: Sequence[Span]) -> tuple[list[Span], list[BoolArray | None]]:
        """Return the levels that a plan can reach from the request's position, and for each level a mask of its allowed edges.

        A level is the reachable positions at one depth, with their edges. A mask is None if all edges of the level are allowed.

        If a level has no allowed edge, deeper levels are left out.
        """
        kept: list[Span] = []
        masks: list[BoolArray | None] = []
        for span, mask in zip(spans, self._masks(spans), strict=True):
            kept.append(span)
            masks.append(mask)
            # No edge is admitted in this level: no history goes deeper, so the levels below can be skipped.
            if mask is not None and not mask.any():
                break
        return kept, masks

    def without(self, *names: str) -> Admissible:
        """Return a copy of this rule without the named caps."""
        return replace(self, caps={name: cap for name, cap in self.caps.items() if name not in names})

    def and_within(self, name: str, cap: Cap) -> Admissible:
        """Return a copy of this rule with one more cap, which replaces a cap of the same name."""
        return replace(self, caps={**self.caps, name: cap})

    def _masks(self, spans: Sequence[Span]) -> Iterator[BoolArray | None]:
        for depth, span in enumerate(spans):
            low, high = span.edges
            mask = None if self.servable is None else self.servable[low:high]
            for cap in self.caps.values():
                # Position 0 is the root, to which no edge leads: edge k leads to position k + 1.
                within = cap.admits(low + 1, high + 1)
                mask = within if mask is None else mask & within
            # Barred models must not run next, but may further down.
            if depth == 0 and self.barred:
                names = self.graph.annotated.trie.models
                free = np.array([names[model] not in self.barred for model in self.graph.model[low:high]], np.bool_)
                mask = free if mask is None else mask & free
            yield mask


def least_of_the_longest(graph: DecisionGraph, spans: Sequence[Span], admission: Admissible, measure: Cap) -> FloatArray:
    """Return, for each branch at the start, the worst-case seconds (or dollars) of the plan with the smallest worst case.

    A plan's worst case is the total of its longest (or most expensive) sequence of calls. Only plans that answer every request
    and make a call after the start are compared. The result is infinite if no such plan is allowed.

    ``measure`` is a cap that tells whether seconds or dollars are added up; its limit is ignored.
    """
    spans, masks = admission.admitted(spans)
    below: FloatArray | None = None
    for depth in range(len(spans) - 1, -1, -1):
        span, mask = spans[depth], masks[depth]
        low, high = span.edges
        groups = slice(*span.groups)
        starts = graph.first_edge[groups] - low
        if below is None or low == high:
            least = np.full(len(starts), np.inf)
        else:
            least = np.minimum.reduceat(below if mask is None else np.where(mask, below, np.inf), starts)
        if depth == 0:
            return least
        below = _longest_of_nodes(graph, span, least, measure)
    return np.empty(0)


def _longest_of_nodes(graph: DecisionGraph, span: Span, least: FloatArray, measure: Cap) -> FloatArray:
    """Return, for each node of a level, the smallest worst case, in seconds or dollars, of any plan for requests at the node.

    A plan's worst case is the total of its longest (or most expensive) sequence of calls.

    Args:
        graph: The decision graph.
        span: The range of the level's nodes and branches.
        least: The smallest worst case of any plan for requests on each branch that leaves these nodes.
        measure: A cap that tells whether seconds or dollars are added up; its limit is ignored.
    """
    low, high = span.nodes
    groups = slice(*span.groups)
    longest = np.where(graph.lost[low:high] > 0.0, np.inf, measure.used(low, high))
    needed = np.where(graph.arm[groups] > 0.0, least, -np.inf)
    np.maximum.at(longest, graph.source[groups] - low, needed)
    return np.where(graph.may_end[low:high], measure.used(low, high), longest)
