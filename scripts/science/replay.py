"""Replay: policies evaluated on a complete table of recorded outcomes, without calling a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from science.recorded_table import RecordedTable

from vinelm.controller import Planner
from vinelm.errors import ConfigError
from vinelm.objective import Objective
from vinelm.trie import Trie
from vinelm.trie.arrays import BoolArray, FloatArray


@dataclass(frozen=True, eq=False)
class ReplayResult:
    """Per-request results of a replay. Arrays have shape (requests,); ``node`` is the node at which the request ended."""

    success: BoolArray
    cost_usd: FloatArray
    latency_s: FloatArray
    node: npt.NDArray[np.intp]
    trie: Trie

    @property
    def path(self) -> tuple[tuple[str, ...], ...]:
        """The models that each request called, in order."""
        prefixes = {int(node): self.trie.prefix(int(node)) for node in np.unique(self.node)}
        return tuple(prefixes[int(node)] for node in self.node)


def replay(
    table: RecordedTable,
    plan: Planner | Sequence[str],
    objective: Objective | None = None,
    *,
    candidates: BoolArray | None = None,
    load: Mapping[str, float] | None = None,
) -> ReplayResult:
    """Replay every request of the table under a planner, or along a fixed path of models.

    A planner replans after every invocation with the seconds and dollars that the request has really used. Without a
    per-request bound that would not change the plan, so it plans once. Requests stop by the table's stop rule.

    Args:
        table: The recorded outcomes.
        plan: A planner over the same trie, or the models of a path.
        objective: Required with a planner, not allowed with a path.
        candidates: Mask over nodes, shape (n + 1,): the nodes that the planner may end at; None for all.
        load: Extra seconds per invocation by engine, for planning only; recorded latencies stay as they are.

    Raises:
        ConfigError: The arguments do not fit together, or the planner's trie is another one.
    """
    if not isinstance(plan, Planner):
        if objective is not None or candidates is not None or load is not None:
            raise ConfigError("a fixed path is replayed as it is: leave out objective, candidates and load")
        return follow(table, table.trie.node(tuple(plan)))
    if objective is None:
        raise ConfigError("a planner needs an objective to replay")
    if plan.trie != table.trie:
        raise ConfigError("the planner's trie is not the table's: estimate over the table's own template")
    if objective.max_latency_s is None and objective.cost_budget == "population":
        return follow(table, plan.plan(objective, candidates=candidates, load=load).target)
    ends = [_replan(table, row, plan, objective, candidates, load) for row in range(len(table.request_ids))]
    return at_nodes(table, np.array(ends, np.intp))


def follow(table: RecordedTable, target: int) -> ReplayResult:
    """Replay every request along the path to the node ``target``, until it stops or the path ends."""
    path = np.array(table.trie.path(target), np.intp)
    if not len(path):
        raise ConfigError("a path needs at least one model")
    ended = table.ended[:, path]
    ended[:, -1] = True
    return at_nodes(table, path[ended.argmax(axis=1)])


def at_nodes(table: RecordedTable, node: npt.NDArray[np.intp]) -> ReplayResult:
    """Return the results if request i ends at ``node[i]``: its answer there, and the cost and latency of the whole path."""
    rows = np.arange(len(node))
    cost, latency = np.zeros(len(node)), np.zeros(len(node))
    at = node.copy()
    while (at >= 0).any():
        on = at >= 0
        cost[on] += table.cost_usd[rows[on], at[on]]
        latency[on] += table.latency_s[rows[on], at[on]]
        at[on] = table.trie.parent[at[on]]
    return ReplayResult(table.success[rows, node], cost, latency, node, table.trie)


def _replan(  # noqa: PLR0917
    table: RecordedTable,
    row: int,
    planner: Planner,
    objective: Objective,
    candidates: BoolArray | None,
    load: Mapping[str, float] | None,
) -> int:
    """Return the node at which one request ends if the planner replans after every invocation."""
    node, trie = 0, table.trie
    elapsed, spent = float(table.latency_s[row, 0]), float(table.cost_usd[row, 0])
    while True:
        decision = planner.plan(objective, node=node, elapsed_s=elapsed, spent_usd=spent, load=load, candidates=candidates)
        if decision.next_model is None:
            return node
        node = trie.child(node, decision.next_model)
        elapsed += float(table.latency_s[row, node])
        spent += float(table.cost_usd[row, node])
        if table.ended[row, node]:
            return node


def oracle(table: RecordedTable, objective: Objective) -> ReplayResult:
    """Replay an oracle that knows each request's outcomes in advance: an upper bound for every policy.

    Each request runs the path that is best for it. ``max_latency_s``, and ``max_cost_usd`` per request, hold for each request.
    A population budget goes to the requests that become right for the least extra cost. ``min_accuracy`` is met by the
    requests that add least to the target. A request that cannot meet its bounds ends as cheaply (or as fast) as it can.
    """
    cost, latency = table.trie.accumulate(table.cost_usd), table.trie.accumulate(table.latency_s)
    usable = table.reached & table.trie.answerable
    worth = latency if objective.target == "latency" else cost
    fits = usable & (latency <= _limit(objective.max_latency_s))
    if objective.cost_budget == "per_request":
        fits &= cost <= _limit(objective.max_cost_usd)
    fits = np.where(fits.any(axis=1, keepdims=True), fits, usable)
    least = np.where(fits, worth, np.inf).argmin(axis=1)
    right = fits & table.success
    best = np.where(right, worth, np.inf).argmin(axis=1)
    rows = np.arange(len(least))
    extra = np.where(right.any(axis=1), worth[rows, best] - worth[rows, least], np.inf)
    ends = least.copy()
    base = float(cost[rows, least].sum())
    budget = _limit(objective.max_cost_usd) * len(rows) if objective.cost_budget == "population" else np.inf
    got = int(table.success[rows, least].sum())
    wanted = len(rows) if objective.target == "accuracy" else int(np.ceil((objective.min_accuracy or 0.0) * len(rows)))
    for row in np.argsort(extra, kind="stable"):
        if not np.isfinite(extra[row]) or got >= wanted:
            break
        more = float(cost[row, best[row]] - cost[row, least[row]])
        if table.success[row, least[row]] or base + more > budget:
            continue
        ends[row], base, got = best[row], base + more, got + 1
    return at_nodes(table, ends)


def _limit(bound: float | None) -> float:
    return np.inf if bound is None else bound
