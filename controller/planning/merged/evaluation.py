"""What a plan over a merged trie achieves for the requests that follow it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vinelm.controller.planning.merged.graph import Ints, MergedGraph
from vinelm.controller.planning.merged.values import END
from vinelm.merged_paths import merged_standard_error
from vinelm.trie.arrays import FloatArray


@dataclass(frozen=True, eq=False)
class Outlook:
    """Expected outcome of a plan from a node on, for a request that has just reached it.

    Args:
        accuracy: P(the answer is correct).
        cost_usd: expected dollars, those of the node itself not counted.
        expected_latency_s: expected seconds, likewise.
        latency_s: seconds of the longest history that the plan admits.
        mass: P(each node is reached and the request has each difficulty), shape (n + 1, points).
        standard_error: of the accuracy (:func:`~vinelm.merged_paths.merged_standard_error`); None without errors in the trie.
    """

    accuracy: float
    cost_usd: float
    expected_latency_s: float
    latency_s: float
    mass: FloatArray
    standard_error: float | None

    @property
    def reach(self) -> FloatArray:
        """P(each node is reached), shape (n + 1,)."""
        return np.asarray(self.mass.sum(axis=1))


def evaluate(
    graph: MergedGraph, choice: Ints, *, node: int = 0, mix: FloatArray | None = None, latency_s: FloatArray | None = None
) -> Outlook:
    """Follow a plan from a node on.

    Args:
        graph: the graph.
        choice: of each arm, as in :class:`~vinelm.controller.planning.merged.values.Values` without a grid.
        node: where the requests are.
        mix: share of the requests at the node that have each difficulty, shape (points,), if the trie knows difficulties: the
            plan's own requests are then followed. None: every node has the mix of the profile.
        latency_s: seconds of each edge, load included; None: at zero load.
    """
    annotated, trie = graph.annotated, graph.trie
    seconds = annotated.latency_s[trie.target] if latency_s is None else latency_s
    rates = _Rates.of(graph, with_difficulty=mix is not None)
    mass = np.zeros((len(trie), rates.points))
    mass[node] = np.ones(1) if mix is None else mix
    latest = np.full(len(trie), -np.inf)
    latest[node] = 0.0
    ended = np.zeros(len(trie))  # P(correct) by where the request ends
    for level in graph.levels[int(trie.depth[node]) :]:
        arms = np.arange(level.arms.start, level.arms.stop)
        source, taken = graph.arm_source[arms], choice[arms]
        runs = taken >= 0
        is_end = (taken == END) & graph.ends[source]
        right = mass[source] * rates.right[arms]
        np.add.at(ended, source[is_end], right[is_end].sum(axis=1))
        edge, up = taken[runs], source[runs]
        target = trie.target[edge]
        np.add.at(mass, target, mass[up] * rates.going[arms[runs]])
        np.maximum.at(latest, target, latest[up] + seconds[edge])
    reach = mass.sum(axis=1)
    stopped = (mass * rates.stop_success).sum(axis=1)
    leaves = trie.is_leaf & graph.ends
    ended[leaves] += (mass[leaves] * (rates.success - rates.stop_success)[leaves]).sum(axis=1)
    paid = reach.copy()
    paid[node] = 0.0
    time = np.zeros(len(trie))
    time[trie.target] = seconds  # the edges into a node differ in nothing but their source
    return Outlook(
        accuracy=float(stopped.sum() + ended.sum()),
        cost_usd=float(paid @ annotated.cost_usd),
        expected_latency_s=float(paid @ time),
        latency_s=float(latest[reach > 0.0].max(initial=0.0)),
        mass=mass,
        standard_error=_standard_error(graph, choice, reach, stopped + ended, node),
    )


def _standard_error(graph: MergedGraph, choice: Ints, reach: FloatArray, correct: FloatArray, node: int) -> float | None:
    if graph.annotated.accuracy_se is None:
        return None
    trie = graph.trie
    later = np.zeros(len(trie))  # P(correct below the node and the node is reached)
    inflow = np.zeros(len(trie))
    for level in reversed(graph.levels[int(trie.depth[node]) :]):
        arms = np.arange(level.arms.start, level.arms.stop)
        runs = choice[arms] >= 0
        source, target = graph.arm_source[arms][runs], trie.target[choice[arms][runs]]
        flow = reach[source] * graph.going[arms][runs]
        inflow[:] = 0.0
        np.add.at(inflow, target, flow)
        share = np.divide(flow, inflow[target], out=np.zeros_like(flow), where=inflow[target] > 0.0)
        np.add.at(later, source, share * (correct + later)[target])
    afterwards = np.divide(later, reach, out=np.zeros_like(later), where=reach > 0.0)
    visited = np.flatnonzero(reach > 0.0)
    visited = visited[visited != node]
    rows = np.stack([visited.astype(np.float64), reach[visited], afterwards[visited]], axis=1)
    return merged_standard_error(graph.annotated, rows, float(correct.sum()))


@dataclass(frozen=True, eq=False)
class _Rates:
    """The rates of nodes and arms, with one column per difficulty, or with one column."""

    success: FloatArray
    stop: FloatArray
    stop_success: FloatArray
    going: FloatArray
    right: FloatArray

    @property
    def points(self) -> int:
        return int(self.success.shape[1])

    @classmethod
    def of(cls, graph: MergedGraph, *, with_difficulty: bool) -> _Rates:
        annotated = graph.annotated
        known = annotated.difficulty if with_difficulty else None
        names = ("success", "stop", "stop_success")
        success, stop, stop_success = (
            getattr(annotated, name)[:, None] if known is None else getattr(known, name) for name in names
        )
        if known is None:
            return cls(success, stop, stop_success, graph.going[:, None], graph.right[:, None])
        source = graph.arm_source
        if known.arm is None or known.arm_success is None:
            return cls(success, stop, stop_success, 1.0 - known.stop[source], (known.success - known.stop_success)[source])
        return cls(success, stop, stop_success, known.arm, known.arm_success)
