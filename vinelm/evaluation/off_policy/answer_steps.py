"""Runs policies that compare answers on simulated requests, to predict the policies' results."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from vinelm.evaluation.off_policy.steps import Rest, Seen, Step, StepRule
from vinelm.evaluation.off_policy.table_walk import walk_ends
from vinelm.evaluation.outcome_table import OutcomeTable
from vinelm.template import Template


@dataclass(frozen=True)
class TriedSteps:
    """A policy with its expected results, which were measured by running the policy on simulated requests.

    Args:
        policy: The rule that decides the next call or returns an answer.
        rests: The mean success, remaining cost and remaining latency, keyed by the outcomes so far. For outcomes that no
            simulated request had, :meth:`rest` returns the values for the start of a request.
    """

    policy: StepRule
    rests: dict[tuple[object, ...], Rest] = field(default_factory=dict)

    @classmethod
    def on(cls, policy: StepRule, table: OutcomeTable, template: Template, seconds: float) -> TriedSteps:
        """Run a policy on the simulated requests of a table, and return it with the mean results after each history.

        Args:
            policy: The rule that decides the next call or returns an answer.
            table: The simulated requests, with each model's answer.
            template: The workflow's stages, one after another without branches, each with its models.
            seconds: Expected seconds of one call.
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
        """Return the model to run after the recorded calls ``seen``, or the answer to return; see :meth:`StepPolicy.step`."""
        return self.policy.step(seen)

    def rest(self, seen: Seen) -> Rest:
        """Return the success, cost and latency still to expect after the calls ``seen``; see :meth:`StepPolicy.rest`."""
        return self.rests.get(_shown(seen)) or self.rests[()]


def _shown(seen: Seen) -> tuple[object, ...]:
    firsts: dict[int, int] = {}
    return tuple(
        (bool(row.stopped), None if row.answer_class is None else firsts.setdefault(row.answer_class, len(firsts)))
        for row in seen
    )
