"""The expected figures of a plan, or of several plans between which requests are divided."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from vinelm.plans.promise import Promise, error_between_fits
from vinelm.trie.arrays import FloatArray


class Figures(NamedTuple):
    """The figures of a plan.

    Attributes:
        accuracy: Expected share of right answers.
        cost_usd: Dollars per request.
        longest_s: Seconds of the longest path at zero load.
        expected_s: Expected seconds per request at zero load.
    """

    accuracy: float
    cost_usd: float
    longest_s: float
    expected_s: float


class Errors(NamedTuple):
    """Standard errors of accuracy and cost; None if the trie has none.

    ``by_fit`` is the accuracy for each fit to resampled requests, shape (fits,); None if the trie has none.
    """

    accuracy: float | None
    cost_usd: float | None
    by_fit: FloatArray | None = None


class Expected(ABC):
    """One plan, or several plans between which requests are divided; the figures are then weighted means over the plans."""

    @property
    @abstractmethod
    def parts(self) -> Sequence[tuple[float, Any]]:
        """The plans between which requests are divided, with their shares; the plan itself if they are not divided."""

    @property
    def figures(self) -> Figures:
        """The expected accuracy, cost and latency. The longest path is the longest path of any part."""
        shares, figures = [share for share, _ in self.parts], np.array([part.figures for _, part in self.parts])
        accuracy, cost_usd, _, expected_s = (shares @ figures).tolist()
        return Figures(accuracy, cost_usd, float(figures[:, 2].max()), expected_s)

    @property
    def errors(self) -> Errors:
        """Standard errors of accuracy and cost, from the fits if every part has fits; otherwise upper bounds on the
        standard errors, for fully correlated errors.
        """
        parts = [(share, part.errors) for share, part in self.parts]
        if any(errors.by_fit is None for _, errors in parts):
            return Errors(mean_of(parts, lambda errors: errors.accuracy), mean_of(parts, lambda errors: errors.cost_usd))
        by_fit = sum(share * errors.by_fit for share, errors in parts)
        error = float(error_between_fits(np.asarray(by_fit)))
        return Errors(error, mean_of(parts, lambda errors: errors.cost_usd), np.asarray(by_fit))

    @property
    def shown(self) -> tuple[str, ...]:
        """The plan in the form for display; a mixture has one text for each part, with its share of the requests."""
        return tuple(f"{share:.0%} of requests: {part.words}" for share, part in self.parts)

    @property
    def words(self) -> str:
        """The plan from the start of a request, or the mixture, in words on one line."""
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
        """Seconds of the longest path through the plan, at zero load."""
        return self.figures.longest_s

    @property
    def expected_latency_s(self) -> float:
        """Expected seconds at zero load."""
        return self.figures.expected_s

    @property
    def standard_error(self) -> float | None:
        """Standard error of the accuracy; None if the trie has none."""
        return self.errors.accuracy

    @property
    def promise(self) -> Promise:
        """The predicted accuracy: the estimate, corrected if the plan was chosen as the best of many."""
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
    """Return the mean of ``value(part)`` over the parts, weighted by their shares; None if it is None for some part.

    ``parts`` are pairs (share, part).
    """
    found = [(share, value(part)) for share, part in parts]
    return None if any(one is None for _, one in found) else sum(share * one for share, one in found if one is not None)
