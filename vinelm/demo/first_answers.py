"""The first answers of all models to a half of the requests, for rivals that compare independent answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from vinelm.demo.result import Half
from vinelm.evaluation import NO_ANSWER, NO_SIGNAL, OutcomeTable, PolicyRun, SweepPolicy
from vinelm.evaluation.policy_run import Role
from vinelm.evaluation.rivals import Evidence, Method, UntilTwoAgree, VoteOfK
from vinelm.evaluation.rivals.base import Chooser
from vinelm.evaluation.session_replay import AnswerSource
from vinelm.objective import Objective
from vinelm.signals import ShownAnswer, Signals
from vinelm.workflow import Request

RIVALS: dict[Role, tuple[str, Method]] = {
    "vote": ("vote of models", VoteOfK()),
    "two_agree": ("until two agree", UntilTwoAgree()),
}
"""Name and method of each rival, by role."""


@dataclass(frozen=True, eq=False)
class FirstAnswerRivals:
    """Rivals that ask several models for a first answer each; chosen from one half's rows, tried on the other half.

    Args:
        half: The half that judges.
        signals: What the workflow declares.
        answers: Where the answers come from.
    """

    half: Half
    signals: Signals
    answers: AnswerSource
    _choosers: dict[Role, Chooser] = field(default_factory=dict, init=False)

    def policies(self) -> dict[Role, SweepPolicy]:
        """Return the rivals by role. They plan for budgets only, and their seconds are not known."""
        return {role: SweepPolicy(name, role, self._runner(role)) for role, (name, _) in RIVALS.items()}

    def _runner(self, role: Role) -> Any:
        def run(objective: Objective) -> PolicyRun | None:
            if objective.max_cost_usd is None:
                return None
            if role not in self._choosers:
                self._choosers[role] = RIVALS[role][1].fit(self._evidence)
            choice = self._choosers[role].choose(objective.max_cost_usd)
            found = choice.policy.run(self._table)
            return PolicyRun(
                policy=RIVALS[role][0],
                plan=choice.words,
                success=found.success > 0.5,
                cost_usd=found.cost_usd,
                latency_s=np.full(len(self._table), np.nan),
                expected_accuracy=choice.promised_accuracy,
            )

        return run

    @cached_property
    def _evidence(self) -> Evidence:
        return Evidence(self.half.rows, self.half.annotated, self.half.annotated.trie.max_depth)

    @cached_property
    def _table(self) -> OutcomeTable:
        return first_answer_table(self.half.judged, tuple(self.half.annotated.catalog), self.signals, self.answers)


def first_answer_table(
    requests: Sequence[Request], models: tuple[str, ...], signals: Signals, answers: AnswerSource
) -> OutcomeTable:
    """Return the table of the first answer of each model to each request.

    Args:
        requests: The requests, in row order.
        models: The models, in column order; each can run the first stage.
        signals: What the workflow declares.
        answers: Where the answers come from.
    """
    shown = [[answers(request, (model,)) for model in models] for request in requests]
    labels = tuple(sorted({one.signal for row in shown for one in row if one.signal is not None}))
    ids = tuple(request.id for request in requests)
    return OutcomeTable(
        request_ids=ids,
        systems=models,
        success=np.array([[one.success for one in row] for row in shown], np.bool_),
        signal=np.array([[NO_SIGNAL if one.signal is None else labels.index(one.signal) for one in row] for row in shown]),
        labels=labels,
        passed=np.array([[one.passed for one in row] for row in shown], np.bool_),
        answer_class=np.array([_classes(row, signals) for row in shown]),
        cost_usd=np.array([[one.cost_usd for one in row] for row in shown]),
        groups=ids,
    )


def _classes(row: Sequence[ShownAnswer], signals: Signals) -> list[int]:
    known: list[Any] = []
    found = []
    for one in row:
        kind = signals.class_of(one.answer, known)
        if kind == len(known):
            known.append(one.answer)
        found.append(NO_ANSWER if kind is None else kind)
    return found
