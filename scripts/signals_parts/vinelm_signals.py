"""VineLM's plan over what requests show, as one of the methods that are compared."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from science.path_rivals import Chooser, PathPolicy
from signals_parts.curves import PromisedChoice

from vinelm.controller import Planner
from vinelm.estimator import estimate_signals
from vinelm.evaluation import OutcomeTable
from vinelm.evaluation.outcome_table import NO_ANSWER, NO_SIGNAL
from vinelm.evaluation.rivals import Evidence, PolicyChoice, PolicyResult
from vinelm.objective import Objective
from vinelm.signals import Outcome
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.arrays import FloatArray
from vinelm.trie.outcomes import Outcomes

TIMED = 300
"""Look-ups that are timed."""


@dataclass(frozen=True)
class SignalPolicy:
    """Serves by the plan of one objective: what a session does, without a graph around it."""

    planner: Planner
    objective: Objective

    def run(self, table: OutcomeTable) -> PolicyResult:
        """See :meth:`AnswerPolicy.run`."""
        success, cost, _ = self.answers(table)
        return PolicyResult(success, cost)

    def answers(self, table: OutcomeTable) -> tuple[FloatArray, FloatArray, FloatArray]:
        """For each request whether the answer returned is correct, its dollars, and P(right) as it was said.

        Shape (requests,) each; NaN where the trie does not know what the request showed.
        """
        known: dict[tuple[int, str | None], tuple[str | None, int]] = {}
        served = np.array([self._serve(table, row, known) for row in range(len(table))], np.float64).reshape(-1, 3)
        return served[:, 0], served[:, 1], served[:, 2]

    def _serve(
        self, table: OutcomeTable, row: int, known: dict[tuple[int, str | None], tuple[str | None, int]]
    ) -> tuple[float, float, float]:
        """As :meth:`answers`, for one request."""
        annotated, trie = self.planner.annotated, self.planner.trie
        outcomes = annotated.outcomes
        assert outcomes is not None
        node, arm, spent, last, said = 0, None, 0.0, -1, float("nan")
        firsts: list[int] = []  # the column of the first answer of each class
        while True:
            if (node, arm) not in known:
                model = self.planner.plan(self.objective, node=node, stage=arm, may_stop=node > 0).next_model
                known[node, arm] = model, -1 if model is None else trie.child(node, model, arm)
            model, below = known[node, arm]
            if model is None:
                return float(table.success[row, last]), spent, said  # of the answer chosen below
            node, m = below, table.column[model]
            spent += float(table.cost_usd[row, m])
            answer_class = self._class_of(table, row, m, firsts)
            signal = int(table.signal[row, m])
            shown = Outcome(None if signal == NO_SIGNAL else table.labels[signal], answer_class)
            seen = outcomes.seen(node, shown, passed=bool(table.passed[row, m]))
            returned = outcomes.returned_class(seen.place)
            last = m if returned is None or returned >= len(firsts) else firsts[returned]
            said = said_right(outcomes, seen.place)
            if seen.place < 0 or outcomes.arm[seen.place] < 0:
                return float(table.success[row, last]), spent, said
            arm = trie.stages[int(outcomes.arm[seen.place])]

    @staticmethod
    def _class_of(table: OutcomeTable, row: int, m: int, firsts: list[int]) -> int | None:
        own = int(table.answer_class[row, m])
        if own == NO_ANSWER:
            return None
        for j, first in enumerate(firsts):
            if int(table.answer_class[row, first]) == own:
                return j
        firsts.append(m)
        return len(firsts) - 1


@dataclass(frozen=True)
class SignalChooser:
    """The chooser of :class:`VineLMSignals`."""

    signals: AnnotatedTrie
    planner: Planner

    def choose(self, max_cost_usd: float) -> PolicyChoice:
        """See :meth:`Chooser.choose`."""
        objective = Objective(maximize="accuracy", max_cost_usd=max_cost_usd)
        decision = self.planner.plan(objective)
        return PromisedChoice(
            policy=SignalPolicy(self.planner, objective),
            promise=decision.promise,
            promised_accuracy=decision.promise.accuracy,
            promised_cost_usd=decision.path_cost_usd,
            words=f"{decision.next_model} first",
            lookup_us=self._lookup_us(objective, decision.next_models),
        )

    def _lookup_us(self, objective: Objective, first: Mapping[str, str | None]) -> float:
        """Microseconds of one decision after the first answer."""
        model = next(iter(first.values()))
        trie = self.planner.trie
        node = trie.child(0, str(model))
        arms = list(trie.arms(node))
        if not arms:
            return float("nan")
        self.planner.plan(objective, node=node, stage=arms[0])
        started = time.perf_counter()
        for _ in range(TIMED):
            self.planner.plan(objective, node=node, stage=arms[0])
        return (time.perf_counter() - started) / TIMED * 1e6


@dataclass(frozen=True)
class VineLMSignals:
    """VineLM's contingent plan over signals and agreement."""

    name: str = "vinelm"

    def fit(self, evidence: Evidence) -> Chooser:
        """See :meth:`Method.fit`."""
        signals = estimate_signals(evidence.estimate, evidence.rows) if evidence.depth > 1 else None
        return PathChooser(evidence.planner) if signals is None else SignalChooser(signals, Planner(signals))


@dataclass(frozen=True)
class PathChooser:
    """The chooser where nothing but the application's check is seen: paths of models."""

    planner: Planner

    def choose(self, max_cost_usd: float) -> PolicyChoice:
        """See :meth:`Chooser.choose`."""
        decision = self.planner.plan(Objective(maximize="accuracy", max_cost_usd=max_cost_usd))
        return PromisedChoice(
            policy=PathPolicy(decision.path),
            promise=decision.promise,
            promised_accuracy=decision.promise.accuracy,
            promised_cost_usd=decision.path_cost_usd,
            words=", ".join(decision.path),
        )


def said_right(outcomes: Outcomes, place: int) -> float:
    """P(the answer that would be returned after an outcome is right); NaN where the trie does not know it."""
    if place < 0 or outcomes.chance[place] <= 0.0:
        return float("nan")
    right = outcomes.right if outcomes.returns_earlier else outcomes.right_last
    return float(right[place] / outcomes.chance[place])
