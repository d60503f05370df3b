"""Computes the mean of scores with a confidence interval, and whether the recorded results suffice for an estimate.

They suffice if no statistical model is needed for the mean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit

from vinelm.evaluation.off_policy.scores import Scores
from vinelm.trie.arrays import FloatArray

LEAST_EFFECTIVE = 8.0
"""With a smaller effective number of requests no statement is made."""
LEAST_FREEDOM = 4.0
"""The least degrees of freedom of an interval, if there are as many requests."""
MOST_UNSUPPORTED = 0.05
"""If more than this share of requests reach a step that nobody bought, the value is not identified."""


class HalfScores(NamedTuple):
    """The scores of a policy on one part of the requests, and of a reference policy on the same requests (None without
    a reference).
    """

    policy: Scores
    reference: Scores | None = None

    @property
    def unlike(self) -> float:
        """The share of the compared budgets under which the policy and its reference have different scores.

        The value is 0 or 1 if only one budget is compared, and 1 without a reference. If it is 0, the difference of the
        two policies is exactly 0.
        """
        return 1.0 if self.reference is None else self.policy.share_unlike(self.reference)


@dataclass(frozen=True, kw_only=True)
class OffPolicyEstimate:
    """The mean of a policy's scores over requests, or of its gain over another policy, with a confidence interval.

    Attributes:
        value: The estimate, in the unit of the scores.
        standard_error: The standard error of the value.
        low, high: The ends of the interval. The interval is widened by ``unsupported`` times the largest possible
            error of one request.
        effective: Effective number of requests, (sum w)^2 / sum w^2, where w are the weights of the requests that
            followed the policies to the end.
        unsupported: Share of requests that reach a step for which no result was recorded.
        is_identified: Whether the recorded results suffice. If not, ``value`` relies on the statistical model, and the
            interval means nothing.
        is_same: Whether both compared policies make the same choices, so that the difference is exactly 0.
    """

    value: float
    standard_error: float
    low: float
    high: float
    effective: float
    unsupported: float
    is_identified: bool
    is_same: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the estimate as plain JSON types; the interval is None if the recorded results do not suffice
        (``is_identified`` is False).
        """
        return {
            "value": self.value,
            "standard_error": self.standard_error if self.is_identified else None,
            "interval": [self.low, self.high] if self.is_identified else None,
            "effective_requests": self.effective,
            "unsupported": self.unsupported,
            "is_identified": self.is_identified,
            "is_same": self.is_same,
        }


def estimate_mean(
    halves: Sequence[HalfScores], target: str, *, level: float = 0.95, bound: float | None = None
) -> OffPolicyEstimate:
    """Return the mean of a policy's scores, or of its paired differences from a reference, with a confidence interval.

    Each part of the requests has a separate policy, so scores are centred within each part. Requests that were not drawn
    may vary more than the drawn requests. For this, an allowance is added to the sum of squared residuals. It is the larger
    of two: one more request that changes by ``bound``, or two more requests like those that vary most.

    The interval uses Student's quantile. Its degrees of freedom are the number of requests that vary, estimated from the
    scores' fourth moment.

    Args:
        halves: One item for each part of the requests.
        target: The averaged quantity: ``accuracy``, ``cost`` or ``latency`` (the last two negated, see
            :meth:`Scores.utility`).
        level: Confidence level in (0, 1).
        bound: The most that one request can change the sum in either direction, 1 for ``accuracy``. None means that no
            maximum is known; the interval then has no allowance.
    """
    found = moments(halves, target, bound)
    if found is None:
        n = sum(len(half.policy) for half in halves)
        return OffPolicyEstimate(
            value=0.0, standard_error=0.0, low=0.0, high=0.0, effective=float(n), unsupported=0.0, is_identified=True,
            is_same=True,
        )  # fmt: skip
    reach = found.reach(0.5 + level / 2.0)
    return OffPolicyEstimate(
        value=found.value, standard_error=found.standard_error, low=found.value - reach, high=found.value + reach,
        effective=found.effective, unsupported=found.unsupported, is_identified=found.is_identified,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Moments:
    """The mean of the requests' scores, and the sums from which its confidence interval is computed.

    The requests are divided into folds.

    Attributes:
        value: The mean.
        residuals: For each request, the part of its score that neither the mean score of its fold nor a regression explains;
            shape (requests,).
        square, fourth: The sums of the residuals' second and fourth powers. Both are increased if ``bound`` is known; see
            :func:`estimate_mean`.
        effective, unsupported: See :class:`OffPolicyEstimate`.
        heaviest: The largest weight of a single request in the sum of the scores; infinite if no request of some fold followed
            the policies.
        bound: The most that one request can change the sum; 0 if no maximum is known.
    """

    value: float
    residuals: FloatArray
    square: float
    fourth: float
    effective: float
    unsupported: float
    heaviest: float
    bound: float

    @property
    def is_identified(self) -> bool:
        """Whether the recorded rows suffice to estimate the mean (:attr:`value`) without the statistical model."""
        return self.effective >= LEAST_EFFECTIVE and self.heaviest < math.inf and self.unsupported <= MOST_UNSUPPORTED

    @property
    def standard_error(self) -> float:
        """The standard error of the mean, :attr:`value`."""
        return math.sqrt(self.square) / len(self.residuals)

    def quantile(self, share: float) -> float:
        """Return the quantile of Student's distribution at probability ``share``.

        The degrees of freedom are an effective number of requests, estimated from the residuals' fourth powers.
        """
        return float(stdtrit(_freedom(self.square, self.fourth, self.effective), share))

    def reach(self, share: float) -> float:
        """Return by how much the upper end of a confidence interval exceeds :attr:`value`.

        The true mean lies below this end with probability ``share``. The possible error from requests that reach a step without
        a recorded result is included.
        """
        return self.quantile(share) * self.standard_error + self.unsupported * self.bound


def moments(halves: Sequence[HalfScores], target: str, bound: float | None = None) -> Moments | None:
    """Return the mean of the scores and the sums for its confidence interval; None if the compared policies are equal.

    The arguments are those of :func:`estimate_mean`.
    """
    n = sum(len(half.policy) for half in halves)
    value, square, fourth, m = 0.0, 0.0, 0.0, 0.0
    unsupported, heaviest = 0.0, 0.0  # the weight of one request
    unlike = [half.unlike for half in halves]
    residuals = [np.zeros(len(half.policy)) for half in halves]
    for i, (half, share) in enumerate(zip(halves, unlike, strict=True)):
        if not share:
            continue
        scores = half.policy.utility(target) - (0.0 if half.reference is None else half.reference.utility(target))
        both = (half.policy,) if half.reference is None else (half.policy, half.reference)
        # The chances of rows are shares of these very requests. Regressing the scores on their columns removes the noise of
        # these shares; with the chances taken as known, intervals were a fifth too wide.
        residuals[i] = centred = _residuals(scores - scores.mean(), {k: v for one in both for k, v in one.balance.items()})
        value += float(scores.sum()) / n
        square += float(centred @ centred)
        fourth += float((centred**4).sum())
        followed = min(effective_number(one.weight) for one in both)
        m, heaviest = m + followed, max(heaviest, share * len(half.policy) / followed if followed else math.inf)
        unsupported += max(float(one.unsupported.sum()) for one in both) / n
    if not any(unlike):
        return None
    if bound is not None and heaviest < math.inf:
        # The allowance for what was not observed: one more request that is lost (scores that never varied may vary), or two
        # more of those that vary most (a few large weights carry the variance).
        more = max((bound * heaviest) ** 2, 2.0 * fourth / square if square > 0.0 else 0.0)
        square, fourth = square + more, fourth + more**2
    return Moments(
        value=value, residuals=np.concatenate(residuals), square=square, fourth=fourth, effective=m, unsupported=unsupported,
        heaviest=heaviest, bound=bound or 0.0,
    )  # fmt: skip


def _residuals(centred: FloatArray, balance: Mapping[object, FloatArray]) -> FloatArray:
    """Return what a linear regression of the requests' scores leaves unexplained, shape (requests,).

    Each residual is enlarged for its leverage in the fit (HC2 of MacKinnon and White 1985). The regressors are the columns
    of ``balance`` with the largest sums of squares, at most one for five requests.

    Args:
        centred: The scores minus their mean, shape (requests,).
        balance: The possible regressors, each an array of shape (requests,); the keys are ignored.
    """
    if not balance:
        return centred
    # At most one column for five requests: more columns would fit the noise and make the interval too short.
    columns = sorted(balance.values(), key=lambda column: -float(column @ column))[: max(len(centred) // 5, 1)]
    q, r = np.linalg.qr(np.stack(columns, axis=1))
    # A column that other columns nearly explain would make the fit depend on rounding.
    q = q[:, np.abs(np.diag(r)) > 1e-9 * np.abs(r).max()]
    left = 1.0 - (q * q).sum(axis=1)
    is_free = left > 0.01  # otherwise a request is the only one with its row, and the variance there is unknown
    return np.where(is_free, (centred - q @ (q.T @ centred)) / np.sqrt(np.maximum(left, 0.01)), centred)


def effective_number(weight: FloatArray) -> float:
    """Return the number of equally weighted requests with the same information, (sum w)^2 / sum w^2; 0 without requests."""
    total = float(weight @ weight)
    return float(weight.sum()) ** 2 / total if total else 0.0


def _freedom(square: float, fourth: float, m: float) -> float:
    """Return the degrees of freedom for an interval: the effective number of requests whose scores vary.

    It is at least 4, or ``m`` - 1 if that is less, and never below 1.

    Args:
        square: The sum of the residuals' squares.
        fourth: The sum of their fourth powers.
        m: The effective number of requests.
    """
    spread = max(fourth - square**2 / max(m, 1.0), 0.0)
    varying = square**2 / spread if spread > 0.0 else math.inf
    return max(min(m - 1.0, max(varying, LEAST_FREEDOM)), 1.0)


def served_scores(success: Sequence[float], cost_usd: Sequence[float], latency_s: Sequence[float]) -> Scores:
    """Return the scores of a policy that really served the requests: the observed results, each with weight 1."""
    right, paid, took = (np.asarray(values, np.float64) for values in (success, cost_usd, latency_s))
    return Scores(right, paid, took, np.ones(len(right)), np.zeros(len(right)))
