"""Rivals that look at nothing but the application's own check: a single model, two of them in turn, or a fixed path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from vinelm.evaluation import OutcomeTable
from vinelm.evaluation.plans.path_plans import workflow_level_nodes
from vinelm.evaluation.rivals import Evidence, PolicyChoice, PolicyResult
from vinelm.objective import Objective
from vinelm.trie.arrays import BoolArray, FloatArray


class Chooser(Protocol):
    """A method that has seen its evidence."""

    def choose(self, max_cost_usd: float) -> PolicyChoice:
        """Return the policy with the highest estimated accuracy among those expected to cost at most that much per request.

        Where none fits, the cheapest. Deterministic. Nothing random may be left to the policy either.
        """


class Method(Protocol):
    """A method: turns evidence into a choice for every budget."""

    @property
    def name(self) -> str:
        """Its name in tables and JSON keys."""

    def fit(self, evidence: Evidence) -> Chooser:
        """Prepare the choice. Pure: equal evidence gives equal choices."""


@dataclass(frozen=True)
class PathPolicy:
    """Ask the systems in turn until an answer passes the check; return the last answer."""

    path: tuple[str, ...]

    def run(self, table: OutcomeTable) -> PolicyResult:
        """See :meth:`AnswerPolicy.run`."""
        columns = table.columns(self.path)
        is_open, success, cost = np.ones(len(table), np.bool_), np.zeros(len(table)), np.zeros(len(table))
        for m in columns:
            cost += is_open * table.cost_usd[:, m]
            success = np.where(is_open, table.success[:, m], success)
            is_open &= ~table.passed[:, m]
        return PolicyResult(success, cost)


@dataclass(frozen=True)
class MixedPolicy:
    """Serve a share of the requests by one policy and the rest by another, at random: expected results."""

    one: PathPolicy
    other: PathPolicy
    share: float
    """Of requests that go to ``other``, in [0, 1]."""

    def run(self, table: OutcomeTable) -> PolicyResult:
        """See :meth:`AnswerPolicy.run`."""
        first, second = self.one.run(table), self.other.run(table)
        return PolicyResult(
            (1.0 - self.share) * first.success + self.share * second.success,
            (1.0 - self.share) * first.cost_usd + self.share * second.cost_usd,
        )


@dataclass(frozen=True)
class _Paths:
    """A chooser among the nodes of the estimated trie."""

    evidence: Evidence
    candidates: BoolArray | None

    def choose(self, max_cost_usd: float) -> PolicyChoice:
        objective = Objective(maximize="accuracy", max_cost_usd=max_cost_usd)
        decision = self.evidence.planner.plan(objective, candidates=self.candidates)
        return PolicyChoice(
            policy=PathPolicy(decision.path),
            promised_accuracy=decision.promise.accuracy,
            promised_cost_usd=decision.path_cost_usd,
            words=", ".join(decision.path),
        )


@dataclass(frozen=True)
class PathOnly:
    """VineLM's plan without signals: the best path of models."""

    name: str = "path_only"

    def fit(self, evidence: Evidence) -> _Paths:
        """See :meth:`Method.fit`."""
        return _Paths(evidence, None)


@dataclass(frozen=True)
class StaticPlan:
    """The best static plan: one model for each stage and a number of turns."""

    name: str = "static"

    def fit(self, evidence: Evidence) -> _Paths:
        """See :meth:`Method.fit`."""
        return _Paths(evidence, workflow_level_nodes(evidence.estimate))


@dataclass(frozen=True)
class BestSingle:
    """The best single system, asked once."""

    name: str = "single"

    def fit(self, evidence: Evidence) -> _Paths:
        """See :meth:`Method.fit`."""
        return _Paths(evidence, first_nodes(evidence))


@dataclass(frozen=True)
class MixedSingle:
    """Two single systems in the proportion that spends the budget: a point on the concave hull of accuracy over dollars."""

    name: str = "mixed_single"

    def fit(self, evidence: Evidence) -> MixedChooser:
        """See :meth:`Method.fit`."""
        return MixedChooser(evidence)


@dataclass(frozen=True)
class MixedChooser:
    """The chooser of :class:`MixedSingle`."""

    evidence: Evidence

    def choose(self, max_cost_usd: float) -> PolicyChoice:
        """See :meth:`Chooser.choose`."""
        estimate = self.evidence.estimate
        nodes = np.flatnonzero(first_nodes(self.evidence))
        accuracy, cost = estimate.accuracy[nodes], estimate.path_cost_usd[nodes]
        cheap, dear, share = _mix(accuracy, cost, max_cost_usd)
        one, other = (PathPolicy(estimate.trie.prefix(int(nodes[i]))) for i in (cheap, dear))
        return PolicyChoice(
            policy=MixedPolicy(one, other, share),
            promised_accuracy=float((1.0 - share) * accuracy[cheap] + share * accuracy[dear]),
            promised_cost_usd=float((1.0 - share) * cost[cheap] + share * cost[dear]),
            words=f"{one.path[0]}, {100 * share:.0f} % {other.path[0]}",
        )


def first_nodes(evidence: Evidence) -> BoolArray:
    """Mark the nodes of one invocation, shape (n + 1,)."""
    trie = evidence.estimate.trie
    return np.asarray(trie.depth == 1) & trie.answerable


def _mix(accuracy: FloatArray, cost: FloatArray, budget: float) -> tuple[int, int, float]:
    """The pair and the share of the dearer one with the highest mean accuracy within the budget."""
    order = sorted(range(len(cost)), key=lambda i: (cost[i], -accuracy[i], i))
    best = (order[0], order[0], 0.0)
    if cost[order[0]] > budget:
        return best
    reached = float(accuracy[order[0]])
    for i in order:
        for j in order:
            if cost[i] > budget or cost[j] < cost[i]:
                continue
            share = 1.0 if cost[j] <= budget else (budget - cost[i]) / (cost[j] - cost[i])
            mean = (1.0 - share) * accuracy[i] + share * accuracy[j]
            if mean > reached + 1e-12:
                best, reached = (i, j, float(share)), float(mean)
    return best
