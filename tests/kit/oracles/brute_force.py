"""The planner's specification, written out node by node."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist

from vinelm.objective import Objective
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.arrays import BoolArray


@dataclass(frozen=True, slots=True)
class _End:
    """A node that a plan could end at, with the quantities of docs/architecture.md#objectives."""

    node: int
    accuracy: float
    cost_usd: float
    latency_s: float
    remaining_s: float
    bounded_s: float
    bounded_usd: float


def brute_force(
    annotated: AnnotatedTrie,
    objective: Objective,
    *,
    node: int = 0,
    elapsed_s: float = 0.0,
    spent_usd: float = 0.0,
    load: Mapping[str, float] | None = None,
    candidates: BoolArray | None = None,
    may_stop: bool = True,
) -> tuple[int, bool] | None:
    """Find the best node to end at by evaluating every node. Slow, and deliberately shares no code with the planner.

    The arguments are those of :meth:`Planner.plan`. Returns the node and whether it meets every bound; None if there is no
    node to end at.
    """
    trie = annotated.trie
    ends = [
        _measure(annotated, objective, node, v, load or {})
        for v in range(node, int(trie.end[node]))
        if trie.answerable[v] and (may_stop or v != node) and (candidates is None or candidates[v])
    ]
    if not ends:
        return None
    spent = spent_usd if objective.cost_budget == "per_request" else 0.0

    def meets(end: _End, bound: str) -> bool:
        if bound == "floor":
            return objective.min_accuracy is None or end.accuracy >= objective.min_accuracy
        if bound == "time":
            return objective.max_latency_s is None or end.bounded_s <= objective.max_latency_s - elapsed_s
        return objective.max_cost_usd is None or end.bounded_usd <= objective.max_cost_usd - spent

    def rank(end: _End) -> tuple[float, ...]:
        first = {"accuracy": -end.accuracy, "cost": end.cost_usd, "latency": end.remaining_s}[objective.target]
        return (first, -end.accuracy, end.cost_usd, end.latency_s, end.node)

    feasible = [end for end in ends if all(meets(end, bound) for bound in ("floor", "time", "money"))]
    if feasible:
        return min(feasible, key=rank).node, True
    here = [end for end in ends if end.node == node]
    if here and not any(meets(end, "time") and meets(end, "money") for end in ends):
        return node, False
    effort = {"floor": lambda end: -end.accuracy, "time": lambda end: end.bounded_s, "money": lambda end: end.bounded_usd}
    for dropped in ("floor",), ("time",), ("money",), ("time", "floor"), ("money", "floor"), ("time", "money"), tuple(effort):
        kept = [end for end in ends if all(meets(end, bound) for bound in effort if bound not in dropped)]
        if kept:
            order = [bound for bound in ("time", "money", "floor") if bound in dropped and _asked(objective, bound)]
            return min(kept, key=lambda end: (*(effort[bound](end) for bound in order), *rank(end))).node, False
    raise AssertionError("without bounds every end is feasible")


def _asked(objective: Objective, bound: str) -> bool:
    field = {"floor": "min_accuracy", "time": "max_latency_s", "money": "max_cost_usd"}[bound]
    return getattr(objective, field) is not None


def _measure(annotated: AnnotatedTrie, objective: Objective, start: int, end: int, load: Mapping[str, float]) -> _End:
    trie = annotated.trie
    reach, ended_right, cost, latency = 1.0, 0.0, 0.0, 0.0
    suffix_s = suffix_var = suffix_usd = suffix_usd_var = most_usd = extra_s = 0.0
    for at in [0, *trie.path(end)]:
        cost += reach * float(annotated.cost_usd[at])
        latency += float(annotated.latency_s[at])
        if trie.depth[at] > trie.depth[start]:
            suffix_s += float(annotated.latency_s[at])
            suffix_var += float(annotated.latency_var[at])
            suffix_usd += float(annotated.cost_usd[at])
            suffix_usd_var += float(annotated.cost_var[at])
            most_usd += upper_usd(annotated, at)
            extra_s += load.get(annotated.catalog[trie.models[trie.model[at]]].engine, 0.0)
        accuracy = ended_right + reach * float(annotated.success[at])
        ended_right += reach * float(annotated.stop_success[at])
        reach *= 1.0 - float(annotated.stop[at])
    if objective.confidence is not None:
        assert annotated.accuracy_se is not None
        accuracy = max(accuracy - NormalDist().inv_cdf(objective.confidence) * float(annotated.accuracy_se[end]), 0.0)
    remaining_s = suffix_s + extra_s
    bounded_s = remaining_s
    if objective.risk == "mean+sd":
        bounded_s += (1.0 if objective.z is None else objective.z) * math.sqrt(suffix_var)
    bounded_usd = cost
    if objective.cost_budget == "per_request":
        bounded_usd = most_usd if objective.z is None else suffix_usd + objective.z * math.sqrt(suffix_usd_var)
    return _End(end, accuracy, cost, latency, remaining_s, bounded_s, bounded_usd)


def upper_usd(annotated: AnnotatedTrie, at: int) -> float:
    """The 95 % quantile of the log-normal dollars of one invocation, what is not known of their mean included."""
    mean, variance = float(annotated.cost_usd[at]), float(annotated.cost_var[at])
    if annotated.cost_se is not None:
        whole = float(mean if annotated.trie.is_merged else annotated.path_cost_usd[at])
        error = float(annotated.cost_se[at])
        variance += 0.0 if whole <= 0.0 or math.isnan(error) else (mean * error / whole) ** 2
    if mean <= 0.0:
        return 0.0
    log_var = math.log1p(variance / mean**2)
    return max(mean * math.exp(NormalDist().inv_cdf(0.95) * math.sqrt(log_var) - log_var / 2.0), mean)
