"""Policies that compare answers, followed row by row: a vote, and asking until two agree."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from vinelm.evaluation.off_policy.steps import Rest, Seen, Step
from vinelm.evaluation.off_policy.table_walk import walk_ends
from vinelm.evaluation.outcome_table import OutcomeTable
from vinelm.evaluation.rivals.votes import TwoAgreePolicy, VotePolicy
from vinelm.rows.observation import Observation
from vinelm.template import Template


@dataclass(frozen=True)
class VoteSteps:
    """:class:`~vinelm.evaluation.rivals.VotePolicy` as steps. A failed call ends the request."""

    vote: VotePolicy

    def step(self, seen: Seen) -> Step:
        """See :meth:`StepPolicy.step`."""
        if seen and seen[-1].failure is not None:
            return Step(None)
        if len(seen) < len(self.vote.systems):
            return Step(self.vote.systems[len(seen)])
        counts = [_counts(row) for row in seen]
        votes = [sum(_same(one, other) and c for other, c in zip(seen, counts, strict=True)) for one in seen]
        keys = [4.0 * v * c for v, c in zip(votes, counts, strict=True)]
        return Step(None, _best(keys, seen, self.vote.trust))


@dataclass(frozen=True)
class AgreeSteps:
    """:class:`~vinelm.evaluation.rivals.TwoAgreePolicy` as steps. A failed call ends the request."""

    asked: TwoAgreePolicy

    def step(self, seen: Seen) -> Step:
        """See :meth:`StepPolicy.step`."""
        if seen and seen[-1].failure is not None:
            return Step(None)
        if seen and _counts(seen[-1]) and any(_same(seen[-1], row) and _counts(row) for row in seen[:-1]):
            return Step(None, len(seen) - 1)
        if len(seen) < len(self.asked.systems):
            return Step(self.asked.systems[len(seen)])
        return Step(None, _best([4.0 * _counts(row) for row in seen], seen, self.asked.trust))


@dataclass(frozen=True)
class TriedSteps:
    """Steps of a policy with the expectations that follow from trying it on drawn requests.

    Args:
        policy: The steps.
        rests: The expectation by what was shown; unknown histories get that of the start.
    """

    policy: VoteSteps | AgreeSteps
    rests: dict[tuple[object, ...], Rest] = field(default_factory=dict)

    @classmethod
    def on(cls, policy: VoteSteps | AgreeSteps, table: OutcomeTable, template: Template, seconds: float) -> TriedSteps:
        """Try a policy over the drawn requests of a table.

        Args:
            policy: The steps.
            table: The drawn requests.
            template: Linear, bound.
            seconds: Expected seconds of an invocation.
        """
        sums: dict[tuple[object, ...], np.ndarray] = defaultdict(lambda: np.zeros(4))
        for end in walk_ends(policy, table, template):
            n, right = len(end.rows), end.right(table)
            usd = [float(table.cost_usd[end.rows, column].sum()) for column in end.columns]
            for depth in range(len(usd)):
                left = sum(usd[depth:]), n * seconds * (len(usd) - depth)
                sums[_shown(end.seen[:depth])] += (right, *left, n)
        return cls(policy, {shown: Rest(*(total[:3] / total[3]).tolist()) for shown, total in sums.items()})

    def step(self, seen: Seen) -> Step:
        """See :meth:`StepPolicy.step`."""
        return self.policy.step(seen)

    def rest(self, seen: Seen) -> Rest:
        """See :meth:`StepPolicy.rest`."""
        return self.rests.get(_shown(seen)) or self.rests[()]


def _shown(seen: Seen) -> tuple[object, ...]:
    firsts: dict[int, int] = {}
    return tuple(
        (bool(row.stopped), None if row.answer_class is None else firsts.setdefault(row.answer_class, len(firsts)))
        for row in seen
    )


def _counts(row: Observation) -> bool:
    return bool(row.stopped) and row.answer_class is not None


def _same(one: Observation, other: Observation) -> bool:
    return one.answer_class is not None and one.answer_class == other.answer_class


def _best(keys: Sequence[float], seen: Seen, trust: Sequence[str]) -> int:
    rank = {name: i / len(trust) for i, name in enumerate(trust)}
    scores = [key + 2.0 * (row.answer_class is not None) - rank[row.model] for key, row in zip(keys, seen, strict=True)]
    return int(np.argmax(scores))
