"""Groups the answers of a request into classes of equal answers, compared by the workflow's function ``agree``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from vinelm.errors import WorkflowError
from vinelm.rows.observation import Cell, Observation
from vinelm.signals.declaration import Signals

MOST_ANSWERS_COMPARED = 32
"""How many different answers of one request are compared pairwise, to check whether ``agree`` is transitive."""


@dataclass(frozen=True, slots=True)
class AnswerClasses:
    """The answer classes (equal answers) of a set of results.

    Attributes:
        of: the number of the class of each result's answer, from 0 in each request, keyed by (request, prefix); None for a
            result without an answer. The prefix is the sequence of models up to the result.
        compared: number of pairs of different answers that were compared; at most 32 answers of each request are compared.
        intransitive: number of these pairs that agree but are in different classes, or disagree but are in one class.
        unknown: number of requests whose classes cannot be computed, because only the digest of an answer is stored. They are
            not in ``of``.
    """

    of: Mapping[Cell, int | None]
    compared: int = 0
    intransitive: int = 0
    unknown: int = 0


def answer_classes(rows: Iterable[Observation], signals: Signals) -> AnswerClasses:
    """Return the answer classes of these results, which may be in any order.

    The results of a request are read in the order of depth (number of calls), then of prefix (the models' names in alphabetical
    order). An answer joins the first class whose first answer equals it; without such a class, it begins a new one. ``agree``
    is called once for each ordered pair of different answers, in both directions.

    Args:
        rows: the results; their ``answer_class`` is not read.
        signals: the workflow's declaration of its signals; without ``answer`` no result has a class.

    Raises:
        WorkflowError: ``agree`` raised, or is not symmetric; the message names the two results.
    """
    if not signals.answer:
        return AnswerClasses({(row.request_id, row.prefix): None for row in rows})
    of_request: dict[str, list[Observation]] = {}
    for row in rows:
        of_request.setdefault(row.request_id, []).append(row)
    found: dict[Cell, int | None] = {}
    compared = intransitive = unknown = 0
    for request_id in sorted(of_request):
        ordered = sorted(of_request[request_id], key=row_order)
        if signals.agree is not None and any(row.answer is None and row.answer_digest is not None for row in ordered):
            unknown += 1
            continue
        comparison = _Comparison(signals)
        classes = _classes(ordered, comparison)
        found.update(((row.request_id, row.prefix), classes[k]) for k, row in enumerate(ordered))
        pairs, wrong = _intransitive(ordered, classes, comparison)
        compared, intransitive = compared + pairs, intransitive + wrong
    return AnswerClasses(found, compared, intransitive, unknown)


def row_order(row: Observation) -> tuple[int, tuple[str, ...]]:
    """Return the key by which a request's results are sorted: (number of calls so far, models of these calls)."""
    return row.depth, row.prefix


class _Comparison:
    """Compares answers of one request by the workflow's function. Each pair of texts is compared only once."""

    def __init__(self, signals: Signals) -> None:
        self._signals = signals
        self._equal: dict[tuple[str, str], bool] = {}
        self._answers: dict[str, Any] = {}

    def is_answer(self, row: Observation) -> bool:
        """Return whether a result has an answer. A value that does not agree with itself is not an answer; a function ``agree``
        can mark errors in this way.
        """
        return row.answer_digest is not None and self.equal(row, row)

    def equal(self, one: Observation, other: Observation) -> bool:
        """Return whether two results have equal answers.

        Raises:
            WorkflowError: the result depends on the order of the two answers.
        """
        key = (str(one.answer_digest), str(other.answer_digest))
        known = self._equal.get(key)
        if known is None:
            known = self._ask(one, other)
            if key[0] != key[1] and self._ask(other, one) != known:
                raise WorkflowError(
                    f"agree is not symmetric: request {one.request_id!r}: it is {known} for the answers of "
                    f"{'/'.join(one.prefix)} and {'/'.join(other.prefix)}, and {not known} for the same two in the other "
                    "order: agree(a, b) must equal agree(b, a)",
                    code="agree-not-symmetric",
                )
            self._equal[key] = self._equal[key[::-1]] = known
        return known

    def _ask(self, one: Observation, other: Observation) -> bool:
        if self._signals.agree is None:
            return one.answer_digest == other.answer_digest
        return self._signals.equal(self._answer(one), self._answer(other))

    def _answer(self, row: Observation) -> Any:
        key = str(row.answer_digest)
        if key not in self._answers:
            self._answers[key] = json.loads(str(row.answer))
        return self._answers[key]


def _classes(rows: Sequence[Observation], comparison: _Comparison) -> list[int | None]:
    firsts: list[Observation] = []
    of_digest: dict[str | None, int | None] = {}
    found: list[int | None] = []
    for row in rows:
        if row.answer_digest not in of_digest:
            number = None
            if comparison.is_answer(row):
                number = next((k for k, first in enumerate(firsts) if comparison.equal(first, row)), len(firsts))
                if number == len(firsts):
                    firsts.append(row)
            of_digest[row.answer_digest] = number
        found.append(of_digest[row.answer_digest])
    return found


def _intransitive(rows: Sequence[Observation], classes: Sequence[int | None], comparison: _Comparison) -> tuple[int, int]:
    """Return how many pairs of different answers of one request were compared, and how many of them contradict the classes.

    A pair contradicts them if its answers are equal but of different classes, or not equal but of the same class.

    Args:
        rows: The request's results.
        classes: The class of each result's answer; None for a result without an answer.
        comparison: Compares the answers.
    """
    different: dict[str | None, tuple[Observation, int]] = {}
    for row, number in zip(rows, classes, strict=True):
        if number is not None and len(different) < MOST_ANSWERS_COMPARED:
            different.setdefault(row.answer_digest, (row, number))
    pairs = list(combinations(different.values(), 2))
    wrong = sum(comparison.equal(one, other) != (mine == theirs) for (one, mine), (other, theirs) in pairs)
    return len(pairs), wrong
