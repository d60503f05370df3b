"""Coverage on a linear template, by (depth, model)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vinelm.profiler.coverage.base import N_DRAWS, Coverage, CoverageUpperBound
from vinelm.rows.observation import Observation
from vinelm.template import Template
from vinelm.trie.arrays import FloatArray

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


class LinearCoverage(Coverage[CellCounts]):
    """The coverage of a linear template. Arrays are (depth, models).

    Args:
        template: a bound template.
        n_requests: the number of requests in the profile.

    Attributes:
        allowed: 1 where a stage may run on a model.
        unopened: the number of open cells: reached, not executed.
    """

    def __init__(self, template: Template, n_requests: int) -> None:
        shape = (template.depth, len(template.models))
        super().__init__(template, CellCounts(np.zeros(shape), np.zeros(shape), np.zeros(shape)))
        self._index = {name: i for i, name in enumerate(template.models)}
        self.allowed: FloatArray = np.zeros(shape)
        for depth, stage in enumerate(template.invocations):
            self.allowed[depth, [self._index[name] for name in stage.models or ()]] = 1.0
        self._of_request: dict[str, CellCounts] = {}
        self.unopened: FloatArray = np.zeros(shape)
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
    def is_complete(self) -> bool:
        """Whether every reached cell is executed."""
        return not self.unopened.any()

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
        return self.totals if self.totals.paid.any() else self.totals.free()

    def upper_bound(self) -> LinearUpperBound:
        """Return the bound to which cells that may be executed can be added."""
        return LinearUpperBound(self)

    @property
    def _n_begun(self) -> int:
        return len(self._of_request)

    def _rest(self, totals: CellCounts) -> float:
        return float(totals.rest(self.unopened, self.allowed, np.ones(len(self.allowed))))

    def _rest_draws(self) -> FloatArray:
        seen = [self._of_request[request_id] for request_id in sorted(self._of_request)]  # whatever the order of the rows
        weights = np.random.default_rng(0).multinomial(len(seen), np.full(len(seen), 1 / len(seen)), size=N_DRAWS).astype(float)

        def drawn(arrays: list[FloatArray]) -> FloatArray:
            return np.asarray(np.einsum("br,rdm->bdm", weights, np.array(arrays), optimize=True))

        counts = drawn([one.counts for one in seen])
        paid = drawn([one.paid for one in seen]) if self.totals.paid.any() else counts
        totals = CellCounts(counts, paid, drawn([one.went_on for one in seen]))
        return totals.rest(self.unopened, self.allowed, np.ones(len(self.allowed)))


class LinearUpperBound(CoverageUpperBound):
    """The bound on a linear template.

    Where some of the cells may turn out not to be reached by the stop rule, none of them counts in the denominator.
    """

    def __init__(self, coverage: LinearCoverage) -> None:
        super().__init__()
        self._coverage = coverage
        self._tally = coverage.totals.copy()
        self._unopened = coverage.unopened.copy()
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
        """Add a cell that may be executed; see :meth:`CoverageUpperBound.add`."""
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
            totals, extra, continued = totals.free(), 0.0, float(self._n_continued)
            certain = float(self._coverage.counts.sum())
        paid = float(totals.paid.sum()) + extra
        rest = float(totals.rest(self._unopened, self._coverage.allowed, np.ones(len(self._unopened))))
        total = (certain if self.may_go_on else paid) + rest
        return min((paid + continued) / total, 1.0) if total > 0 else float(paid + continued > 0)
