"""Coverage: the share of an exhaustive profile's dollars that has been spent, while its total is still an estimate.

``coverage`` is the dollars of executed (request, node) cells over the dollars of running every request on every *reached* node
once, with stops respected and prefixes checkpointed. The denominator is estimated: the dollars spent, plus for each open cell
(reached, not executed) the expected price of its subtree from mean costs and continuation rates. It is exact once everything is
executed. Where every cell was free so far, cells are counted instead of dollars.

Cells below an answer that the workflow's own check passed are not reached: they are no part of the denominator. What they cost
is spent all the same and counts in the numerator, so that a run which stops at a coverage has spent no more than that fraction.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

import numpy as np

from vinelm.rows.observation import Observation
from vinelm.template import Template
from vinelm.trie.arrays import FloatArray

N_DRAWS = 200
"""Resamples of the requests behind :meth:`Coverage.interval`."""


class CellTotals(Protocol):
    """Executed cells by kind; the first axis is the depth from 0."""

    @property
    def counts(self) -> FloatArray:
        """How many cells."""

    @property
    def paid(self) -> FloatArray:
        """Their total dollars."""


Totals = TypeVar("Totals", bound=CellTotals)


class Coverage(ABC, Generic[Totals]):
    """Running totals of the executed cells. Add each cell once, parents before children.

    Args:
        template: a bound template.
        totals: those of no cells.

    Attributes:
        totals: the executed cells that are reached.
        continued_usd: the dollars of executed cells that their requests do not reach by the stop rule.
        n_continued: the number of these cells.
    """

    def __init__(self, template: Template, totals: Totals) -> None:
        self.template = template
        self.totals = totals
        self.continued_usd = 0.0
        self.n_continued = 0

    @abstractmethod
    def add(self, observation: Observation) -> None:
        """Add one executed cell."""

    @abstractmethod
    def upper_bound(self) -> CoverageUpperBound:
        """Return the bound to which cells that may be executed can be added."""

    @property
    @abstractmethod
    def is_complete(self) -> bool:
        """Whether every reached cell is executed."""

    @abstractmethod
    def naive_usd(self) -> float:
        """Return the estimated dollars of every request on every path that it reaches, each from its start: nothing shared.

        0.0 before the first cell.
        """

    @abstractmethod
    def measure(self) -> Totals:
        """Return the counts that coverage is measured by: dollars, or cells while every cell was free."""

    @property
    @abstractmethod
    def _n_begun(self) -> int:
        """The number of requests with an executed cell."""

    @abstractmethod
    def _rest(self, totals: Totals) -> float:
        """The expected price of the subtrees of the open cells, in the unit of ``totals``."""

    @abstractmethod
    def _rest_draws(self) -> FloatArray:
        """The same for resampled requests, (:data:`N_DRAWS`,), in the unit of :meth:`measure`."""

    @property
    def counts(self) -> FloatArray:
        """The number of executed cells; the first axis is the depth from 0."""
        return self.totals.counts

    @property
    def counts_per_depth(self) -> tuple[int, ...]:
        """The number of executed cells at each depth, from 1; without those that are not reached."""
        return tuple(int(n) for n in self.counts.sum(axis=1))

    @property
    def spent_usd(self) -> float:
        """The dollars of the executed cells, tools included."""
        return float(self.totals.paid.sum()) + self.continued_usd

    @property
    def continued(self) -> float:
        """What the cells that are not reached add to the numerator: dollars, or cells while every cell was free."""
        return self.continued_usd if self.totals.paid.any() else float(self.n_continued)

    @property
    def fraction(self) -> float:
        """The coverage, in [0, 1]: 0 before the first cell, 1 exactly when every reached cell is executed."""
        if self.is_complete:
            return 1.0
        totals = self.measure()
        paid = float(totals.paid.sum())
        total = paid + self._rest(totals)
        return min((paid + self.continued) / total, 1.0) if total > 0 else 0.0

    def interval(self, level: float = 0.9) -> tuple[float, float]:
        """Return bounds that contain :attr:`fraction` with probability ``level``, by a bootstrap over requests (fixed seed).

        Requests are resampled whole, because the cells of one request are correlated. (0, 1) with fewer than two requests.
        """
        if self.is_complete:
            return 1.0, 1.0
        if self._n_begun < 2:
            return 0.0, 1.0
        paid = float(self.measure().paid.sum())
        rest = self._rest_draws()
        fractions = np.divide(paid + self.continued, paid + rest, out=np.ones_like(rest), where=paid + rest > 0)
        fractions = np.minimum(fractions, 1.0)
        low, high = np.quantile(fractions, [(1 - level) / 2, (1 + level) / 2])
        return min(float(low), self.fraction), max(float(high), self.fraction)

    def exhaustive_usd(self) -> float:
        """Return the estimated dollars of every reached cell once; 0.0 before the first cell."""
        return float(self.totals.paid.sum()) + (self._rest(self.totals) if self.counts.any() else 0.0)


class CoverageUpperBound(ABC):
    """Upper bound on the coverage, over all outcomes of cells that are in flight or may be executed earlier.

    Never too low, whichever of these cells are executed: the dollars paid take their upper bound, and the dollars remaining
    their lower bound, with every such cell free and its request ended there, so that means, rates and open cells only decrease.

    Attributes:
        may_go_on: whether some of the cells may lie below an answer that the workflow's own check passes.
    """

    def __init__(self) -> None:
        self.may_go_on = False

    @abstractmethod
    def add(
        self,
        request_id: str,
        length: int,
        visits: Sequence[tuple[str, str]],
        upper_usd: float,
        *,
        is_open: bool,
        is_continued: bool = False,
    ) -> None:
        """Add a cell that may be executed, at a cost of at most ``upper_usd``.

        Args:
            request_id: of the cell.
            length: the number of its invocations.
            visits: the stages and models of which the last of them may be; exactly one on a linear template.
            upper_usd: upper bound on its dollars.
            is_open: whether the executed cells show that its request reaches it.
            is_continued: whether they show that its request does not reach it; always False on a template that branches.
        """

    @property
    @abstractmethod
    def most(self) -> float:
        """The bound; 1.0 where none is known."""
