"""Coverage on a template that branches: the price of what is open weighs the stages that may come next."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vinelm.profiler.coverage.base import N_DRAWS, Coverage, CoverageUpperBound
from vinelm.profiler.coverage.branching_counts import CellKinds, OutcomeCounts
from vinelm.rows.observation import Observation
from vinelm.template import Template
from vinelm.trie.arrays import FloatArray


class BranchingCoverage(Coverage[OutcomeCounts]):
    """The coverage of a template that branches. No path goes on past the end of its request here.

    Args:
        template: a bound template that branches.
        n_requests: the number of requests in the profile.

    Attributes:
        kinds: of the cells.
        unopened: the number of open cells of each kind: reached, not executed. Without those of :attr:`unknown`.
        unknown: how many requests have no row yet, so that it is not known which of several stages comes first.
    """

    def __init__(self, template: Template, n_requests: int) -> None:
        self.kinds = CellKinds.of(template)
        super().__init__(template, OutcomeCounts.none(self.kinds))
        self.unopened: FloatArray = np.zeros(self.kinds.shape)
        self._is_first_known = len(self.kinds.first) == 1
        self.unknown = 0 if self._is_first_known else n_requests
        if self._is_first_known:
            self.unopened[0, self.kinds.stage == self.kinds.first[0]] = n_requests
        self._requests: dict[str, int] = {}
        self._events: list[tuple[int, int, int, int, float]] = []

    def add(self, observation: Observation) -> None:
        """Add one executed cell."""
        kinds, depth = self.kinds, observation.depth - 1
        slot, stage = kinds.slots[observation.stage, observation.model], kinds.stages[observation.stage]
        if observation.request_id not in self._requests:
            self._requests[observation.request_id] = len(self._requests)
            if not self._is_first_known:
                self.unknown -= 1
                self.unopened[0, kinds.stage == (stage if depth == 0 else kinds.first[0])] += 1
        arm = self._arm(observation, depth)
        outcome = 0 if arm is None else 1 + arm
        usd = observation.cost_usd + observation.tool_cost_usd
        self.totals.add(depth, slot, outcome, usd)
        self._events.append((self._requests[observation.request_id], depth, slot, outcome, usd))
        self.unopened[depth, slot] -= 1
        if arm is not None:
            self.unopened[depth + 1, kinds.stage == arm] += 1

    def is_known(self, request_id: str) -> bool:
        """Whether the template, or a row, tells which stage comes first in the request."""
        return self._is_first_known or request_id in self._requests

    def upper_bound(self) -> BranchingUpperBound:
        """Return the bound to which cells that may be executed can be added."""
        return BranchingUpperBound(self)

    def _arm(self, row: Observation, depth: int) -> int | None:
        """The number of the stage to which the request goes on after the row; None if the template or the request ends."""
        followers = self.template.flow.stages_at[depth][row.stage]
        if row.ended(self.template.stop) or not followers:
            return None
        if row.arm is None and len(followers) > 1:
            return None
        return self.kinds.stages[followers[0] if row.arm is None else row.arm]

    @property
    def is_complete(self) -> bool:
        """Whether every reached cell is executed."""
        return self.unknown <= 0 and not self.unopened.any()

    def naive_usd(self) -> float:
        """Return the estimated dollars of every request along each of its reached histories to their ends, nothing shared."""
        if not self.counts.any():
            return 0.0
        weight = self.totals.leaves()
        return float((weight * self.totals.paid).sum()) + float(self.totals.rest(self.unopened, self.unknown, weight))

    def measure(self) -> OutcomeCounts:
        """Return the counts that coverage is measured by: dollars, or cells while every cell was free."""
        return self.totals if self.totals.paid.any() else self.totals.free()

    @property
    def _n_begun(self) -> int:
        return len(self._requests)

    def _rest(self, totals: OutcomeCounts) -> float:
        return float(totals.rest(self.unopened, self.unknown))

    def _rest_draws(self) -> FloatArray:
        return self._drawn().rest(self.unopened, self.unknown)

    def _drawn(self) -> OutcomeCounts:
        """The totals of resampled requests, with the draws as the first axis."""
        order = np.argsort([number for _, number in sorted(self._requests.items())])  # whatever the order of the rows
        n, (depth, slots) = len(order), self.kinds.shape
        weights = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=N_DRAWS).astype(float)[:, order]
        events = np.array([event[:4] for event in self._events])
        usd = np.array([event[4] for event in self._events])
        shape = self.totals.outcomes.shape
        place = np.ravel_multi_index((events[:, 1], events[:, 2], events[:, 3]), shape)
        cell = np.ravel_multi_index((events[:, 1], events[:, 2]), (depth, slots))
        drawn = weights[:, events[:, 0]]
        size = int(np.prod(shape))
        outcomes = np.array([np.bincount(place, one, size) for one in drawn]).reshape(N_DRAWS, *shape)
        paid = np.array([np.bincount(cell, one * usd, depth * slots) for one in drawn]).reshape(N_DRAWS, depth, slots)
        found = OutcomeCounts(self.kinds, outcomes, paid)
        return found if self.totals.paid.any() else found.free()


class BranchingUpperBound(CoverageUpperBound):
    """The bound on a template that branches. A cell whose stage is not known counts for every stage that it may be of."""

    def __init__(self, coverage: BranchingCoverage) -> None:
        super().__init__()
        self._coverage = coverage
        self._totals = coverage.totals.copy()
        self._unopened = coverage.unopened.copy()
        self._begun: set[str] = set()
        self._upper_usd = 0.0

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
        """Add a cell that may be executed; see :meth:`CoverageUpperBound.add`."""
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
        totals, extra = self._totals, self._upper_usd
        if not totals.paid.any():
            if extra > 0:
                return 1.0  # the first dollar decides whether coverage is measured in dollars or cells
            totals, extra = totals.free(), 0.0
        paid = float(totals.paid.sum()) + extra
        unknown = self._coverage.unknown - len(self._begun)
        rest = float(totals.rest(self._unopened, unknown, is_least=bool(self._begun)))
        return paid / (paid + rest) if paid + rest > 0 else 0.0
