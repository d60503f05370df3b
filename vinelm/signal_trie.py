"""The trie of what requests show: outcomes as the arms of a trie that branches, and which answer to return where it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vinelm.errors import VineLMError
from vinelm.signals import Label, Outcome
from vinelm.trie import BoolArray, FloatArray

if TYPE_CHECKING:
    from vinelm.annotated_trie import AnnotatedTrie

OUTCOME_ARRAYS = ("node", "label", "answer_class", "chance", "right", "right_last", "returned", "arm")
"""The arrays of :class:`SignalTrie`, as they are named in a ``.vine`` file."""


class Seen(NamedTuple):
    """An outcome as the trie knows it.

    Args:
        place: Index into the outcome arrays; -1 where the node has no outcome.
        is_exact: Whether it is the very outcome that was shown; else it is the nearest one that the profile knows.
    """

    place: int
    is_exact: bool


@dataclass(frozen=True, eq=False)
class SignalTrie:
    """What requests show, beside the path trie of an :class:`~vinelm.AnnotatedTrie`.

    ``annotated`` is a trie that branches: the arms of a node are its outcomes, and the name of an arm is the stage that comes
    next with what was seen, as in ``repair [failed, answer 1]``. Answers are numbered from 1 in these names. ``arm_success`` is
    the chance that the outcome comes and the best answer held then is right.

    Arrays of shape (outcomes,), sorted by node; an outcome is (label, class of the answer) after the node's invocation:

    - ``node``: the node of ``annotated.trie``. ``label``: index into ``labels``. ``answer_class``: -1 without an answer.
    - ``chance``: P(the outcome | the node is reached).
    - ``right``, ``right_last``: P(it comes, and the best answer held then (the last answer) is right | the node is reached).
    - ``returned``: the class of the best answer; -1 where there is none.
    - ``arm``: the stage of ``annotated.trie`` that goes on from it; -1 where the request ends.

    Args:
        annotated: The trie.
        labels: What answers may show.
        stages: The workflow's stage of each stage of ``annotated.trie``, by index.
        goes_on: Whether requests may go on after the workflow's own check has passed an answer.
        returns_earlier: Whether an earlier answer may be returned; else ``arm_success`` and ``success`` are those of the last.
    """

    annotated: AnnotatedTrie
    labels: tuple[Label, ...]
    stages: tuple[int, ...]
    goes_on: bool
    node: npt.NDArray[np.int32]
    label: npt.NDArray[np.int16]
    answer_class: npt.NDArray[np.int16]
    chance: FloatArray
    right: FloatArray
    right_last: FloatArray
    returned: npt.NDArray[np.int16]
    arm: npt.NDArray[np.int16]
    returns_earlier: bool = True

    def __post_init__(self) -> None:
        sizes = {len(getattr(self, name)) for name in OUTCOME_ARRAYS}
        if len(sizes) != 1:
            raise VineLMError("the outcome arrays of a signal trie differ in length")
        if len(self.stages) != len(self.annotated.trie.stages):
            raise VineLMError("a signal trie needs the workflow's stage of each of its arms")

    @cached_property
    def passed(self) -> BoolArray:
        """Whether the workflow's own check has passed the answer, by stage of ``annotated.trie``; False for the first one."""
        found = np.zeros(len(self.stages), np.bool_)
        goes_on = self.arm >= 0
        found[self.arm[goes_on]] = np.array([label.passed for label in self.labels])[self.label[goes_on]]
        return found

    @cached_property
    def first(self) -> npt.NDArray[np.int64]:
        """Where the outcomes of each node begin, shape (n + 2,)."""
        return np.searchsorted(self.node, np.arange(len(self.annotated.trie) + 1))

    def seen(self, node: int, outcome: Outcome, *, passed: bool) -> Seen:
        """Return what the trie knows of an outcome after a node.

        An outcome that the profile never saw stands for the most probable one that agrees with it in as much as possible: the
        verdict of the check and the class, then the verdict, then the class.
        """
        low, high = int(self.first[node]), int(self.first[node + 1])
        wanted = -1 if outcome.answer_class is None else outcome.answer_class
        best, found = (-1, -1.0), -1
        for i in range(low, high):
            label, answer_class = self.labels[self.label[i]], int(self.answer_class[i])
            fit = 4 * (label.passed == passed) + 2 * (answer_class == wanted) + (label.signal == outcome.signal)
            if fit == 7:
                return Seen(i, True)
            if (fit, self.chance[i]) > best:
                best, found = (fit, float(self.chance[i])), i
        return Seen(found, False)

    def arm_name(self, index: int) -> str | None:
        """Return the arm that goes on from an outcome, as a stage of ``annotated.trie``; None where the request ends."""
        at = -1 if index < 0 else int(self.arm[index])
        return None if at < 0 else self.annotated.trie.stages[at]

    def returned_class(self, index: int) -> int | None:
        """Return the class of the answer that a request ending with an outcome should return; None for its last answer."""
        if index < 0 or not self.returns_earlier:
            return None
        returned, last = int(self.returned[index]), int(self.answer_class[index])
        return None if returned < 0 or returned == last else returned

    def returning_last(self) -> SignalTrie:
        """Return the same where only the last answer can be returned."""
        if not self.returns_earlier:
            return self
        annotated = self.annotated
        trie, size = annotated.trie, len(annotated.trie)
        goes_on = self.arm >= 0
        success = np.asarray(np.bincount(self.node, self.right_last, size), np.float64)
        stop_success = np.asarray(np.bincount(self.node, np.where(goes_on, 0.0, self.right_last), size), np.float64)
        arm_success = np.zeros(size)
        key = self.node.astype(np.int64)[goes_on] * len(trie.stages) + self.arm[goes_on]
        order = np.argsort(key)
        up = trie.parent[1:].astype(np.int64)
        wanted = up * len(trie.stages) + trie.stage[1:]
        below = up > 0
        arm_success[1:][below] = self.right_last[goes_on][order][np.searchsorted(key[order], wanted[below])]
        changed = replace(annotated, success=success, stop_success=stop_success, arm_success=arm_success)
        return replace(self, annotated=changed, returns_earlier=False)

    def to_dict(self) -> dict[str, Any]:
        """Return what is no array as plain JSON types."""
        return {
            "labels": [[label.passed, label.signal] for label in self.labels],
            "stages": list(self.stages),
            "goes_on": self.goes_on,
            "arms": list(self.annotated.trie.stages),
            "meta": dict(self.annotated.meta),
        }

    @staticmethod
    def labels_from(items: Sequence[Sequence[Any]]) -> tuple[Label, ...]:
        """Parse the labels that :meth:`to_dict` wrote."""
        return tuple(Label(bool(passed), None if signal is None else str(signal)) for passed, signal in items)


def arm_title(stage: str, label: Label, answer_class: int) -> str:
    """Return the name of an arm: the stage that comes next, and what was seen before it."""
    return f"{stage} [{label}, {'no answer' if answer_class < 0 else f'answer {answer_class + 1}'}]"
