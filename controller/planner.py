"""The planner: chooses the path that a request should follow from its position (VineLM paper §3.4 and §4.3)."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import Any

import numpy as np

from vinelm.controller.planning.contingent.deadline import end_in_time
from vinelm.controller.planning.contingent.grid_problem import too_large
from vinelm.controller.planning.contingent.planner import ContingentPlanner
from vinelm.controller.planning.decision import Decision
from vinelm.controller.planning.frontier import Frontier
from vinelm.controller.planning.frontier_cache import FrontierCache
from vinelm.controller.planning.infeasibility import infeasible, no_end
from vinelm.controller.planning.metric import COST_CAP, FLOOR, LATENCY_CAP, Metric
from vinelm.controller.planning.mixed_decision import MixedDecision
from vinelm.controller.planning.mixture import Hull, Mixture
from vinelm.controller.planning.objective_class import ObjectiveClass, limits_of
from vinelm.controller.planning.path_decision import ChanceDecision, PathDecision
from vinelm.controller.planning.path_metrics import PathMetrics
from vinelm.controller.planning.plan_request import PlanRequest, load_array
from vinelm.controller.planning.subtree import Choice, SubtreeView
from vinelm.errors import ConfigError, InfeasibleError
from vinelm.objective import Objective
from vinelm.threads import started
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.arrays import BoolArray, FloatArray
from vinelm.trie.decision_graph import DecisionGraph

SMALL = 10_000
"""The largest trie whose frontiers are built within the first request, which takes a few milliseconds."""
MIXTURES = 1024
"""How many objectives' mixtures are kept, and how many kinds of objectives' hulls."""
_INFINITY = float("inf")


class Planner:
    """Plans over one annotated trie. Exact, without side effects, and safe to share between threads.

    Args:
        annotated: The trie with its estimates; must not be changed afterwards.
        available: Models that can be served; None for all. Paths through other models are never planned.

    If plans should depend on the outcomes of earlier calls, pass ``annotated.signals``, a trie that branches by outcome. If
    the application can only return the last answer of a request, pass ``annotated.signals.returning_last()``.

    Attributes:
        engine_of: model name to engine name.
    """

    def __init__(self, annotated: AnnotatedTrie, *, available: Iterable[str] | None = None) -> None:
        self.annotated = annotated
        self.trie = annotated.trie
        self.metrics = PathMetrics(annotated, available)
        self._cache = FrontierCache(self.metrics)
        self._size = len(annotated.trie)
        self._engines = annotated.engines
        self.engine_of = {model.name: model.engine for model in annotated.catalog.models}
        self._mixtures: dict[Objective, Mixture | None] = {}
        self._hulls: dict[tuple[object, ...], Hull | None] = {}
        self._prepared: set[ObjectiveClass] = set()
        self._contingent = ContingentPlanner.of(self.metrics)
        self._lock = threading.Lock()

    def plan(
        self,
        objective: Objective,
        *,
        node: int = 0,
        elapsed_s: float = 0.0,
        spent_usd: float = 0.0,
        load: Mapping[str, float] | FloatArray | None = None,
        candidates: BoolArray | None = None,
        may_stop: bool = True,
        stage: str | Collection[str] | None = None,
        without: Collection[str] = (),
    ) -> Decision:
        """Return a plan: the best node for the request to end at, and the model to run next.

        The result is the same as from comparing all allowed nodes; ties are settled by accuracy, cost, latency and trie order.

        Args:
            objective: The request's target and bounds.
            node: The request's position: the models that have run are the path from the root to this node.
            elapsed_s: Seconds since the request arrived. To plan before anything ran, pass ``annotated.latency_s[0]``, the
                seconds of tools before the first stage.
            spent_usd: The amount spent so far, in dollars.
            load: Extra seconds per call, by engine, or an array in the order of ``annotated.engines``.
            candidates: A mask of the nodes that the request may end at, shape (nodes,); None for all.
            may_stop: Whether the request may end at ``node`` itself.
            stage: On a branching trie, the stage that comes next. Pass several stages if the request must decide to
                continue or end before it is known which of them comes. None means that any stage may come and is known
                before that decision.
            without: Models that must not run next.

        On a trie that branches, the result is a :class:`ContingentDecision`: a plan with a model for each branch.

        Raises:
            InfeasibleError: No path meets the bounds and ``on_infeasible="raise"``, or the request can end at no node.
            ConfigError: An argument is negative, NaN or belongs to another trie.
        """
        if not 0 <= node < self._size:
            raise ConfigError(f"node {node} is not in this trie: it has nodes 0 to {self._size - 1}")
        if not (0.0 <= elapsed_s < _INFINITY and 0.0 <= spent_usd < _INFINITY):
            raise ConfigError(f"elapsed_s is {elapsed_s} and spent_usd {spent_usd}: both must be finite numbers >= 0")
        load_s = None if load is None else load_array(load, self._engines)
        if without and self._contingent is None:
            candidates = self._without(node, without, candidates)
        request = PlanRequest(objective, node, elapsed_s, spent_usd, load_s, candidates, may_stop)
        if self._contingent is not None:
            return self._contingent.plan(request, stage, without)
        stores = self._cache.stores_for(objective)
        store = stores.unloaded if load_s is None else stores.loaded
        frontier = None if store is None or candidates is not None else store.get(node)
        if frontier is not None and (load_s is None or not stores.is_live):
            found = frontier.best(limits_of(objective, elapsed_s, spent_usd), load_s, may_stop)
            if found is not None:
                return PathDecision(node, *found, (), self.metrics, request, frontier)
        return self._scan(request, frontier)

    def plan_first(self, objectives: Sequence[Objective], **asked: Any) -> Decision:
        """Return the plan for the first of several objectives whose bounds can be met, or for the last if none can be met.

        ``asked`` holds the other arguments of :meth:`plan`.

        Raises:
            InfeasibleError: see :meth:`plan`, for the last objective.
        """
        for objective in objectives[:-1]:
            with suppress(InfeasibleError):
                decision = self.plan(objective, **asked)
                if decision.is_feasible:
                    return decision
        return self.plan(objectives[-1], **asked)

    def mixture(self, objective: Objective) -> Mixture | None:
        """Return the two plans between which an objective's requests are divided; None if one plan serves all requests.

        Both plans start at the root, at zero load, and meet every bound that holds for each single request. They are
        neighbouring corners of the upper convex hull of all such plans in the plane of cost and accuracy. Without branches, one
        hull is computed for all objectives that differ only in the bound on the mean.
        """
        if not objective.mixes:
            return None
        # The absence of a mixture is stored as None, so a missing entry needs another mark: the objective.
        known = self._mixtures.get(objective, objective)
        if isinstance(known, Objective):
            hull = self._path_hull(objective) if self._contingent is None else self._contingent.hull(objective)
            known = None if hull is None else hull.mixture(objective)
            if len(self._mixtures) >= MIXTURES:
                self._mixtures = {}
            self._mixtures[objective] = known
        return known

    def mixed(self, objective: Objective) -> Decision:
        """Plan for requests that have just arrived, at zero load: return one plan, or a :class:`MixedDecision` of two.

        Raises:
            InfeasibleError, ConfigError: see :meth:`plan`.
        """
        begun_s, mixture = float(self.annotated.latency_s[0]), self.mixture(objective)
        if mixture is None:
            return self.plan(objective, elapsed_s=begun_s)
        low, high = (self.plan(one, elapsed_s=begun_s) for one in (mixture.low, mixture.high))
        return MixedDecision.of(low, high, mixture.share, objective)

    def _path_hull(self, objective: Objective) -> Hull | None:
        """Return the upper convex hull of all paths within the per-request bounds; None if there are none.

        The hull is in the plane of cost and accuracy. It is computed once for all objectives that differ only in bounds on
        averages over requests.
        """
        key = (*objective.shape, objective.max_latency_s, objective.cost_budget == "per_request" and objective.max_cost_usd)
        if key not in self._hulls:
            if len(self._hulls) >= MIXTURES:
                self._hulls = {}
            self._hulls[key] = self.hull_among(None, objective)
        return self._hulls[key]

    def hull_among(self, candidates: BoolArray | None, objective: Objective) -> Hull | None:
        """Return the upper convex hull of the paths within the per-request bounds; None if there are none.

        The hull is in the plane of cost and accuracy.

        Args:
            candidates: a mask of the nodes at which the paths may end, shape (nodes,); None for all nodes.
            objective: an objective whose requests may be divided between two plans (:attr:`Objective.mixes`).
        """
        request = PlanRequest(objective, 0, float(self.annotated.latency_s[0]), 0.0, None, candidates, False)
        # A frontier contains every corner: an end that it drops is no better in anything that is compared or bounded.
        store = None if candidates is not None else self._cache.stores_for(objective).unloaded
        frontier = None if store is None else store.get(0)
        view = SubtreeView(self.metrics, request) if frontier is None else frontier.view(self.metrics, request)
        items = view.feasible(without=[FLOOR, *([COST_CAP] if objective.cost_budget == "population" else [])])
        return Hull.of(*(view.column(one)[items] for one in (Metric.COST, Metric.ACCURACY))) if items.any() else None

    def lacks(self, stage: str | Collection[str], node: int) -> bool:
        """Return True if ``stage`` cannot follow directly after the node.

        If several stages are given, return True if none of them can follow.
        """
        return self.trie.arms(node).keys().isdisjoint((stage,) if isinstance(stage, str) else stage)

    def prepare(self, objective: Objective) -> None:
        """Build in advance the Pareto frontiers that plans for this objective use.

        They serve all objectives that differ from this one only in the values of their bounds. This is worth the time for tries
        with tens of thousands of nodes or more. Without the frontiers, each plan over such a trie scans the whole subtree.

        Raises:
            ConfigError: the planner does not support such objectives over this trie.
        """
        why = self.unplannable(objective)
        if why is not None:
            raise ConfigError(why, code="dp-too-large")
        if self._contingent is not None:
            self._contingent.prepare(objective)
            return
        objective_class = ObjectiveClass.of(objective, has_load=True)
        if objective_class is not None:
            self._prepared.add(objective_class)
        self._cache.prepare(objective)

    def unplannable(self, objective: Objective) -> str | None:
        """Return one line that says why this planner cannot plan for the objective; None if it can."""
        return too_large(self._size) if objective.risk == "dp" else None

    def prepare_in_background(self, objective: Objective) -> threading.Thread | None:
        """Start :meth:`prepare` in a daemon thread if the trie is large.

        It starts only once for all objectives that differ only in the values of their bounds. Until it ends, plans are exact,
        but slower. Returns the thread, or None if there is nothing to do.
        """
        if self._size <= SMALL or self._contingent is not None:
            return None
        objective_class = ObjectiveClass.of(objective, has_load=True)
        with self._lock:
            if objective_class is None or objective_class in self._prepared:
                return None
            self._prepared.add(objective_class)
        return started(partial(self.prepare, objective), "vinelm-prepare")

    @property
    def index_bytes(self) -> int:
        """The memory in bytes that this planner's stored Pareto frontiers use."""
        return self._cache.nbytes

    @property
    def index_ends(self) -> int:
        """The total number of end nodes in this planner's stored Pareto frontiers."""
        return self._cache.n_ends

    def _scan(self, request: PlanRequest, frontier: Frontier | None) -> Decision:
        """Return the plan that ends at the best node of ``frontier`` or, if ``frontier`` is None, of the whole subtree.

        If no node meets all bounds, bounds are relaxed.
        """
        if request.candidates is not None and request.candidates.shape != (self._size,):
            raise ConfigError(f"candidates has shape {request.candidates.shape}: this trie needs ({self._size},)")
        view = SubtreeView(self.metrics, request) if frontier is None else frontier.view(self.metrics, request)
        choice = view.choose()
        if choice is None:
            raise no_end(self.metrics, request)
        if choice.relaxed and request.objective.on_infeasible == "raise":
            raise infeasible(view, choice)
        made = PathDecision
        if request.objective.risk == "dp":
            made, choice = ChanceDecision, self._in_time(view, choice)
        next_model = self._next_model(request.node, choice.target)
        return made(request.node, choice.target, next_model, choice.relaxed, self.metrics, request, frontier)

    def _in_time(self, view: SubtreeView, choice: Choice) -> Choice:
        """Return the node to end at under ``risk="dp"``, which takes the probability of a late answer into account.

        Return ``choice`` unchanged if no time is left, or if it violates a bound other than the latency bound.
        """
        if set(choice.relaxed) - {LATENCY_CAP} or view.limit(LATENCY_CAP) <= 0.0:
            return choice
        return Choice(end_in_time(self._graph, view), choice.relaxed)

    @cached_property
    def _graph(self) -> DecisionGraph:
        return DecisionGraph.of(self.annotated)

    def _without(self, node: int, models: Collection[str], candidates: BoolArray | None) -> BoolArray | None:
        """Return the nodes at which a request at ``node`` may end if none of ``models`` may run next.

        ``candidates`` and the result are masks of shape (nodes,); None stands for all nodes.
        """
        trie, left = self.trie, None
        for child in trie.children(node):
            if trie.models[int(trie.model[child])] in models:
                if left is None:
                    left = np.ones(self._size, np.bool_) if candidates is None else candidates.copy()
                left[child : int(trie.end[child])] = False
        return candidates if left is None else left

    def _next_model(self, node: int, target: int) -> str | None:
        if target == node:
            return None
        parent = self.trie.parent
        while parent[target] != node:
            target = int(parent[target])
        return self.trie.models[int(self.trie.model[target])]
