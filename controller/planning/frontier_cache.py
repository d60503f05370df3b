"""Stores Pareto frontiers by class of objectives and node; they are built when first needed or in advance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from vinelm.controller.planning.frontier import Frontier, pareto_frontier
from vinelm.controller.planning.objective_class import ObjectiveClass
from vinelm.controller.planning.path_metrics import IntArray, PathMetrics
from vinelm.errors import ConfigError
from vinelm.objective import Objective

LAZY = 50_000
"""The largest subtree whose frontier is built while a request waits; larger ones are only built by
:meth:`FrontierCache.prepare`."""
AHEAD = 600
"""The largest subtree whose frontier :meth:`FrontierCache.prepare` leaves to the first request at that node."""
ROOM = 20_000
"""How many frontiers of a class are kept in addition to those built in advance."""
CLASSES = 64
"""How many classes of objectives get frontiers, first come first served. Each ``z`` and ``confidence`` makes a new class."""
SHAPES = 4096
"""How many shapes of objectives' stores are remembered."""


class FrontierStore:
    """The Pareto frontiers below the nodes of a trie, for objectives that differ only in the values of their bounds.

    Thread-safe: a frontier may be built twice, but no thread sees it half built.
    """

    def __init__(self, metrics: PathMetrics, objective_class: ObjectiveClass) -> None:
        self.objective_class = objective_class
        self.frontiers: dict[int, Frontier] = {}
        self._metrics = metrics
        self._ahead: set[int] = set()

    def get(self, node: int) -> Frontier | None:
        """Return the Pareto frontier of the end nodes below ``node``, and build it first if the subtree is small.

        An end node is one at which a request may end. None if the subtree is large and its frontier is not built yet; then the
        whole subtree must be scanned.
        """
        found = self.frontiers.get(node)
        if found is None and self._metrics.trie.end[node] - node <= LAZY:
            found = self._build(node, self._ends_below(node))
        return found

    def prepare(self, wider: FrontierStore | None) -> None:
        """Build the Pareto frontiers of the end nodes below the root and below every other node with a large subtree.

        An end node is one at which a request may end. ``wider`` is a prepared store whose frontier below each node contains all
        end nodes that this store's frontier can have, so only these are examined. With None, all end nodes are examined.
        """
        size = self._metrics.trie.end - np.arange(len(self._metrics.trie))
        for node in np.flatnonzero(size > min(AHEAD, size[0] - 1))[::-1].tolist():
            self._ahead.add(node)
            if node not in self.frontiers:
                self._build(node, self._ends_below(node) if wider is None else wider.frontiers[node].ends)

    def _ends_below(self, node: int) -> IntArray:
        """Return the ends (nodes at which a request may end) below ``node``, best first.

        For a child with a stored frontier, only the child itself and the ends on this frontier are returned.
        """
        metrics = self._metrics
        parts = [np.empty(0, np.int32)]
        for child in metrics.trie.children(node):
            built = self.frontiers.get(child)
            parts += [np.arange(child, metrics.trie.end[child])] if built is None else [np.array([child]), built.ends]
        ends = np.concatenate(parts)
        ends = ends[metrics.endings[ends]]
        rank = metrics.rank(self.objective_class.target, self.objective_class.confidence)
        return np.asarray(ends[np.argsort(rank[ends], kind="stable")])

    def _build(self, node: int, ends: IntArray) -> Frontier:
        kept = pareto_frontier(self._metrics, self.objective_class, ends)
        built = Frontier(self._metrics, self.objective_class, node, kept)
        if len(self.frontiers) >= ROOM + len(self._ahead):
            self.frontiers = {key: kept for key, kept in list(self.frontiers.items()) if key in self._ahead}
        self.frontiers[node] = built
        return built


class ShapeFrontiers(NamedTuple):
    """The stores of Pareto frontiers for objectives that differ only in the values of their bounds.

    ``unloaded`` is the store for plans without load, ``loaded`` the store for plans under load. A store is None if frontiers
    cannot be used; each plan then searches the whole subtree. ``is_live`` is True if the target is latency, which depends on
    the load.
    """

    unloaded: FrontierStore | None
    loaded: FrontierStore | None
    is_live: bool


class FrontierCache:
    """The Pareto frontiers of one planner, in one :class:`FrontierStore` for each class of objectives.

    Objectives that differ only in the values of their bounds share a store.
    """

    def __init__(self, metrics: PathMetrics) -> None:
        self._metrics = metrics
        self._stores: dict[ObjectiveClass, FrontierStore] = {}
        self._by_shape: dict[tuple[object, ...], ShapeFrontiers] = {}

    def stores_for(self, objective: Objective) -> ShapeFrontiers:
        """Return the stores of Pareto frontiers for an objective, created on first use.

        Objectives that differ only in the values of their bounds share the stores.

        Raises:
            ConfigError: The objective needs latencies or standard errors that the trie does not have.
        """
        found = self._by_shape.get(objective.shape)
        if found is None:
            self._require_latency(objective)
            if len(self._by_shape) >= SHAPES:
                self._by_shape = {}
            is_live = objective.target == "latency"
            found = ShapeFrontiers(self._store(objective, False), self._store(objective, True), is_live)
            self._by_shape[objective.shape] = found
        return found

    def prepare(self, objective: Objective) -> None:
        """Build the frontiers of the root and of all large subtrees for an objective.

        They also serve all objectives that differ from it only in the values of their bounds.
        """
        stores = self.stores_for(objective)
        if stores.loaded is not None:
            stores.loaded.prepare(None)
        if stores.unloaded is not None and stores.unloaded is not stores.loaded:
            stores.unloaded.prepare(None if stores.is_live else stores.loaded)

    @property
    def nbytes(self) -> int:
        """The size of all frontiers and of the arrays from which they were built, in bytes."""
        return self._metrics.nbytes + sum(frontier.nbytes for frontier in self._frontiers())

    @property
    def n_ends(self) -> int:
        """The total number of ends (nodes at which a request may end) in all frontiers."""
        return sum(len(frontier.ends) for frontier in self._frontiers())

    def _frontiers(self) -> Iterator[Frontier]:
        return (frontier for store in list(self._stores.values()) for frontier in list(store.frontiers.values()))

    def _require_latency(self, objective: Objective) -> None:
        asked = "max_latency_s" if objective.max_latency_s is not None else 'minimize="latency"'
        needs_latency = objective.max_latency_s is not None or objective.target == "latency"
        if needs_latency and not self._metrics.annotated.knows_latency:
            raise ConfigError(
                f"{asked} needs latencies, and the trie's observations have none: leave it out, or profile to measure them"
            )

    def _store(self, objective: Objective, has_load: bool) -> FrontierStore | None:
        found = ObjectiveClass.of(objective, has_load=has_load)
        if found is None or (len(self._stores) >= CLASSES and found not in self._stores):
            return None
        return self._stores.setdefault(found, FrontierStore(self._metrics, found))
