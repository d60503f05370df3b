"""A judge's agreement with labels: sensitivity, specificity, and the correction that follows from them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from vinelm.errors import ConfigError
from vinelm.plans.promise import Z90
from vinelm.trie.arrays import FloatArray

Z95 = 1.959963984540054
"""The normal quantile of the two-sided 95 % interval that must show that a judge is better than chance."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate such as a judge's sensitivity, measured on requests, with a standard error that is never 0.

    Attributes:
        share: The rate, in [0, 1]: the mean of one share per request, such as the share of its verdicts that are correct.
        requests: The number of these requests.
    """

    share: float
    requests: int

    @classmethod
    def of(cls, shares: Iterable[float]) -> Self:
        """Return the rate that is the mean of ``shares``, one share for each request. Without requests, the mean is 1/2."""
        found = list(shares)
        return cls(math.fsum(found) / len(found) if found else 0.5, len(found))

    @property
    def variance(self) -> float:
        """The variance of :attr:`share`, by the Beta distribution that follows from Jeffreys' prior and the requests' shares.

        Each request counts once, however many results it has. If anything, the variance is too large.
        """
        mean = (self.share * self.requests + 0.5) / (self.requests + 1.0)
        return mean * (1.0 - mean) / (self.requests + 2.0)

    def interval(self) -> tuple[float, float]:
        """Return the 90 % interval of :attr:`share`, by the Beta distribution from which :attr:`variance` is computed."""
        from scipy.stats import beta

        right = self.share * self.requests
        low, high = beta.ppf((0.05, 0.95), right + 0.5, self.requests - right + 0.5)
        return float(low), float(high)


@dataclass(frozen=True, slots=True)
class JudgeAgreement:
    """The shares of right answers and of wrong answers that a judge classifies correctly, measured on labels.

    Let v be the sensitivity and w the specificity. If a share p of answers is right, the judge calls a share q = v p + (1 - w)
    (1 - p) correct. So p = (q + w - 1) / (v + w - 1) (Rogan and Gladen, 1978). The judge's errors are assumed not to depend on
    the path.

    Attributes:
        requests: Number of requests with a labelled result.
        rows: Number of labelled results with a verdict.
        agreed: Share of the results whose verdict agrees with the label; each request counts once.
        sensitivity: P(verdict correct | the answer is right).
        specificity: P(verdict wrong | the answer is wrong).
    """

    requests: int
    rows: int
    agreed: float
    sensitivity: Rate
    specificity: Rate

    @classmethod
    def of(cls, found: Iterable[tuple[str, bool, bool]]) -> Self:
        """Compute the agreement from (request id, verdict, truth) of each labelled result.

        Verdict and truth are whether the answer is right, according to the judge and according to the label.
        """
        right: dict[str, list[bool]] = {}
        wrong: dict[str, list[bool]] = {}
        every: dict[str, list[bool]] = {}
        for request_id, verdict, truth in found:
            (right if truth else wrong).setdefault(request_id, []).append(verdict == truth)
            every.setdefault(request_id, []).append(verdict == truth)
        agreed = Rate.of(map(_mean, every.values()))
        rows = sum(map(len, every.values()))
        return cls(len(every), rows, agreed.share, Rate.of(map(_mean, right.values())), Rate.of(map(_mean, wrong.values())))

    @property
    def false_share(self) -> float:
        """The share of wrong answers that the judge calls correct, in [0, 1]."""
        return 1.0 - self.specificity.share

    @property
    def informedness(self) -> float:
        """Sensitivity + specificity - 1: 1 for a judge that never errs, 0 for a judge that guesses."""
        return self.sensitivity.share + self.specificity.share - 1.0

    def require(self) -> None:
        """Raise :class:`ConfigError` unless, by the labels, the judge distinguishes right from wrong answers."""
        error = math.sqrt(self.sensitivity.variance + self.specificity.variance)
        if self.informedness - Z95 * error > 0.0:
            return
        n_right, n_wrong = self.sensitivity.requests, self.specificity.requests
        raise ConfigError(
            f"the judge does not agree with the labels: it calls {_percent(self.sensitivity.share)} of right answers correct "
            f"({n_right} requests) and {_percent(self.false_share)} of wrong ones ({n_wrong} requests), which guessing may "
            "do as well: mend the rubric, take another model, or label more requests",
            code="judge-disagrees",
        )

    def corrected(self, verdicts: Any, judged: Any = 1.0) -> FloatArray:
        """Return the share of requests with a right answer, in [0, 1], given the share that the judge calls correct.

        Args:
            verdicts: Shares of requests whose answer the judge calls correct, of any shape.
            judged: Shares of requests with an answer for the judge (1: all); other requests are known to be wrong.
        """
        share = (np.asarray(verdicts, np.float64) - self.false_share * np.asarray(judged)) / self.informedness
        return np.clip(share, 0.0, 1.0)

    def variance_at(self, accuracy: Any) -> FloatArray:
        """Return the variance that errors of the sensitivity and specificity add to corrected shares (delta method).

        Args:
            accuracy: The corrected shares of right answers, of any shape.
        """
        accuracy = np.asarray(accuracy, np.float64)
        by_sensitivity = accuracy**2 * self.sensitivity.variance
        by_specificity = (1.0 - accuracy) ** 2 * self.specificity.variance
        return np.asarray((by_sensitivity + by_specificity) / self.informedness**2)

    def half_width(self, accuracy: float, half_width: float) -> float:
        """Return the half width of the 90 % interval of a corrected accuracy.

        Args:
            accuracy: The corrected accuracy.
            half_width: The half width of the 90 % interval of the share of "correct" verdicts.
        """
        own = Z90**2 * float(self.variance_at(accuracy))
        return math.sqrt((half_width / self.informedness) ** 2 + own)

    def to_dict(self) -> dict[str, Any]:
        """Return the agreement as plain JSON types.

        Sensitivity and specificity are [share, low, high], with the 90 % interval.
        """
        return {
            "labels": self.requests,
            "labelled_rows": self.rows,
            "agreement": self.agreed,
            "sensitivity": [self.sensitivity.share, *self.sensitivity.interval()],
            "specificity": [self.specificity.share, *self.specificity.interval()],
        }


def _mean(values: list[bool]) -> float:
    return sum(values) / len(values)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
