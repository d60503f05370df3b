"""A small model of independent first answers: who is right, what is seen, and which answers agree.

Rows are sparse: hardly any request has all the answers that a vote of three needs, so that no vote can be judged by counting.
The model joins what the rows say about single answers and about pairs. A request has a difficulty z ~ N(0, 1), and system m is
right with probability sigmoid(a_m - s z). The abilities a_m are maximum a posteriori (EM over a grid of z; a_m ~ N(mean, 1)),
and the slope s is the best of :data:`SLOPES`. Right answers agree. A wrong answer is the request's usual mistake with
probability w, and alone otherwise, so that two wrong answers agree with probability w^2. Whether there is an answer, what the
signal says and whether the check passes depend on the system and on whether it is right (shares over all systems count as
:data:`PSEUDO` further rows).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from vinelm.errors import EvidenceError
from vinelm.evaluation.outcome_table import NO_ANSWER, NO_SIGNAL, OutcomeTable
from vinelm.observation import Observation
from vinelm.trie import FloatArray

SLOPES = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
PSEUDO = 4.0
"""Weight, in rows, of the mean over all systems in a system's own shares."""
DRAWN = 3000
_GRID = np.linspace(-3.0, 3.0, 13)
_WEIGHT = np.exp(-(_GRID**2) / 2) / np.exp(-(_GRID**2) / 2).sum()
_TURNS = 30
_SEED = 1
RIGHT, WRONG, MISSING = range(3)
"""What an answer is: right, wrong, or none at all."""
_USUAL, _OWN = 1, 2

Shown = tuple[str | None, bool]
"""What is seen of a call beside its answer: the signal, and whether the check passed."""


@dataclass(frozen=True, eq=False)
class AnswerModel:
    """The fitted model.

    Args:
        systems: In column order.
        ability: a_m, shape (systems,).
        slope: s.
        missing: P(no answer | not right), shape (systems,).
        usual: w, the chance that a wrong answer is the request's usual mistake.
        shown: What may be seen.
        shares: P(shown | system, right / wrong / missing), shape (systems, 3, len(shown)).
        cost_usd: Mean dollars of a call, shape (systems,); infinite for a system without a row.
    """

    systems: tuple[str, ...]
    ability: FloatArray
    slope: float
    missing: FloatArray
    usual: float
    shown: tuple[Shown, ...]
    shares: FloatArray
    cost_usd: FloatArray

    @classmethod
    def fit(cls, rows: Iterable[Observation], systems: tuple[str, ...]) -> AnswerModel:
        """Fit to the first answer of each system to each request.

        Raises:
            EvidenceError: No row has an outcome.
        """
        by_request = first_answers(rows)
        if not by_request:
            raise EvidenceError("no row says whether an answer is right")
        index = {name: m for m, name in enumerate(systems)}
        right, asked = (np.zeros((len(by_request), len(systems))) for _ in range(2))
        for r, answers in enumerate(by_request.values()):
            for name, row in answers.items():
                right[r, index[name]], asked[r, index[name]] = float(row.success or 0.0), 1.0
        ability, slope = _difficulty(right, asked)
        every = [(index[name], row) for answers in by_request.values() for name, row in answers.items()]
        seen = tuple(sorted({_shown(row) for _, row in every}, key=str))
        counts = np.zeros((len(systems), 3, len(seen)))
        for m, row in every:
            counts[m, _kind(row), seen.index(_shown(row))] += 1.0
        return cls(
            systems=systems,
            ability=ability,
            slope=slope,
            missing=_missing(counts),
            usual=math.sqrt(_wrong_agree(by_request.values())),
            shown=seen,
            shares=_shares(counts),
            cost_usd=_mean_cost(every, len(systems)),
        )

    def accuracy(self) -> FloatArray:
        """Return the expected accuracy of each system alone, shape (systems,)."""
        return np.asarray(_right_at(self.ability, self.slope) @ _WEIGHT, dtype=np.float64)

    def draw(self, requests: int = DRAWN, seed: int = _SEED) -> OutcomeTable:
        """Draw requests and every system's answer to them. Equal arguments give equal tables.

        A system that was never observed is drawn too, at an infinite price replaced by the largest finite number: no budget
        admits it.
        """
        rng = np.random.default_rng(seed)
        shape = (requests, len(self.systems))
        quantile = (np.arange(requests) + 0.5) / requests
        z = np.interp(quantile, np.cumsum(_WEIGHT) - _WEIGHT / 2, _GRID)
        right = rng.random(shape) < _sigmoid(self.ability[None, :] - self.slope * z[:, None])
        kind = np.where(right, RIGHT, np.where(rng.random(shape) < self.missing, MISSING, WRONG))
        own = _OWN + np.broadcast_to(np.arange(shape[1]), shape)
        answer_class = np.where(rng.random(shape) < self.usual, _USUAL, own)
        answer_class = np.where(kind == RIGHT, 0, np.where(kind == MISSING, NO_ANSWER, answer_class))
        cumulative = np.cumsum(self.shares, axis=2)[np.arange(shape[1])[None, :], kind]
        at = np.minimum((rng.random(shape)[..., None] > cumulative).sum(axis=2), len(self.shown) - 1)
        labels = tuple(sorted({label for label, _ in self.shown if label is not None}))
        number = np.array([NO_SIGNAL if label is None else labels.index(label) for label, _ in self.shown], np.int64)
        names = tuple(str(r) for r in range(requests))
        finite = np.where(np.isfinite(self.cost_usd), self.cost_usd, np.finfo(np.float64).max / 1e6)
        return OutcomeTable(
            request_ids=names,
            systems=self.systems,
            success=right,
            signal=number[at],
            labels=labels,
            passed=np.array([passed for _, passed in self.shown])[at],
            answer_class=answer_class.astype(np.int64),
            cost_usd=np.broadcast_to(finite, shape).copy(),
            groups=names,
        )


def first_answers(rows: Iterable[Observation]) -> dict[str, dict[str, Observation]]:
    """Return the first answer of each model to each request: its row of least depth. Rows without an outcome are left out."""
    found: dict[str, dict[str, Observation]] = defaultdict(dict)
    for row in sorted(rows, key=lambda row: row.depth):
        if row.success is not None:
            found[row.request_id].setdefault(row.model, row)
    return dict(sorted(found.items()))


def _kind(row: Observation) -> int:
    return RIGHT if (row.success or 0.0) >= 0.5 else MISSING if row.answer_class is None else WRONG


def _shown(row: Observation) -> Shown:
    return row.signal, bool(row.stopped)


def _difficulty(right: FloatArray, asked: FloatArray) -> tuple[FloatArray, float]:
    """Abilities and slope by EM for each slope; the slope of the highest posterior, itself with a prior N(1.5, 1)."""
    fits = []
    for slope in SLOPES:
        ability, log_likelihood = _abilities(right, asked, slope)
        fits.append((log_likelihood - (slope - 1.5) ** 2 / 2, slope, ability))
    _, slope, ability = max(fits, key=lambda fit: fit[0])
    return ability, slope


def _abilities(right: FloatArray, asked: FloatArray, slope: float) -> tuple[FloatArray, float]:
    share = (right.sum() + 1.0) / (asked.sum() + 2.0)
    mean = math.log(share / (1.0 - share)) * math.sqrt(1.0 + slope**2 / 3.0)
    ability = np.full(right.shape[1], mean)
    log_likelihood = 0.0
    for _ in range(_TURNS):
        p = _right_at(ability, slope)  # (systems, grid)
        log = right @ np.log(p) + (asked - right) @ np.log1p(-p) + np.log(_WEIGHT)
        top = log.max(axis=1, keepdims=True)
        posterior = np.exp(log - top)
        log_likelihood = float((top[:, 0] + np.log(posterior.sum(axis=1))).sum())
        posterior /= posterior.sum(axis=1, keepdims=True)
        expected = asked.T @ posterior
        gradient = (right.T @ posterior - expected * p).sum(axis=1) - (ability - mean)
        ability = ability + gradient / ((expected * p * (1.0 - p)).sum(axis=1) + 1.0)
        mean = float(ability.mean())
    return ability, log_likelihood - float(((ability - mean) ** 2).sum()) / 2.0


def _right_at(ability: FloatArray, slope: float) -> FloatArray:
    return np.clip(_sigmoid(ability[:, None] - slope * _GRID[None, :]), 1e-9, 1.0 - 1e-9)


def _sigmoid(logit: FloatArray) -> FloatArray:
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * logit)), dtype=np.float64)


def _missing(counts: FloatArray) -> FloatArray:
    """P(no answer | not right) of each system, shrunk towards all systems."""
    of = counts.sum(axis=2)
    every = (of[:, MISSING].sum() + 0.5) / (of[:, WRONG:].sum() + 2.0)
    return np.asarray((of[:, MISSING] + PSEUDO * every) / (of[:, WRONG:].sum(axis=1) + PSEUDO))


def _shares(counts: FloatArray) -> FloatArray:
    """P(shown | system, kind), shrunk towards all systems, and those towards all kinds."""
    total = counts.sum(axis=(0, 1))
    anyhow = total / total.sum()
    of_kind = counts.sum(axis=0) + anyhow
    every = of_kind / of_kind.sum(axis=1, keepdims=True)
    return np.asarray((counts + PSEUDO * every) / (counts.sum(axis=2, keepdims=True) + PSEUDO))


def _wrong_agree(requests: Iterable[dict[str, Observation]]) -> float:
    """P(two wrong answers of different systems agree), with one agreeing and three other pairs added."""
    same, pairs = 1.0, 4.0
    for answers in requests:
        wrong = [row.answer_class for row in answers.values() if _kind(row) == WRONG]
        for one, other in combinations(wrong, 2):
            same, pairs = same + (one == other), pairs + 1.0
    return same / pairs


def _mean_cost(every: Sequence[tuple[int, Observation]], n_systems: int) -> FloatArray:
    at = np.array([m for m, _ in every], np.intp)
    count = np.bincount(at, minlength=n_systems)
    paid = np.array([row.cost_usd + row.tool_cost_usd for _, row in every], np.float64)
    usd = np.bincount(at, paid, n_systems)
    return np.where(count > 0, usd / np.maximum(count, 1), np.inf)
