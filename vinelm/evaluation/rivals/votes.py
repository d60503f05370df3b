"""Baselines that compare answers of several systems (such as models): a vote, and asking until two answers agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from vinelm.evaluation.off_policy.steps import Seen, Step
from vinelm.evaluation.outcome_table import NO_ANSWER, OutcomeTable
from vinelm.evaluation.rivals.base import AnswerPolicy, Evidence, PolicyResult, TriedPolicies
from vinelm.rows.observation import Observation
from vinelm.trie.arrays import BoolArray, FloatArray


@dataclass(frozen=True)
class VotePolicy:
    """Call every system, and return the answer that the most systems gave.

    Only answers that passed the check vote. A tie goes to the answer of the system that comes first in ``trust``. If no
    answer passed, the answer of the first system in ``trust`` that answered is returned.

    Args:
        systems: The systems to call.
        trust: All systems, from the highest estimated accuracy to the lowest.
    """

    systems: tuple[str, ...]
    trust: tuple[str, ...]

    def run(self, table: OutcomeTable) -> PolicyResult:
        """Run the policy on every request of the table, and return the results; see :meth:`AnswerPolicy.run`."""
        asked = _Asked.of(table, self.systems, self.trust)
        votes = (asked.same & asked.counts[:, None, :]).sum(axis=2) * asked.counts
        best = (4.0 * votes + 2.0 * asked.has_answer - asked.rank).argmax(axis=1)
        return PolicyResult(asked.success[np.arange(len(table)), best], asked.cost_usd.sum(axis=1))

    def step(self, seen: Seen) -> Step:
        """Return the system to call after the recorded calls ``seen``, or the answer to return; see :meth:`StepRule.step`.

        A failed call ends the request.
        """
        if seen and seen[-1].failure is not None:
            return Step(None)
        if len(seen) < len(self.systems):
            return Step(self.systems[len(seen)])
        counts = [_counts(row) for row in seen]
        votes = [sum(_same(one, other) and c for other, c in zip(seen, counts, strict=True)) for one in seen]
        keys = [4.0 * v * c for v, c in zip(votes, counts, strict=True)]
        return Step(None, _best(keys, seen, self.trust))


@dataclass(frozen=True)
class TwoAgreePolicy:
    """Call the systems in turn until two answers that passed the check agree, and return that answer.

    If no two agree, return the answer of the first system in ``trust`` whose answer passed; if none passed, of the
    first system in ``trust`` that answered.

    Args:
        systems: The systems to call, in this order.
        trust: All systems, from the highest estimated accuracy to the lowest.
    """

    systems: tuple[str, ...]
    trust: tuple[str, ...]

    def run(self, table: OutcomeTable) -> PolicyResult:
        """Run the policy on every request of the table, and return the results; see :meth:`AnswerPolicy.run`."""
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

    def step(self, seen: Seen) -> Step:
        """Return the system to call after the recorded calls ``seen``, or the answer to return; see :meth:`StepRule.step`.

        A failed call ends the request.
        """
        if seen and seen[-1].failure is not None:
            return Step(None)
        if seen and _counts(seen[-1]) and any(_same(seen[-1], row) and _counts(row) for row in seen[:-1]):
            return Step(None, len(seen) - 1)
        if len(seen) < len(self.systems):
            return Step(self.systems[len(seen)])
        return Step(None, _best([4.0 * _counts(row) for row in seen], seen, self.trust))


@dataclass(frozen=True)
class VoteOfK:
    """A baseline method that calls the k cheapest or the k most accurate systems, for a fixed k, and returns their most
    frequent answer.

    It tries every k up to the number of calls that a request may make (:attr:`.Evidence.depth`), and every single
    system. See :class:`VotePolicy`.
    """

    name: str = "vote"

    def fit(self, evidence: Evidence) -> TriedPolicies:
        """Run a vote of each set of systems that this method tries on simulated requests; return the votes' results.

        Equal evidence gives equal results.
        """
        trust = trusted(evidence)
        cost = dict(zip(evidence.systems, evidence.model.cost_usd, strict=True))
        cheapest = tuple(sorted(trust, key=lambda name: cost[name]))
        sets = dict.fromkeys(order[:k] for k in range(1, evidence.depth + 1) for order in (cheapest, trust))
        sets |= dict.fromkeys((name,) for name in trust)
        return TriedPolicies.on(evidence.drawn, [(VotePolicy(s, trust), f"vote of {', '.join(s)}") for s in sets])


@dataclass(frozen=True)
class UntilTwoAgree:
    """A baseline method that calls systems in a fixed order until two answers agree; see :class:`TwoAgreePolicy`.

    It tries every order of n systems, for every n up to the number of calls that a request may make
    (:attr:`.Evidence.depth`).
    """

    name: str = "two_agree"

    def fit(self, evidence: Evidence) -> TriedPolicies:
        """Run the method with each order of systems on simulated requests, and return the orders with their results.

        Equal evidence gives equal results.
        """
        trust = trusted(evidence)
        policies: list[tuple[AnswerPolicy, str]] = [
            (TwoAgreePolicy(order, trust), " > ".join(order))
            for length in range(1, evidence.depth + 1)
            for order in permutations(evidence.systems, length)
        ]
        return TriedPolicies.on(evidence.drawn, policies)


def trusted(evidence: Evidence) -> tuple[str, ...]:
    """Return the names of the systems by estimated accuracy of their first answer, the highest first."""
    accuracy = dict(zip(evidence.systems, evidence.model.accuracy, strict=True))
    return tuple(sorted(accuracy, key=lambda name: -accuracy[name]))


@dataclass(frozen=True)
class _Asked:
    """The answers of the called systems, which are the columns in call order. Arrays have shape (requests, systems)
    unless stated.

    Attributes:
        success: Whether the answer is right.
        cost_usd: Dollars of the call.
        has_answer: Whether the call gave an answer.
        same: Whether the two systems with these indices both answered and their answers agree; shape (requests,
            systems, systems).
        counts: Whether the system answered and the answer passed the check.
        rank: The system's place in the order of trust, divided by the number of all systems; 0 is the most trusted;
            shape (systems,).
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


def _counts(row: Observation) -> bool:
    return bool(row.stopped) and row.answer_class is not None


def _same(one: Observation, other: Observation) -> bool:
    return one.answer_class is not None and one.answer_class == other.answer_class


def _best(keys: Sequence[float], seen: Seen, trust: Sequence[str]) -> int:
    rank = {name: i / len(trust) for i, name in enumerate(trust)}
    scores = [key + 2.0 * (row.answer_class is not None) - rank[row.model] for key, row in zip(keys, seen, strict=True)]
    return int(np.argmax(scores))
