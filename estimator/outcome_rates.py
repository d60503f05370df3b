"""The three yes/no questions whose answers make a node's annotation (DESIGN §4), and their counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vinelm.estimator.observation_table import ObservationTable
from vinelm.trie import BoolArray, FloatArray, Trie


@dataclass(frozen=True, eq=False)
class Head:
    """One question, asked of the cells where it applies: ``asked`` and ``yes`` have shape (cells,)."""

    name: str
    asked: BoolArray
    yes: BoolArray

    def counts(self, cells: ObservationTable) -> tuple[FloatArray, FloatArray]:
        """(yes answers, answers) of each node, both of shape (n + 1,)."""
        size = len(cells.trie)
        yes = np.bincount(cells.node[self.asked & self.yes], minlength=size)
        return yes.astype(np.float64), np.bincount(cells.node[self.asked], minlength=size).astype(np.float64)


def outcome_questions(cells: ObservationTable) -> tuple[Head, Head, Head]:
    """Does the request stop here; is it right, given that it stops; is it right, given that it goes on.

    Together they give s, b = s P(right | stop) and a = b + (1 - s) P(right | goes on) under any stop rule. "Accepted" is never
    read as "right". Under the oracle stop the third is always no, and the second is no for failed calls only.
    """
    everywhere = np.ones(len(cells), np.bool_)
    return (
        Head("stop", everywhere, cells.stop),
        Head("right_if_stop", cells.stop & cells.labelled, cells.right),
        Head("right_if_on", ~cells.stop & cells.labelled, cells.right),
    )


@dataclass(frozen=True, eq=False)
class Rates:
    """Probabilities of the three heads per node, shape (n + 1,), root entries 0."""

    stop: FloatArray
    right_if_stop: FloatArray
    right_if_on: FloatArray

    @property
    def stop_success(self) -> FloatArray:
        """P(stop and right): b."""
        return self.stop * self.right_if_stop

    @property
    def success(self) -> FloatArray:
        """P(right): a."""
        return self.stop_success + (1.0 - self.stop) * self.right_if_on

    @classmethod
    def of(cls, trie: Trie, stop: FloatArray, right_if_stop: FloatArray, right_if_on: FloatArray) -> Rates:
        """Rates clipped to [0, 1], the root's set to 0, and no right answer at nodes that hold no answer."""
        stop, right_if_stop, right_if_on = (np.clip(rate, 0.0, 1.0) for rate in (stop, right_if_stop, right_if_on))
        for rate in (stop, right_if_stop, right_if_on):
            rate[0] = 0.0
        for rate in (right_if_stop, right_if_on):
            rate[~trie.answerable] = 0.0
        return cls(stop, right_if_stop, right_if_on)
