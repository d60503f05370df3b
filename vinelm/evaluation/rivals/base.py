"""Code shared by all baseline methods: the rows that they use, the policy that they choose, and its predicted results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from vinelm.controller import Planner
from vinelm.estimator.signals.first_answers import DrawnAnswers, FirstAnswers
from vinelm.evaluation.outcome_table import NO_SIGNAL, OutcomeTable
from vinelm.rows.observation import Observation
from vinelm.signals import Label
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.arrays import FloatArray

DRAWN = 3000
"""How many drawn requests policies are tried on."""
_SEED = 1


class PolicyResult(NamedTuple):
    """The results of a policy on the requests of a table.

    Args:
        success: Whether the answer returned to each request is correct; a probability in [0, 1] if the policy is random.
            Shape (requests,).
        cost_usd: Cost of each request in dollars, its expectation if the policy is random; same shape.
    """

    success: FloatArray
    cost_usd: FloatArray


class AnswerPolicy(Protocol):
    """Decides which systems (such as models) to call and which answer to return. It sees outcomes, but never whether an
    answer is right.
    """

    def run(self, table: OutcomeTable) -> PolicyResult:
        """Run the policy on every request of the table, and return the results.

        Raises:
            ConfigError: The table lacks a system.
        """


@dataclass(frozen=True, kw_only=True)
class PolicyChoice:
    """A policy chosen under a budget, and its predictions.

    Args:
        policy: The policy.
        promised_accuracy: Expected share of right answers, in [0, 1].
        promised_cost_usd: Expected cost per request, in dollars.
        words: The policy in words.
        lookup_us: Microseconds of one decision while serving, if the method has measured them.
    """

    policy: AnswerPolicy
    promised_accuracy: float
    promised_cost_usd: float
    words: str
    lookup_us: float | None = None


@dataclass(frozen=True)
class Evidence:
    """The recorded results from which every baseline method chooses a policy.

    Args:
        rows: The recorded rows, with their outcomes.
        estimate: The trie estimated from these rows; its catalog lists the systems.
        depth: The maximum number of calls of a policy for one request, >= 1.
    """

    rows: Sequence[Observation]
    estimate: AnnotatedTrie
    depth: int

    @cached_property
    def planner(self) -> Planner:
        """A planner over the estimated trie."""
        return Planner(self.estimate)

    @cached_property
    def systems(self) -> tuple[str, ...]:
        """The names of the systems (such as models) that a policy may call, in the order of the catalog."""
        return tuple(self.estimate.catalog)

    @cached_property
    def model(self) -> FirstAnswers:
        """The statistical model of the systems' answers, fitted to the rows; plans over signals use the same model."""
        return FirstAnswers.fit(self.rows, self.systems)

    @cached_property
    def drawn(self) -> OutcomeTable:
        """Simulated requests drawn from :attr:`model`, on which policies that compare several answers are tried."""
        signals = {Label.of(bool(row.stopped), row.signal): row.signal for row in self.rows if row.signal is not None}
        return drawn_table(self.systems, self.model.draw(DRAWN, _SEED), signals)


def drawn_table(systems: tuple[str, ...], drawn: DrawnAnswers, signals: Mapping[Label, str]) -> OutcomeTable:
    """Return simulated answers as a table. An infinite cost becomes a finite cost that no budget allows.

    Args:
        systems: The systems, in column order.
        drawn: The simulated answers.
        signals: The signal that each outcome label stands for in the recorded results. It is needed because a label
            omits a signal that only repeats the check's result.
    """
    shown = [signals.get(label, label.signal) for label in drawn.labels]
    labels = tuple(sorted({one for one in shown if one is not None}))
    signal = np.array([NO_SIGNAL if one is None else labels.index(one) for one in shown], np.int64)
    names = tuple(str(r) for r in range(len(drawn.right)))
    return OutcomeTable(
        request_ids=names,
        systems=systems,
        success=drawn.right,
        signal=signal[drawn.label],
        labels=labels,
        passed=np.array([label.passed for label in drawn.labels])[drawn.label],
        answer_class=drawn.answer_class,
        cost_usd=np.minimum(drawn.cost_usd, np.finfo(np.float64).max / 1e6),
        groups=names,
    )


@dataclass(frozen=True)
class TriedPolicies:
    """Policies that were run on simulated requests, to choose one for a budget.

    Args:
        policies: Pairs of a candidate policy and its description in words.
        accuracy: Share of right answers of each candidate, shape (candidates,).
        cost_usd: Mean cost of each candidate in dollars, same shape; infinite if a system was never observed.
    """

    policies: Sequence[tuple[AnswerPolicy, str]]
    accuracy: FloatArray
    cost_usd: FloatArray

    @classmethod
    def on(cls, table: OutcomeTable, policies: Sequence[tuple[AnswerPolicy, str]]) -> TriedPolicies:
        """Run each of ``policies``, pairs (policy, its description), on all requests of the table, and return the results."""
        results = [policy.run(table) for policy, _ in policies]
        return cls(
            policies,
            np.array([float(result.success.mean()) for result in results]),
            np.array([float(result.cost_usd.mean()) for result in results]),
        )

    def choose(self, max_cost_usd: float) -> PolicyChoice:
        """Return the policy with the highest estimated accuracy among those within the budget per request.

        If no policy is within the budget, return the cheapest. Ties go to the cheaper policy, then to the first.
        """
        fits = self.cost_usd <= max_cost_usd
        if fits.any():
            best = min((int(i) for i in np.flatnonzero(fits)), key=lambda i: (-self.accuracy[i], self.cost_usd[i], i))
        else:
            best = int(np.argmin(self.cost_usd))
        policy, words = self.policies[best]
        return PolicyChoice(
            policy=policy,
            promised_accuracy=float(self.accuracy[best]),
            promised_cost_usd=float(self.cost_usd[best]),
            words=words,
        )
