"""Computes the coverage: the fraction of an exhaustive profile's cost that has been spent. The total is an estimate.

``coverage`` is the cost of the executed calls, divided by the cost of running every request on every *reached* node once. A
call is a (request, node) pair. Requests end at a passed check, and common prefixes are executed once. The denominator is
estimated: the cost so far, plus the expected cost of each open call (reached, not executed) and of the calls after it. Mean
costs and continuation rates give these expected costs. The denominator is exact once all reached calls are executed. If all
calls so far were free, calls are counted instead of dollars.

Calls after an answer that the workflow's own check passed are not reached and do not count in the denominator. Their cost
counts in the numerator, so that a run that stops at a coverage has spent at most that fraction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from vinelm.rows.observation import Observation
from vinelm.template import Template
from vinelm.trie.arrays import FloatArray

N_DRAWS = 200
"""The number of resamples of the requests for :meth:`Coverage.interval`."""
_COST_PRIOR = 4.0  # weight, in observations, of the mean over all depths
_RATE_PRIOR = 4.0  # weight, in observations, of the stage's rates over all models, and of the overall rate
_ENDED, _UNKNOWN, _WENT_ON = 0, 1, 2
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class CellKinds:
    """Numbers the kinds of calls that a template allows, for use as indices of arrays.

    A *slot* is a (stage, model) pair. A *kind* of call is a slot at a depth; depths are counted from 0 here.

    Attributes:
        slots: the index of each (stage, model) pair.
        stage, model: for each slot, the index of its stage and of its model; shape (slots,) each.
        stages: the index of each stage, by stage name.
        allowed: 1 at [d, i, j] if the stage with index j may follow the stage with index i at depth d, otherwise 0; shape
            (depth, stages, stages).
        first: the indices of the stages that may come first.
        template: the template.
    """

    slots: dict[tuple[str, str], int]
    stage: Ints
    model: Ints
    stages: dict[str, int]
    allowed: FloatArray
    first: tuple[int, ...]
    template: Template

    @classmethod
    def of(cls, template: Template) -> CellKinds:
        """Return the kinds of calls that a template allows: its depths and its pairs of stage and model.

        The template must be bound to models.
        """
        models = {name: i for i, name in enumerate(template.models)}
        stages = {stage.name: i for i, stage in enumerate(template.stages)}
        pairs = [(stage.name, model) for stage in template.stages for model in stage.models or ()]
        levels = template.flow.stages_at
        allowed = np.zeros((len(levels), len(stages), len(stages)))
        for depth, level in enumerate(levels):
            for stage, followers in level.items():
                allowed[depth, stages[stage], [stages[name] for name in followers]] = 1.0
        return cls(
            {pair: i for i, pair in enumerate(pairs)},
            np.array([stages[stage] for stage, _ in pairs]),
            np.array([models[model] for _, model in pairs]),
            stages,
            allowed,
            tuple(stages[stage.name] for stage in template.first_stages),
            template,
        )

    @property
    def shape(self) -> tuple[int, int]:
        """The shape (depth, slots) of arrays with an element for each kind of call; a slot is a (stage, model) pair."""
        return len(self.allowed), len(self.stage)

    @cached_property
    def is_mixed(self) -> bool:
        """Whether several stages may run at one depth, so that a depth does not determine the stage."""
        return any(len(level) > 1 for level in self.template.flow.stages_at)

    @cached_property
    def of_stage(self) -> FloatArray:
        """A 0/1 matrix that says which stage each (stage, model) pair has; shape (pairs, stages)."""
        return np.asarray(np.eye(len(self.stages))[self.stage])

    @cached_property
    def of_model(self) -> FloatArray:
        """A 0/1 matrix that says which model each (stage, model) pair has; shape (pairs, models)."""
        return np.asarray(np.eye(int(self.model.max()) + 1)[self.model])

    @cached_property
    def even(self) -> FloatArray:
        """For each depth and stage, the probability of each next stage if all allowed stages are equally likely.

        The shape is (depth, stages, stages), as that of :attr:`allowed`. The last axis stands for the next stage.
        """
        return np.asarray(self.allowed / np.maximum(self.allowed.sum(axis=-1, keepdims=True), 1.0))

    def place(self, row: Observation) -> tuple[int, int, int]:
        """Return three indices that describe a result: its depth from 0, its pair of stage and model, and what came next.

        The pair is an index into :attr:`slots`. What came next, a stage or the end, is an index on the last axis of
        :attr:`CellCounts.outcomes`.
        """
        return row.depth - 1, self.slots[row.stage, row.model], self._outcome(row)

    def stage_of(self, outcome: int) -> int | None:
        """Return the index of the stage to which a request continued; None if the request ended or the stage is unknown.

        ``outcome`` is an index on the last axis of :attr:`CellCounts.outcomes`, as :meth:`place` returns it.
        """
        return outcome - _WENT_ON if outcome >= _WENT_ON else None

    def _outcome(self, row: Observation) -> int:
        if row.ended(self.template.stop):
            return _ENDED
        followers = self.template.flow.stages_at[row.depth - 1][row.stage]
        after = row.next_stage(followers)
        return _UNKNOWN if after is None else _WENT_ON + self.stages[after]


@dataclass(slots=True)
class CellCounts:
    """Counts of executed calls by kind. A kind is a depth (from 0) and a slot (stage and model).

    The arrays may have further axes in front, such as one for resampled requests.

    Attributes:
        outcomes: the number of calls by what came next; shape (depth, slots, 2 + stages). On the last axis, 0 means that the
            request ended, and 1 that it continued to an unknown stage. 2 + i means that it continued to the stage with index i.
        paid: the total cost of the calls, in dollars; shape (depth, slots).
    """

    kinds: CellKinds
    outcomes: FloatArray
    paid: FloatArray

    @classmethod
    def none(cls, kinds: CellKinds) -> CellCounts:
        """Return counts that are all 0."""
        return cls(kinds, np.zeros((*kinds.shape, _WENT_ON + len(kinds.stages))), np.zeros(kinds.shape))

    @property
    def counts(self) -> FloatArray:
        """The number of calls at each depth, of each (stage, model) pair (slot); shape (depth, slots)."""
        return np.asarray(self.outcomes.sum(axis=-1))

    def add(self, depth: int, slot: int, outcome: int, usd: float) -> None:
        """Add a call that cost ``usd`` dollars; the other arguments are the indices from :meth:`CellKinds.place`."""
        self.outcomes[depth, slot, outcome] += 1
        self.paid[depth, slot] += usd

    def copy(self) -> CellCounts:
        """Return a copy with separate arrays."""
        return CellCounts(self.kinds, self.outcomes.copy(), self.paid.copy())

    def priced(self, *, is_free: bool) -> CellCounts:
        """Return these counts; if ``is_free``, with a cost of 1 for each call instead of its dollars."""
        return replace(self, paid=self.counts) if is_free else self

    def means(self) -> FloatArray:
        """Return the mean cost of each kind of call; shape (depth, slots). A slot is a (stage, model) pair.

        The mean is shrunk towards its model's mean (for a new model, the overall mean). If several stages share a depth, it is
        instead shrunk towards the mean of its stage and model over all depths. That mean is shrunk towards the model's mean.
        """
        counts, of_model = self.counts, self.kinds.of_model
        ran, paid = counts.sum(axis=-2), self.paid.sum(axis=-2)
        overall = paid.sum(axis=-1, keepdims=True) / np.maximum(ran.sum(axis=-1, keepdims=True), 1.0)
        ran_model, paid_model = ran @ of_model, paid @ of_model
        mean_model = np.where(ran_model > 0, paid_model / np.maximum(ran_model, 1.0), overall) @ of_model.T
        mean = (paid + _COST_PRIOR * mean_model) / (ran + _COST_PRIOR) if self.kinds.is_mixed else mean_model
        return np.asarray((self.paid + _COST_PRIOR * mean[..., None, :]) / (counts + _COST_PRIOR))

    def rates(self) -> FloatArray:
        """Return the probability that a request continues to each stage after a call; shape (depth, slots, stages).

        A slot is a stage and a model. Rates are shrunk towards the stage's rates at that depth, over all models. Those are
        shrunk towards the overall rate of continuing, spread evenly over the possible stages.
        """
        kinds, counts = self.kinds, self.counts
        went_on = self.outcomes[..., _WENT_ON:]
        total = counts.sum(axis=(-2, -1))
        overall = (total - self.outcomes[..., _ENDED].sum(axis=(-2, -1)) + 1.0) / (total + 2.0)
        of_stage = np.swapaxes(np.swapaxes(went_on, -1, -2) @ kinds.of_stage, -1, -2)
        ran = counts @ kinds.of_stage
        stage = (of_stage + _RATE_PRIOR * overall[..., None, None, None] * kinds.even) / (ran[..., None] + _RATE_PRIOR)
        return np.asarray((went_on + _RATE_PRIOR * stage[..., kinds.stage, :]) / (counts[..., None] + _RATE_PRIOR))

    def rest(
        self, unopened: FloatArray, unknown: float, weight: FloatArray | None = None, *, is_least: bool = False
    ) -> FloatArray:
        """Return the expected cost of executing all calls that requests still reach, in the unit of :attr:`paid`.

        These are the open calls, which come next in some request, and all calls after them. The result is a single number, or
        an array if the counts have further axes in front (see the class).

        Args:
            unopened: the number of open calls (reached by their request, but not executed) of each kind; shape (depth, slots).
            unknown: the number of requests that have not started and whose first stage is unknown.
            weight: the factor for the cost of each kind of call; shape (depth, slots); None means 1.
            is_least: whether requests that have not started are assumed to begin with the cheapest stage. Otherwise they are
                assumed to begin with the same stages as other requests.
        """
        kinds, rates = self.kinds, self.rates()
        cost = self.means() if weight is None else self.means() * weight
        total = np.zeros(cost.shape[:-2])
        below = np.zeros((*cost.shape[:-2], len(kinds.stages)))
        # From the leaves up: a subtree costs its cell plus, by the rates at which requests continue, the subtrees that may
        # follow. So one pass prices the open cells of every depth.
        for depth in range(cost.shape[-2] - 1, -1, -1):
            subtree = cost[..., depth, :] + (rates[..., depth, :, :] @ below[..., None])[..., 0]
            total = total + subtree @ unopened[depth]
            below = subtree @ kinds.of_stage
        # Requests without a row are not among the open cells, since it is unknown which stage they begin with: they are priced
        # by how the others began.
        if not unknown:
            return np.asarray(total)
        first = list(kinds.first)
        if is_least:
            return np.asarray(total + unknown * below[..., first].min(axis=-1))
        ran = (self.counts[..., 0, :] @ kinds.of_stage)[..., first]
        shares = (ran + _RATE_PRIOR / len(first)) / (ran.sum(axis=-1, keepdims=True) + _RATE_PRIOR)
        return np.asarray(total + unknown * (shares * below[..., first]).sum(axis=-1))

    def leaves(self) -> FloatArray:
        """Return, for each kind of call, the expected number of the template's paths that contain one such call.

        The shape is (depth, slots); a slot is a (stage, model) pair. If a request ends at the call, the paths on which it could
        have continued still count. If several stages share a depth, these paths are unknown, and count as one path.
        """
        kinds, rates = self.kinds, self.rates()
        found, below = np.zeros(kinds.shape), np.zeros(len(kinds.stages))
        for depth in range(len(found) - 1, -1, -1):
            allowed = kinds.allowed[depth]
            follows_alone = allowed.any(axis=-1) & (not kinds.is_mixed)
            of_ended = np.where(follows_alone, allowed @ below, 1.0)[kinds.stage]
            found[depth] = (1.0 - rates[depth].sum(axis=-1)) * of_ended + rates[depth] @ below
            below = found[depth] @ kinds.of_stage
        return found


class Coverage:
    """Running totals of the executed calls by depth, stage and model. Add each call once, and after the calls that precede it.

    Args:
        template: a template bound to the catalog's models.
        n_requests: the number of requests in the profile.

    Attributes:
        totals: the counts of executed calls, without those made after the stop rule had ended the request.
        unopened: the number of calls that requests have reached but that are not executed, by depth and (stage, model) pair;
            shape (depths, pairs). Requests in :attr:`unknown` do not count.
        unknown: the number of requests without results, if several first stages are possible; otherwise 0.
        continued_usd: the cost in dollars of calls that were executed after the stop rule had ended their request.
        n_continued: the number of these calls.
    """

    def __init__(self, template: Template, n_requests: int) -> None:
        self.kinds = CellKinds.of(template)
        self.totals = CellCounts.none(self.kinds)
        self.unopened: FloatArray = np.zeros(self.kinds.shape)
        self._is_first_known = len(self.kinds.first) == 1
        self.unknown = 0 if self._is_first_known else n_requests
        if self._is_first_known:
            self.unopened[0, self.kinds.stage == self.kinds.first[0]] = n_requests
        self.continued_usd = self.equal_usd = 0.0
        self.n_continued = 0
        self._requests: dict[str, int] = {}
        self._events: list[tuple[int, int, int, int, float]] = []
        self._fraction: float | None = None  # None since the last cell was added

    def add(self, observation: Observation) -> None:
        """Add one executed call, given as its result."""
        self._fraction = None
        usd = observation.asked_usd
        self.equal_usd += usd - (observation.cost_usd + observation.tool_cost_usd)
        # The stop rule ended the request before this cell: it was paid for, but an exhaustive profile would not reach it.
        if observation.is_continued:
            self.n_continued += 1
            self.continued_usd += usd
            return
        kinds, (depth, slot, outcome) = self.kinds, self.kinds.place(observation)
        if observation.request_id not in self._requests:
            self._requests[observation.request_id] = len(self._requests)
            # Its first row shows which stage the request begins with: that stage's cells become open, one for each model.
            if not self._is_first_known:
                self.unknown -= 1
                self.unopened[0, kinds.stage == (kinds.stage[slot] if depth == 0 else kinds.first[0])] += 1
        self.totals.add(depth, slot, outcome, usd)
        self._events.append((self._requests[observation.request_id], depth, slot, outcome, usd))
        # This cell is executed now. If the request continues, the next stage opens a cell for each of its models.
        self.unopened[depth, slot] -= 1
        arm = kinds.stage_of(outcome)
        if arm is not None:
            self.unopened[depth + 1, kinds.stage == arm] += 1

    def is_known(self, request_id: str) -> bool:
        """Return whether the template or a result determines the request's first stage."""
        return self._is_first_known or request_id in self._requests

    @property
    def is_complete(self) -> bool:
        """True if every call that a request reaches before it ends is executed."""
        return self.unknown <= 0 and not self.unopened.any()

    @property
    def counts(self) -> FloatArray:
        """The number of executed calls of each kind, shape (depth, slots). Calls made after a request had ended do not count.

        The depth counts from 0. A slot is a stage and a model.
        """
        return self.totals.counts

    @property
    def counts_per_depth(self) -> tuple[int, ...]:
        """The number of executed calls at each depth, first depth first. Calls made after a request had ended do not count."""
        return tuple(int(n) for n in self.counts.sum(axis=1))

    @property
    def spent_usd(self) -> float:
        """The cost of the executed calls in dollars, including tools. Calls answered from equal calls cost nothing."""
        return float(self.totals.paid.sum()) + self.continued_usd - self.equal_usd

    @property
    def is_free(self) -> bool:
        """True if all calls so far were free, so that calls are counted instead of dollars."""
        return not self.totals.paid.any()

    @property
    def continued(self) -> float:
        """The cost, in dollars, of calls that were executed after the stop rule had ended their request.

        If all calls so far were free, it is the number of these calls.
        """
        return float(self.n_continued) if self.is_free else self.continued_usd

    def measure(self) -> CellCounts:
        """Return the counts and costs by which coverage is measured. Costs are dollars, or 1 for each call if all calls are
        free.
        """
        return self.totals.priced(is_free=self.is_free)

    @property
    def fraction(self) -> float:
        """The coverage, in [0, 1]: 0 before the first call, exactly 1 if every call is executed that a request reaches before
        its end.
        """
        if self._fraction is None:
            totals = self.measure()
            paid = float(totals.paid.sum())
            total = paid + float(totals.rest(self.unopened, self.unknown))
            part = min((paid + self.continued) / total, 1.0) if total > 0 else 0.0
            self._fraction = 1.0 if self.is_complete else part
        return self._fraction

    def interval(self, level: float = 0.9) -> tuple[float, float]:
        """Return bounds that contain :attr:`fraction` with probability ``level``, by a bootstrap over requests (fixed seed).

        Whole requests are resampled, because the calls of one request are correlated. Returns (0, 1) for fewer than two
        requests.
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
        """Return the counts of executed calls in each of :data:`N_DRAWS` resamples of the requests; the first axis is the
        resample.
        """
        order = np.argsort([number for _, number in sorted(self._requests.items())])  # independent of the order of the rows
        n, cells, shape = len(order), self.unopened.size, self.totals.outcomes.shape
        # A request is drawn with all its cells: they share its difficulty, and drawing cells one by one would make the interval
        # too narrow.
        weights = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=N_DRAWS).astype(float)[:, order]
        of_request, *places = np.array([event[:4] for event in self._events]).T
        usd = np.array([event[4] for event in self._events])
        place, cell = np.ravel_multi_index(tuple(places), shape), np.ravel_multi_index(tuple(places[:2]), shape[:2])
        outcomes, paid = np.zeros((N_DRAWS, int(np.prod(shape)))), np.zeros((N_DRAWS, cells))
        for draw, weight in enumerate(weights):
            # A cell counts as often as its request was drawn. A loop over draws: all draws at once would not fit in memory.
            drawn = weight[of_request]
            outcomes[draw] = np.bincount(place, drawn, outcomes.shape[1])
            paid[draw] = np.bincount(cell, drawn * usd, cells)
        found = CellCounts(self.kinds, outcomes.reshape(N_DRAWS, *shape), paid.reshape(N_DRAWS, *shape[:2]))
        return found.priced(is_free=self.is_free)

    def exhaustive_usd(self) -> float:
        """Return the estimated cost in dollars of executing once every call that a request reaches; 0.0 before any call."""
        if not self.counts.any():
            return 0.0
        return float(self.totals.paid.sum()) + float(self.totals.rest(self.unopened, self.unknown))

    def naive_usd(self) -> float:
        """Return the estimated cost in dollars of running every request on every path, each from its start.

        No result is shared between paths that begin alike. A request ends at a passed check. Returns 0.0 before the first call.
        """
        if not self.counts.any():
            return 0.0
        weight = self.totals.leaves()
        return float((weight * self.totals.paid).sum()) + float(self.totals.rest(self.unopened, self.unknown, weight))


def coverage_of(observations: Sequence[Observation], template: Template, n_requests: int) -> Coverage:
    """Return the coverage of a set of results.

    Args:
        observations: the results, in any order.
        template: a template bound to the catalog's models.
        n_requests: the number of requests in the profile.
    """
    coverage = Coverage(template, n_requests)
    for observation in sorted(observations, key=lambda o: o.depth):
        coverage.add(observation)
    return coverage
