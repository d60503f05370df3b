"""The kinds of cells of a template that branches, and counts of executed cells by kind.

The expected price of an open cell's subtree is made of mean costs per (depth, stage, model) and of the rates at which a request
goes on from there to each stage.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from vinelm.template import Template
from vinelm.trie.arrays import FloatArray

_COST_PRIOR = 4.0  # weight, in observations, of the mean over all depths
_RATE_PRIOR = 4.0  # weight, in observations, of the stage's rates over all models, and of the overall rate
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class CellKinds:
    """The kinds of cells of a template: a *slot* is a stage with one of its models, a *kind* a slot at a depth.

    Attributes:
        slots: number of each (stage, model).
        stage, model: of each slot, as numbers.
        stages: number of each stage.
        allowed: whether the stage of the last axis may follow the stage at that depth; (depth, stages, stages).
        first: numbers of the stages that may come first.
    """

    slots: dict[tuple[str, str], int]
    stage: Ints
    model: Ints
    stages: dict[str, int]
    allowed: FloatArray
    first: tuple[int, ...]

    @classmethod
    def of(cls, template: Template) -> CellKinds:
        """Number the kinds of a bound template."""
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
        )

    @property
    def shape(self) -> tuple[int, int]:
        """(depth, slots)."""
        return len(self.allowed), len(self.stage)

    @cached_property
    def of_stage(self) -> FloatArray:
        """1 where a slot is of a stage; (slots, stages)."""
        return np.asarray(np.eye(len(self.stages))[self.stage])

    @cached_property
    def of_model(self) -> FloatArray:
        """1 where a slot is of a model; (slots, models)."""
        return np.asarray(np.eye(int(self.model.max()) + 1)[self.model])


@dataclass(slots=True)
class OutcomeCounts:
    """Executed cells by kind. Arrays may have further axes in front.

    Attributes:
        kinds: of the cells.
        outcomes: how many ended, and how many went on to each stage; (depth, slots, 1 + stages).
        paid: their total dollars; (depth, slots).
    """

    kinds: CellKinds
    outcomes: FloatArray
    paid: FloatArray

    @classmethod
    def none(cls, kinds: CellKinds) -> OutcomeCounts:
        """Return the counts of no cells."""
        return cls(kinds, np.zeros((*kinds.shape, 1 + len(kinds.stages))), np.zeros(kinds.shape))

    @property
    def counts(self) -> FloatArray:
        """How many cells; (depth, slots)."""
        return np.asarray(self.outcomes.sum(axis=-1))

    def add(self, depth: int, slot: int, outcome: int, usd: float) -> None:
        """Add a cell."""
        self.outcomes[depth, slot, outcome] += 1
        self.paid[depth, slot] += usd

    def copy(self) -> OutcomeCounts:
        """Return a copy with its own arrays."""
        return OutcomeCounts(self.kinds, self.outcomes.copy(), self.paid.copy())

    def free(self) -> OutcomeCounts:
        """Return the same cells at a price of one each."""
        return replace(self, paid=self.counts)

    def means(self) -> FloatArray:
        """Return the mean cost of a cell, shrunk towards the slot's mean over depths, that towards its model's, or the overall
        mean for a new model.
        """
        counts, of_model = self.counts, self.kinds.of_model
        overall = _total(self.paid)[..., 0] / np.maximum(_total(counts)[..., 0], 1.0)
        ran, paid = counts.sum(axis=-2), self.paid.sum(axis=-2)
        ran_model, paid_model = ran @ of_model, paid @ of_model
        mean_model = np.where(ran_model > 0, paid_model / np.maximum(ran_model, 1.0), overall) @ of_model.T
        mean_slot = (paid + _COST_PRIOR * mean_model) / (ran + _COST_PRIOR)
        return np.asarray((self.paid + _COST_PRIOR * mean_slot[..., None, :]) / (counts + _COST_PRIOR))

    def rates(self) -> FloatArray:
        """Return P(a request goes on to a stage) for each cell, shrunk towards the rates of its stage there, and those towards
        the overall rate, spread evenly over the stages that may come; (depth, slots, stages).
        """
        kinds, counts = self.kinds, self.counts
        went_on = self.outcomes[..., 1:]
        overall = (went_on.sum(axis=(-3, -2, -1)) + 1.0) / (counts.sum(axis=(-2, -1)) + 2.0)
        even = kinds.allowed / np.maximum(kinds.allowed.sum(axis=-1, keepdims=True), 1.0)
        of_stage = np.einsum("...dsg,sh->...dhg", went_on, kinds.of_stage)
        ran = counts @ kinds.of_stage
        stage = (of_stage + _RATE_PRIOR * overall[..., None, None, None] * even) / (ran[..., None] + _RATE_PRIOR)
        return np.asarray((went_on + _RATE_PRIOR * stage[..., kinds.stage, :]) / (counts[..., None] + _RATE_PRIOR))

    def rest(
        self, unopened: FloatArray, unknown: float, weight: FloatArray | None = None, *, is_least: bool = False
    ) -> FloatArray:
        """Return the expected price of the subtrees of the open cells.

        Args:
            unopened: the number of open cells of each kind.
            unknown: how many requests have not begun.
            weight: how often a cell of each kind counts; None: once.
            is_least: those requests begin with the cheapest stage, instead of as others did.
        """
        kinds, rates = self.kinds, self.rates()
        cost = self.means() if weight is None else self.means() * weight
        lead = cost.shape[:-2]
        total, below = np.zeros(lead), np.zeros((*lead, len(kinds.stages)))
        for depth in range(cost.shape[-2] - 1, -1, -1):
            subtree = cost[..., depth, :] + np.einsum("...sg,...g->...s", rates[..., depth, :, :], below)
            total = total + subtree @ unopened[depth]
            below = subtree @ kinds.of_stage
        first = list(kinds.first)
        if is_least:
            return np.asarray(total + unknown * below[..., first].min(axis=-1))
        ran = (self.counts[..., 0, :] @ kinds.of_stage)[..., first]
        shares = (ran + _RATE_PRIOR / len(first)) / (ran.sum(axis=-1, keepdims=True) + _RATE_PRIOR)
        return np.asarray(total + unknown * (shares * below[..., first]).sum(axis=-1))

    def leaves(self) -> FloatArray:
        """Return the expected number of ends below a cell of each kind; (depth, slots)."""
        kinds, rates = self.kinds, self.rates()
        found, below = np.zeros(kinds.shape), np.zeros(len(kinds.stages))
        for depth in range(len(found) - 1, -1, -1):
            found[depth] = 1.0 - rates[depth].sum(axis=-1) + rates[depth] @ below
            below = found[depth] @ kinds.of_stage
        return found


def _total(values: FloatArray) -> FloatArray:
    return np.asarray(values.sum(axis=(-2, -1), keepdims=True))
