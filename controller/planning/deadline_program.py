"""A stochastic dynamic program over the time that is left until the deadline (not in the VineLM paper).

Invocations take independent log-normal times with the trie's means and variances. For each node and amount of time left, the
program chooses whether to end or which model to run, so that the expected loss under later optimal choices is least:

- Target accuracy: it maximizes P(correct and in time) - w x P(late), where w is the objective's ``late_weight``. So a wrong
  answer has loss 1 and a late answer 1 + w.
- Target cost or latency: the loss is what is used, as a share of the most expensive path (or of the time left), plus 1 for a
  late answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from vinelm.controller.planning.metric import LATENCY_CAP, Metric
from vinelm.controller.planning.normal_distribution import normal_cdf
from vinelm.controller.planning.path_metrics import AnswerChances
from vinelm.controller.planning.subtree import SubtreeView
from vinelm.errors import ConfigError
from vinelm.trie.arrays import BoolArray, FloatArray

LATE_WEIGHT = 0.75
"""Default of ``late_weight``. With 0, a request without a correct answer tries again until it is late; with 1, it gives up
tries that are slightly more likely to be late than correct in time.
"""
BINS = 64
"""Number of equal steps into which the time left is divided."""
MOST_NODES = 40_000
"""Largest subtree that is planned over: the tables of a larger one would take too long for a decision."""


@dataclass(frozen=True, slots=True)
class Level:
    """Nodes of one depth below the start, in trie order. ``starts`` are the positions where siblings begin, ``parents`` the
    positions of their parents in the level above.
    """

    nodes: npt.NDArray[np.intp]
    starts: npt.NDArray[np.intp]
    parents: npt.NDArray[np.intp]


class DeadlineProgram:
    """The program for one request.

    Args:
        view: The subtree below the request's node.
        ends: The nodes of the view that the request may end at.

    Raises:
        ConfigError: The subtree has more than ``MOST_NODES`` nodes.
    """

    def __init__(self, view: SubtreeView, ends: BoolArray) -> None:
        if view.span.stop - view.span.start > MOST_NODES:
            raise ConfigError(
                f'risk="dp" plans over at most {MOST_NODES:,} paths, and this subtree has '
                f'{view.span.stop - view.span.start:,}: use risk="mean+sd"'
            )
        self.view = view
        self.ends = ends
        self.left_s = view.limit(LATENCY_CAP)

    def target(self) -> int:
        """The node where the program ends if every invocation takes its mean time. The first step of its path is the choice."""
        node, left, step_s = self.view.root, BINS, self.left_s / BINS
        for depth in range(len(self._levels)):
            child = self.choice(depth, node, left)
            if child is None:
                break
            left = max(left - round(self._mean_s(np.array([child]))[0] / step_s), 0)
            node = child
        return node

    def choice(self, depth: int, node: int, left: int) -> int | None:
        """The child to run next at a node ``depth`` levels below the start with ``left`` bins of time left; None to end."""
        children = self._children(depth, node)
        if children is None:
            return None
        running = self._running[depth + 1][children, left]
        first = int(running.argmin())
        stopping = self._stop_loss(np.array([node]))[0] if self.ends[node - self.view.root] else np.inf
        return int(self._levels[depth + 1].nodes[children.start + first]) if running[first] < stopping else None

    def _children(self, depth: int, node: int) -> slice | None:
        """Positions of a node's children in the level below; None if it has none."""
        if depth + 1 >= len(self._levels):
            return None
        level = self._levels[depth + 1]
        at = int(np.searchsorted(self._levels[depth].nodes, node))
        group = int(np.searchsorted(level.parents, at))
        if group == len(level.parents) or level.parents[group] != at:
            return None
        return slice(int(level.starts[group]), int(np.append(level.starts, len(level.nodes))[group + 1]))

    # -- the recursion -----------------------------------------------------------------------------------------

    @cached_property
    def _running(self) -> list[FloatArray]:
        """Least expected loss of running each node, by level and by bins of time left when it starts.

        Computed from the last level up. One array of shape (nodes of the level, BINS + 1) per level; the start is not run.
        """
        running: list[FloatArray] = [np.empty((0, BINS + 1))] * len(self._levels)
        for depth in range(len(self._levels) - 1, 0, -1):
            nodes = self._levels[depth].nodes
            stopping = np.where(self.ends[nodes - self.view.root], self._stop_loss(nodes), np.inf)
            below = self._levels[depth + 1] if depth + 1 < len(self._levels) else None
            if below is None:
                running[depth] = self._loss_of_running(nodes, stopping[:, None])
                continue
            running[depth] = np.empty((len(nodes), BINS + 1))
            going_on = np.minimum.reduceat(running[depth + 1], below.starts, axis=0)
            inner = below.parents
            running[depth][inner] = self._loss_of_running(nodes[inner], np.minimum(stopping[inner, None], going_on))
            if len(inner) < len(nodes):  # an irregular trie, or no node further down may be an end
                last = np.setdiff1d(np.arange(len(nodes)), inner)
                running[depth][last] = self._loss_of_running(nodes[last], stopping[last, None])
        return running

    def _loss_of_running(self, nodes: npt.NDArray[np.intp], after: FloatArray) -> FloatArray:
        """Expected loss over the time of the invocation, which is late, or ended by the stop rule, or followed by ``after``.

        ``after`` has shape (nodes, BINS + 1), or (nodes, 1) if nothing follows: then only being in time matters.
        """
        stop = self.view.metrics.annotated.stop[nodes]
        wrong = (stop - self._answers.stopped[nodes])[:, None] if self._counts_answers else 0.0
        arrived = wrong + (1.0 - stop[:, None]) * after
        loss = self._in_time(nodes)
        if arrived.shape[1] == 1:
            loss *= arrived - self._late_loss
        else:
            loss = _convolved(np.diff(loss, axis=1, prepend=0.0), arrived - self._late_loss)
        loss += self._stage_loss(nodes)[:, None] + self._late_loss
        return loss

    # -- losses ------------------------------------------------------------------------------------------------

    @property
    def _counts_answers(self) -> bool:
        return self.view.objective.target == "accuracy"

    @property
    def _late_loss(self) -> float:
        if not self._counts_answers:
            return 1.0
        weight = self.view.objective.late_weight
        return 1.0 + (LATE_WEIGHT if weight is None else weight)

    def _stop_loss(self, nodes: npt.NDArray[np.intp]) -> FloatArray:
        """P(the answer is wrong), given that the stop rule did not end the request at the node."""
        if not self._counts_answers:
            return np.zeros(len(nodes))
        return np.asarray(1.0 - self._answers.right[nodes])

    @cached_property
    def _answers(self) -> AnswerChances:
        """Chances of a correct answer; with ``confidence``, those that give each path the lower end of its interval."""
        return self.view.metrics.answers(self.view.objective.confidence)

    def _stage_loss(self, nodes: npt.NDArray[np.intp]) -> FloatArray:
        target = self.view.objective.target
        if target == "accuracy":
            return np.zeros(len(nodes))
        if target == "cost":
            full = self.view.metrics.mean(Metric.FULL_COST)[self.view.span]
            return np.asarray(self.view.metrics.annotated.cost_usd[nodes] / (float(full.max() - full[0]) or 1.0))
        return np.asarray(self._mean_s(nodes) / self.left_s)

    # -- time --------------------------------------------------------------------------------------------------

    def _mean_s(self, nodes: npt.NDArray[np.intp]) -> FloatArray:
        """Mean seconds of each invocation under the present load."""
        metrics = self.view.metrics
        mean = metrics.annotated.latency_s[nodes]
        if self.view.request.load_s is None:
            return mean
        return np.asarray(mean + self.view.request.load_s[metrics.annotated.engine[nodes]])

    def _in_time(self, nodes: npt.NDArray[np.intp]) -> FloatArray:
        """P(the invocation takes at most so many bins), log-normal. Load scales the standard deviation with the mean."""
        zero_load = self.view.metrics.annotated.latency_s[nodes]
        mean = np.maximum(self._mean_s(nodes), 1e-12)
        relative = self.view.metrics.annotated.latency_var[nodes] / np.maximum(zero_load, 1e-12) ** 2
        sigma = np.sqrt(np.log1p(np.maximum(relative, 0.0)))
        edges = np.log((np.arange(BINS + 1) + 0.5) * self.left_s / BINS)
        gap = edges - (np.log(mean) - sigma**2 / 2)[:, None]
        gap /= np.maximum(sigma, 1e-9)[:, None]
        return normal_cdf(gap)

    @cached_property
    def _levels(self) -> list[Level]:
        """The nodes of the subtree from which an end can be reached, by depth."""
        trie, root = self.view.metrics.trie, self.view.root
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
    """Convolve row by row: the sum over j of chance[j] x arrived[i - j]. Shifted rows are windows of the zero-padded row."""
    padded = np.concatenate((np.zeros_like(arrived[:, 1:]), arrived), axis=1)
    windows = np.lib.stride_tricks.sliding_window_view(padded, arrived.shape[1], axis=1)
    return np.asarray(np.einsum("nij,nj->ni", windows, np.ascontiguousarray(chance[:, ::-1])))
