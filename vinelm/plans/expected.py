"""The expected figures of a plan, or of several plans between which requests are divided."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from vinelm.plans.promise import Promise, error_between_fits
from vinelm.trie.arrays import FloatArray


class Figures(NamedTuple):
    """The expected accuracy, cost and latency of a plan.

    Attributes:
        accuracy: Expected share of right answers.
        cost_usd: Dollars per request.
        longest_s: Seconds of the longest possible path of a request, without waiting for busy servers (zero load).
        expected_s: Expected seconds per request, likewise at zero load.
    """

    accuracy: float
    cost_usd: float
    longest_s: float
    expected_s: float


class Errors(NamedTuple):
    """Standard errors of a plan's accuracy and dollars per request; None if the trie has none.

    ``by_fit`` has the expected accuracy according to each fit of the trie to resampled requests, shape (fits,); None
    without such fits.
    """

    accuracy: float | None
    cost_usd: float | None
    by_fit: FloatArray | None = None


class Expected(ABC):
    """One plan, or several plans between which requests are divided. Figures of several plans are means, weighted by
    the shares of the requests.
    """

    @property
    @abstractmethod
    def parts(self) -> Sequence[tuple[float, Any]]:
        """Pairs (share of the requests, plan); a single pair with share 1 if requests are not divided."""

    @property
    def figures(self) -> Figures:
        """The expected accuracy, cost and latency of a request. ``longest_s`` is that of the slowest plan."""
        shares, figures = [share for share, _ in self.parts], np.array([part.figures for _, part in self.parts])
        accuracy, cost_usd, _, expected_s = (shares @ figures).tolist()
        return Figures(accuracy, cost_usd, float(figures[:, 2].max()), expected_s)

    @property
    def errors(self) -> Errors:
        """Standard errors of accuracy and cost.

        The accuracy's error is computed from several fits of the trie to resampled requests, if each plan has a prediction for
        each fit. All other errors are upper bounds, computed as if the plans' errors were fully correlated.
        """
        parts = [(share, part.errors) for share, part in self.parts]
        if any(errors.by_fit is None for _, errors in parts):
            return Errors(mean_of(parts, lambda errors: errors.accuracy), mean_of(parts, lambda errors: errors.cost_usd))
        by_fit = sum(share * errors.by_fit for share, errors in parts)
        error = float(error_between_fits(np.asarray(by_fit)))
        return Errors(error, mean_of(parts, lambda errors: errors.cost_usd), np.asarray(by_fit))

    @property
    def shown(self) -> tuple[str, ...]:
        """The plan as lines of text; for several plans, one line each with its share of the requests."""
        return tuple(f"{share:.0%} of requests: {part.words}" for share, part in self.parts)

    @property
    def words(self) -> str:
        """The plan, from the start of a request, in one line of text; several plans with their shares."""
        return "; ".join(self.shown)

    @property
    def is_feasible(self) -> bool:
        """Whether the plan meets every limit of the objective."""
        return True

    @property
    def accuracy(self) -> float:
        """Expected accuracy; the estimate itself, even if the objective sets ``confidence``."""
        return self.figures.accuracy

    @property
    def path_cost_usd(self) -> float:
        """Expected cost of the plan per request, in dollars."""
        return self.figures.cost_usd

    @property
    def path_latency_s(self) -> float:
        """Seconds of the longest possible path through the plan if no server is busy."""
        return self.figures.longest_s

    @property
    def expected_latency_s(self) -> float:
        """Expected seconds per request if no server is busy."""
        return self.figures.expected_s

    @property
    def standard_error(self) -> float | None:
        """Standard error of the accuracy; None if the trie has none."""
        return self.errors.accuracy

    @property
    def promise(self) -> Promise:
        """The prediction of the accuracy: the estimate, reduced if the plan was chosen as the best of many."""
        return Promise(
            estimate=self.accuracy, standard_error=self.standard_error, optimism=None, advantage=0.0,
            advantage_optimism=None, reference=None,
        )  # fmt: skip

    @property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """90 % intervals of the expected figures whose standard errors are known, by the figure's name, such as
        ``accuracy``.
        """
        found = self.promise.interval
        return {} if found is None else {"accuracy": found}

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the plan and its figures as JSON types; seconds are None if the trie has no latencies."""


def mean_of(parts: Sequence[tuple[float, Any]], value: Callable[[Any], float | None]) -> float | None:
    """Return the mean of ``value(part)`` over the parts, weighted by their shares; None if ``value`` returns None for
    some part.

    ``parts`` are pairs (share, part).
    """
    found = [(share, value(part)) for share, part in parts]
    return None if any(one is None for _, one in found) else sum(share * one for share, one in found if one is not None)
