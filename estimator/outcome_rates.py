"""The three yes/no questions that determine a node's rates (docs/architecture.md#mathematics), and their counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vinelm.estimator.observation_table import ObservationTable
from vinelm.trie import BoolArray, FloatArray, Trie


@dataclass(frozen=True, eq=False)
class OutcomeQuestion:
    """One yes/no question about cells: ``asked`` (where it applies) and ``yes`` have shape (cells,)."""

    name: str
    asked: BoolArray
    yes: BoolArray

    def counts(self, cells: ObservationTable) -> tuple[FloatArray, FloatArray]:
        """Return (number of yes answers, number of answers) of each node, both of shape (n + 1,)."""
        size = len(cells.trie)
        yes = np.bincount(cells.node[self.asked & self.yes], minlength=size)
        return yes.astype(np.float64), np.bincount(cells.node[self.asked], minlength=size).astype(np.float64)


def outcome_questions(cells: ObservationTable) -> tuple[OutcomeQuestion, OutcomeQuestion, OutcomeQuestion]:
    """Return the questions: does the request stop; is it right given a stop; is it right given no stop.

    Together they give the rates s, b = s P(right | stop) and a = b + (1 - s) P(right | no stop) under any stop rule. An
    accepted answer is never assumed to be right. Under the oracle stop the third answer is always no, and the second is no only
    for failed calls.
    """
    everywhere = np.ones(len(cells), np.bool_)
    return (
        OutcomeQuestion("stop", everywhere, cells.stop),
        OutcomeQuestion("right_if_stop", cells.stop & cells.labelled, cells.right),
        OutcomeQuestion("right_if_on", ~cells.stop & cells.labelled, cells.right),
    )


@dataclass(frozen=True, eq=False)
class Rates:
    """Probabilities of a yes to the three questions per node, shape (n + 1,), 0 at the root."""

    stop: FloatArray
    right_if_stop: FloatArray
    right_if_on: FloatArray

    @property
    def stop_success(self) -> FloatArray:
        """The rate b = P(stop and right), shape (n + 1,)."""
        return self.stop * self.right_if_stop

    @property
    def success(self) -> FloatArray:
        """The rate a = P(right), shape (n + 1,)."""
        return self.stop_success + (1.0 - self.stop) * self.right_if_on

    @classmethod
    def of(cls, trie: Trie, stop: FloatArray, right_if_stop: FloatArray, right_if_on: FloatArray) -> Rates:
        """Build rates clipped to [0, 1], with 0 at the root and no right answers at nodes that are not answerable."""
        stop, right_if_stop, right_if_on = (np.clip(rate, 0.0, 1.0) for rate in (stop, right_if_stop, right_if_on))
        for rate in (stop, right_if_stop, right_if_on):
            rate[0] = 0.0
        for rate in (right_if_stop, right_if_on):
            rate[~trie.answerable] = 0.0
        return cls(stop, right_if_stop, right_if_on)
