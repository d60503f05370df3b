"""The planner: which path to follow from here, exactly and without side effects (§3.4, §4.3, DESIGN §5)."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from vinelm.annotated_trie import AnnotatedTrie
from vinelm.controller.planning.deadline_program import DeadlineProgram
from vinelm.controller.planning.decision import Decision
from vinelm.controller.planning.frontier import Frontier
from vinelm.controller.planning.frontier_cache import FrontierCache
from vinelm.controller.planning.objective_class import ObjectiveClass, kind_of
from vinelm.controller.planning.path_metrics import PathMetrics
from vinelm.controller.planning.plan_request import PlanRequest, load_array
from vinelm.controller.planning.subtree import COST_CAP, FLOOR, LATENCY_CAP, Choice, SubtreeView
from vinelm.errors import ConfigError, InfeasibleError, VineLMError
from vinelm.objective import Objective
from vinelm.trie import BoolArray, FloatArray

SMALL = 10_000
"""Up to so many nodes a first plan takes a few milliseconds, and nothing is prepared."""
_INFINITY = float("inf")


class Planner:
    """Plans over one annotated trie; read-only after construction, so that all threads of a service share one.

    ``available`` names the models that can still be served (None: all); paths through another one are never planned.
    """

    def __init__(self, annotated: AnnotatedTrie, *, available: Iterable[str] | None = None) -> None:
        self.annotated = annotated
        self.trie = annotated.trie
        self.known = PathMetrics(annotated, available)
        self._index = FrontierCache(self.known)
        self._size = len(annotated.trie)
        self._engines = annotated.engines
        self.engine_of = {model.name: model.engine for model in annotated.catalog.models}
        """Model to engine."""
        self._prepared: set[ObjectiveClass] = set()
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
    ) -> Decision:
        """The best way on from ``node`` for a request that has really taken ``elapsed_s`` seconds since its arrival and
        ``spent_usd`` dollars. The same as comparing every allowed end, ties by accuracy, cost, latency, trie order.

        ``load`` is extra seconds per invocation by engine (a mapping, or an array in the order of ``annotated.engines``).
        ``candidates``, shape (n + 1,), restricts the nodes to end at; with ``may_stop=False`` ``node`` itself is none of them.
        Planning before anything ran, pass ``elapsed_s=annotated.latency_s[0]`` where tools come before the first stage.

        :class:`InfeasibleError` where ``on_infeasible="raise"`` and no path meets the bounds, or where nothing is left to end
        at; :class:`ConfigError` for an argument that is negative, NaN or of another trie.
        """
        if not 0 <= node < self._size:
            raise ConfigError(f"node {node} is not in this trie: it has nodes 0 to {self._size - 1}")
        if not (0.0 <= elapsed_s < _INFINITY and 0.0 <= spent_usd < _INFINITY):
            raise ConfigError(f"elapsed_s is {elapsed_s} and spent_usd {spent_usd}: both must be finite numbers >= 0")
        load_s = None if load is None else load_array(load, self._engines)
        query = PlanRequest(objective, node, elapsed_s, spent_usd, load_s, candidates, may_stop)
        lookup = self._index.lookup(objective)
        shelf = lookup.plain if load_s is None else lookup.loaded
        frontier = None if shelf is None or candidates is not None else shelf.get(node)
        if frontier is not None and (load_s is None or not lookup.is_live):
            found = frontier.best(lookup.limits(elapsed_s, spent_usd), load_s, may_stop)
            if found is not None:
                return Decision(self.known, query, *found, frontier=frontier)
        return self._measured(query, frontier)

    def prepare(self, objective: Objective) -> None:
        """Build what plans of this kind of objective look up, so that no request waits for it. The bounds' values do not
        matter. Only needed above some tens of thousands of nodes; without it such tries are measured whole on each plan.
        """
        kind = kind_of(objective, has_load=True)
        if kind is not None:
            self._prepared.add(kind)
        self._index.prepare(objective)

    def prepare_apart(self, objective: Objective) -> threading.Thread | None:
        """Start :meth:`prepare` in a daemon thread, once for each kind of objective, where the trie is so large that requests
        would feel it; the thread, or None where there is nothing to do. Until it is done, plans are as exact and slower.
        """
        if self._size <= SMALL:
            return None
        kind = kind_of(objective, has_load=True)
        with self._lock:
            if kind is None or kind in self._prepared:
                return None
            self._prepared.add(kind)
        thread = threading.Thread(target=self.prepare, args=(objective,), name="vinelm-prepare", daemon=True)
        thread.start()
        return thread

    @property
    def index_bytes(self) -> int:
        """Memory of what has been built for looking plans up."""
        return self._index.nbytes

    @property
    def index_ends(self) -> int:
        """Ends kept in what has been built for looking plans up."""
        return self._index.n_ends

    def _measured(self, query: PlanRequest, frontier: Frontier | None) -> Decision:
        """The plan from measuring every end of the frontier, or of the subtree: any question, also where bounds have to give
        way.
        """
        if query.candidates is not None and query.candidates.shape != (self._size,):
            raise ConfigError(f"candidates has shape {query.candidates.shape}: this trie needs ({self._size},)")
        view = SubtreeView(self.known, query) if frontier is None else frontier.view(self.known, query)
        choice = view.choose()
        if choice is None:
            raise InfeasibleError(self._nowhere(query))
        if choice.relaxed and query.objective.on_infeasible == "raise":
            raise infeasible(view, choice)
        if query.objective.risk == "dp":
            choice = _by_program(view, choice)
        next_model = self._next_model(query.node, choice.target)
        return Decision(self.known, query, choice.target, next_model, choice.relaxed, frontier=frontier)

    def _next_model(self, node: int, target: int) -> str | None:
        if target == node:
            return None
        parent = self.trie.parent
        while parent[target] != node:
            target = int(parent[target])
        return self.trie.models[int(self.trie.model[target])]

    def _nowhere(self, query: PlanRequest) -> str:
        where = "/".join(self.trie.prefix(query.node)) or "the root"
        why = f" (not served any more: {', '.join(self.known.missing)})" if self.known.missing else ""
        return f"no path leads on from {where}{why}: give the planner nodes to end at"


def _by_program(view: SubtreeView, choice: Choice) -> Choice:
    """The stochastic program's choice, where only time is in question and there is some left; else the given one."""
    if set(choice.relaxed) - {LATENCY_CAP} or view.limit(LATENCY_CAP) <= 0.0:
        return choice
    ends = view.feasible(without=(LATENCY_CAP,))
    return Choice(DeadlineProgram(view, ends).target(), choice.relaxed)


def infeasible(view: SubtreeView, choice: Choice) -> InfeasibleError:
    """The error that names the binding bound and the best that any path offers beside the other bounds."""
    bound = choice.relaxed[0]
    if bound not in view.bounds:
        raise VineLMError(f"{bound} is not a bound of this objective")
    values = view.values(bound)[view.feasible(without=choice.relaxed)]
    best = float(values.max() if bound == FLOOR else values.min()) + view.used(bound)
    limit = float(getattr(view.objective, bound))
    unit, most = {FLOOR: ("", "highest accuracy"), LATENCY_CAP: (" s", "fastest"), COST_CAP: (" USD", "cheapest")}[bound]
    others = [name for name in view.bounds if name not in choice.relaxed]
    beside = f" within {' and '.join(others)}" if others else ""
    change = "lower" if bound == FLOOR else "raise"
    return InfeasibleError(
        f"no path meets {bound} = {limit:g}{unit}{beside}: the {most} is {best:.6g}{unit}: {change} it to that",
        bound=bound,
        limit=limit,
        best=best,
    )
