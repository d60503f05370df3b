"""Other ways to answer the questions of ``bench_planner.py``: plain Python, and one scan of the subtree's arrays.

Times are processor time: these take so long that other programs on the machine would count, and flatter the planner.
"""

from __future__ import annotations

import statistics
import time

from vinelm.controller import Planner
from vinelm.controller.planning.plan_request import PlanRequest, load_array
from vinelm.controller.planning.subtree import SubtreeView
from vinelm.objective import Objective
from vinelm.trie.annotated_trie import AnnotatedTrie


def python_induction_time(annotated: AnnotatedTrie, asked, load) -> float:
    """Median microseconds of backward induction node by node in plain Python, with the time left carried down."""
    induction, planner = PythonInduction(annotated), Planner(annotated)
    times = []
    for objective in asked:
        before = time.thread_time_ns()
        value = induction.value(objective.max_latency_s, load)
        times.append((time.thread_time_ns() - before) / 1000)
        assert abs(value - planner.plan(objective, load=load).accuracy) < 1e-9
    return statistics.median(times)


class PythonInduction:
    """The accuracy of the best contingent plan within a deadline, by recursion over the nodes."""

    def __init__(self, annotated: AnnotatedTrie) -> None:
        trie = annotated.trie
        self.children = [list(trie.arms(node).values()) for node in range(len(trie))]
        self.latency, self.ended = annotated.latency_s.tolist(), annotated.stop_success.tolist()
        self.arm, self.right = annotated.arm.tolist(), annotated.arm_success.tolist()
        self.engine, self.engines = annotated.engine.tolist(), annotated.engines

    def value(self, left_s: float, load) -> float:
        """Accuracy of the best plan from the root on."""
        self.delay = [load[name] for name in self.engines] if load else [0.0] * len(self.engines)
        return self._below(0, left_s, may_end=False)

    def _below(self, node: int, left_s: float, *, may_end: bool = True) -> float:
        total = self.ended[node]
        for arm in self.children[node]:
            best = self.right[arm[0]] if may_end else 0.0
            for child in arm:
                left = left_s - self.latency[child] - self.delay[self.engine[child]]
                if left >= 0.0:
                    value = self.arm[child] * self._below(child, left)
                    best = max(value, best)
            total += best
        return total


def slice_time(planner, asked, loads) -> float:
    times = []
    for objective, load in zip(asked, loads, strict=True):
        before = time.thread_time_ns()
        view = SubtreeView(
            planner.metrics, PlanRequest(objective, 0, 0.0, 0.0, load_array(load, planner.annotated.engines), None, True)
        )
        view.choose()
        times.append((time.thread_time_ns() - before) / 1000)
    return statistics.median(times)


def dfs_time(annotated, asked, loads) -> float:
    search = PrunedSearch(annotated)
    times = []
    for objective, load in zip(asked, loads, strict=True):
        before = time.thread_time_ns()
        search.best(objective, load)
        times.append((time.thread_time_ns() - before) / 1000)
    return statistics.median(times)


class PrunedSearch:
    """VineLM paper §4.3 in plain Python: prune where a cap is exceeded, the floor is met, or the incumbent costs less."""

    def __init__(self, annotated: AnnotatedTrie) -> None:
        self.end = annotated.trie.end.tolist()
        self.accuracy = annotated.accuracy.tolist()
        self.cost = annotated.path_cost_usd.tolist()
        self.latency = annotated.path_latency_s.tolist()
        self.engine = annotated.engine.tolist()
        self.parent = annotated.trie.parent.tolist()
        self.engines = annotated.engines

    def best(self, objective: Objective, load) -> int:
        """The node that the search finds; 0 if there is none."""
        delay = [load[name] for name in self.engines] if load else [0.0] * len(self.engines)
        extra = {0: 0.0}
        floor = objective.min_accuracy
        max_s = float("inf") if objective.max_latency_s is None else objective.max_latency_s
        max_usd = float("inf") if objective.max_cost_usd is None else objective.max_cost_usd
        best, best_accuracy, best_cost = 0, -1.0, float("inf")
        at, last = 1, len(self.end)
        while at < last:
            extra[at] = extra[self.parent[at]] + delay[self.engine[at]]
            cost = self.cost[at]
            if self.latency[at] + extra[at] > max_s or cost > max_usd or (floor is not None and cost >= best_cost):
                at = self.end[at]
                continue
            if floor is not None:
                if self.accuracy[at] >= floor:
                    best, best_cost = at, cost
                    at = self.end[at]
                    continue
            elif self.accuracy[at] > best_accuracy:
                best, best_accuracy = at, self.accuracy[at]
            at += 1
        return best
