"""Arrays over a trie that a planner computes before any request: path metrics, calls per engine, and nodes to end at."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vinelm.controller.planning.metric import Metric, Quantity
from vinelm.errors import ConfigError
from vinelm.template.steps import SKIP
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.arrays import BoolArray, FloatArray

IntArray = npt.NDArray[np.integer[Any]]
Nodes = IntArray | slice
"""Nodes as an array of their numbers, or a whole subtree as a slice."""

LEVELS = 64
"""The number of confidence levels for which lower bounds of accuracy are cached."""


class PathMetrics:
    """Metrics of the path to each node, as read-only arrays of shape (nodes,), shared by all requests and threads.

    Args:
        available: Models that can be served; None for all. Paths through other models are never planned.
    """

    def __init__(self, annotated: AnnotatedTrie, available: Iterable[str] | None = None) -> None:
        self.annotated = annotated
        self.trie = annotated.trie
        self.missing = () if available is None else tuple(sorted(set(self.trie.models) - {*available, SKIP}))
        """Models of the trie that cannot be served."""
        self.endings = self._endings()
        """Nodes where a plan may end: answerable, and every step of their path can be served and may be planned."""
        self._visits: _EngineVisits | None = None
        self._ranks: dict[tuple[Metric, float | None], npt.NDArray[np.int32]] = {}
        self._children: dict[tuple[int, str, str | None], int] = {}
        self._accuracy: dict[float | None, FloatArray] = {}
        self._answers: dict[float | None, AnswerChances] = {}

    def mean(self, metric: Metric, confidence: float | None = None) -> FloatArray:
        """Return, for each node, the metric of the path from the root to the node.

        ``confidence`` only affects accuracy: the result is then the lower end of the accuracy's one-sided interval at this
        level, and 0 if the standard error is unknown. Raises :class:`ConfigError` if the trie has no standard errors.
        """
        if metric is Metric.ACCURACY:
            return self._accuracy_at(confidence)
        if metric is Metric.COST:
            return self.annotated.path_cost_usd
        if metric is Metric.MOST_COST:
            return self.annotated.path_most_usd
        return self.annotated.path_latency_s if metric is Metric.LATENCY else self.annotated.full_cost_usd

    def answers(self, confidence: float | None = None) -> AnswerChances:
        """Return for each node the probability that the answer of its call is correct. The result is cached.

        The accuracy of a path is the sum of these chances, weighted by the probability of reaching each node. With
        ``confidence``, the chances are lowered so that the accuracy of each path becomes the lower end of its interval. This is
        approximate where a chance would have to leave [0, 1]. Raises :class:`ConfigError` if the trie has no standard errors.
        """
        found = self._answers.get(confidence)
        if found is None:
            found = self._answers_at(confidence)
            if len(self._answers) < LEVELS:
                self._answers[confidence] = found
        return found

    def variance(self, metric: Metric) -> FloatArray:
        """Return the variance of an additive metric (latency or full cost) from the root to each node."""
        return self.annotated.path_latency_var if metric is Metric.LATENCY else self.annotated.full_cost_var

    def quantity(
        self, quantity: Quantity, nodes: Nodes, node: int, confidence: float | None, delay_s: FloatArray | None = None
    ) -> FloatArray:
        """Return the values of a quantity at ``nodes``, for a request whose current node is ``node``.

        Args:
            quantity: a metric from the root to each of ``nodes``, or what remains of a metric after ``node``.
            nodes: the nodes below ``node`` whose values are returned.
            node: the request's current node.
            confidence: the confidence level, for which accuracy is replaced by its lower bound; None for the expected
                accuracy.
            delay_s: the seconds that load adds before each of ``nodes``, added to the remaining latency; None without load.
        """
        if isinstance(quantity, Metric):
            return self.mean(quantity, confidence)[nodes]
        mean = self.mean(quantity.metric)
        values = mean[nodes] - mean[node]
        if delay_s is not None:
            values = values + delay_s
        if quantity.z:
            variance = self.variance(quantity.metric)
            values = values + quantity.z * np.sqrt(np.maximum(variance[nodes] - variance[node], 0.0))
        return np.asarray(values)

    def delay_s(self, nodes: Nodes, node: int, load_s: FloatArray) -> FloatArray:
        """Return the seconds that load adds between ``node`` and each of ``nodes``.

        ``load_s`` has the extra seconds per call on each engine.
        """
        visits, group = self.visits, self.visit_group
        return np.asarray((visits - visits[group[node]]).dot(load_s)[group[nodes]])

    @property
    def visits(self) -> FloatArray:
        """Numbers of calls on each engine, shape (rows, engines): one row for all paths with the same numbers.

        :attr:`visit_group` has the index of the row for each node's path.
        """
        return self._engine_visits().vectors

    @property
    def visit_group(self) -> npt.NDArray[np.uint16] | npt.NDArray[np.int32]:
        """For each node, the index of its path's row in :attr:`visits` (numbers of calls per engine); shape (nodes,)."""
        return self._engine_visits().group

    def child(self, node: int, model: str, stage: str | None = None) -> int:
        """Return the child of ``node`` that runs this model (at this stage), cached; raises ``KeyError`` if there is none."""
        found = self._children.get((node, model, stage))
        if found is None:
            found = self._children[node, model, stage] = self.trie.child(node, model, stage)
        return found

    def rank(self, target: Metric, confidence: float | None) -> npt.NDArray[np.int32]:
        """Return each end's position among all ends, sorted best first by ``target``; -1 for other nodes.

        An end is a node at which a request may end. Ties are settled by accuracy, cost, latency at zero load and trie order
        (docs/architecture.md#objectives).
        """
        key = (target, confidence)
        found = self._ranks.get(key)
        if found is None:
            ends = np.flatnonzero(self.endings)
            right = -self.mean(Metric.ACCURACY, confidence)[ends]
            cost, latency = self.mean(Metric.COST)[ends], self.mean(Metric.LATENCY)[ends]
            first = {Metric.ACCURACY: right, Metric.COST: cost, Metric.LATENCY: latency}[target]
            found = np.full(len(self.trie), -1, np.int32)
            found[ends[_sorted(first, right, cost, latency)]] = np.arange(len(ends), dtype=np.int32)
            self._ranks[key] = found
        return found

    @property
    def nbytes(self) -> int:
        """The size of the arrays that are computed here for planning, in bytes."""
        visits = [] if self._visits is None else [self._visits.vectors, self._visits.group]
        return sum(values.nbytes for values in (self.endings, *visits, *self._ranks.values()))

    def _accuracy_at(self, confidence: float | None) -> FloatArray:
        if confidence is None:
            return self.annotated.accuracy
        found = self._accuracy.get(confidence)
        if found is None:
            found = self._lower_accuracy(confidence)
            if len(self._accuracy) < LEVELS:
                self._accuracy[confidence] = found
        return found

    def _lower_accuracy(self, confidence: float) -> FloatArray:
        error = self.annotated.accuracy_se
        if error is None:
            raise no_standard_errors(self.annotated)
        lower = self.annotated.accuracy - NormalDist().inv_cdf(confidence) * error
        return np.maximum(np.where(np.isnan(lower), 0.0, lower), 0.0)

    def _answers_at(self, confidence: float | None) -> AnswerChances:
        annotated, going_on = self.annotated, 1.0 - self.annotated.stop
        if confidence is None:
            return AnswerChances(annotated.stop_success, _share(annotated.success - annotated.stop_success, going_on))
        accuracy, lower = annotated.accuracy, self._accuracy_at(confidence)
        stopped = annotated.stop_success * np.divide(lower, accuracy, out=np.zeros_like(lower), where=accuracy > 0.0)
        ended = self.trie.accumulate(annotated.reach * stopped)
        return AnswerChances(stopped, _share(lower - ended, annotated.reach * going_on))

    @cached_property
    def servable(self) -> BoolArray | None:
        """A mask of the edges whose model can be served, shape (edges,); None if all models can be served."""
        if not self.missing:
            return self.annotated.tried
        gone = np.array([name in self.missing for name in self.trie.models])
        can = ~gone[self.trie.model[self.trie.target]]
        return can if self.annotated.tried is None else can & self.annotated.tried

    def _endings(self) -> BoolArray:
        if self.servable is None:
            return self.trie.answerable
        reached, trie = np.zeros(len(self.trie), np.bool_), self.trie
        reached[0] = True
        for edges in trie.edge_levels:
            np.logical_or.at(reached, trie.target[edges], reached[trie.source[edges]] & self.servable[edges])
        return trie.answerable & reached

    def _engine_visits(self) -> _EngineVisits:
        if self._visits is None:
            self._visits = _EngineVisits(self.annotated)
        return self._visits


class AnswerChances(NamedTuple):
    """Probabilities of a correct answer at each node; arrays of shape (nodes,).

    ``stopped`` is P(the stop rule ends the request at the node, and its answer is correct). ``right`` is P(the answer is
    correct), given that the stop rule did not end the request there.
    """

    stopped: FloatArray
    """P(the request ends at the node by the stop rule, and its answer is correct)."""
    right: FloatArray
    """P(the answer is correct), given that the stop rule did not end the request at the node."""


class _EngineVisits:
    """Counts the calls on each engine along each path of the trie.

    ``vectors`` has the distinct rows of counts, with one count for each engine; ``group`` has the index of each node's row.
    """

    def __init__(self, annotated: AnnotatedTrie) -> None:
        trie, n_engines = annotated.trie, len(annotated.engines)
        tables = [np.zeros((1, n_engines))]
        group, seen = np.zeros(len(trie), np.int32), 0
        for level in trie.levels[1:]:
            step = (group[trie.parent[level]] - seen) * n_engines + annotated.engine[level]
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
        self.vectors: FloatArray = np.concatenate(tables)
        self.group: npt.NDArray[np.uint16] | npt.NDArray[np.int32] = (
            group.astype(np.uint16) if len(self.vectors) <= 2**16 else group
        )


def no_standard_errors(annotated: AnnotatedTrie) -> ConfigError:
    """Return the error to raise for an objective with ``confidence`` over a trie without standard errors."""
    name = annotated.meta.get("estimator", "this")
    return ConfigError(f"confidence needs standard errors, and the {name} estimator gives none: leave confidence out")


def _share(right: FloatArray, of: FloatArray) -> FloatArray:
    """Return ``right / of`` for each node, clipped to [0, 1]; 0 where ``of`` is almost 0."""
    return np.asarray(np.clip(np.divide(right, of, out=np.zeros(len(right)), where=of > 1e-9), 0.0, 1.0))


def _sorted(first: FloatArray, *then: FloatArray) -> npt.NDArray[np.intp]:
    """Return the indices that sort items by ``first``; ties are settled by the arrays ``then`` in turn, then by the index."""
    order = np.argsort(first)
    values = first[order]
    equal = values[1:] == values[:-1]
    tied = np.flatnonzero(np.append(equal, False) | np.insert(equal, 0, False))
    among = order[tied]
    order[tied] = among[np.lexsort((among, *(key[among] for key in reversed(then)), first[among]))]
    return order
