"""Populations of requests and the models that answer them: simulated ones, and halves of recorded tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from science.complete_tables import for_systems

from vinelm.evaluation import OutcomeTable
from vinelm.evaluation.outcome_table import NO_ANSWER, NO_SIGNAL

LABELS = ("sure", "unsure")
"""What the signal of a simulated world says."""


@dataclass(frozen=True)
class Answers:
    """What the answers of a world show beside the check.

    Args:
        usual: Mean chance that a wrong answer is the request's usual mistake, which models share.
        sure: Chance that the signal says "sure" of a right answer, and of a wrong one; None: no signal.
    """

    usual: float
    sure: tuple[float, float] | None


@dataclass(frozen=True)
class World:
    """A population of requests and the models that answer them.

    Args:
        ability: Of each model, shape (models,).
        own: Weight of what only this model finds hard: the rest of the difficulty is shared; same shape.
        usd: Dollars of a call; same shape.
        spread: Standard deviation of the requests' difficulty.
        check: Chance that the application's check passes a right answer, and a wrong one.
        answers: What answers show; None: they cannot be compared.
    """

    ability: np.ndarray
    own: np.ndarray
    usd: np.ndarray
    spread: float
    check: tuple[float, float]
    answers: Answers | None = None

    @classmethod
    def draw(cls, rng: np.random.Generator, *, signals: bool) -> World:
        """Prices rise with ability but for noise, as they do in catalogs; some worlds have models that are all alike."""
        models = int(rng.integers(2, 5))
        usd = np.sort(10.0 ** rng.uniform(-4, -2, models))
        slope = 0.0 if rng.random() < 0.3 else rng.uniform(0.2, 1.2)
        ability = rng.normal(0.3, 0.7) + slope * (np.log10(usd) + 3) + rng.normal(0, 0.4, models)
        right = rng.uniform(0.85, 1.0)
        world = cls(ability, rng.uniform(0.3, 1.2, models), usd, rng.uniform(0.5, 2.0), (right, rng.uniform(0.1, 0.8)))
        if not signals:
            return world
        sure = (rng.uniform(0.6, 0.95), rng.uniform(0.1, 0.5)) if rng.random() < 0.5 else None
        return replace(world, answers=Answers(rng.uniform(0.1, 0.7), sure))

    def table(self, rng: np.random.Generator, n: int) -> OutcomeTable:
        """Draw requests with the answers of every model, as an exact table."""
        shape = (n, len(self.ability))
        hard = rng.normal(0, self.spread, n)[:, None] + self.own * rng.normal(0, 1, shape)
        success = rng.random(shape) < 1.0 / (1.0 + np.exp(hard - self.ability))
        passed = rng.random(shape) < np.where(success, *self.check)
        cost = self.usd * rng.lognormal(-0.08, 0.4, shape)
        kinds, signal = self._shown(rng, success)
        return OutcomeTable(
            request_ids=tuple(f"r{i}" for i in range(n)), systems=tuple(f"m{i}" for i in range(shape[1])), success=success,
            signal=signal, labels=LABELS if (signal != NO_SIGNAL).any() else (), passed=passed, answer_class=kinds,
            cost_usd=cost, groups=tuple(f"r{i}" for i in range(n)),
        )  # fmt: skip

    def _shown(self, rng: np.random.Generator, success: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Classes and signals: right answers are alike, wrong ones the request's usual mistake or each on its own."""
        nothing = np.full(success.shape, NO_SIGNAL)
        if self.answers is None:
            return np.full(success.shape, NO_ANSWER), nothing
        popular = rng.beta(4.0 * self.answers.usual, 4.0 * (1.0 - self.answers.usual), len(success))
        is_usual = rng.random(success.shape) < popular[:, None]
        kinds = np.where(success, 0, np.where(is_usual, 1, 2 + np.arange(success.shape[1])))
        if self.answers.sure is None:
            return kinds, nothing
        return kinds, np.where(rng.random(success.shape) < np.where(success, *self.answers.sure), 0, 1)


@dataclass(frozen=True)
class RecordedWorld:
    """Some systems of a recorded table of first answers, as a world."""

    whole: OutcomeTable

    @classmethod
    def draw(cls, rng: np.random.Generator, tables: Sequence[OutcomeTable], *, signals: bool) -> RecordedWorld:
        """Choose a table and two to four of its systems, the cheapest first."""
        table = tables[int(rng.integers(len(tables)))]
        usd = dict(zip(table.systems, table.cost_usd.mean(axis=0), strict=True))
        names = rng.choice(table.systems, int(rng.integers(2, 5)), replace=False).tolist()
        chosen = for_systems(table, sorted(names, key=lambda name: usd[name]))
        return cls(chosen if signals else without_answers(chosen))

    def table(self, rng: np.random.Generator, n: int) -> OutcomeTable:
        """Half of the requests at random; all of them for more requests than there are."""
        if n >= len(self.whole):
            return self.whole
        return self.whole.rows(rng.permutation(len(self.whole))[: len(self.whole) // 2].tolist())


def without_answers(table: OutcomeTable) -> OutcomeTable:
    """The same table with nothing but the check to see."""
    shape = table.success.shape
    return replace(table, signal=np.full(shape, NO_SIGNAL), labels=(), answer_class=np.full(shape, NO_ANSWER))
