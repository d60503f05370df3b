"""Frontiers by kind of objective and node, built when first asked for or ahead of time."""

from __future__ import annotations

import numpy as np

from vinelm.controller.frontier import Frontier, IntArray, Kind, pareto
from vinelm.controller.known import Known
from vinelm.objective import Objective

LAZY = 50_000
"""Larger subtrees get their frontiers only from :meth:`Index.prepare`: building one would keep a request waiting."""
AHEAD = 600
"""Smaller subtrees are left by :meth:`Index.prepare` to the first request that comes there."""
ROOM = 20_000
"""So many frontiers of a kind are kept that were built on the way."""
OBJECTIVES = 4096
"""So many objectives are remembered with their kinds."""


class Shelf:
    """The frontiers of one kind. Safe from many threads: a frontier may be built twice, never read half-built."""

    def __init__(self, known: Known, kind: Kind) -> None:
        self.kind = kind
        self.frontiers: dict[int, Frontier] = {}
        self._known = known
        self._ahead: set[int] = set()

    def get(self, node: int, may_stop: bool) -> Frontier | None:
        """The frontier below ``node``, built now if that is quick; else None, and the subtree must be measured."""
        found = self.frontiers.get(2 * node + may_stop)
        if found is None and self._known.trie.end[node] - node <= LAZY:
            found = self._build(node, may_stop, self._ranked_below(node))
        return found

    def prepare(self, node: int, ranked: IntArray) -> None:
        """Build the frontiers of ``node`` and of the larger subtrees below; ``ranked`` are its ends in order."""
        trie = self._known.trie
        for may_stop in (True, False) if self._known.endings[node] else (True,):
            self._ahead.add(2 * node + may_stop)
            self._build(node, may_stop, ranked)
        children = np.array(trie.children(node), np.intp)
        if not len(children) or int((trie.end[children] - children).max()) <= AHEAD:
            return
        below = ranked[ranked != node]
        place = np.searchsorted(children, below, side="right").astype(np.uint16)
        below = below[np.argsort(place, kind="stable")]  # radix: keeps the order within each child
        cuts = np.concatenate(([0], np.cumsum(np.bincount(place, minlength=len(children) + 1)[1:])))
        for i, child in enumerate(children.tolist()):
            if trie.end[child] - child > AHEAD:
                self.prepare(child, below[cuts[i] : cuts[i + 1]])

    def _ranked_below(self, node: int) -> IntArray:
        known = self._known
        place = known.place(self.kind.target, self.kind.confidence)
        ends = np.flatnonzero(known.endings[known.trie.subtree(node)]) + node
        return np.asarray(ends[np.argsort(place[ends], kind="stable")])

    def _build(self, node: int, may_stop: bool, ranked: IntArray) -> Frontier:
        if not may_stop:
            ranked = ranked[ranked != node]
        built = Frontier(self._known, self.kind, node, pareto(self._known, self.kind, node, ranked))
        if len(self.frontiers) >= ROOM + len(self._ahead):
            self.frontiers = {key: kept for key, kept in list(self.frontiers.items()) if key in self._ahead}
        self.frontiers[2 * node + may_stop] = built
        return built


class Lookup:
    """An objective with the shelves that answer it; None where only measuring the whole subtree can."""

    __slots__ = ("floor", "is_each", "loaded", "max_s", "max_usd", "objective", "plain")

    def __init__(self, objective: Objective, plain: Shelf | None, loaded: Shelf | None) -> None:
        self.objective = objective
        self.plain = plain
        self.loaded = loaded
        self.floor = objective.min_accuracy
        self.max_s = objective.max_latency_s
        self.max_usd = objective.max_cost_usd
        self.is_each = objective.cost_budget == "per_request"


class Index:
    """Shelves by kind, and which of them answer an objective."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._shelves: dict[Kind, Shelf] = {}
        self._lookups: dict[int, Lookup] = {}

    def lookup(self, objective: Objective) -> Lookup:
        """The shelves of that very object, remembered."""
        found = self._lookups.get(id(objective))
        if found is None or found.objective is not objective:
            if len(self._lookups) >= OBJECTIVES:
                self._lookups = {}
            found = Lookup(objective, self._shelf(objective, False), self._shelf(objective, True))
            self._lookups[id(objective)] = found
        return found

    def prepare(self, objective: Objective, *, has_load: bool = True) -> None:
        """Build the frontiers of the larger subtrees for objectives of this kind (the bounds' values do not matter)."""
        lookup = self.lookup(objective)
        for shelf in {lookup.plain, lookup.loaded if has_load else None} - {None}:
            assert shelf is not None
            shelf.prepare(0, self._known.ranked(shelf.kind.target, shelf.kind.confidence))

    @property
    def nbytes(self) -> int:
        """Bytes of all frontiers."""
        return sum(frontier.nbytes for shelf in self._shelves.values() for frontier in list(shelf.frontiers.values()))

    @property
    def n_ends(self) -> int:
        """Ends kept in all frontiers."""
        return sum(frontier.n for shelf in self._shelves.values() for frontier in list(shelf.frontiers.values()))

    def _shelf(self, objective: Objective, has_load: bool) -> Shelf | None:
        kind = kind_of(objective, has_load=has_load)
        return None if kind is None else self._shelves.setdefault(kind, Shelf(self._known, kind))


def kind_of(objective: Objective, *, has_load: bool) -> Kind | None:
    """What frontiers the objective can be looked up in; None where standard deviations or a loaded target forbid it."""
    if objective.risk != "mean" or (objective.target == "latency" and has_load):
        return None
    cost = None
    if objective.max_cost_usd is not None:
        cost = "C" if objective.cost_budget == "population" else "K"
        if cost == "K" and objective.z:
            return None
    has_time = objective.max_latency_s is not None
    has_floor = objective.min_accuracy is not None
    return Kind(objective.target, objective.confidence, has_floor, cost, has_time, has_load and has_time)
