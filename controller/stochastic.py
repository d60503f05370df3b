"""A deadline met by policy rather than by average: dynamic program over the time that is left (beyond the paper).

Every invocation takes a log-normal time with the trie's mean and variance. For each node and each amount of time left, the
program finds whether to end or which model to run so that the expected loss is least, knowing that it may choose again:

- target accuracy: a wrong answer loses 1, a late one 1 + ``LATE``;
- target cost or latency: what is spent, in units of the dearest (or of the allowed) path, and ``LATE`` for a late answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from vinelm.controller.view import LATENCY_CAP, View
from vinelm.errors import ConfigError
from vinelm.trie import BoolArray, FloatArray

LATE = 1.0
"""What a late answer loses beyond a wrong one, in wrong answers."""
BINS = 64
"""Steps into which the time left is cut."""
MOST_NODES = 40_000
"""Larger subtrees are refused: the tables would not fit a decision's time."""


@dataclass(frozen=True, slots=True)
class Level:
    """Nodes of one depth below the start, in trie order; ``starts`` cuts them by parent, ``parents`` are positions above."""

    nodes: npt.NDArray[np.intp]
    starts: npt.NDArray[np.intp]
    parents: npt.NDArray[np.intp]


class DeadlineProgram:
    """The program for one question; ``ends`` are the nodes it may stop at, over the subtree of the view.

    :class:`ConfigError` where the subtree is too large.
    """

    def __init__(self, view: View, ends: BoolArray) -> None:
        if view.span.stop - view.span.start > MOST_NODES:
            raise ConfigError(
                f'risk="dp" plans over at most {MOST_NODES:,} paths, and {view.span.stop - view.span.start:,} lie ahead: '
                'use risk="mean+sd"'
            )
        self.view = view
        self.ends = ends
        self.left_s = view.limit(LATENCY_CAP)
        self._chosen: dict[int, npt.NDArray[np.intp]] = {}

    def target(self) -> int:
        """Where the program ends if every invocation takes its mean time: the plan to show. Its first step is the choice."""
        self._solve()
        node, left, step_s = self.view.root, BINS, self.left_s / BINS
        while True:
            child = int(self._chosen[node][left]) if node in self._chosen else -1
            if child < 0:
                return node
            left = max(left - round(self._mean_s(np.array([child]))[0] / step_s), 0)
            node = child

    # -- the recursion -----------------------------------------------------------------------------------------

    def _solve(self) -> None:
        """Best losses from the leaves up. Shapes: (nodes of a level, time left in bins)."""
        levels = self._levels
        below: FloatArray | None = None
        for depth in range(len(levels) - 1, -1, -1):
            nodes = levels[depth].nodes
            best = np.where(self.ends[nodes - self.view.root, None], self._stop_loss(nodes)[:, None], np.inf)
            best = np.repeat(best, BINS + 1, axis=1) if best.shape[1] == 1 else best
            chosen = np.full(best.shape, -1, np.intp)
            if depth + 1 < len(levels) and below is not None:
                self._choose_below(levels[depth + 1], self._loss_of_running(levels[depth + 1].nodes, below), best, chosen)
            for i, node in enumerate(nodes.tolist()):
                self._chosen[node] = chosen[i]
            below = np.where(np.isfinite(best), best, self._late_loss)

    def _choose_below(self, level: Level, loss: FloatArray, best: FloatArray, chosen: npt.NDArray[np.intp]) -> None:
        least = np.minimum.reduceat(loss, level.starts, axis=0)
        better = least < best[level.parents]
        best[level.parents] = np.where(better, least, best[level.parents])
        sizes = np.diff(np.append(level.starts, len(level.nodes)))
        is_least = loss <= np.repeat(least, sizes, axis=0)
        first = np.minimum.reduceat(np.where(is_least, level.nodes[:, None], np.iinfo(np.intp).max), level.starts, axis=0)
        chosen[level.parents] = np.where(better, first, -1)

    def _loss_of_running(self, nodes: npt.NDArray[np.intp], after: FloatArray) -> FloatArray:
        """E over the invocation's time: late, or ended by the stop rule, or going on with what is left."""
        annotated = self.view.known.annotated
        stop = annotated.stop[nodes, None]
        wrong = (annotated.stop[nodes] - annotated.stop_success[nodes])[:, None] if self._counts_answers else 0.0
        arrived = wrong + (1.0 - stop) * after
        chance = self._chances(nodes)
        in_time = np.cumsum(chance, axis=1)
        is_flat = bool((arrived[:, :1] == arrived).all())  # so at the last level, which holds most nodes
        met = in_time * arrived[:, :1] if is_flat else _convolved(chance, arrived)
        return np.asarray(self._stage_loss(nodes)[:, None] + met + (1.0 - in_time) * self._late_loss)

    # -- losses ------------------------------------------------------------------------------------------------

    @property
    def _counts_answers(self) -> bool:
        return self.view.objective.target == "accuracy"

    @property
    def _late_loss(self) -> float:
        return LATE + 1.0 if self._counts_answers else LATE

    def _stop_loss(self, nodes: npt.NDArray[np.intp]) -> FloatArray:
        """P(wrong), given that the request was not ended by its stop rule there."""
        if not self._counts_answers:
            return np.zeros(len(nodes))
        annotated = self.view.known.annotated
        going_on = 1.0 - annotated.stop[nodes]
        right = np.divide(
            annotated.success[nodes] - annotated.stop_success[nodes], going_on, out=np.zeros(len(nodes)), where=going_on > 1e-9
        )
        return np.asarray(1.0 - np.clip(right, 0.0, 1.0))

    def _stage_loss(self, nodes: npt.NDArray[np.intp]) -> FloatArray:
        target = self.view.objective.target
        if target == "accuracy":
            return np.zeros(len(nodes))
        if target == "cost":
            full = self.view.known.full_cost_usd[self.view.span]
            return np.asarray(self.view.known.annotated.cost_usd[nodes] / (float(full.max() - full[0]) or 1.0))
        return np.asarray(self._mean_s(nodes) / self.left_s)

    # -- time --------------------------------------------------------------------------------------------------

    def _mean_s(self, nodes: npt.NDArray[np.intp]) -> FloatArray:
        """Mean seconds of each invocation under the present load."""
        known = self.view.known
        mean = known.annotated.latency_s[nodes]
        if self.view.query.load_s is None:
            return mean
        return np.asarray(mean + self.view.query.load_s[known.annotated.engine[nodes]])

    def _chances(self, nodes: npt.NDArray[np.intp]) -> FloatArray:
        """P(the invocation takes so many bins), log-normal; spread grows with the load as the mean does."""
        from scipy.special import ndtr

        zero_load = self.view.known.annotated.latency_s[nodes]
        mean = np.maximum(self._mean_s(nodes), 1e-12)
        relative = self.view.known.annotated.latency_var[nodes] / np.maximum(zero_load, 1e-12) ** 2
        sigma = np.sqrt(np.log1p(np.maximum(relative, 0.0)))
        edges = np.log((np.arange(BINS + 1) + 0.5) * self.left_s / BINS)
        gap = edges - (np.log(mean) - sigma**2 / 2)[:, None]
        below = np.where(sigma[:, None] > 1e-9, ndtr(gap / np.maximum(sigma, 1e-9)[:, None]), gap >= 0.0)
        return np.diff(below, axis=1, prepend=0.0)

    @cached_property
    def _levels(self) -> list[Level]:
        """The subtree by depth, pruned to nodes from which some end can be reached."""
        trie, root = self.view.known.trie, self.view.root
        ahead = np.concatenate(([0], np.cumsum(self.ends)))
        end = trie.end[self.view.span] - root
        useful = ahead[end] > ahead[:-1]
        levels = [Level(np.array([root], np.intp), np.zeros(1, np.intp), np.zeros(1, np.intp))]
        depth = trie.depth[self.view.span]
        order = np.argsort(depth, kind="stable")
        order = order[useful[order]]
        base, top = int(depth[0]), int(depth.max())
        for below in range(base + 1, top + 1):
            nodes = order[depth[order] == below] + root
            if not len(nodes):
                break
            parent = trie.parent[nodes]
            starts = np.flatnonzero(np.diff(parent, prepend=-2))
            levels.append(Level(nodes, starts, np.searchsorted(levels[-1].nodes, parent[starts])))
        return levels


def _convolved(chance: FloatArray, arrived: FloatArray) -> FloatArray:
    """Row by row, sum over j of chance[j] x arrived[i - j]. Time runs over the first axis inside: whole rows at once."""
    weight, value = np.ascontiguousarray(chance.T), np.ascontiguousarray(arrived.T)
    total = np.zeros_like(value)
    for spent in range(len(weight)):
        total[spent:] += weight[spent] * value[: len(value) - spent]
    return np.asarray(total.T)
