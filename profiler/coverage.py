"""Coverage: the share of an exhaustive profile's dollars that has been spent, while its total is still an estimate.

``coverage`` is the dollars of executed (request, node) cells over the dollars of running every request on every *reached* node
once, with stops respected and prefixes checkpointed. The denominator is estimated: the dollars spent, plus for each open cell
(reached, not executed) the expected price of its subtree from mean costs and continuation rates per (depth, model). It is
exact once everything is executed. Where every cell was free so far, cells are counted instead of dollars.

Cells below an answer that the workflow's own check passed are not reached: they are no part of the denominator. What they cost
is spent all the same and counts in the numerator, so that a run which stops at a coverage has spent no more than that fraction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vinelm.observation import Observation
from vinelm.profiler.branching_coverage import BranchingCoverage
from vinelm.template import Template
from vinelm.trie import FloatArray

_DRAWS = 200


class Coverage:
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
        self.continued_usd = 0.0
        """The dollars of executed cells that their requests do not reach by the stop rule."""
        self.n_continued = 0
        self.unopened[0] = n_requests * self.allowed[0]

    def add(self, observation: Observation) -> None:
        """Add one executed cell."""
        if observation.is_continued:
            self.n_continued += 1
            self.continued_usd += observation.cost_usd + observation.tool_cost_usd
            return
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
    def counts(self) -> FloatArray:
        """The number of executed cells, (depth, models)."""
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
    def is_complete(self) -> bool:
        """Whether every reached cell is executed."""
        return not self.unopened.any()

    @property
    def fraction(self) -> float:
        """The coverage, in [0, 1]: 0 before the first cell, 1 exactly when every reached cell is executed."""
        if self.is_complete:
            return 1.0
        totals = self.measure()
        paid = float(totals.paid.sum())
        total = paid + self._rest(totals)
        return min((paid + self.continued) / total, 1.0) if total > 0 else 0.0

    @property
    def continued(self) -> float:
        """What the cells that are not reached add to the numerator: dollars, or cells while every cell was free."""
        return self.continued_usd if self.totals.paid.any() else float(self.n_continued)

    def interval(self, level: float = 0.9) -> tuple[float, float]:
        """Return bounds that contain :attr:`fraction` with probability ``level``, by a bootstrap over requests (fixed seed).

        Requests are resampled whole, because the cells of one request are correlated. (0, 1) with fewer than two requests.
        """
        if self.is_complete:
            return 1.0, 1.0
        if len(self._of_request) < 2:
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

    def naive_usd(self) -> float:
        """Return the estimated dollars of every request on every leaf path from the root, nothing shared, stops respected."""
        if not self.counts.any():
            return 0.0
        choices = self.allowed.sum(axis=1)
        weight = np.array([choices[d + 1 :].prod() for d in range(len(choices))])
        paid = float((weight[:, None] * self.totals.paid).sum())
        return paid + float(self.totals.rest(self.unopened, self.allowed, weight))

    def measure(self) -> CellCounts:
        """Return the counts that coverage is measured by: dollars, or cells while every cell was free."""
        totals = self.totals
        return totals if totals.paid.any() else CellCounts(totals.counts, totals.counts, totals.went_on)

    def upper_bound(self) -> CoverageUpperBound:
        """Return the bound to which cells that may be executed can be added."""
        return CoverageUpperBound(self)

    def _rest(self, totals: CellCounts) -> float:
        return float(totals.rest(self.unopened, self.allowed, np.ones(len(self.allowed))))

    def _rest_draws(self) -> FloatArray:
        seen = [self._of_request[request_id] for request_id in sorted(self._of_request)]  # whatever the order of the rows
        weights = np.random.default_rng(0).multinomial(len(seen), np.full(len(seen), 1 / len(seen)), size=_DRAWS).astype(float)

        def drawn(arrays: list[FloatArray]) -> FloatArray:
            return np.asarray(np.einsum("br,rdm->bdm", weights, np.array(arrays), optimize=True))

        counts = drawn([one.counts for one in seen])
        paid = drawn([one.paid for one in seen]) if self.totals.paid.any() else counts
        totals = CellCounts(counts, paid, drawn([one.went_on for one in seen]))
        return totals.rest(self.unopened, self.allowed, np.ones(len(self.allowed)))


class CoverageUpperBound:
    """Upper bound on the coverage, over all outcomes of cells that are in flight or may be executed earlier.

    Never too low, whichever of these cells are executed: the dollars paid take their upper bound, and the dollars remaining
    their lower bound, with every such cell free and its request ended (so means, rates and open cells only decrease). Where
    some of these cells may turn out not to be reached by the stop rule, none of them counts in the denominator.
    """

    def __init__(self, coverage: Coverage) -> None:
        self._coverage = coverage
        self._tally = coverage.totals.copy()
        self._unopened = coverage.unopened.copy()
        self._upper_usd = 0.0
        self._continued_usd, self._n_continued = coverage.continued_usd, coverage.n_continued
        self.may_go_on = False
        """Whether some of the cells may lie below an answer that the workflow's own check passes."""

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
            visits: stage and model of the last of them: here only one is possible.
            upper_usd: upper bound on its dollars.
            is_open: whether the executed cells show that its request reaches it.
            is_continued: whether they show that its request does not reach it.
        """
        if is_continued:
            self._continued_usd += upper_usd
            self._n_continued += 1
            return
        at = self._coverage.place((*[""] * (length - 1), visits[0][1]))
        self._tally.counts[at] += 1
        self._unopened[at] -= is_open
        self._upper_usd += upper_usd

    @property
    def most(self) -> float:
        """The bound; 1.0 where none is known."""
        totals, extra, continued = self._tally, self._upper_usd, self._continued_usd
        certain = float(totals.paid.sum())
        if not totals.paid.any():
            if extra > 0 or continued > 0:
                return 1.0  # the first dollar decides whether coverage is measured in dollars or cells
            totals, extra, continued = CellCounts(totals.counts, totals.counts, totals.went_on), 0.0, float(self._n_continued)
            certain = float(self._coverage.counts.sum())
        paid = float(totals.paid.sum()) + extra
        rest = float(totals.rest(self._unopened, self._coverage.allowed, np.ones(len(self._unopened))))
        total = (certain if self.may_go_on else paid) + rest
        return min((paid + continued) / total, 1.0) if total > 0 else float(paid + continued > 0)


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
