"""Whether an answer that is said to be right with some probability is right so often: the expected calibration error.

Two sets of answers to held-out requests are looked at: those that the served policies return, and the best answer after every
history, each weighted by its chance if each next model is drawn evenly from those not yet asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from signals_parts.vinelm_signals import SignalPolicy, said_right

from vinelm.evaluation import OutcomeTable
from vinelm.evaluation.outcome_table import NO_ANSWER, NO_SIGNAL
from vinelm.signals import Outcome
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.arrays import FloatArray

BINS = 10
Rows = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Said:
    """Answers: P(right) as it was said, whether they are right, and their weights; arrays of one shape."""

    probability: FloatArray
    right: FloatArray
    weight: FloatArray

    @classmethod
    def joined(cls, parts: Iterable[Said]) -> Said:
        """All answers of several sets."""
        kept = [*parts]
        return cls(*(np.concatenate([getattr(one, name) for one in kept]) for name in ("probability", "right", "weight")))

    def ece_points(self, bins: int = BINS) -> float:
        """Mean distance between what was said and what is true, in points, over bins of equal weight; NaN without answers."""
        total = float(self.weight.sum())
        if total <= 0.0:
            return float("nan")
        order = np.argsort(self.probability, kind="stable")
        weight = self.weight[order] / total
        which = np.minimum(((np.cumsum(weight) - weight / 2) * bins).astype(np.int64), bins - 1)
        gap = np.bincount(which, weight * (self.probability - self.right)[order], bins)
        return float(100.0 * np.abs(gap).sum())


@dataclass(frozen=True)
class Calibration:
    """What was said of the answers that policies return, and of the best answers after all histories."""

    returned: Said
    histories: Said

    @classmethod
    def of(cls, policies: Sequence[object], table: OutcomeTable) -> Calibration | None:
        """That of policies over one trie of what requests show, on held-out requests; None for other policies."""
        over_signals = [policy for policy in policies if isinstance(policy, SignalPolicy)]
        if not over_signals:
            return None
        served = [policy.answers(table) for policy in over_signals]
        known = [~np.isnan(said) for _, _, said in served]
        returned = Said.joined(
            Said(said[at], success[at], np.ones(int(at.sum()))) for (success, _, said), at in zip(served, known, strict=True)
        )
        return cls(returned, Said.joined(_Walk(over_signals[0].planner.annotated, table).all()))


def ece_points(splits: Sequence[Calibration | None]) -> dict[str, float] | None:
    """The errors over the answers of all splits; None where there are none."""
    found = [one for one in splits if one is not None]
    if not found:
        return None
    return {
        "returned": Said.joined(one.returned for one in found).ece_points(),
        "histories": Said.joined(one.histories for one in found).ece_points(),
    }


@dataclass(frozen=True)
class _Asked:
    """Requests with one history: their rows, the columns asked, and the column of the first answer of each class (-1: none)."""

    rows: Rows
    columns: tuple[int, ...]
    firsts: Rows


class _Walk:
    """Every history of held-out requests that the trie knows."""

    def __init__(self, annotated: AnnotatedTrie, table: OutcomeTable) -> None:
        self.trie, self.outcomes, self.table = annotated.trie, annotated.outcomes, table

    def all(self) -> Iterator[Said]:
        """The best answer after each history."""
        rows = np.arange(len(self.table))
        return self._below(self.trie.children(0), _Asked(rows, (), np.empty((len(rows), 0), np.intp)), 1.0)

    def _below(self, children: Sequence[int], asked: _Asked, weight: float) -> Iterator[Said]:
        """The histories that go on to one of these nodes."""
        columns = [(child, self.table.column[self.trie.models[int(self.trie.model[child])]]) for child in children]
        fresh = [(child, m) for child, m in columns if m not in asked.columns]  # answers to a second call are not recorded
        for child, m in fresh:
            yield from self._after(child, m, asked, weight / len(fresh))

    def _after(self, node: int, m: int, asked: _Asked, weight: float) -> Iterator[Said]:
        """The histories that go on with the answers of column ``m``."""
        table, rows = self.table, asked.rows
        own, count = table.answer_class[rows, m], (asked.firsts >= 0).sum(axis=1)
        earlier = np.where(asked.firsts >= 0, table.answer_class[rows[:, None], asked.firsts], NO_ANSWER - 1)
        same = earlier == own[:, None]
        kind = np.where(same.any(axis=1), same.argmax(axis=1) if same.shape[1] else 0, count)
        kind = np.where(own == NO_ANSWER, NO_ANSWER, kind)
        firsts = np.column_stack((asked.firsts, np.full(len(rows), -1)))
        is_new = (own != NO_ANSWER) & (kind == count)
        firsts[is_new, count[is_new]] = m
        arms = self.trie.arms(node)
        shown = np.stack((table.signal[rows, m], kind, table.passed[rows, m]))
        for signal, answer_class, passed in np.unique(shown, axis=1).T.tolist():
            at = np.flatnonzero((shown == [[signal], [answer_class], [passed]]).all(axis=0))
            outcome = Outcome(
                None if signal == NO_SIGNAL else table.labels[signal], None if answer_class == NO_ANSWER else answer_class
            )
            place = self.outcomes.seen(node, outcome, passed=bool(passed)).place
            said = said_right(self.outcomes, place)
            if np.isnan(said):
                continue
            group = _Asked(rows[at], (*asked.columns, m), firsts[at])
            yield Said(np.full(len(at), said), self._right(place, group), np.full(len(at), weight))
            if self.outcomes.arm[place] >= 0:
                yield from self._below(arms[self.trie.stages[int(self.outcomes.arm[place])]], group, weight)

    def _right(self, place: int, group: _Asked) -> FloatArray:
        """Whether the answer that would be returned after the outcome is right."""
        returned, last = self.outcomes.returned_class(place), np.full(len(group.rows), group.columns[-1])
        chosen = last if returned is None or returned >= group.firsts.shape[1] else group.firsts[:, returned]
        return np.asarray(self.table.success[group.rows, np.where(chosen >= 0, chosen, last)], np.float64)
