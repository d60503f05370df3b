"""Coverage: the share of an exhaustive profile's dollars that has been spent, while its total is still an estimate.

``coverage`` is the dollars of executed (request, node) cells over the dollars of running every request on every *reached* node
once, with stops respected and prefixes checkpointed. The denominator is estimated: the dollars spent, plus for each open cell
(reached, not executed) the expected price of its subtree from mean costs and continuation rates. It is exact once everything is
executed. Where every cell was free so far, cells are counted instead of dollars.

Cells below an answer that the workflow's own check passed are not reached: they are no part of the denominator. What they cost
is spent all the same and counts in the numerator, so that a run which stops at a coverage has spent no more than that fraction.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vinelm.profiler.coverage.cells import CellCounts, CellKinds
from vinelm.rows.observation import Observation
from vinelm.template import Template
from vinelm.trie.arrays import FloatArray

N_DRAWS = 200
"""Resamples of the requests behind :meth:`Coverage.interval`."""


class Coverage:
    """Running totals of the executed cells by depth, stage and model. Add each cell once, parents before children.

    Args:
        template: a bound template.
        n_requests: the number of requests in the profile.

    Attributes:
        kinds: of the cells.
        totals: the executed cells that are reached.
        unopened: the number of open cells of each kind: reached, not executed. Without those of :attr:`unknown`.
        unknown: how many requests have no row yet, so that it is not known which of several stages comes first.
        continued_usd: the dollars of executed cells that their requests do not reach by the stop rule.
        n_continued: the number of these cells.
    """

    def __init__(self, template: Template, n_requests: int) -> None:
        self.kinds = CellKinds.of(template)
        self.totals = CellCounts.none(self.kinds)
        self.unopened: FloatArray = np.zeros(self.kinds.shape)
        self._is_first_known = len(self.kinds.first) == 1
        self.unknown = 0 if self._is_first_known else n_requests
        if self._is_first_known:
            self.unopened[0, self.kinds.stage == self.kinds.first[0]] = n_requests
        self.continued_usd = 0.0
        self.n_continued = 0
        self._requests: dict[str, int] = {}
        self._events: list[tuple[int, int, int, int, float]] = []
        self._fraction: float | None = None  # since the last cell

    def add(self, observation: Observation) -> None:
        """Add one executed cell."""
        self._fraction = None
        usd = observation.cost_usd + observation.tool_cost_usd
        if observation.is_continued:
            self.n_continued += 1
            self.continued_usd += usd
            return
        kinds, (depth, slot, outcome) = self.kinds, self.kinds.place(observation)
        if observation.request_id not in self._requests:
            self._requests[observation.request_id] = len(self._requests)
            if not self._is_first_known:
                self.unknown -= 1
                self.unopened[0, kinds.stage == (kinds.stage[slot] if depth == 0 else kinds.first[0])] += 1
        self.totals.add(depth, slot, outcome, usd)
        self._events.append((self._requests[observation.request_id], depth, slot, outcome, usd))
        self.unopened[depth, slot] -= 1
        arm = kinds.stage_of(outcome)
        if arm is not None:
            self.unopened[depth + 1, kinds.stage == arm] += 1

    def is_known(self, request_id: str) -> bool:
        """True if the template, or a row, tells which stage comes first in the request."""
        return self._is_first_known or request_id in self._requests

    def upper_bound(self) -> CoverageUpperBound:
        """Return the bound to which cells that may be executed can be added."""
        return CoverageUpperBound(self)

    @property
    def is_complete(self) -> bool:
        """True if every reached cell is executed."""
        return self.unknown <= 0 and not self.unopened.any()

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
    def is_free(self) -> bool:
        """True if every cell was free so far, so that cells are counted instead of dollars."""
        return not self.totals.paid.any()

    @property
    def continued(self) -> float:
        """The numerator's part of cells that are not reached: dollars, or cells while every cell was free."""
        return float(self.n_continued) if self.is_free else self.continued_usd

    def measure(self) -> CellCounts:
        """Return the counts that coverage is measured by: dollars, or cells while every cell was free."""
        return self.totals.priced(is_free=self.is_free)

    @property
    def fraction(self) -> float:
        """The coverage, in [0, 1]: 0 before the first cell, 1 exactly when every reached cell is executed."""
        if self._fraction is None:
            totals = self.measure()
            paid = float(totals.paid.sum())
            total = paid + float(totals.rest(self.unopened, self.unknown))
            part = min((paid + self.continued) / total, 1.0) if total > 0 else 0.0
            self._fraction = 1.0 if self.is_complete else part
        return self._fraction

    def interval(self, level: float = 0.9) -> tuple[float, float]:
        """Return bounds that contain :attr:`fraction` with probability ``level``, by a bootstrap over requests (fixed seed).

        Requests are resampled whole, because the cells of one request are correlated. (0, 1) with fewer than two requests.
        """
        if self.is_complete:
            return 1.0, 1.0
        if len(self._requests) < 2:
            return 0.0, 1.0
        paid = float(self.measure().paid.sum())
        rest = self._drawn().rest(self.unopened, self.unknown)
        fractions = np.divide(paid + self.continued, paid + rest, out=np.ones_like(rest), where=paid + rest > 0)
        fractions = np.minimum(fractions, 1.0)
        low, high = np.quantile(fractions, [(1 - level) / 2, (1 + level) / 2])
        return min(float(low), self.fraction), max(float(high), self.fraction)

    def _drawn(self) -> CellCounts:
        """The totals of resampled requests, with the draws as the first axis."""
        order = np.argsort([number for _, number in sorted(self._requests.items())])  # whatever the order of the rows
        n, cells, shape = len(order), self.unopened.size, self.totals.outcomes.shape
        weights = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=N_DRAWS).astype(float)[:, order]
        of_request, *places = np.array([event[:4] for event in self._events]).T
        usd = np.array([event[4] for event in self._events])
        place, cell = np.ravel_multi_index(tuple(places), shape), np.ravel_multi_index(tuple(places[:2]), shape[:2])
        outcomes, paid = np.zeros((N_DRAWS, int(np.prod(shape)))), np.zeros((N_DRAWS, cells))
        for draw, weight in enumerate(weights):
            drawn = weight[of_request]
            outcomes[draw] = np.bincount(place, drawn, outcomes.shape[1])
            paid[draw] = np.bincount(cell, drawn * usd, cells)
        found = CellCounts(self.kinds, outcomes.reshape(N_DRAWS, *shape), paid.reshape(N_DRAWS, *shape[:2]))
        return found.priced(is_free=self.is_free)

    def exhaustive_usd(self) -> float:
        """Return the estimated dollars of every reached cell once; 0.0 before the first cell."""
        if not self.counts.any():
            return 0.0
        return float(self.totals.paid.sum()) + float(self.totals.rest(self.unopened, self.unknown))

    def naive_usd(self) -> float:
        """Return the estimated dollars of every request on every path, each from its start: nothing shared, stops respected.

        Where stages share a depth, on every history that it reaches. 0.0 before the first cell.
        """
        if not self.counts.any():
            return 0.0
        weight = self.totals.leaves()
        return float((weight * self.totals.paid).sum()) + float(self.totals.rest(self.unopened, self.unknown, weight))


def coverage_of(observations: Sequence[Observation], template: Template, n_requests: int) -> Coverage:
    """Return the coverage of a set of rows, in any order.

    Args:
        observations: the rows of these requests.
        template: a bound template.
        n_requests: the number of requests in the profile.
    """
    coverage = Coverage(template, n_requests)
    for observation in sorted(observations, key=lambda o: o.depth):
        coverage.add(observation)
    return coverage


class CoverageUpperBound:
    """Upper bound on the coverage, over all outcomes of cells that are in flight or may be executed earlier.

    Never too low, whichever of these cells are executed: the dollars paid take their upper bound, and the dollars remaining
    their lower bound, with every such cell free and its request ended there, so that means, rates and open cells only decrease.
    A cell whose stage is not known counts for every stage that it may be of.

    Args:
        coverage: of the executed cells.

    Attributes:
        may_go_on: whether some of the cells may lie below an answer that the workflow's own check passes. Then none of them
            counts in the denominator, where it may turn out not to belong.
    """

    def __init__(self, coverage: Coverage) -> None:
        self.may_go_on = False
        self._coverage = coverage
        self._totals = coverage.totals.copy()
        self._unopened = coverage.unopened.copy()
        self._begun: set[str] = set()
        self._upper_usd = 0.0
        self._continued_usd, self._n_continued = coverage.continued_usd, coverage.n_continued

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
            visits: the stages and models of which the last of them may be.
            upper_usd: upper bound on its dollars.
            is_open: whether the executed cells show that its request reaches it.
            is_continued: whether they show that its request does not reach it.
        """
        if is_continued:
            self._continued_usd += upper_usd
            self._n_continued += 1
            return
        slots = [self._coverage.kinds.slots[visit] for visit in visits]
        for slot in slots:
            self._totals.add(length - 1, slot, 0, 0.0)
        if is_open and length == 1 and not self._coverage.is_known(request_id):
            self._begun.add(request_id)  # what else is open of the request has a price of at least nothing
        elif is_open:
            self._unopened[length - 1, slots[0]] -= 1
        self._upper_usd += upper_usd

    @property
    def most(self) -> float:
        """The bound; 1.0 where none is known."""
        extra, continued, certain = self._upper_usd, self._continued_usd, float(self._totals.paid.sum())
        is_free = self._coverage.is_free
        if is_free and (extra > 0 or continued > 0):
            return 1.0  # the first dollar decides whether coverage is measured in dollars or cells
        if is_free:
            extra, continued, certain = 0.0, float(self._n_continued), float(self._coverage.counts.sum())
        totals = self._totals.priced(is_free=is_free)
        paid = float(totals.paid.sum()) + extra
        unknown = self._coverage.unknown - len(self._begun)
        rest = float(totals.rest(self._unopened, unknown, is_least=bool(self._begun)))
        total = (certain if self.may_go_on else paid) + rest
        return min((paid + continued) / total, 1.0) if total > 0 else float(paid + continued > 0)
