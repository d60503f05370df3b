"""Requests of unlike difficulty: a latent trait on a grid with free weights, fitted by EM over requests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vinelm.estimator.cells import Cells
from vinelm.estimator.effects import Effects
from vinelm.estimator.heads import Head, heads_of
from vinelm.estimator.logistic import Regression
from vinelm.trie import FloatArray

Ints = npt.NDArray[np.int64]
GRID_END = 2.5
WEIGHT_PRIOR = 1.0
"""Requests per grid point that the standard normal shape of the weights is worth."""


@dataclass(frozen=True, eq=False)
class Mixture:
    """A fitted latent model: ``posterior`` has shape (requests, points), ``chances`` one (n + 1, points) array per head.

    ``regressions`` has None for a head whose answer never varied (or was never asked).
    """

    posterior: FloatArray
    grid: FloatArray
    chances: tuple[FloatArray, FloatArray, FloatArray]
    regressions: tuple[Regression | None, ...]


def fit_mixture(cells: Cells, *, n_points: int, iterations: int) -> Mixture:
    """EM: each turn one Newton step per head, then each request's weights over the grid. One point means no latent trait."""
    grid = np.linspace(-GRID_END, GRID_END, n_points) if n_points > 1 else np.zeros(1)
    normal = np.exp(-0.5 * grid**2) / np.exp(-0.5 * grid**2).sum()
    effects = Effects.of(cells.trie)
    parts = [_Part.of(head, cells, effects, grid) for head in heads_of(cells)]
    weights = normal
    posterior = _posterior(parts, weights, cells.n_requests)  # the slopes' prior breaks the symmetry of the grid
    for turn in range(iterations):
        for part in parts:
            part.learn(posterior, with_variances=turn >= 2)
        posterior = _posterior(parts, weights, cells.n_requests)
        prior = WEIGHT_PRIOR * n_points
        weights = (posterior.sum(axis=0) + prior * normal) / (cells.n_requests + prior)
    first, second, third = (part.chances(len(cells.trie), n_points) for part in parts)
    return Mixture(posterior, grid, (first, second, third), tuple(part.regression for part in parts))


@dataclass(eq=False)
class _Part:
    """A head, its cells sorted by node, and its regression."""

    request: Ints
    yes: npt.NDArray[np.bool_]
    rows: Ints
    starts: Ints
    row_of_cell: Ints
    regression: Regression | None
    constant: float

    @classmethod
    def of(cls, head: Head, cells: Cells, effects: Effects, grid: FloatArray) -> _Part:
        asked = np.flatnonzero(head.asked)
        yes = head.yes[asked]
        rows, starts, row_of_cell = np.unique(cells.node[asked], return_index=True, return_inverse=True)
        # all yes or all no: nothing to learn; the oracle's last two heads are of this kind
        varies = len(yes) > 0 and not (yes.all() or not yes.any())
        if varies or head.name == "stop":
            return cls(cells.request[asked], yes, rows, starts, row_of_cell, Regression.start(effects, grid), 0.0)
        constant = float(yes[0]) if len(yes) else float(head.name == "right_if_stop")
        return cls(cells.request[asked], yes, rows, starts, row_of_cell, None, constant)

    def learn(self, posterior: FloatArray, *, with_variances: bool) -> None:
        if self.regression is None:
            return
        weight = posterior[self.request]
        asked = np.add.reduceat(weight, self.starts, axis=0)
        yes = np.add.reduceat(weight * self.yes[:, None], self.starts, axis=0)
        self.regression.step(self.rows, yes, asked)
        if with_variances:
            self.regression.update_variances()

    def log_likelihood(self) -> FloatArray | None:
        """Of each cell at each grid point, shape (cells, points)."""
        if self.regression is None:
            return None
        chance = np.clip(self.regression.chances(self.rows), 1e-12, 1.0 - 1e-12)
        return np.where(self.yes[:, None], np.log(chance)[self.row_of_cell], np.log1p(-chance)[self.row_of_cell])

    def chances(self, size: int, n_points: int) -> FloatArray:
        return np.full((size, n_points), self.constant) if self.regression is None else self.regression.chances()


def _posterior(parts: list[_Part], weights: FloatArray, n_requests: int) -> FloatArray:
    log = np.tile(np.log(weights), (n_requests, 1))
    for part in parts:
        terms = part.log_likelihood()
        if terms is not None:
            np.add.at(log, part.request, terms)
    relative = np.exp(log - log.max(axis=1, keepdims=True))
    return np.asarray(relative / relative.sum(axis=1, keepdims=True))
