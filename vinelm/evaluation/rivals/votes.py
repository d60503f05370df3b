"""Rivals that compare answers: a vote of k systems, and asking until two agree."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

import numpy as np

from vinelm.evaluation.outcome_table import NO_ANSWER, OutcomeTable
from vinelm.evaluation.rivals.base import AnswerPolicy, Evidence, PolicyResult, TriedPolicies
from vinelm.trie.arrays import BoolArray, FloatArray


@dataclass(frozen=True)
class VotePolicy:
    """Ask every system; return the answer that most of them gave.

    Only answers that passed the check vote. A tie goes to the answer of the most trusted system; if none passed, its answer is
    returned.

    Args:
        systems: Whom to ask.
        trust: All systems, the most trusted first.
    """

    systems: tuple[str, ...]
    trust: tuple[str, ...]

    def run(self, table: OutcomeTable) -> PolicyResult:
        """See :meth:`AnswerPolicy.run`."""
        asked = _Asked.of(table, self.systems, self.trust)
        votes = (asked.same & asked.counts[:, None, :]).sum(axis=2) * asked.counts
        best = (4.0 * votes + 2.0 * asked.has_answer - asked.rank).argmax(axis=1)
        return PolicyResult(asked.success[np.arange(len(table)), best], asked.cost_usd.sum(axis=1))


@dataclass(frozen=True)
class TwoAgreePolicy:
    """Ask the systems in turn until two answers that passed the check agree, and return that answer.

    If no two do, return the answer of the most trusted system among those that passed, or among all.

    Args:
        systems: Whom to ask, in this order.
        trust: All systems, the most trusted first.
    """

    systems: tuple[str, ...]
    trust: tuple[str, ...]

    def run(self, table: OutcomeTable) -> PolicyResult:
        """See :meth:`AnswerPolicy.run`."""
        asked = _Asked.of(table, self.systems, self.trust)
        success, cost = np.zeros(len(table)), np.zeros(len(table))
        is_open = np.ones(len(table), np.bool_)
        for i in range(len(self.systems)):
            cost += is_open * asked.cost_usd[:, i]
            agree = (asked.same[:, i, :i] & asked.counts[:, :i]).any(axis=1) & asked.counts[:, i]
            success = np.where(is_open & agree, asked.success[:, i], success)
            is_open &= ~agree
        trusted = (4.0 * asked.counts + 2.0 * asked.has_answer - asked.rank).argmax(axis=1)
        success = np.where(is_open, asked.success[np.arange(len(table)), trusted], success)
        return PolicyResult(success, cost)


@dataclass(frozen=True)
class VoteOfK:
    """A vote of the k cheapest, or of the k most accurate systems, for every k up to the depth."""

    name: str = "vote"

    def fit(self, evidence: Evidence) -> TriedPolicies:
        """See :meth:`Method.fit`."""
        trust = trusted(evidence)
        cost = dict(zip(evidence.systems, evidence.model.cost_usd, strict=True))
        cheapest = tuple(sorted(trust, key=lambda name: cost[name]))
        sets = dict.fromkeys(order[:k] for k in range(1, evidence.depth + 1) for order in (cheapest, trust))
        sets |= dict.fromkeys((name,) for name in trust)
        return TriedPolicies.on(evidence.drawn, [(VotePolicy(s, trust), f"vote of {', '.join(s)}") for s in sets])


@dataclass(frozen=True)
class UntilTwoAgree:
    """Ask until two agree: every order of two to ``depth`` systems, and every system alone."""

    name: str = "two_agree"

    def fit(self, evidence: Evidence) -> TriedPolicies:
        """See :meth:`Method.fit`."""
        trust = trusted(evidence)
        policies: list[tuple[AnswerPolicy, str]] = [
            (TwoAgreePolicy(order, trust), " > ".join(order))
            for length in range(1, evidence.depth + 1)
            for order in permutations(evidence.systems, length)
        ]
        return TriedPolicies.on(evidence.drawn, policies)


def trusted(evidence: Evidence) -> tuple[str, ...]:
    """Return the systems by their estimated accuracy, the best first."""
    accuracy = dict(zip(evidence.systems, evidence.model.accuracy, strict=True))
    return tuple(sorted(accuracy, key=lambda name: -accuracy[name]))


@dataclass(frozen=True)
class _Asked:
    """The answers of the asked systems, in the order of asking. Arrays have shape (requests, systems).

    ``same`` (requests, systems, systems): both have an answer, of one class. ``counts``: the answer passed the check. ``rank``:
    the system's place in the order of trust, scaled to [0, 1); shape (systems,).
    """

    success: BoolArray
    cost_usd: FloatArray
    has_answer: BoolArray
    same: BoolArray
    counts: BoolArray
    rank: FloatArray

    @classmethod
    def of(cls, table: OutcomeTable, systems: tuple[str, ...], trust: tuple[str, ...]) -> _Asked:
        columns = table.columns(systems)
        kind = table.answer_class[:, columns]
        has_answer = kind != NO_ANSWER
        place = {name: i / len(trust) for i, name in enumerate(trust)}
        return cls(
            success=table.success[:, columns],
            cost_usd=table.cost_usd[:, columns],
            has_answer=has_answer,
            same=(kind[:, :, None] == kind[:, None, :]) & has_answer[:, :, None],
            counts=has_answer & table.passed[:, columns],
            rank=np.array([place[name] for name in systems]),
        )
