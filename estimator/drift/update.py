"""Updates a trie's stop rates, costs and latencies from served results.

Accuracies follow the stop rates, because served answers have no score.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from vinelm.errors import ConfigError, EvidenceError
from vinelm.estimator.arms import with_kinds_counted
from vinelm.estimator.drift.hypotheses import dollars_of, seconds_of, stop_of
from vinelm.estimator.drift.monitor import DriftMonitor
from vinelm.rows.observation import Observation
from vinelm.trie.annotated_trie import AnnotatedTrie, SignalTrie
from vinelm.trie.arrays import FloatArray

GROUP_ROWS = 20.0
"""Pseudo-results that shrink the common change of an engine's seconds, and of a model's dollars, towards no change."""
Ints = npt.NDArray[np.int64]


def updated_trie(annotated: AnnotatedTrie, rows: Sequence[Observation], *, half_life: float = 1000.0) -> AnnotatedTrie:
    """Return the trie updated with the served results. Pure.

    A result that was followed by k later requests weighs 2^(-k / half_life), and the trie's old estimates are discounted in the
    same way. First, each engine's results update the latencies of all its nodes, and each model's results update the costs of
    all its nodes. Then each node is updated from its own results. Latencies of calls that began under load are ignored. If a
    stop rate changes, the chances of a right answer given that the request stops, and given that it continues, stay the same.
    In the trie of signals, if there is one, only the latencies by engine and the costs by model change. The shares of the
    request types become those among the served requests.

    Args:
        annotated: The trie.
        rows: The served results, in the order in which they were served.
        half_life: The number of requests after which a result counts half, > 0.

    Raises:
        ConfigError: The half-life is not positive.
        EvidenceError: No result belongs to a path of the trie.
    """
    if not half_life > 0.0:
        raise ConfigError(f"half_life is {half_life}: give a number of requests > 0", code="half-life")
    seen = _Seen(annotated, rows, half_life)
    if not len(seen.node):
        raise EvidenceError("no served row is of a path of the trie: serve requests with it first")
    seconds = seen.mean(annotated.latency_s, seconds_of, annotated.engine.astype(np.int64), idle=True)
    dollars = seen.mean(annotated.cost_usd, dollars_of, annotated.trie.model.astype(np.int64))
    facts = {"rows": len(seen.node), "requests": seen.requests, "half_life": half_life}
    found = replace(
        annotated,
        latency_s=seconds,
        latency_var=annotated.latency_var * _ratio(seconds, annotated.latency_s) ** 2,
        cost_usd=dollars,
        cost_var=annotated.cost_var * _ratio(dollars, annotated.cost_usd) ** 2,
        meta={**annotated.meta, "updated": facts},
        **_with_stops(annotated, seen),
    )
    kinds = seen.kinds()
    signals = annotated.signals and with_kinds_counted(_of_signals(annotated.signals, annotated, found), kinds)
    return with_kinds_counted(replace(found, signals=signals), kinds)


class _Seen:
    """The served results whose paths are in the trie, with their nodes and weights; results after a passed check are left out.

    Attributes:
        annotated: the trie.
        requests: the number of served requests.
        rows: the results.
        node: the index of each result's node, shape (results,).
        weight: the weight of each result, 2^(-k / half_life) if k requests came later; shape (results,).
        size: the number of nodes.
        kept: the factor by which the trie's old estimates are discounted: 2^(-requests / half_life).
        known: the discounted number of results behind each node's old estimates, shape (nodes,).
        is_plain: whether the trie has no signals.
    """

    def __init__(self, annotated: AnnotatedTrie, rows: Sequence[Observation], half_life: float) -> None:
        order = {name: k for k, name in enumerate(dict.fromkeys(row.request_id for row in rows))}
        self.annotated, self.requests = annotated, len(order)
        finder = DriftMonitor(annotated)
        placed = [(row, node) for row in rows if not row.is_continued and (node := finder.find(row)) is not None]
        self.rows = [row for row, _ in placed]
        self.node: Ints = np.array([node for _, node in placed], np.int64)
        age = np.array([self.requests - 1 - order[row.request_id] for row in self.rows], np.float64)
        self.weight = np.exp2(-age / half_life)
        self.size = len(annotated.trie)
        count = np.full(self.size, 1.0) if annotated.count is None else np.maximum(annotated.count.astype(np.float64), 1.0)
        self.kept = float(np.exp2(-self.requests / half_life))
        self.known = count * self.kept
        self.is_plain = annotated.signals is None

    def kinds(self) -> dict[str, float]:
        """Return the weight of each request type, keyed by the type.

        The weight is the discounted number of the type's requests in the profile plus the weights of its served requests.
        """
        trie = self.annotated.trie
        counts: dict[str, float] = defaultdict(float)
        of_stage, meta = self.annotated.stage_kinds, self.annotated.meta
        known = float(meta.get("requests_registered") or meta.get("requests") or 1.0) * self.kept
        first = np.flatnonzero(trie.source == 0)
        for node, share in zip(trie.target[first], self.annotated.arms_by_edge[0][first], strict=True):
            counts[of_stage[trie.stage[node]]] = float(share * known)
        for row, node, weight in zip(self.rows, self.node, self.weight, strict=True):
            counts[of_stage[trie.stage[node]]] += float(weight) if row.depth == 1 else 0.0
        return counts

    def mean(self, known: FloatArray, value: Any, group: Ints, *, idle: bool = False) -> FloatArray:
        """Return the nodes' updated means of a cost or latency, shape (nodes,).

        Args:
            known: the means before the update, shape (nodes,).
            value: returns the cost or latency of a result.
            group: the number of each node's group; nodes of a group change together; -1 means no group.
            idle: whether to ignore results without a time, and calls that began while others were in flight.
        """
        use = np.array(
            [
                known[node] > 0.0 and not (idle and (row.in_flight or not row.is_timed))
                for row, node in zip(self.rows, self.node, strict=True)
            ]
        )
        if not use.any():
            return known
        node, weight = self.node[use], self.weight[use]
        values = np.array([value(row) for row, used in zip(self.rows, use, strict=True) if used])
        groups = group[node]
        total = np.bincount(groups, weight * values / known[node], group.max() + 1)
        factor = (GROUP_ROWS + total) / (GROUP_ROWS + np.bincount(groups, weight, group.max() + 1))
        common = known * np.where(group >= 0, factor[group], 1.0)
        if not self.is_plain:  # what requests show decides who reaches a deeper node
            return common
        own = np.bincount(node, weight * values, self.size)
        return np.asarray((self.known * common + own) / (self.known + np.bincount(node, weight, self.size)))

    def stops(self, known: FloatArray) -> FloatArray:
        """Return the nodes' updated stop rates, shape (nodes,); ``known`` has the old rates.

        Only results count for which it is known whether the request stopped. In a trie of signals, the rates do not change.
        """
        told = [(node, weight, stop) for row, node, weight in zip(self.rows, self.node, self.weight, strict=True)
                if (stop := stop_of(row)) is not None]  # fmt: skip
        if not told or not self.is_plain:
            return known
        node, weight, stops = (np.array(column) for column in zip(*told, strict=True))
        own = np.bincount(node, weight * stops, self.size)
        return np.asarray((self.known * known + own) / (self.known + np.bincount(node, weight, self.size)))


def _ratio(new: FloatArray, old: FloatArray) -> FloatArray:
    return np.divide(new, old, out=np.ones_like(old), where=old > 0.0)


def _with_stops(annotated: AnnotatedTrie, seen: _Seen) -> dict[str, Any]:
    """Return the updated arrays of the trie that depend on its stop rates, keyed by attribute name.

    Empty if a node of the trie may stand for several sequences of calls.
    """
    trie, old = annotated.trie, annotated.stop
    if annotated.difficulty is not None:  # the plans' figures follow from the rates of each difficulty, which are not known
        return {}
    stop = np.where(trie.is_leaf, old, seen.stops(old))
    stop[0] = old[0]
    right = annotated.success
    if_stop = np.divide(annotated.stop_success, old, out=right.copy(), where=old > 0.0)
    if_on = np.divide(right - annotated.stop_success, 1.0 - old, out=right.copy(), where=old < 1.0)
    stop_success = np.where(stop == old, annotated.stop_success, stop * if_stop)
    arm, arm_success = annotated.arms
    on = np.ones(trie.n_arm_items)
    on[trie.arm_items] = np.divide(1.0 - stop, 1.0 - old, out=np.ones_like(old), where=old < 1.0)[trie.source]
    return {
        "stop": stop,
        "stop_success": stop_success,
        "success": np.where(stop == old, right, stop_success + (1 - stop) * if_on),
        "arm": arm * on,
        "arm_success": arm_success * on,
    }


def _of_signals(signals: SignalTrie, before: AnnotatedTrie, after: AnnotatedTrie) -> SignalTrie:
    """Return ``signals`` with each model's costs and latencies scaled by their change from ``before`` to ``after``."""
    names = signals.trie.model.astype(np.int64)
    changed: dict[str, Any] = {}
    for mean, var in (("latency_s", "latency_var"), ("cost_usd", "cost_var")):
        ratio = _ratio(getattr(after, mean), getattr(before, mean))
        of_model = np.ones(len(before.trie.models))
        of_model[before.trie.model[1:]] = ratio[1:]  # the same for all nodes of a model
        own = np.where(names >= 0, of_model[names], 1.0)
        changed |= {mean: getattr(signals, mean) * own, var: getattr(signals, var) * own**2}
    return replace(signals, **changed)
