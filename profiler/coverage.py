"""How much of the whole has been bought, when the price of the whole is not known yet.

``coverage`` is dollars of executed (request, node) cells over dollars of running every request on every *reached* node once,
stops respected and prefixes checkpointed; a cell that is met again is free. The denominator is estimated: what was paid, plus
for each open cell (reached, not run) the expected price of its subtree from mean costs and continuation rates per
(depth, model). It is exact once everything is run. Where every cell was free so far, cells are counted instead of dollars.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vinelm.observation import Observation
from vinelm.template import Template
from vinelm.trie import FloatArray

_DRAWS = 200


class Coverage:
    """Running account of what was executed. Feed each cell once, parents before children; arrays are (depth, models)."""

    def __init__(self, template: Template, n_requests: int) -> None:
        self.template = template
        self._index = {name: i for i, name in enumerate(template.models)}
        shape = (template.depth, len(template.models))
        self.allowed: FloatArray = np.zeros(shape)
        for depth, stage in enumerate(template.invocations):
            self.allowed[depth, [self._index[name] for name in stage.models or ()]] = 1.0
        self.tally = CellCounts(np.zeros(shape), np.zeros(shape), np.zeros(shape))
        self._of_request: dict[str, CellCounts] = {}
        self.unopened: FloatArray = np.zeros(shape)
        """Cells that are reached and not run."""
        self.unopened[0] = n_requests * self.allowed[0]

    def add(self, observation: Observation) -> None:
        """One executed cell."""
        depth, _ = at = self.place(observation.prefix)
        mine = self._of_request.get(observation.request_id)
        if mine is None:
            shape = self.unopened.shape
            mine = self._of_request[observation.request_id] = CellCounts(np.zeros(shape), np.zeros(shape), np.zeros(shape))
        went_on = not observation.ended(self.template.stop)
        for tally in (self.tally, mine):
            tally.counts[at] += 1
            tally.paid[at] += observation.cost_usd + observation.tool_cost_usd
            tally.went_on[at] += went_on
        self.unopened[at] -= 1
        if went_on and depth + 1 < self.template.depth:
            self.unopened[depth + 1] += self.allowed[depth + 1]

    def place(self, prefix: Sequence[str]) -> tuple[int, int]:
        """Where a cell is counted: (depth from 0, model)."""
        return len(prefix) - 1, self._index[prefix[-1]]

    @property
    def counts(self) -> FloatArray:
        """Executed cells."""
        return self.tally.counts

    @property
    def counts_per_depth(self) -> tuple[int, ...]:
        """Executed cells of each depth, from 1."""
        return tuple(int(n) for n in self.counts.sum(axis=1))

    @property
    def spent_usd(self) -> float:
        """Dollars of the executed cells, tools included."""
        return float(self.tally.paid.sum())

    @property
    def is_complete(self) -> bool:
        """Every reached cell is executed."""
        return not self.unopened.any()

    @property
    def fraction(self) -> float:
        """Coverage so far, in [0, 1]. 0 before anything is known, 1 exactly when everything is run."""
        if self.is_complete:
            return 1.0
        tally = self.in_force()
        total = float(tally.paid.sum()) + self._rest(tally)
        return float(tally.paid.sum()) / total if total > 0 else 0.0

    def interval(self, level: float = 0.9) -> tuple[float, float]:
        """Bounds of :attr:`fraction`, by a bootstrap over the requests seen (fixed seed: the same account, the same bounds).

        Requests are drawn whole, because the cells of a hard one go on together. (0, 1) before anything is known.
        """
        if self.is_complete:
            return 1.0, 1.0
        if len(self._of_request) < 2:
            return 0.0, 1.0
        paid = float(self.in_force().paid.sum())
        rest = self._rest_draws()
        fractions = np.divide(paid, paid + rest, out=np.ones_like(rest), where=paid + rest > 0)
        low, high = np.quantile(fractions, [(1 - level) / 2, (1 + level) / 2])
        return min(float(low), self.fraction), max(float(high), self.fraction)

    def exhaustive_usd(self) -> float:
        """Estimated dollars of every reached cell once; 0.0 before anything is known."""
        return self.spent_usd + (self._rest(self.tally) if self.counts.any() else 0.0)

    def naive_usd(self) -> float:
        """Estimated dollars of every request on every leaf path from the root, nothing shared, stops respected."""
        if not self.counts.any():
            return 0.0
        choices = self.allowed.sum(axis=1)
        weight = np.array([choices[d + 1 :].prod() for d in range(len(choices))])
        paid = float((weight[:, None] * self.tally.paid).sum())
        return paid + float(self.tally.rest(self.unopened, self.allowed, weight))

    def in_force(self) -> CellCounts:
        """The tally that coverage is measured by: dollars, or cells where every one was free."""
        tally = self.tally
        return tally if tally.paid.any() else CellCounts(tally.counts, tally.counts, tally.went_on)

    def _rest(self, tally: CellCounts) -> float:
        return float(tally.rest(self.unopened, self.allowed, np.ones(len(self.allowed))))

    def _rest_draws(self) -> FloatArray:
        seen = [self._of_request[request_id] for request_id in sorted(self._of_request)]  # whoever came first
        weights = np.random.default_rng(0).multinomial(len(seen), np.full(len(seen), 1 / len(seen)), size=_DRAWS).astype(float)

        def drawn(arrays: list[FloatArray]) -> FloatArray:
            return np.asarray(np.einsum("br,rdm->bdm", weights, np.array(arrays), optimize=True))

        counts = drawn([one.counts for one in seen])
        paid = drawn([one.paid for one in seen]) if self.tally.paid.any() else counts
        tally = CellCounts(counts, paid, drawn([one.went_on for one in seen]))
        return tally.rest(self.unopened, self.allowed, np.ones(len(self.allowed)))


class CoverageUpperBound:
    """How far coverage may be at most, whatever comes of cells that are under way or may come before another one.

    Never too low, for any subset of them run: paid is at its upper bound, and the rest is at its least, with every such cell
    free and its request at an end (means, rates and open cells only go down that way).
    """

    def __init__(self, account: Coverage) -> None:
        self._account = account
        self._tally = account.tally.copy()
        self._unopened = account.unopened.copy()
        self._upper = 0.0
        self._cells = 0

    def add(self, prefix: Sequence[str], upper_usd: float, *, is_open: bool) -> None:
        """One more cell that may be run, for that much at most; ``is_open``: its request is known to have come that far."""
        at = self._account.place(prefix)
        self._tally.counts[at] += 1
        self._unopened[at] -= is_open
        self._upper += upper_usd
        self._cells += 1

    @property
    def most(self) -> float:
        """The bound; 1.0 where nothing better is known."""
        tally, extra = self._tally, self._upper
        if not tally.paid.any():
            if extra > 0:
                return 1.0  # the first dollar decides what coverage is measured in
            tally, extra = CellCounts(tally.counts, tally.counts, tally.went_on), 0.0
        paid = float(tally.paid.sum()) + extra
        rest = float(tally.rest(self._unopened, self._account.allowed, np.ones(len(self._unopened))))
        return paid / (paid + rest) if paid + rest > 0 else 0.0


def coverage_of(observations: Sequence[Observation], template: Template, n_requests: int) -> Coverage:
    """The account of a finished set of rows; parents are taken before children whatever their order."""
    account = Coverage(template, n_requests)
    for observation in sorted(observations, key=lambda o: o.depth):
        account.add(observation)
    return account


_COST_PRIOR = 4.0  # observations' worth of the model's mean over all depths
_RATE_PRIOR = 4.0  # observations' worth of the depth's mean over all models


@dataclass(slots=True)
class CellCounts:
    """Executed cells: how many, what they cost in all, how many of them went on."""

    counts: FloatArray
    paid: FloatArray
    went_on: FloatArray

    def copy(self) -> CellCounts:
        """Arrays of its own."""
        return CellCounts(self.counts.copy(), self.paid.copy(), self.went_on.copy())

    def means(self) -> FloatArray:
        """Cost per cell, shrunk towards the model's mean over depths; towards everybody's for a model never run."""
        ran = self.counts.sum(axis=-2, keepdims=True)
        overall = _total(self.paid) / np.maximum(_total(self.counts), 1.0)
        of_model = np.where(ran > 0, self.paid.sum(axis=-2, keepdims=True) / np.maximum(ran, 1.0), overall)
        return np.asarray((self.paid + _COST_PRIOR * of_model) / (self.counts + _COST_PRIOR))

    def rates(self) -> FloatArray:
        """P(a request goes on) per cell, shrunk towards its depth's, and that towards the overall rate."""
        overall = (_total(self.went_on) + 1.0) / (_total(self.counts) + 2.0)
        ran = self.counts.sum(axis=-1, keepdims=True)
        of_depth = (self.went_on.sum(axis=-1, keepdims=True) + _RATE_PRIOR * overall) / (ran + _RATE_PRIOR)
        return np.asarray((self.went_on + _RATE_PRIOR * of_depth) / (self.counts + _RATE_PRIOR))

    def rest(self, unopened: FloatArray, allowed: FloatArray, weight: FloatArray) -> FloatArray:
        """Expected price of the subtrees of open cells (reached, not run); each cell counts ``weight[depth]`` times.

        ``unopened`` has the number of open cells, ``allowed`` 1 where a stage may run on a model; both (depth, models).
        """
        cost, rate = self.means(), self.rates()
        total = below = np.zeros(cost.shape[:-2])  # below: expected price of the children's subtrees, if the request goes on
        for depth in range(cost.shape[-2] - 1, -1, -1):
            subtree = weight[depth] * cost[..., depth, :] + rate[..., depth, :] * below[..., None]
            total = total + subtree @ unopened[depth]
            below = subtree @ allowed[depth]
        return np.asarray(total)


def _total(values: FloatArray) -> FloatArray:
    return np.asarray(values.sum(axis=(-2, -1), keepdims=True))
