"""Ridge logistic regression on counts by node and grid point; the latent model has one regression for each question."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy import linalg

from vinelm.estimator.latent.features import START_VARIANCE, FeatureMatrix
from vinelm.trie.arrays import FloatArray

Ints = npt.NDArray[np.int64]
VARIANCE_RANGE = (1e-4, 9.0)
PRIOR_EFFECTS = 1.0
"""The pseudo-effects with the initial variance that count when a group's variance is estimated."""
LONGEST_STEP = 3.0


@dataclass(frozen=True)
class Prior:
    """The prior of one regression, which predicts the answer to a yes/no question such as "is the answer right".

    Args:
        slope: mean of the overall slope, in logits per standard deviation of difficulty.
        slope_variance: variances of the overall, per-stage and per-model slopes.
        spread: the factor by which the initial variance of every group of effects except ``level`` is multiplied.
    """

    slope: float
    slope_variance: tuple[float, float, float]
    spread: float


ANSWER = Prior(slope=1.5, slope_variance=(0.25, 0.1, 0.1), spread=1.0)
"""The prior for "is the answer right": recorded tables have slopes between 1 and 3."""
VERDICT = Prior(slope=0.0, slope_variance=(0.25, 0.02, 0.02), spread=0.1)
"""The prior for "does the request stop": a check behaves similarly at every node and for hard and easy requests."""
ARM = Prior(slope=0.0, slope_variance=(0.25, 0.5, 0.25), spread=1.0)
"""The prior for "is this branch taken": hard requests may take other branches than easy ones, differently for each model."""


@dataclass(eq=False)
class Regression:
    """The fitted model of one yes-or-no question: logit P(yes | node u, difficulty z) = effects of u + z * slope of u.

    The latent difficulties z are the values of ``grid``.

    Args:
        features: the design of effects and slopes.
        grid: values z_g of the latent difficulty, shape (points,).
        coefficients: effects, then slopes.
        prior_mean: prior mean of each coefficient.
        group: group of each coefficient, an index into ``variance``.
        variance: prior variance of each group.
        covariance: Laplace posterior covariance of the coefficients at the last :meth:`update_variances`.
    """

    features: FeatureMatrix
    grid: FloatArray
    coefficients: FloatArray
    prior_mean: FloatArray
    group: Ints
    variance: FloatArray
    covariance: FloatArray
    _start_variance: FloatArray
    _is_used: npt.NDArray[np.bool_]
    _factor: Any = None

    @classmethod
    def start(cls, features: FeatureMatrix, grid: FloatArray, prior: Prior = ANSWER) -> Self:
        """Return the regression before any observation; a ``grid`` of one point means no latent difficulty."""
        of_groups = [START_VARIANCE[name] * (1.0 if name == "level" else prior.spread) for name in features.groups]
        variance = np.array([*of_groups, *prior.slope_variance])
        group = np.concatenate([features.group, features.slope_group + len(features.groups)])
        prior_mean = np.zeros(len(group))
        prior_mean[len(features.group)] = prior.slope
        used = np.concatenate([np.asarray(part.sum(axis=0)).ravel() > 0 for part in (features.design, features.slope)])
        return cls(
            features, grid, prior_mean.copy(), prior_mean, group, variance, np.diag(variance[group]), variance.copy(), used
        )

    def probabilities(self, at: FeatureMatrix | None = None) -> FloatArray:
        """Return the probability that the question is answered with yes, for each row of ``at`` and each grid point.

        The result has the shape (rows, points). If ``at`` is None, the rows are those of :attr:`features`.
        """
        design, slope = (self.features.design, self.features.slope) if at is None else at.dense
        n_effects = design.shape[1]
        level = design @ self.coefficients[:n_effects]
        return sigmoid(level[:, None] + np.outer(slope @ self.coefficients[n_effects:], self.grid))

    def step(self, at: FeatureMatrix, yes: FloatArray, asked: FloatArray) -> None:
        """Take one Newton step, shortened to :data:`LONGEST_STEP`.

        Args:
            at: the features of the rows with results.
            yes: the expected number of results that answer the question with yes, shape (rows, grid points).
            asked: the expected number of results that answer the question, with yes or no; same shape.
        """
        probability = self.probabilities(at)
        residual, weight = yes - asked * probability, asked * probability * (1.0 - probability)
        precision = 1.0 / self.variance[self.group]
        design, slope = at.dense
        gradient = np.concatenate([residual.sum(axis=1) @ design, (residual @ self.grid) @ slope])
        gradient -= precision * (self.coefficients - self.prior_mean)
        # X' W X for the columns [design, grid * slope], summed over the grid. The prior makes it positive definite even if an
        # effect was never observed.
        level, cross, square = weight.sum(axis=1), weight @ self.grid, weight @ self.grid**2
        information, n_effects = np.diag(precision), design.shape[1]
        information[:n_effects, :n_effects] += design.T @ (level[:, None] * design)
        information[n_effects:, n_effects:] += slope.T @ (square[:, None] * slope)
        information[n_effects:, :n_effects] = slope.T @ (cross[:, None] * design)  # the other half is not read
        self._factor = linalg.cho_factor(information, lower=True, check_finite=False)
        move = linalg.cho_solve(self._factor, gradient, check_finite=False)
        # If probabilities are near 0 or 1 the curvature vanishes, and a full step would go much too far.
        self.coefficients = self.coefficients + move * min(1.0, LONGEST_STEP / max(float(np.abs(move).max()), 1e-12))

    def update_variances(self) -> None:
        """Update each group's variance by MacKay's fixed-point rule.

        The variance becomes the sum of the squared effects divided by the number of well-determined effects.
        """
        self.covariance = linalg.cho_solve(self._factor, np.eye(len(self.coefficients)), check_finite=False)
        n_groups = len(self.variance)
        squares = np.bincount(self.group, (self.coefficients - self.prior_mean) ** 2 * self._is_used, n_groups)
        # The part of each effect that the observations determine, rather than its prior.
        share = (1.0 - np.diag(self.covariance) / self.variance[self.group]) * self._is_used
        determined = np.maximum(np.bincount(self.group, share, n_groups), 0.0)
        fresh = (squares + PRIOR_EFFECTS * self._start_variance) / (determined + PRIOR_EFFECTS)
        n_learned = len(self.features.groups)  # slope variances stay fixed: otherwise the latent trait could change sign
        self.variance = np.where(np.arange(n_groups) < n_learned, np.clip(fresh, *VARIANCE_RANGE), self.variance)


def sigmoid(logit: FloatArray) -> FloatArray:
    """Return 1 / (1 + exp(-logit)) without overflow, elementwise."""
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * logit)), dtype=np.float64)
