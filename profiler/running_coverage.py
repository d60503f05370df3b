"""What coverage is made of whatever the template's shape: the share, its interval and its bound, from counts of executed cells.

See :mod:`vinelm.profiler.coverage` for what coverage is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, Protocol, Self, TypeVar

import numpy as np

from vinelm.trie import FloatArray

_DRAWS = 200


class ExecutedCells(Protocol):
    """Executed cells by kind."""

    @property
    def counts(self) -> FloatArray:
        """How many."""

    @property
    def paid(self) -> FloatArray:
        """Their total dollars."""

    def free(self) -> Self:
        """Return the same cells at a price of one each."""


Cells = TypeVar("Cells", bound=ExecutedCells)


class RunningCoverage(ABC, Generic[Cells]):
    """Base class of the running totals of executed cells.

    Attributes:
        totals: the executed cells.
    """

    totals: Cells

    @property
    @abstractmethod
    def is_complete(self) -> bool:
        """Whether every reached cell is executed."""

    @property
    @abstractmethod
    def n_observed(self) -> int:
        """The number of requests that have an executed cell."""

    @abstractmethod
    def _rest(self, totals: Cells) -> FloatArray:
        """The expected price of what is open, by the mean costs and rates of ``totals``; an item per draw of drawn ones."""

    @abstractmethod
    def _drawn(self, weights: FloatArray) -> Cells:
        """The totals of resampled requests, with the draws as the first axis.

        ``weights`` has shape (draws, observed requests): how often each counts, in the order of their ids.
        """

    @property
    def counts(self) -> FloatArray:
        """The number of executed cells by kind; the first axis is the depth."""
        return self.totals.counts

    @property
    def counts_per_depth(self) -> tuple[int, ...]:
        """The number of executed cells at each depth, from 1."""
        return tuple(int(n) for n in self.counts.sum(axis=1))

    @property
    def spent_usd(self) -> float:
        """The dollars of the executed cells, tools included."""
        return float(self.totals.paid.sum())

    def measure(self) -> Cells:
        """Return the counts that coverage is measured by: dollars, or cells while every cell was free."""
        return self.totals if self.totals.paid.any() else self.totals.free()

    @property
    def fraction(self) -> float:
        """The coverage, in [0, 1]: 0 before the first cell, 1 exactly when every reached cell is executed."""
        if self.is_complete:
            return 1.0
        totals = self.measure()
        return share(float(totals.paid.sum()), float(self._rest(totals)))

    def interval(self, level: float = 0.9) -> tuple[float, float]:
        """Return bounds that contain :attr:`fraction` with probability ``level``, by a bootstrap over requests (fixed seed).

        Requests are resampled whole, because the cells of one request are correlated. (0, 1) with fewer than two requests.
        """
        if self.is_complete:
            return 1.0, 1.0
        if self.n_observed < 2:
            return 0.0, 1.0
        n = self.n_observed
        drawn = self._drawn(np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=_DRAWS).astype(float))
        paid, rest = float(self.measure().paid.sum()), self._rest(drawn if self.totals.paid.any() else drawn.free())
        fractions = np.divide(paid, paid + rest, out=np.ones_like(rest), where=paid + rest > 0)
        low, high = np.quantile(fractions, [(1 - level) / 2, (1 + level) / 2])
        return min(float(low), self.fraction), max(float(high), self.fraction)

    def exhaustive_usd(self) -> float:
        """Return the estimated dollars of every reached cell once; 0.0 before the first cell."""
        return self.spent_usd + (float(self._rest(self.totals)) if self.counts.any() else 0.0)


class RunningBound(ABC, Generic[Cells]):
    """Base class of upper bounds on the coverage, over all outcomes of cells in flight or executed earlier.

    Never too low, whichever of these cells are executed: the dollars paid take their upper bound, and the dollars remaining
    their lower bound, with every such cell free and its request ended (so means, rates and open cells only decrease).
    """

    _totals: Cells
    _upper_usd: float

    @abstractmethod
    def _least_rest(self, totals: Cells) -> float:
        """The least price that what remains may have, by the mean costs and rates of ``totals``."""

    @property
    def most(self) -> float:
        """The bound; 1.0 where none is known."""
        totals, extra_usd = self._totals, self._upper_usd
        if not totals.paid.any():
            if extra_usd > 0:
                return 1.0  # the first dollar decides whether coverage is measured in dollars or cells
            totals, extra_usd = totals.free(), 0.0
        return share(float(totals.paid.sum()) + extra_usd, self._least_rest(totals))


def share(paid: float, rest: float) -> float:
    """Return ``paid / (paid + rest)``; 0 of nothing."""
    return paid / (paid + rest) if paid + rest > 0 else 0.0
