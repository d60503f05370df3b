"""Coverage: the share of an exhaustive profile's dollars that has been spent, while its total is still an estimate.

``coverage`` is the dollars of executed (request, node) cells over the dollars of running every request on every *reached* node
once, with stops respected and prefixes checkpointed. The denominator is estimated: the dollars spent, plus for each open cell
(reached, not executed) the expected price of its subtree from mean costs and continuation rates per (depth, model). It is
exact once everything is executed. Where every cell was free so far, cells are counted instead of dollars.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vinelm.observation import Observation
from vinelm.profiler.branching_coverage import BranchingCoverage
from vinelm.profiler.running_coverage import RunningBound, RunningCoverage
from vinelm.template import Template
from vinelm.trie import FloatArray


class Coverage(RunningCoverage["CellCounts"]):
    """Running totals of the executed cells of a linear template. Add each cell once, parents before children.

    Arrays are (depth, models).

    Args:
        template: a bound template.
        n_requests: the number of requests in the profile.
    """

    def __init__(self, template: Template, n_requests: int) -> None:
        self.template = template
        self._index = {name: i for i, name in enumerate(template.models)}
        shape = (template.depth, len(template.models))
        self.allowed: FloatArray = np.zeros(shape)
        for depth, stage in enumerate(template.invocations):
            self.allowed[depth, [self._index[name] for name in stage.models or ()]] = 1.0
        self.totals = CellCounts(np.zeros(shape), np.zeros(shape), np.zeros(shape))
        self._of_request: dict[str, CellCounts] = {}
        self.unopened: FloatArray = np.zeros(shape)
        """The number of open cells: reached, not executed."""
        self.unopened[0] = n_requests * self.allowed[0]

    def add(self, observation: Observation) -> None:
        """Add one executed cell."""
        depth, _ = at = self.place(observation.prefix)
        mine = self._of_request.get(observation.request_id)
        if mine is None:
            shape = self.unopened.shape
            mine = self._of_request[observation.request_id] = CellCounts(np.zeros(shape), np.zeros(shape), np.zeros(shape))
        went_on = not observation.ended(self.template.stop)
        for totals in (self.totals, mine):
            totals.counts[at] += 1
            totals.paid[at] += observation.cost_usd + observation.tool_cost_usd
            totals.went_on[at] += went_on
        self.unopened[at] -= 1
        if went_on and depth + 1 < self.template.depth:
            self.unopened[depth + 1] += self.allowed[depth + 1]

    def place(self, prefix: Sequence[str]) -> tuple[int, int]:
        """Return the cell's position in the arrays: (depth from 0, model)."""
        return len(prefix) - 1, self._index[prefix[-1]]

    @property
    def is_complete(self) -> bool:
        """Whether every reached cell is executed."""
        return not self.unopened.any()

    @property
    def n_observed(self) -> int:
        """The number of requests that have an executed cell."""
        return len(self._of_request)

    def naive_usd(self) -> float:
        """Return the estimated dollars of every request on every leaf path from the root, nothing shared, stops respected."""
        if not self.counts.any():
            return 0.0
        choices = self.allowed.sum(axis=1)
        weight = np.array([choices[d + 1 :].prod() for d in range(len(choices))])
        paid = float((weight[:, None] * self.totals.paid).sum())
        return paid + float(self.totals.rest(self.unopened, self.allowed, weight))

    def upper_bound(self) -> CoverageUpperBound:
        """Return the bound to which cells that may be executed can be added."""
        return CoverageUpperBound(self)

    def _rest(self, totals: CellCounts) -> FloatArray:
        return totals.rest(self.unopened, self.allowed, np.ones(len(self.allowed)))

    def _drawn(self, weights: FloatArray) -> CellCounts:
        seen = [self._of_request[request_id] for request_id in sorted(self._of_request)]  # whatever the order of the rows

        def drawn(arrays: list[FloatArray]) -> FloatArray:
            return np.asarray(np.einsum("br,rdm->bdm", weights, np.array(arrays), optimize=True))

        return CellCounts(*(drawn([getattr(one, name) for one in seen]) for name in ("counts", "paid", "went_on")))


class CoverageUpperBound(RunningBound["CellCounts"]):
    """Upper bound on the coverage of a linear template; see :class:`RunningBound`."""

    def __init__(self, coverage: Coverage) -> None:
        self._coverage = coverage
        self._totals = coverage.totals.copy()
        self._unopened = coverage.unopened.copy()
        self._upper_usd = 0.0

    def add(self, request_id: str, length: int, visits: Sequence[tuple[str, str]], upper_usd: float, *, is_open: bool) -> None:
        """Add a cell that may be executed, at a cost of at most ``upper_usd``.

        Args:
            request_id: of the cell.
            length: the number of its invocations.
            visits: stage and model of the last of them: here only one is possible.
            upper_usd: upper bound on its dollars.
            is_open: whether the executed cells show that its request reaches it.
        """
        at = self._coverage.place((*[""] * (length - 1), visits[0][1]))
        self._totals.counts[at] += 1
        self._unopened[at] -= is_open
        self._upper_usd += upper_usd

    def _least_rest(self, totals: CellCounts) -> float:
        return float(totals.rest(self._unopened, self._coverage.allowed, np.ones(len(self._unopened))))


def new_coverage(template: Template, n_requests: int) -> Coverage | BranchingCoverage:
    """Return the coverage of no cells: :class:`BranchingCoverage` if the template is not linear."""
    return Coverage(template, n_requests) if template.is_linear else BranchingCoverage(template, n_requests)


def coverage_of(observations: Sequence[Observation], template: Template, n_requests: int) -> Coverage | BranchingCoverage:
    """Return the coverage of a set of rows, in any order.

    Args:
        observations: the rows of these requests.
        template: a bound template.
        n_requests: the number of requests in the profile.
    """
    coverage = new_coverage(template, n_requests)
    for observation in sorted(observations, key=lambda o: o.depth):
        coverage.add(observation)
    return coverage


_COST_PRIOR = 4.0  # weight, in observations, of the model's mean over all depths
_RATE_PRIOR = 4.0  # weight, in observations, of the depth's mean over all models


@dataclass(slots=True)
class CellCounts:
    """Executed cells by (depth, model): how many, their total dollars, how many of them continued."""

    counts: FloatArray
    paid: FloatArray
    went_on: FloatArray

    def copy(self) -> CellCounts:
        """Return a copy with its own arrays."""
        return CellCounts(self.counts.copy(), self.paid.copy(), self.went_on.copy())

    def free(self) -> CellCounts:
        """Return the same cells at a price of one each."""
        return CellCounts(self.counts, self.counts, self.went_on)

    def means(self) -> FloatArray:
        """Return the mean cost of a cell, shrunk towards the model's mean over depths, or the overall mean for a new model."""
        ran = self.counts.sum(axis=-2, keepdims=True)
        overall = _total(self.paid) / np.maximum(_total(self.counts), 1.0)
        of_model = np.where(ran > 0, self.paid.sum(axis=-2, keepdims=True) / np.maximum(ran, 1.0), overall)
        return np.asarray((self.paid + _COST_PRIOR * of_model) / (self.counts + _COST_PRIOR))

    def rates(self) -> FloatArray:
        """Return P(a request continues) for each cell, shrunk towards its depth's rate, and that towards the overall rate."""
        overall = (_total(self.went_on) + 1.0) / (_total(self.counts) + 2.0)
        ran = self.counts.sum(axis=-1, keepdims=True)
        of_depth = (self.went_on.sum(axis=-1, keepdims=True) + _RATE_PRIOR * overall) / (ran + _RATE_PRIOR)
        return np.asarray((self.went_on + _RATE_PRIOR * of_depth) / (self.counts + _RATE_PRIOR))

    def rest(self, unopened: FloatArray, allowed: FloatArray, weight: FloatArray) -> FloatArray:
        """Return the expected price of the subtrees of the open cells.

        Args:
            unopened: the number of open cells, (depth, models).
            allowed: 1 where a stage may run on a model, (depth, models).
            weight: how often a cell counts, (depth,).
        """
        cost, rate = self.means(), self.rates()
        total = below = np.zeros(cost.shape[:-2])  # below: expected price of the children's subtrees, if the request continues
        for depth in range(cost.shape[-2] - 1, -1, -1):
            subtree = weight[depth] * cost[..., depth, :] + rate[..., depth, :] * below[..., None]
            total = total + subtree @ unopened[depth]
            below = subtree @ allowed[depth]
        return np.asarray(total)


def _total(values: FloatArray) -> FloatArray:
    return np.asarray(values.sum(axis=(-2, -1), keepdims=True))
