"""Predicts a plan's accuracy: the estimate, corrected for having been chosen as the best of many.

The most accurate of many noisy estimates is on average too high (the winner's curse). This excess, the optimism, is
measured when a trie is estimated: plans are chosen on one half of the requests and tested on the other. The result is a
:class:`SelectionOptimism`, which the trie keeps in ``meta``. docs/estimators.md derives the correction.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from vinelm.template.steps import SKIP
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.arrays import BoolArray, FloatArray

Z90 = 1.6448536269514722
"""Half width of a two-sided 90 % interval in standard errors."""
SAMPLING_PART = 0.8
"""The smallest share of p (1 - p) / n that any ``accuracy_se`` contains (the latent estimator's calibrated factor, squared)."""
END_CORRELATION = 0.25
"""Assumed correlation of the errors of two ends of a contingent plan that run the same model at the same stage."""
_TINY = 1e-300


@dataclass(frozen=True, kw_only=True)
class SelectionOptimism:
    """By how much the predicted accuracy of a plan is too high, as a curve over the plan's cost.

    It holds for plans that were chosen on half of the requests.

    Args:
        cost_usd: The costs of the curve's points: expected dollars per request, ascending.
        accuracy: At each cost, predicted minus tested accuracy of the most accurate path that costs no more; a fraction
            >= 0.
        advantage: At each cost, predicted minus tested advantage of that path over the most accurate single-model path
            that costs no more; a fraction >= 0. Empty if it was not measured.
    """

    cost_usd: tuple[float, ...]
    accuracy: tuple[float, ...]
    advantage: tuple[float, ...]

    @classmethod
    def of(cls, annotated: AnnotatedTrie) -> Self | None:
        """Return the :class:`SelectionOptimism` that is stored in a trie's ``meta``; None if it was not measured."""
        found = (annotated.meta.get("evidence") or {}).get("selection")
        return None if not isinstance(found, Mapping) else cls(**{name: tuple(found[name]) for name in cls.__annotations__})

    @classmethod
    def measured(cls, cost_usd: FloatArray, accuracy: FloatArray, advantage: FloatArray | None = None) -> Self:
        """Return the optimism that follows from differences between prediction and test, measured for plans of several costs.

        The differences are smoothed over neighbouring costs; negative values become 0.

        Args:
            cost_usd: The costs, ascending.
            accuracy: Predicted minus tested accuracy at each cost.
            advantage: Predicted minus tested advantage at each cost; None if it was not measured.
        """

        def smooth(gaps: FloatArray) -> tuple[float, ...]:
            means = np.array([gaps[max(at - 1, 0) : at + 2].mean() for at in range(len(gaps))])
            return tuple(np.maximum(means, 0.0).tolist())

        return cls(
            cost_usd=tuple(cost_usd.tolist()),
            accuracy=smooth(accuracy),
            advantage=() if advantage is None else smooth(advantage),
        )

    def or_more(self, other: Self | None) -> Self:
        """Return a copy in which ``accuracy`` is, at each cost, the larger of this object's value and that of ``other``.

        The copy keeps this object's ``advantage``. If ``other`` is None, return this object.
        """
        if other is None:
            return self
        cost = tuple(sorted({*self.cost_usd, *other.cost_usd}))
        more = tuple(max(self.accuracy_at(usd), other.accuracy_at(usd)) for usd in cost)
        return replace(self, cost_usd=cost, accuracy=more, advantage=tuple(self.advantage_at(usd) or 0.0 for usd in cost))

    def accuracy_at(self, cost_usd: float) -> float:
        """Return by how much the accuracy of a plan with this cost is predicted too high.

        The value is interpolated over the logarithm of the cost.
        """
        return self._at(self.accuracy, cost_usd)

    def advantage_at(self, cost_usd: float) -> float | None:
        """Return by how much the advantage of a plan with this cost over the best single model is predicted too high.

        None if the advantage was not measured.
        """
        return self._at(self.advantage, cost_usd) if self.advantage else None

    def to_dict(self) -> dict[str, Any]:
        """Return the object as plain JSON types: a list of numbers for each field."""
        return {name: list(values) for name, values in asdict(self).items()}

    def _at(self, values: tuple[float, ...], cost_usd: float) -> float:
        scale = np.log(np.maximum(self.cost_usd, _TINY))
        return float(np.interp(math.log(max(cost_usd, _TINY)), scale, values))


@dataclass(frozen=True, kw_only=True)
class Promise:
    """The predicted accuracy of a plan for further requests like the profiled ones. Accuracies are fractions.

    The optimism is how much too high an estimate is on average because the plan was chosen as the best. Let o be the
    optimism of a choice on half of the requests. A choice on all requests has a smaller optimism, which is assumed to be
    uniform between 0 and o. So o / 2 is subtracted from the estimate, and the variance o^2 / 12 widens the interval.

    Args:
        estimate: The estimated accuracy, by which the plan was chosen.
        standard_error: The estimate's standard error, ignoring that the plan was chosen as the best; None if the
            estimator gives none.
        optimism: Optimism of a choice on half of the requests. If None, it was not measured and nothing is corrected.
        advantage: Estimated advantage over ``reference``; 0 if the plan itself runs on one model.
        advantage_optimism: Optimism of that advantage; None if it was not measured.
        reference: The most accurate single-model path that is neither more expensive nor slower than the plan; None
            without such a path. It is the path's node, or the model's name if plans are contingent. There are few such
            paths, so choosing the best of them adds little optimism.
    """

    estimate: float
    standard_error: float | None
    optimism: float | None
    advantage: float
    advantage_optimism: float | None
    reference: int | str | None

    @staticmethod
    def of(annotated: AnnotatedTrie, node: int) -> Promise:
        """Return the prediction for the plan that ends at ``node``, chosen among all paths of the trie."""
        error = np.full(len(annotated.trie), np.nan) if annotated.accuracy_se is None else annotated.accuracy_se
        figures = annotated.accuracy, error, annotated.path_cost_usd, annotated.path_latency_s
        return PlanFigures(*figures, single_model_paths(annotated.trie)).promise(node, SelectionOptimism.of(annotated))

    @property
    def accuracy(self) -> float:
        """The predicted accuracy: the estimate minus the expected optimism."""
        return max(self.estimate - (self.optimism or 0.0) / 2.0, 0.0)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 90 % interval of the plan's true accuracy, its mean over many further requests; None without standard errors."""
        return self._interval(0.0)

    @property
    def half_width(self) -> float:
        """Half the width of the 90 % interval of the accuracy, before the ends are limited to [0, 1]; NaN without
        standard errors.
        """
        return Z90 * math.sqrt(self._variance)

    def prediction(self, requests: int) -> tuple[float, float] | None:
        """Return the 90 % interval of the share of right answers among ``requests`` further requests; None without
        standard errors.

        It is wider than :attr:`interval`, because it includes the sampling error of these requests. This error is
        computed as if there were one more success and one more failure, so that a share of 0 or 1 does not count as
        certain.
        """
        share = (self.accuracy * requests + 1.0) / (requests + 2.0)
        return self._interval(share * (1.0 - share) / requests)

    @property
    def is_decided_by_optimism(self) -> bool:
        """Whether selection alone could explain the plan's estimated advantage over the single model ``reference``."""
        if self.reference is None or not self.advantage_optimism:
            return False
        return self.advantage <= self.advantage_optimism

    def to_dict(self) -> dict[str, Any]:
        """Return the prediction and its interval as plain JSON types."""
        more = {"accuracy": self.accuracy, "interval": self.interval, "is_decided_by_optimism": self.is_decided_by_optimism}
        return asdict(self) | more

    @property
    def _variance(self) -> float:
        error = math.nan if self.standard_error is None else self.standard_error
        return error**2 + (self.optimism or 0.0) ** 2 / 12.0

    def _interval(self, sampling_var: float) -> tuple[float, float] | None:
        if self.standard_error is None:
            return None
        reach = Z90 * math.sqrt(self._variance + sampling_var)
        return max(self.accuracy - reach, 0.0), min(self.accuracy + reach, 1.0)


@dataclass(frozen=True, eq=False)
class PlanFigures:
    """Estimated figures of several plans, as arrays with one element for each plan.

    Args:
        accuracy: Expected accuracy.
        error: Standard error of the accuracy; NaN if unknown.
        cost_usd: Expected cost, in dollars.
        latency_s: Seconds of the longest possible history if no server is busy.
        single: Whether the plan runs on one model.
    """

    accuracy: FloatArray
    error: FloatArray
    cost_usd: FloatArray
    latency_s: FloatArray
    single: BoolArray

    def promise(self, plan: int, curve: SelectionOptimism | None) -> Promise:
        """Return the prediction for the plan with index ``plan``, chosen as the best among all of these plans.

        ``curve`` tells by how much choosing the best plan raises predictions; None if this was not measured.
        """
        cost, error = float(self.cost_usd[plan]), float(self.error[plan])
        alone = self.single & (self.cost_usd <= cost) & (self.latency_s <= self.latency_s[plan])
        known = alone.any() and not self.single[plan]
        reference = int(np.argmax(np.where(alone, self.accuracy, -1.0))) if known else None
        return Promise(
            estimate=float(self.accuracy[plan]),
            standard_error=error if math.isfinite(error) else None,
            optimism=None if curve is None else curve.accuracy_at(cost),
            advantage=0.0 if reference is None else float(self.accuracy[plan] - self.accuracy[reference]),
            advantage_optimism=None if curve is None else curve.advantage_at(cost),
            reference=reference,
        )


def contingent_standard_error(annotated: AnnotatedTrie, ends: npt.NDArray[np.intp], accuracy: float) -> float | None:
    """Return the standard error of the accuracy of a plan that ends at several nodes, computed from the nodes' errors.

    None if the trie lacks standard errors or the number of requests. The plan's accuracy p is the sum of the nodes'
    probabilities of a right answer. The sampling of the n requests adds the variance p (1 - p) / n. The rest of each node's
    ``accuracy_se`` comes from the effects of its stage, model and branches. For nodes of the same stage and model, this
    rest is assumed to have the correlation :data:`END_CORRELATION`, which is more than simulated plans have
    (docs/estimators.md#arms). For other nodes it is assumed to be independent.

    Args:
        annotated: The trie; ``meta["requests"]`` is the number of requests that it was estimated from.
        ends: The nodes where the plan ends a request, on all or only some branches; each node once.
        accuracy: The plan's accuracy.
    """
    requests = annotated.meta.get("requests")
    if annotated.accuracy_se is None or not requests:
        return None
    sampling = share_variance(annotated.accuracy[ends], requests)
    own = np.sqrt(np.maximum(annotated.accuracy_se[ends] ** 2 - SAMPLING_PART * sampling, 0.0))
    kind = annotated.trie.stage[ends].astype(np.int64) * len(annotated.trie.models) + annotated.trie.model[ends]
    together = np.bincount(np.maximum(kind, 0), own)
    effects = END_CORRELATION * float(together @ together) + (1.0 - END_CORRELATION) * float(own @ own)
    return math.sqrt(effects + float(share_variance(np.array(accuracy), requests)))


def merged_standard_error(annotated: AnnotatedTrie, visited: FloatArray, accuracy: float) -> float | None:
    """Return an upper bound on the standard error of a plan's accuracy; None if the trie has no standard errors.

    It is for a trie in which a node may stand for several histories (sequences of calls). The bound assumes that the errors of
    nodes with the same stage and model are fully correlated.

    Args:
        annotated: An annotated merged trie; ``meta["requests"]`` is the number of requests that it was estimated from.
        visited: Rows of (node, P(it is reached), P(a correct answer later | it is reached)).
        accuracy: The plan's accuracy.
    """
    errors, requests = annotated.accuracy_se, annotated.meta.get("requests")
    if errors is None:
        return None
    node = visited[:, 0].astype(np.int64)
    own, sampling = errors[node] ** 2, 0.0
    if requests:
        own = np.maximum(own - share_variance(annotated.success[node], requests), 0.0)
        sampling = float(share_variance(np.array(accuracy), requests))
    moved = visited[:, 1] * np.sqrt(own) * np.clip(1.0 - visited[:, 2], 0.0, 1.0)
    kind = annotated.trie.stage[node].astype(np.int64) * len(annotated.trie.models) + annotated.trie.model[node]
    together = np.bincount(np.maximum(kind, 0), moved)
    return math.sqrt(float(together @ together) + sampling)


def error_between_fits(accuracy: FloatArray) -> FloatArray:
    """Return the standard error of each plan's accuracy: the enlarged spread of the accuracy between several fits.

    Each of the n fits estimates the trie from requests with other random weights. The spread is enlarged by two factors.
    First, the weights are balanced over the fits, and so have only n / (n + 1) of the variance of independent weights.
    Second, with few fits an interval needs Student's t with n - 1 degrees of freedom; its expansion at 90 % is used.

    Args:
        accuracy: Each plan's accuracy by each of at least 2 fits; shape (fits, ...).
    """
    n, z = len(accuracy), Z90
    balance = math.sqrt((n + 1) / n)
    student = 1.0 + (z**2 + 1.0) / (4.0 * (n - 1)) + (5.0 * z**4 + 16.0 * z**2 + 3.0) / (96.0 * (n - 1) ** 2)
    return np.asarray(balance * student * np.std(accuracy, axis=0, ddof=1))


def share_variance(share: FloatArray, requests: int) -> FloatArray:
    """Return the sampling variance of a share measured on ``requests`` requests; it is above 0 even for shares of 0 and 1."""
    shrunk = (share * requests + 1.0) / (requests + 2.0)
    return np.asarray(shrunk * (1.0 - shrunk) / requests)


def single_model_paths(trie: Trie) -> BoolArray:
    """Return a mask over the trie's nodes, the root first: True if the node's path runs on a single model.

    Skipped stages are ignored. It is False at nodes at which no answer may be returned.
    """
    only = np.full(len(trie), -1, np.int32)  # the model of the path so far, -2 for several
    skip = trie.models.index(SKIP) if SKIP in trie.models else -1
    for level in trie.levels[1:]:
        before, model = only[trie.parent[level]], trie.model[level]
        only[level] = np.where(model == skip, before, np.where((before == -1) | (before == model), model, -2))
    return (only >= 0) & trie.answerable
