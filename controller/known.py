"""What a planner knows of a trie before any request: path metrics, engine visits, which nodes a request may end at."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from vinelm.annotated import AnnotatedTrie
from vinelm.errors import ConfigError
from vinelm.trie import BoolArray, FloatArray


class Known:
    """Read-only arrays of shape (n + 1,), shared by all requests and safe to read from any thread.

    ``available`` names the models that can still be served (None: all); nodes whose path needs another one are left out.
    """

    def __init__(self, annotated: AnnotatedTrie, available: Iterable[str] | None = None) -> None:
        self.annotated = annotated
        self.trie = annotated.trie
        self.missing = () if available is None else tuple(sorted(set(self.trie.models) - set(available)))
        self.latency_s = annotated.path_latency_s
        self.latency_var = annotated.path_latency_var
        self.cost_usd = annotated.path_cost_usd
        self.full_cost_usd = annotated.full_cost_usd
        self.full_cost_var = annotated.full_cost_var
        self._ranked: dict[tuple[str, float | None], npt.NDArray[np.intp]] = {}
        self._places: dict[tuple[str, float | None], npt.NDArray[np.int32]] = {}
        self._children: dict[tuple[int, str], int] = {}
        self._accuracy: dict[float | None, FloatArray] = {None: annotated.accuracy}

    def accuracy(self, confidence: float | None) -> FloatArray:
        """A(u), or the lower end of its one-sided interval of that level; a node of unknown error promises nothing (0).

        :class:`ConfigError` where the trie has no standard errors.
        """
        found = self._accuracy.get(confidence)
        if found is None:
            found = self._accuracy[confidence] = self._lower_accuracy(confidence or 0.5)
        return found

    def _lower_accuracy(self, confidence: float) -> FloatArray:
        error = self.annotated.accuracy_se
        if error is None:
            name = self.annotated.meta.get("estimator", "this")
            raise ConfigError(f"confidence needs standard errors, and the {name} estimator gives none: leave confidence out")
        lower = self.annotated.accuracy - NormalDist().inv_cdf(confidence) * error
        return np.maximum(np.where(np.isnan(lower), 0.0, lower), 0.0)

    @cached_property
    def endings(self) -> BoolArray:
        """Nodes that a plan may end at: answerable, and every model on the way can be served."""
        return self.trie.answerable & self.servable

    @cached_property
    def servable(self) -> BoolArray:
        """Nodes whose whole path runs on available models."""
        servable = np.ones(len(self.trie), np.bool_)
        if self.missing:
            gone = np.array([name in self.missing for name in self.trie.models])
            for level in self.trie.levels[1:]:
                servable[level] = servable[self.trie.parent[level]] & ~gone[self.trie.model[level]]
        return servable

    @cached_property
    def visits(self) -> npt.NDArray[np.int16]:
        """How many invocations of the path each engine serves. Shape (n + 1, engines)."""
        visits = np.zeros((len(self.trie), len(self.annotated.engines)), np.int16)
        for level in self.trie.levels[1:]:
            visits[level] = visits[self.trie.parent[level]]
            visits[level, self.annotated.engine[level]] += 1
        return visits

    @cached_property
    def _visit_table(self) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.int64]]:
        """Distinct rows of :attr:`visits`, and which of them is each node's."""
        base = int(self.visits.max(initial=0)) + 1
        if self.visits.shape[1] * np.log2(base) < 62:
            codes = self.visits @ (base ** np.arange(self.visits.shape[1], dtype=np.int64))
            _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
            return self.visits[first], inverse
        rows, inverse = np.unique(self.visits, axis=0, return_inverse=True)
        return rows, inverse.ravel()

    def child(self, node: int, model: str) -> int:
        """The child reached by that model, remembered; ``KeyError`` if there is none."""
        found = self._children.get((node, model))
        if found is None:
            found = self._children[node, model] = self.trie.child(node, model)
        return found

    @property
    def visit_vectors(self) -> npt.NDArray[np.int16]:
        """The distinct engine visits of all paths. Shape (vectors, engines)."""
        return self._visit_table[0]

    @cached_property
    def visit_group(self) -> npt.NDArray[np.uint16] | npt.NDArray[np.int32]:
        """Row of :attr:`visit_vectors` of each node."""
        vectors, group = self._visit_table
        return group.astype(np.uint16) if len(vectors) < 2**16 else group.astype(np.int32)

    @cached_property
    def latency_place(self) -> npt.NDArray[np.int32]:
        """Dense rank of each node's T; equal times share one."""
        return np.unique(self.latency_s, return_inverse=True)[1].astype(np.int32)

    def ranked(self, target: str, confidence: float | None) -> npt.NDArray[np.intp]:
        """Every end, best first by that target and the ties of DESIGN §5; for latency at zero load."""
        key = (target, confidence)
        found = self._ranked.get(key)
        if found is None:
            ends = np.flatnonzero(self.endings)
            accuracy, cost, latency = (values[ends] for values in (self.accuracy(confidence), self.cost_usd, self.latency_s))
            keys = [latency, cost, -accuracy]
            if target != "accuracy":
                keys.append(cost if target == "cost" else latency)
            found = self._ranked[key] = ends[np.lexsort(keys)]
        return found

    def place(self, target: str, confidence: float | None) -> npt.NDArray[np.int32]:
        """Position of each end in :meth:`ranked`; -1 for other nodes. Shape (n + 1,)."""
        key = (target, confidence)
        found = self._places.get(key)
        if found is None:
            found = np.full(len(self.trie), -1, np.int32)
            ranked = self.ranked(target, confidence)
            found[ranked] = np.arange(len(ranked), dtype=np.int32)
            self._places[key] = found
        return found
