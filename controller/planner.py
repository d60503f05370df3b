"""The planner: which path to follow from here, exactly and without side effects (§3.4, §4.3, DESIGN §5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from vinelm.annotated import AnnotatedTrie
from vinelm.controller.decision import Decision
from vinelm.controller.known import Known
from vinelm.controller.query import Query, load_array
from vinelm.controller.view import COST_CAP, FLOOR, LATENCY_CAP, Choice, View
from vinelm.errors import ConfigError, InfeasibleError, VineLMError
from vinelm.objective import Objective
from vinelm.trie import BoolArray, FloatArray


class Planner:
    """Plans over one annotated trie; read-only after construction, so that all threads of a service share one.

    ``available`` names the models that can still be served (None: all); paths through another one are never planned.
    """

    def __init__(self, annotated: AnnotatedTrie, *, available: Iterable[str] | None = None) -> None:
        self.annotated = annotated
        self.trie = annotated.trie
        self.known = Known(annotated, available)

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
        query = self._query(objective, node, elapsed_s, spent_usd, load, candidates, may_stop)
        view = View(self.known, query)
        choice = view.choose()
        if choice is None:
            raise InfeasibleError(self._nowhere(query))
        if choice.relaxed and objective.on_infeasible == "raise":
            raise infeasible(view, choice)
        return Decision(node, choice.target, self._next_model(node, choice.target), choice.relaxed, view=view)

    def _query(  # noqa: PLR0917
        self,
        objective: Objective,
        node: int,
        elapsed_s: float,
        spent_usd: float,
        load: Mapping[str, float] | FloatArray | None,
        candidates: BoolArray | None,
        may_stop: bool,
    ) -> Query:
        if not 0 <= node < len(self.trie):
            raise ConfigError(f"node {node} is not in this trie: it has nodes 0 to {len(self.trie) - 1}")
        for name, value in (("elapsed_s", elapsed_s), ("spent_usd", spent_usd)):
            if not 0.0 <= value < float("inf"):
                raise ConfigError(f"{name} is {value}: it must be a finite number >= 0")
        if candidates is not None and candidates.shape != (len(self.trie),):
            raise ConfigError(f"candidates has shape {candidates.shape}: this trie needs ({len(self.trie)},)")
        if objective.risk == "dp":
            raise ConfigError('risk="dp" is not available yet: use "mean" or "mean+sd"')
        return Query(objective, node, elapsed_s, spent_usd, load_array(load, self.annotated.engines), candidates, may_stop)

    def _next_model(self, node: int, target: int) -> str | None:
        if target == node:
            return None
        parent = self.trie.parent
        while parent[target] != node:
            target = int(parent[target])
        return self.trie.models[int(self.trie.model[target])]

    def _nowhere(self, query: Query) -> str:
        where = "/".join(self.trie.prefix(query.node)) or "the root"
        why = f" (not served any more: {', '.join(self.known.missing)})" if self.known.missing else ""
        return f"no path leads on from {where}{why}: give the planner nodes to end at"


def infeasible(view: View, choice: Choice) -> InfeasibleError:
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
