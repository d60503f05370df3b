"""A cascade with a learned scorer: ask cheap systems first, accept an answer whose score reaches its threshold.

The form of FrugalGPT (Chen et al., 2023), with what an application sees of an answer as the scorer's input: the system, the
signal, the check, and how many earlier answers agree and disagree.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import permutations, product

import numpy as np

from vinelm.evaluation import OutcomeTable
from vinelm.evaluation.outcome_table import NO_ANSWER
from vinelm.evaluation.rivals import Evidence, PolicyChoice, PolicyResult
from vinelm.rows.observation import Observation
from vinelm.trie.arrays import BoolArray, FloatArray

LONGEST = 3
"""Systems in a cascade at most, as in the original."""
RIDGE = 1.0
"""Precision of the prior of every coefficient but the level."""
LEVELS = (0.1, 0.25, 0.4, 0.55, 0.7, 0.85)
"""Thresholds that are tried: quantiles of the scores at that place of the cascade."""
_TURNS = 25
_MOST = 3
"""More agreeing or disagreeing answers than this count as this many."""


@dataclass(frozen=True, eq=False)
class AnswerScorer:
    """Logistic regression: P(an answer is right | what is seen of it).

    Args:
        systems: The systems that it knows.
        labels: The signals that it knows.
        coefficients: Level, one for each system, one for each label, the check, has an answer, agreeing, disagreeing.
    """

    systems: tuple[str, ...]
    labels: tuple[str, ...]
    coefficients: FloatArray

    @classmethod
    def fit(cls, rows: list[Observation], systems: tuple[str, ...]) -> AnswerScorer:
        """Fit to every first answer, once by itself and once beside the other answers to its request."""
        labels = tuple(sorted({row.signal for row in rows if row.signal is not None}))
        blank = cls(systems, labels, np.zeros(len(systems) + len(labels) + 5))
        examples, right = [], []
        for answers in first_answers(rows).values():
            for name, row in answers.items():
                others = [
                    other.answer_class for key, other in answers.items() if key != name and other.answer_class is not None
                ]
                for beside in ([], others) if others else ([],):
                    same = 0 if row.answer_class is None else beside.count(row.answer_class)
                    examples.append(blank._example(row, same, len(beside) - same))
                    right.append(float(row.success or 0.0))
        return cls(systems, labels, _ridge_logistic(np.array(examples), np.array(right)))

    def scores(self, table: OutcomeTable, order: tuple[str, ...]) -> FloatArray:
        """Return the score of the answer of each system of a cascade, all earlier ones asked; shape (requests, systems)."""
        columns = table.columns(order)
        n, (level, of_system, of_label, rest) = len(table), self._parts()
        label_value = np.array([of_label.get(label, 0.0) for label in table.labels] + [0.0])  # the last: no signal
        found = np.zeros((n, len(order)))
        for i, m in enumerate(columns):
            kind, before = table.answer_class[:, m], table.answer_class[:, columns[:i]]
            has_answer = kind != NO_ANSWER
            same = ((before == kind[:, None]) & has_answer[:, None]).sum(axis=1)
            differ = (before != NO_ANSWER).sum(axis=1) - same
            found[:, i] = level + of_system.get(order[i], 0.0) + label_value[table.signal[:, m]]
            seen = (table.passed[:, m], has_answer, np.minimum(same, _MOST), np.minimum(differ, _MOST))
            found[:, i] += np.stack(seen, axis=1) @ rest
        return np.asarray(0.5 * (1.0 + np.tanh(0.5 * found)))

    def _example(self, row: Observation, same: int, differ: int) -> list[float]:
        return [
            1.0,
            *(float(row.model == name) for name in self.systems),
            *(float(row.signal == label) for label in self.labels),
            float(bool(row.stopped)),
            float(row.answer_class is not None),
            float(min(same, _MOST)),
            float(min(differ, _MOST)),
        ]

    def _parts(self) -> tuple[float, dict[str, float], dict[str, float], FloatArray]:
        n = len(self.systems)
        of_system = dict(zip(self.systems, self.coefficients[1 : n + 1], strict=True))
        of_label = dict(zip(self.labels, self.coefficients[n + 1 : -4], strict=True))
        return float(self.coefficients[0]), of_system, of_label, self.coefficients[-4:]


def first_answers(rows: Iterable[Observation]) -> dict[str, dict[str, Observation]]:
    """Return the first answer of each model to each request: its row of least depth. Rows without an outcome are left out."""
    found: dict[str, dict[str, Observation]] = defaultdict(dict)
    for row in sorted(rows, key=lambda row: row.depth):
        if row.success is not None:
            found[row.request_id].setdefault(row.model, row)
    return dict(sorted(found.items()))


@dataclass(frozen=True)
class ScoredCascadePolicy:
    """Ask the systems in turn; return the first answer whose score reaches its threshold, or else the last answer.

    Args:
        systems: Whom to ask, in this order.
        thresholds: One for each system but the last, in [0, 1].
        scorer: Scores an answer.
    """

    systems: tuple[str, ...]
    thresholds: tuple[float, ...]
    scorer: AnswerScorer

    def run(self, table: OutcomeTable) -> PolicyResult:
        """See :meth:`AnswerPolicy.run`."""
        columns = table.columns(self.systems)
        scores = self.scorer.scores(table, self.systems)
        success, cost = _cascade(table.success[:, columns], table.cost_usd[:, columns], scores, np.array([self.thresholds]))
        return PolicyResult(success[0], cost[0])


@dataclass(frozen=True)
class ScoredCascade:
    """The best cascade of up to three systems with a learned scorer and a threshold at each place."""

    name: str = "scored_cascade"

    def fit(self, evidence: Evidence) -> ScoredChooser:
        """See :meth:`Method.fit`."""
        scorer = AnswerScorer.fit(list(evidence.rows), evidence.systems)
        found = list(_candidates(evidence, scorer))
        return ScoredChooser(
            scorer,
            [(order, thresholds) for order, thresholds, _, _ in found],
            np.array([accuracy for _, _, accuracy, _ in found]),
            np.array([cost for _, _, _, cost in found]),
        )


@dataclass(frozen=True)
class ScoredChooser:
    """The chooser of :class:`ScoredCascade`: its candidates with their accuracy and dollars on drawn requests."""

    scorer: AnswerScorer
    candidates: list[tuple[tuple[str, ...], tuple[float, ...]]]
    accuracy: FloatArray
    cost_usd: FloatArray

    def choose(self, max_cost_usd: float) -> PolicyChoice:
        """See :meth:`Chooser.choose`."""
        fits = self.cost_usd <= max_cost_usd
        key = np.where(fits, -self.accuracy, 2.0) if fits.any() else self.cost_usd
        best = int(np.lexsort((self.cost_usd, key))[0])
        order, thresholds = self.candidates[best]
        levels = " > ".join(f"{name} {level:.2f}" for name, level in zip(order, (*thresholds, 0.0), strict=True))
        return PolicyChoice(
            policy=ScoredCascadePolicy(order, thresholds, self.scorer),
            promised_accuracy=float(self.accuracy[best]),
            promised_cost_usd=float(self.cost_usd[best]),
            words=levels,
        )


def _candidates(evidence: Evidence, scorer: AnswerScorer) -> Iterator[tuple[tuple[str, ...], tuple[float, ...], float, float]]:
    table, systems = evidence.drawn, evidence.systems
    for length in range(1, min(LONGEST, evidence.depth, len(systems)) + 1):
        for order in permutations(systems, length):
            columns, scores = table.columns(order), scorer.scores(table, order)
            grids = [np.unique(np.quantile(scores[:, i], LEVELS)) for i in range(length - 1)]
            combinations = list(product(*grids))
            thresholds = np.array(combinations).reshape(len(combinations), length - 1)
            success, cost = _cascade(table.success[:, columns], table.cost_usd[:, columns], scores, thresholds)
            for i, levels in enumerate(thresholds):
                yield order, tuple(float(level) for level in levels), float(success[i].mean()), float(cost[i].mean())


def _cascade(
    success: BoolArray, cost_usd: FloatArray, scores: FloatArray, thresholds: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Results under each row of thresholds, (candidates, systems - 1); both of shape (candidates, requests)."""
    n_requests, length = success.shape
    is_open = np.ones((len(thresholds), n_requests), np.bool_)
    right, cost = np.zeros(is_open.shape), np.zeros(is_open.shape)
    for i in range(length):
        cost += is_open * cost_usd[:, i]
        ends = is_open if i == length - 1 else is_open & (scores[:, i] >= thresholds[:, i, None])
        right += ends * success[:, i]
        is_open = is_open & ~ends
    return right, cost


def _ridge_logistic(examples: FloatArray, right: FloatArray) -> FloatArray:
    """Newton's method; the level is free of the prior."""
    coefficients = np.zeros(examples.shape[1])
    prior = np.full(examples.shape[1], RIDGE)
    prior[0] = 1e-3
    for _ in range(_TURNS):
        p = 0.5 * (1.0 + np.tanh(0.5 * (examples @ coefficients)))
        gradient = examples.T @ (right - p) - prior * coefficients
        information = (examples * (p * (1.0 - p))[:, None]).T @ examples + np.diag(prior)
        step = np.linalg.solve(information, gradient)
        coefficients = coefficients + step * min(1.0, 5.0 / max(float(np.abs(step).max()), 1e-12))
    return coefficients
