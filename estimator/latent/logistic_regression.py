"""One question of the latent model: a ridge logistic regression whose rows are (node, grid point) counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy import linalg

from vinelm.estimator.latent.features import START_VARIANCE, FeatureMatrix
from vinelm.trie import FloatArray

Ints = npt.NDArray[np.int64]
VARIANCE_RANGE = (1e-4, 9.0)
PRIOR_EFFECTS = 1.0
"""Effects that the starting variance of a group is worth when its variance is estimated."""
LONGEST_STEP = 3.0


@dataclass(frozen=True)
class Prior:
    """What is thought of a question before any row. ``slope``: mean of its overall slope, logits per standard deviation of
    difficulty; ``slope_variance``: of its overall, per-stage and per-model parts. ``spread`` multiplies the starting variance
    of every group of effects but the level.
    """

    slope: float
    slope_variance: tuple[float, float, float]
    spread: float


ANSWER = Prior(slope=1.5, slope_variance=(0.25, 0.1, 0.1), spread=1.0)
"""Is the answer right: real tables have slopes between 1 and 3."""
VERDICT = Prior(slope=0.0, slope_variance=(0.25, 0.02, 0.02), spread=0.1)
"""Does the request stop, given whether it is right: a check is much alike at every node, and for hard and easy requests."""


@dataclass(eq=False)
class Regression:
    """logit P(yes | node u, grid point g) = effects of u + z_g * slope of u.

    ``coefficients`` holds the effects, then the slopes; ``variance`` each group's prior variance, ``centre`` each coefficient's
    prior mean; ``covariance`` is the Laplace posterior's at the last :meth:`update_variances`.
    """

    effects: FeatureMatrix
    grid: FloatArray
    coefficients: FloatArray
    centre: FloatArray
    group: Ints
    variance: FloatArray
    covariance: FloatArray
    _start_variance: FloatArray
    _is_used: npt.NDArray[np.bool_]
    _factor: Any = None

    @classmethod
    def start(cls, effects: FeatureMatrix, grid: FloatArray, prior: Prior = ANSWER) -> Self:
        """Before any row was seen. ``grid`` holds the points of the latent difficulty (one point: no latent)."""
        of_groups = [START_VARIANCE[name] * (1.0 if name == "level" else prior.spread) for name in effects.groups]
        variance = np.array([*of_groups, *prior.slope_variance])
        group = np.concatenate([effects.group, effects.slope_group + len(effects.groups)])
        centre = np.zeros(len(group))
        centre[len(effects.group)] = prior.slope
        used = np.concatenate([np.asarray(part.sum(axis=0)).ravel() > 0 for part in (effects.design, effects.slope)])
        return cls(effects, grid, centre.copy(), centre, group, variance, np.diag(variance[group]), variance.copy(), used)

    def chances(self, rows: Ints | None = None) -> FloatArray:
        """P(yes), shape (rows, points); all nodes if ``rows`` is None."""
        design, slope = self.effects.design, self.effects.slope
        if rows is not None:
            design, slope = design[rows], slope[rows]
        n_effects = design.shape[1]
        level = design @ self.coefficients[:n_effects]
        return sigmoid(level[:, None] + np.outer(slope @ self.coefficients[n_effects:], self.grid))

    def step(self, rows: Ints, yes: FloatArray, asked: FloatArray) -> None:
        """One Newton step on expected counts of shape (rows, points); shortened where it would overshoot."""
        design, slope = self.effects.design[rows], self.effects.slope[rows]
        chance = self.chances(rows)
        residual, weight = yes - asked * chance, asked * chance * (1.0 - chance)
        precision = 1.0 / self.variance[self.group]
        gradient = np.concatenate([design.T @ residual.sum(axis=1), slope.T @ (residual @ self.grid)])
        gradient -= precision * (self.coefficients - self.centre)
        information = _information(design, slope, weight, self.grid)
        information[np.diag_indices_from(information)] += precision
        self._factor = linalg.cho_factor(information, lower=True, check_finite=False)
        move = linalg.cho_solve(self._factor, gradient, check_finite=False)
        self.coefficients = self.coefficients + move * min(1.0, LONGEST_STEP / max(float(np.abs(move).max()), 1e-12))

    def update_variances(self) -> None:
        """Empirical Bayes by MacKay's fixed point: squared effects over the number of effects that the rows determine."""
        self.covariance = linalg.cho_solve(self._factor, np.eye(len(self.coefficients)), check_finite=False)
        n_groups = len(self.variance)
        squares = np.bincount(self.group, (self.coefficients - self.centre) ** 2 * self._is_used, n_groups)
        share = (1.0 - np.diag(self.covariance) / self.variance[self.group]) * self._is_used
        determined = np.maximum(np.bincount(self.group, share, n_groups), 0.0)
        fresh = (squares + PRIOR_EFFECTS * self._start_variance) / (determined + PRIOR_EFFECTS)
        n_learned = len(self.effects.groups)  # the slopes' variances stay: freed, the latent trait could change its sign
        self.variance = np.where(np.arange(n_groups) < n_learned, np.clip(fresh, *VARIANCE_RANGE), self.variance)


def _information(design: Any, slope: Any, weight: FloatArray, grid: FloatArray) -> FloatArray:
    """X' W X for the columns [design, grid * slope], summed over the grid."""
    flat, steep = design.toarray(), slope.toarray()
    level, cross, square = weight.sum(axis=1), weight @ grid, weight @ grid**2
    corner = flat.T @ (cross[:, None] * steep)
    return np.block([[flat.T @ (level[:, None] * flat), corner], [corner.T, steep.T @ (square[:, None] * steep)]])


def sigmoid(logit: FloatArray) -> FloatArray:
    """1 / (1 + exp(-x)), without overflow."""
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * logit)), dtype=np.float64)
