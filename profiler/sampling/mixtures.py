"""Finds the answers that are expected to change the best mixtures of models most per dollar, for requests of a single call."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from vinelm.trie.arrays import FloatArray

BUDGETS = 9
"""How many budgets the value of mixtures is averaged over, from the cheapest model's dollars to the most expensive one's."""
AT_ONCE = (1, 2, 4, 8, 16)
"""How many further answers of a model are considered at a time; a single one can rarely change what is best."""
PRIOR = 2.0
"""The weight, in answers, of the mean accuracy of all models."""
STEPS = 500
"""The number of steps of an accuracy, for computing the chance that a model is the most accurate."""
MOST_PENDING = 64
"""The most answers of one model in a round, since all of them are chosen before any is seen."""
LEAST_GAIN = 1e-9
"""The least expected gain in accuracy per mean price; if no answer is expected to gain more, other purposes get the dollars."""


class Mixtures:
    """Computes the best accuracy that a mixture of two models reaches under several budgets, from the models' accuracies.

    A mixture answers a share of the requests with one model, and the other requests with a more expensive model.

    Args:
        usd: The cost of an answer of each model, in dollars, > 0; shape (models,).
    """

    def __init__(self, usd: Sequence[float]) -> None:
        self.usd = np.asarray(usd, np.float64)
        self._budgets = np.geomspace(self.usd.min(), self.usd.max(), BUDGETS)

    def value(self, accuracy: FloatArray) -> FloatArray:
        """Return the accuracy of the best mixture of two models, averaged over several budgets per request.

        The budgets lie between the prices of the cheapest and of the most expensive model.

        Args:
            accuracy: The accuracy of each model; shape (..., models).
        """
        total = np.zeros(accuracy.shape[:-1])
        for budget in self._budgets:
            within = self.usd <= budget * (1.0 + 1e-9)
            best = accuracy[..., within].max(axis=-1)
            low, high = np.flatnonzero(within), np.flatnonzero(~within)
            if len(high):
                share = (budget - self.usd[low])[:, None] / (self.usd[high][None, :] - self.usd[low][:, None])
                share = np.clip(share, 0.0, 1.0)
                mixed = (1.0 - share) * accuracy[..., low, None] + share * accuracy[..., None, high]
                best = np.maximum(best, mixed.max(axis=(-2, -1)))
            total += best
        return total / len(self._budgets)


def posterior(right: Sequence[float], asked: Sequence[int]) -> tuple[FloatArray, FloatArray]:
    """Return the parameters alpha and beta of the Beta posterior of each model's accuracy; each has the shape (models,).

    Args:
        right: The number of right answers of each model, or the sum of its scores; shape (models,).
        asked: The number of answers of each model; shape (models,).
    """
    r, n = np.asarray(right, np.float64), np.asarray(asked, np.float64)
    known = n > 0
    mean = float(np.clip((r[known] / n[known]).mean(), 0.02, 0.98)) if known.any() else 0.5
    return r + PRIOR * mean, n - r + PRIOR * (1.0 - mean)


def chances_to_be_strongest(right: Sequence[float], asked: Sequence[int]) -> FloatArray:
    """Return each model's probability of being the most accurate. The arguments are those of :func:`posterior`."""
    from scipy.special import betainc  # the import takes a tenth of a second, and few commands need it

    a, b = posterior(right, asked)
    edges = np.linspace(0.0, 1.0, STEPS + 1)
    below = betainc(a[:, None], b[:, None], edges)
    middle = (below[:, 1:] + below[:, :-1]) / 2.0
    # P(this model is in a step, and all others are below it): products of all but one, without a division by zero.
    others = np.stack([np.delete(middle, model, axis=0).prod(axis=0) for model in range(len(a))])
    chance = (np.diff(below) * others).sum(axis=1)
    return np.asarray(chance / chance.sum())


class Gains:
    """The expected gain in the best mixtures' accuracy from further answers: the knowledge gradient of independent Beta
    posteriors.

    Args:
        mixtures: Computes the value of the mixtures.
        right: The number of right answers of each model, or the sum of its scores; shape (models,).
        asked: The number of answers of each model; shape (models,).
    """

    def __init__(self, mixtures: Mixtures, right: Sequence[float], asked: Sequence[int]) -> None:
        self._mixtures = mixtures
        self._a, self._b = posterior(right, asked)
        self._mean = self._a / (self._a + self._b)
        self._value = float(mixtures.value(self._mean))
        self._of = lru_cache(maxsize=None)(self._expected)

    def of(self, model: int, answers: int) -> float:
        """Return the expected gain in accuracy from ``answers`` further answers of the model with the index ``model``."""
        return self._of(model, answers) if answers else 0.0

    def _expected(self, model: int, n: int) -> float:
        from scipy.special import betaln, gammaln  # the import takes a tenth of a second, and few commands need it

        a, b, k = self._a[model], self._b[model], np.arange(n + 1)
        chance = np.exp(
            gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1) + betaln(k + a, n - k + b) - betaln(a, b)
        )  # of k right answers (beta-binomial)
        after = np.tile(self._mean, (n + 1, 1))
        after[:, model] = (a + k) / (a + b + n)
        return float((chance * self._mixtures.value(after)).sum() / chance.sum()) - self._value


def purchases(gains: Gains, usd: Sequence[float], open_: Sequence[int], round_usd: float, left_usd: float) -> list[int]:
    """Return, for each answer to buy, the index of the model: best gain per dollar first, until the round's budget is spent.

    Args:
        gains: The expected gains.
        usd: The cost of an answer of each model, in dollars, > 0.
        open_: For each model, the number of requests that it has not answered.
        round_usd: The dollars to spend in the round; the last purchase may exceed them.
        left_usd: The total budget left in dollars, which no purchase exceeds.
    """
    pending, found, spent = [0] * len(usd), list[int](), 0.0
    scale = min(usd)
    while spent < round_usd:
        best, chosen = LEAST_GAIN, None
        for model, price in enumerate(usd):
            for n_answers in AT_ONCE:
                after = pending[model] + n_answers
                if after > min(open_[model], MOST_PENDING) or spent + n_answers * price > left_usd:
                    break
                rate = (gains.of(model, after) - gains.of(model, pending[model])) * scale / (n_answers * price)
                if rate > best:
                    best, chosen = rate, (model, n_answers)
        if chosen is None:
            break
        model, n_answers = chosen
        pending[model] += n_answers
        spent += n_answers * usd[model]
        found += [model] * n_answers
    return found
