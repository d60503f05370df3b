"""Frontiers by kind of objective and node, built when first asked for or ahead of time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vinelm.controller.planning.dominance import pareto
from vinelm.controller.planning.frontier import Frontier
from vinelm.controller.planning.objective_class import ObjectiveClass, kind_of
from vinelm.controller.planning.path_metrics import IntArray, PathMetrics
from vinelm.errors import ConfigError
from vinelm.objective import Objective

LAZY = 50_000
"""Larger subtrees get their frontiers only from :meth:`FrontierCache.prepare`: building one would keep a request waiting."""
AHEAD = 600
"""Smaller subtrees are left by :meth:`FrontierCache.prepare` to the first request that comes there."""
ROOM = 20_000
"""So many frontiers of a kind are kept that were built on the way."""
KINDS = 64
"""So many kinds of objective get shelves, the first to come; each ``z`` and each ``confidence`` makes a kind of its own."""
OBJECTIVES = 4096
"""So many objectives are remembered with their kinds."""


class FrontierStore:
    """The frontiers of one kind. Safe from many threads: a frontier may be built twice, never read half-built."""

    def __init__(self, known: PathMetrics, kind: ObjectiveClass) -> None:
        self.kind = kind
        self.frontiers: dict[int, Frontier] = {}
        self._known = known
        self._ahead: set[int] = set()

    def get(self, node: int) -> Frontier | None:
        """The frontier below ``node``, built now if that is quick; else None, and the subtree must be measured."""
        found = self.frontiers.get(node)
        if found is None and self._known.trie.end[node] - node <= LAZY:
            found = self._build(node, self._below(node))
        return found

    def prepare(self, wider: FrontierStore | None) -> None:
        """Build the frontiers of the root and of the larger subtrees, from the deepest up. ``wider`` is prepared, has
        the same order, and has kept all that this one can keep.
        """
        size = self._known.trie.end - np.arange(len(self._known.trie))
        for node in np.flatnonzero(size > min(AHEAD, size[0] - 1))[::-1].tolist():
            self._ahead.add(node)
            if node not in self.frontiers:
                self._build(node, self._below(node) if wider is None else wider.frontiers[node].ends)

    def _below(self, node: int) -> IntArray:
        """The ends below ``node`` in order, less what a child's frontier has dropped."""
        known = self._known
        parts = [np.empty(0, np.int32)]
        for child in known.trie.children(node):
            built = self.frontiers.get(child)
            parts += [np.arange(child, known.trie.end[child])] if built is None else [np.array([child]), built.ends]
        ends = np.concatenate(parts)
        ends = ends[known.endings[ends]]
        return np.asarray(ends[np.argsort(known.place(self.kind.target, self.kind.confidence)[ends], kind="stable")])

    def _build(self, node: int, ends: IntArray) -> Frontier:
        built = Frontier(self._known, self.kind, node, pareto(self._known, self.kind, ends))
        if len(self.frontiers) >= ROOM + len(self._ahead):
            self.frontiers = {key: kept for key, kept in list(self.frontiers.items()) if key in self._ahead}
        self.frontiers[node] = built
        return built


class ObjectiveBinding:
    """An objective with the shelves that hold its plans; None where only measuring the whole subtree finds them. ``is_live``:
    under load the best of a shelf is not the first that fits.
    """

    __slots__ = ("_floor", "_is_each", "_max_s", "_max_usd", "is_live", "loaded", "objective", "plain")

    def __init__(self, objective: Objective, plain: FrontierStore | None, loaded: FrontierStore | None) -> None:
        self.objective = objective
        self.plain = plain
        self.loaded = loaded
        self.is_live = objective.target == "latency"
        self._floor = objective.min_accuracy
        self._max_s = objective.max_latency_s
        self._max_usd = objective.max_cost_usd
        self._is_each = objective.cost_budget == "per_request"

    def limits(self, elapsed_s: float, spent_usd: float) -> list[float]:
        """What is left of each bound, in the order of :attr:`ObjectiveClass.bounds`."""
        limits = []
        if self._max_s is not None:
            limits.append(self._max_s - elapsed_s)
        if self._max_usd is not None:
            limits.append(self._max_usd - spent_usd if self._is_each else self._max_usd)
        if self._floor is not None:
            limits.append(-self._floor)
        return limits


class FrontierCache:
    """Shelves by kind, and which of them answer an objective."""

    def __init__(self, known: PathMetrics) -> None:
        self._known = known
        self._shelves: dict[ObjectiveClass, FrontierStore] = {}
        self._lookups: dict[int, ObjectiveBinding] = {}

    def lookup(self, objective: Objective) -> ObjectiveBinding:
        """The shelves of that very object, remembered. :class:`ConfigError` if it asks for what the trie does not know."""
        found = self._lookups.get(id(objective))
        if found is None or found.objective is not objective:
            self._require_latency(objective)
            if len(self._lookups) >= OBJECTIVES:
                self._lookups = {}
            found = ObjectiveBinding(objective, self._shelf(objective, False), self._shelf(objective, True))
            self._lookups[id(objective)] = found
        return found

    def _require_latency(self, objective: Objective) -> None:
        asked = "max_latency_s" if objective.max_latency_s is not None else 'minimize="latency"'
        if (objective.max_latency_s is not None or objective.target == "latency") and not self._known.annotated.knows_latency:
            raise ConfigError(
                f"{asked} needs latencies, and the trie's rows have none: leave it out, or profile to measure them"
            )

    def prepare(self, objective: Objective) -> None:
        """Build the frontiers of the larger subtrees for objectives of this kind (the bounds' values do not matter)."""
        lookup = self.lookup(objective)
        if lookup.loaded is not None:
            lookup.loaded.prepare(None)
        if lookup.plain is not None and lookup.plain is not lookup.loaded:
            lookup.plain.prepare(None if lookup.is_live else lookup.loaded)

    @property
    def nbytes(self) -> int:
        """Bytes of all frontiers and of what they were built from."""
        return self._known.nbytes + sum(frontier.nbytes for frontier in self._frontiers())

    @property
    def n_ends(self) -> int:
        """Ends kept in all frontiers."""
        return sum(len(frontier.ends) for frontier in self._frontiers())

    def _frontiers(self) -> Iterator[Frontier]:
        return (frontier for shelf in list(self._shelves.values()) for frontier in list(shelf.frontiers.values()))

    def _shelf(self, objective: Objective, has_load: bool) -> FrontierStore | None:
        kind = kind_of(objective, has_load=has_load)
        if kind is None or (len(self._shelves) >= KINDS and kind not in self._shelves):
            return None
        return self._shelves.setdefault(kind, FrontierStore(self._known, kind))
