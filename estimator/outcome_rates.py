"""Counts the answers to the three yes/no questions that determine a node's rates (docs/mathematics.md)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vinelm.estimator.arms import Arms
from vinelm.estimator.observation_table import ObservationTable
from vinelm.trie import Trie
from vinelm.trie.arrays import FloatArray


def outcome_counts(cells: ObservationTable) -> list[tuple[FloatArray, FloatArray]]:
    """Return the numbers of (yes answers, answers) at each node, shape (nodes,), for each of three questions.

    The questions are: does the request stop; is the answer right if it stops; is the answer right if it continues. An accepted
    answer is never assumed to be right. Under the oracle stop, all answers to the third question are "no", while the second
    gets a "no" only for failed calls. An answer with a fractional score counts partly as yes.
    """
    questions = (
        (np.ones(len(cells), np.bool_), cells.stop),
        (cells.stop & cells.labelled, cells.right),
        (~cells.stop & cells.labelled, cells.right),
    )
    size, found = len(cells.trie), []
    for asked, yes in questions:
        node = cells.node[asked]
        found.append((np.bincount(node, yes[asked], size).astype(np.float64), np.bincount(node, minlength=size).astype(float)))
    return found


@dataclass(frozen=True, eq=False)
class Rates:
    """The probabilities of a yes to three questions about each node, as arrays of shape (nodes,); 0 at the root.

    Attributes:
        stop: P(the request stops at the node).
        right_if_stop: P(the answer is right | the request stops).
        right_if_on: P(the answer is right | the request continues).
    """

    stop: FloatArray
    right_if_stop: FloatArray
    right_if_on: FloatArray

    @property
    def stop_success(self) -> FloatArray:
        """The rate b: the probability that the request stops at each node with a right answer, shape (nodes,)."""
        return self.stop * self.right_if_stop

    @property
    def success(self) -> FloatArray:
        """The rate a: the probability of a right answer at each node, shape (nodes,)."""
        return self.stop_success + (1.0 - self.stop) * self.right_if_on

    @classmethod
    def of(cls, trie: Trie, stop: FloatArray, right_if_stop: FloatArray, right_if_on: FloatArray) -> Rates:
        """Return rates clipped to [0, 1]. All are 0 at the root; rates of right answers are 0 at nodes without an answer."""
        stop, right_if_stop, right_if_on = (np.clip(rate, 0.0, 1.0) for rate in (stop, right_if_stop, right_if_on))
        for rate in (stop, right_if_stop, right_if_on):
            rate[0] = 0.0
        for rate in (right_if_stop, right_if_on):
            rate[~trie.answerable] = 0.0
        return cls(stop, right_if_stop, right_if_on)


@dataclass(frozen=True, eq=False)
class ArmRates:
    """Probabilities of the branches that requests take.

    Each array has one element for each node that a branch leads to. If several edges may lead to a node, it has one element for
    each edge instead.

    Args:
        arm: P(the branch is taken | the node that it leaves is reached); 1 at the root.
        arm_success: P(the branch is taken and the answer so far is correct | the node that it leaves is reached); 0 at the
            root.
    """

    arm: FloatArray
    arm_success: FloatArray

    @classmethod
    def of(cls, trie: Trie, arms: Arms, rates: Rates, arm: FloatArray, arm_success: FloatArray) -> ArmRates:
        """Return the branch probabilities as arrays over nodes (or edges, if several lead to a node).

        ``arm`` and ``arm_success`` have the probabilities by branch, shape (branches,). They are scaled: over a node's branches
        they add up to P(continues) and P(continues with a right answer).
        """
        goes_on = 1.0 - rates.stop
        arm = _scaled(arms, np.clip(arm, 0.0, 1.0), goes_on)
        right = np.minimum(_scaled(arms, np.clip(arm_success, 0.0, 1.0), goes_on * rates.right_if_on), arm)
        found, found_right = np.ones(trie.n_arm_items), np.zeros(trie.n_arm_items)
        found[trie.arm_items], found_right[trie.arm_items] = arm[arms.of_edge], right[arms.of_edge]
        return cls(found, found_right)


def _scaled(arms: Arms, parts: FloatArray, whole: FloatArray) -> FloatArray:
    total = np.bincount(arms.source, parts, len(whole))
    even = 1.0 / np.maximum(arms.count[arms.source], 1)
    source = arms.source
    share = np.where(total[source] > 0.0, parts / np.where(total[source] > 0.0, total[source], 1.0), even)
    return np.asarray(np.minimum(share * whole[source], 1.0), dtype=np.float64)
