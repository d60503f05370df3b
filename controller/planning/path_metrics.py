"""What a planner knows of a trie before any request: path metrics, engine visits, which nodes a request may end at."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from vinelm.annotated_trie import AnnotatedTrie
from vinelm.errors import ConfigError
from vinelm.trie import BoolArray, FloatArray

IntArray = npt.NDArray[np.integer[Any]]

LEVELS = 64
"""Lower ends of accuracy are kept for so many levels of confidence."""


class PathMetrics:
    """Read-only arrays of shape (n + 1,), shared by all requests and safe to read from any thread.

    ``available`` names the models that can still be served (None: all); nodes whose path needs another one are left out.
    """

    def __init__(self, annotated: AnnotatedTrie, available: Iterable[str] | None = None) -> None:
        self.annotated = annotated
        self.trie = annotated.trie
        self.missing = () if available is None else tuple(sorted(set(self.trie.models) - set(available)))
        self.latency_s = annotated.path_latency_s
        self.cost_usd = annotated.path_cost_usd
        self._places: dict[tuple[str, float | None], npt.NDArray[np.int32]] = {}
        self._children: dict[tuple[int, str], int] = {}
        self._accuracy: dict[float | None, FloatArray] = {None: annotated.accuracy}

    def accuracy(self, confidence: float | None) -> FloatArray:
        """A(u), or the lower end of its one-sided interval of that level; a node of unknown error promises nothing (0).

        :class:`ConfigError` where the trie has no standard errors.
        """
        found = self._accuracy.get(confidence)
        if found is None:
            found = self._lower_accuracy(confidence or 0.5)
            if len(self._accuracy) < LEVELS:
                self._accuracy[confidence] = found
        return found

    def _lower_accuracy(self, confidence: float) -> FloatArray:
        error = self.annotated.accuracy_se
        if error is None:
            name = self.annotated.meta.get("estimator", "this")
            raise ConfigError(f"confidence needs standard errors, and the {name} estimator gives none: leave confidence out")
        lower = self.annotated.accuracy - NormalDist().inv_cdf(confidence) * error
        return np.maximum(np.where(np.isnan(lower), 0.0, lower), 0.0)

    @property
    def latency_var(self) -> FloatArray:
        """Variance of T(u)."""
        return self.annotated.path_latency_var

    @property
    def full_cost_usd(self) -> FloatArray:
        """K(u), undiscounted dollars from the root."""
        return self.annotated.full_cost_usd

    @property
    def full_cost_var(self) -> FloatArray:
        """Variance of K(u)."""
        return self.annotated.full_cost_var

    @cached_property
    def endings(self) -> BoolArray:
        """Nodes that a plan may end at: answerable, and every model on the way can be served."""
        servable = np.ones(len(self.trie), np.bool_)
        if self.missing:
            gone = np.array([name in self.missing for name in self.trie.models])
            for level in self.trie.levels[1:]:
                servable[level] = servable[self.trie.parent[level]] & ~gone[self.trie.model[level]]
        return self.trie.answerable & servable

    @cached_property
    def _visits(self) -> tuple[FloatArray, npt.NDArray[np.uint16] | npt.NDArray[np.int32]]:
        """Level by level: a path visits what its parent's does and one engine more."""
        n_engines = len(self.annotated.engines)
        tables = [np.zeros((1, n_engines))]
        group, seen = np.zeros(len(self.trie), np.int32), 0
        for level in self.trie.levels[1:]:
            step = (group[self.trie.parent[level]] - seen) * n_engines + self.annotated.engine[level]
            taken = np.zeros(len(tables[-1]) * n_engines, np.bool_)
            taken[step] = True
            steps = np.flatnonzero(taken)
            vectors = tables[-1][steps // n_engines]
            vectors[np.arange(len(steps)), steps % n_engines] += 1.0
            vectors, same = np.unique(vectors, axis=0, return_inverse=True)
            seen += len(tables[-1])
            found = np.empty(len(taken), np.int32)
            found[steps] = same.ravel() + seen
            group[level] = found[step]
            tables.append(vectors)
        return np.concatenate(tables), group.astype(np.uint16) if seen + len(tables[-1]) <= 2**16 else group

    @property
    def visits(self) -> FloatArray:
        """The distinct counts of invocations by engine that paths have. Shape (vectors, engines)."""
        return self._visits[0]

    @property
    def visit_group(self) -> npt.NDArray[np.uint16] | npt.NDArray[np.int32]:
        """Row of :attr:`visits` of each node."""
        return self._visits[1]

    def child(self, node: int, model: str) -> int:
        """The child reached by that model, remembered; ``KeyError`` if there is none."""
        found = self._children.get((node, model))
        if found is None:
            found = self._children[node, model] = self.trie.child(node, model)
        return found

    def place(self, target: str, confidence: float | None) -> npt.NDArray[np.int32]:
        """Position of each end by that target and the ties of DESIGN §5 (latency at zero load), the best first; -1 for other
        nodes. Shape (n + 1,).
        """
        key = (target, confidence)
        found = self._places.get(key)
        if found is None:
            ends = np.flatnonzero(self.endings)
            right, cost, latency = (values[ends] for values in (-self.accuracy(confidence), self.cost_usd, self.latency_s))
            first = {"accuracy": right, "cost": cost, "latency": latency}[target]
            found = np.full(len(self.trie), -1, np.int32)
            found[ends[_sorted(first, right, cost, latency)]] = np.arange(len(ends), dtype=np.int32)
            self._places[key] = found
        return found

    @property
    def nbytes(self) -> int:
        """Bytes of what has been worked out here for looking plans up."""
        made = [self.__dict__.get("endings"), *self.__dict__.get("_visits", ()), *self._places.values()]
        return sum(values.nbytes for values in made if values is not None)


def _sorted(first: FloatArray, *then: FloatArray) -> npt.NDArray[np.intp]:
    """Indices in the order of those keys, then of themselves. Most items differ in the first: the others are read for ties."""
    order = np.argsort(first)
    values = first[order]
    equal = values[1:] == values[:-1]
    tied = np.flatnonzero(np.append(equal, False) | np.insert(equal, 0, False))
    among = order[tied]
    order[tied] = among[np.lexsort((among, *(key[among] for key in reversed(then)), first[among]))]
    return order
