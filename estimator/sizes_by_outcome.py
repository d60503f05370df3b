"""Estimates the mean size of the requests that reach each node. Requests with many calls are often larger."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from vinelm.estimator.observation_table import ObservationTable
from vinelm.estimator.shrinkage import pooled_mean
from vinelm.trie.arrays import FloatArray

Ints = npt.NDArray[np.int64]
EASE_WEIGHT = 1.0
"""The prior precision of a request's tendency to continue, on the logit scale."""
TREND_WEIGHT = 5.0
"""Pseudo-requests that shrink the effect of stops on size: over all depths towards none, at one depth towards all depths."""
KIND_WEIGHT = 20.0
"""Pseudo-requests that shrink the size of requests that continue after one depth x model towards the size that its stop rate
implies."""
DEPTH_WEIGHT = 100.0
"""Pseudo-results that shrink the correction by the sizes observed at a depth, because the mean of few sizes is uncertain."""
SMALLEST, LARGEST = 0.2, 5.0
TINY = 1e-9


class SizesByOutcome(Protocol):
    """Predicts the size of a request from its outcomes. A single number, the slope, says how strongly log size depends on them.

    The size is the factor by which a request's calls cost or take more than those of the mean request.
    """

    @property
    def unseen(self) -> FloatArray | None:
        """Expected number of requests that reach each node without a result there, shape (nodes,).

        None if costs and seconds are predicted even at nodes with results.
        """

    def expected(self, slope: float) -> tuple[FloatArray, FloatArray]:
        """Return each request's expected size, and the derivative of this size by ``slope``; shape (requests,) each.

        The size is the factor by which the request's calls cost or take more than those of the mean request, so its mean is 1.
        """

    def reaching(self, slope: float, factor: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the mean size of the requests that reach each node, and the derivative of this mean's logarithm by ``slope``.

        A request's size is the factor by which its calls cost or take more than those of the mean request.

        If :attr:`unseen` is given, this is the mean over only the requests without a result at the node, otherwise over all
        requests.

        Args:
            slope: how strongly the logarithm of the size depends on outcomes, as fitted.
            factor: estimated size of each request, shape (requests,).

        Returns:
            Arrays of shape (nodes,).
        """


@dataclass(frozen=True, eq=False)
class SizesByDifficulty:
    """Size as a function of the latent difficulty: E[size | outcomes] = sum over z of P(z | outcomes) exp(slope z) / norm.

    Args:
        posterior: the probability of each latent difficulty for each request, shape (requests, points).
        grid: the latent difficulties z, shape (points,).
        mass: expected number of requests of each latent difficulty that reach each node, shape (nodes, points). If ``unseen``
            is given, only unobserved requests count.
        unseen: see :class:`SizesByOutcome`.
    """

    posterior: FloatArray
    grid: FloatArray
    mass: FloatArray
    unseen: FloatArray | None = None

    def expected(self, slope: float) -> tuple[FloatArray, FloatArray]:
        """Return each request's expected size and the derivative of this size by ``slope``.

        See :meth:`SizesByOutcome.expected`.
        """
        of_point, change = self._of_points(slope)
        return self.posterior @ of_point, self.posterior @ change

    def reaching(self, slope: float, factor: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the mean size of the requests at each node, and the derivative of this mean's logarithm by ``slope``.

        See :meth:`SizesByOutcome.reaching`.
        """
        of_point, change = self._of_points(slope)
        own = self.posterior.T @ (factor - self.posterior @ of_point) / np.maximum(self.posterior.sum(axis=0), TINY)
        weight = self.mass + TINY * self.posterior.mean(axis=0)
        total = weight.sum(axis=1)
        mean = np.clip(weight @ (of_point + own) / total, SMALLEST, LARGEST)
        return mean, weight @ change / total / mean

    def _of_points(self, slope: float) -> tuple[FloatArray, FloatArray]:
        share = self.posterior.mean(axis=0)
        raw = np.exp(slope * self.grid)
        size = raw / (share @ raw)
        return size, size * (self.grid - share @ (size * self.grid))


@dataclass(frozen=True, eq=False)
class SizesByStops:
    """Sizes of requests estimated from stops, without a model of difficulty: a factor for each call, multiplied along the path.

    The requests that continue at a node are, by some factor, larger or smaller than the requests that reach it. The factor is
    estimated per depth x model from the sizes expected from outcomes, and shrunk towards 1 + k m(s). Here, s is the stop rate,
    k is a number per depth, and m is the inverse Mills ratio: if the share s of requests with the lowest values of a standard
    normal trait stops, the others have the mean m(s). The products are then scaled, per depth, to the sizes of the requests
    observed there, which are a random sample of the requests that continued.

    Args:
        unseen: see :class:`SizesByOutcome`.
    """

    cells: ObservationTable
    unseen: FloatArray | None = None

    def expected(self, slope: float) -> tuple[FloatArray, FloatArray]:
        """Return each request's expected size and its derivative by the slope; see :meth:`SizesByOutcome.expected`."""
        raw = np.exp(slope * self._persistence)
        size = raw / raw.mean()
        return size, size * (self._persistence - (size * self._persistence).mean())

    def reaching(self, slope: float, factor: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return two arrays over the nodes: the mean size of all requests that reach each node, and zeros.

        The zeros stand for the derivatives that :meth:`SizesByOutcome.reaching` returns.
        """
        trie, cells = self.cells.trie, self.cells
        of_node, n_of_depth = trie.kinds
        kind, n_kinds = trie.depth.astype(np.int64) * n_of_depth + of_node, (trie.max_depth + 1) * n_of_depth  # depth x model
        depth = np.arange(n_kinds) // n_of_depth
        stop = np.zeros(n_kinds)
        stop[kind] = self._stop
        here, goes_on, size = kind[cells.node], ~cells.stop, self.expected(slope)[0]
        even = np.bincount(here, size[cells.request], n_kinds) * (1.0 - stop)  # going on, were size and stop independent
        actual = np.bincount(here, size[cells.request] * goes_on, n_kinds)
        inner = np.clip(stop, TINY, 1.0 - TINY)  # the mean of a standard normal above the quantile of the share that stops:
        mills = np.where(stop > 0.0, np.exp(-0.5 * ndtri(inner) ** 2) / np.sqrt(2.0 * np.pi) / (1.0 - inner), 0.0)
        everywhere = (actual - even).sum() / ((even * mills).sum() + TREND_WEIGHT)
        more, trend = np.bincount(depth, actual - even), np.bincount(depth, even * mills)
        of_depth = (more + TREND_WEIGHT * everywhere) / (trend + TREND_WEIGHT)
        grows = (actual + KIND_WEIGHT * (1.0 + of_depth[depth] * mills)) / (even + KIND_WEIGHT)
        of_node = np.bincount(cells.node, factor[cells.request], len(trie))
        mean = np.ones(len(trie))
        going = np.bincount(cells.node, goes_on, len(trie)) + TINY
        for level, edges in zip(trie.levels[2:], trie.edge_levels[1:], strict=True):
            above, below = trie.source[edges], trie.target[edges]  # of several nodes before one the mean over who goes on
            grown = going[above] * np.maximum(mean[above] * grows[kind[above]], SMALLEST)
            chained = (np.bincount(below, grown, len(trie)) / np.bincount(below, going[above], len(trie)).clip(TINY))[level]
            told = (of_node[level].sum() + DEPTH_WEIGHT) / (cells.count[level] @ chained + DEPTH_WEIGHT)
            mean[level] = np.clip(chained * told, SMALLEST, LARGEST)
        return mean, np.zeros(len(trie))

    @cached_property
    def _stop(self) -> FloatArray:
        """The stop rate of each node, estimated from all nodes of its depth and model; inside (0, 1), shape (nodes,)."""
        cells = self.cells
        stops = np.bincount(cells.node, cells.stop, len(cells.trie))
        return np.clip(pooled_mean(cells.trie, stops, cells.count, prior=0.5), 0.001, 0.999)

    @cached_property
    def _persistence(self) -> FloatArray:
        """Each request's tendency to continue on the logit scale, shape (requests,).

        It is higher if the request continued more often than the stop rates of its nodes predict. Estimated by one Newton step.
        """
        cells = self.cells
        stop = self._stop[cells.node]
        surprise = np.bincount(cells.request, stop - cells.stop, cells.n_requests)
        information = np.bincount(cells.request, stop * (1.0 - stop), cells.n_requests)
        return np.asarray(surprise / (information + EASE_WEIGHT))
