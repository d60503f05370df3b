"""The outcomes of a trie's invocations (signals and answers), what follows each outcome, and which answer a request should
return.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from vinelm.errors import VineLMError
from vinelm.signals.declaration import Label, Outcome
from vinelm.trie.arrays import BoolArray, FloatArray
from vinelm.trie.trie import Trie

OUTCOME_ARRAYS = ("node", "label", "answer_class", "chance", "right", "right_last", "returned", "arm", "spread")
"""Arrays of :class:`Outcomes` by outcome, as named in a ``.vine`` file, which also has ``cost_spread``."""


class Seen(NamedTuple):
    """The outcome in a trie of signals that stands for the observed outcome of a call: an equal one, or else the most similar
    one.

    Args:
        place: Index into the arrays of :class:`Outcomes`; -1 if the node has no outcome.
        is_exact: Whether this outcome equals the observed one; otherwise it is the most similar outcome in the profile.
    """

    place: int
    is_exact: bool


@dataclass(frozen=True, eq=False)
class Outcomes:
    """The outcomes of calls at each node of a trie of signals.

    The name of a branch has the next stage and, in brackets, the outcome before it, such as ``repair [failed, answer 1]``.
    Answers are numbered from 1 in these names. ``arm_success`` is the probability that the outcome occurs and the best answer
    so far is right.

    Arrays of shape (outcomes,), sorted by node; an outcome is (label, class of the answer) after the node's invocation:

    - ``node``: the node of the trie. ``label``: index into ``labels``. ``answer_class``: -1 without an answer.
    - ``chance``: P(the outcome | the node is reached).
    - ``right``, ``right_last``: P(the outcome occurs, and the best (last) answer so far is right | the node is reached).
    - ``returned``: the class of the best answer; -1 if there is none.
    - ``arm``: the stage of the trie that follows the outcome; -1 if the request ends.
    - ``spread``: P(the outcome occurs, and the best answer so far is right | the models up to the node), for each fit; shape
      (outcomes, fits). A fit is an estimate from resampled requests. The mean over the fits is the estimate; with a single fit,
      its error is unknown.

    Args:
        labels: The possible labels of answers.
        cost_spread: For each node of the trie and each fit to resampled requests: P(the node is reached | the models up to
            it) times the dollars of its invocation; shape (nodes, fits). Differences between the fits give the error of a
            plan's expected dollars.
        stages: For each stage of the trie, the index of the workflow's stage.
        goes_on: Whether requests may continue after the workflow's own check has passed an answer.
        returns_earlier: Whether an earlier answer may be returned; otherwise the trie's ``arm_success`` and ``success`` refer
            to the last answer.
    """

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
    spread: npt.NDArray[np.float32]
    cost_spread: npt.NDArray[np.float32]
    returns_earlier: bool = True

    def __post_init__(self) -> None:
        if len({len(getattr(self, name)) for name in OUTCOME_ARRAYS}) != 1:
            raise VineLMError("the arrays of the outcomes differ in length")
        if any(getattr(self, name).ndim != 1 + (name == "spread") for name in OUTCOME_ARRAYS):
            raise VineLMError("the outcomes need arrays of one dimension, and of two for spread")
        if self.cost_spread.ndim != 2 or self.cost_spread.shape[1:] != self.spread.shape[1:]:
            raise VineLMError("cost_spread needs two dimensions and as many fits as spread")

    @classmethod
    def none(cls, n_stages: int, n_nodes: int) -> Self:
        """Return an object without outcomes, for a trie of paths, whose stages are the workflow's stages.

        Args:
            n_stages: Number of stages of the trie.
            n_nodes: Length of the trie's arrays.
        """
        empty: dict[str, Any] = {name: np.empty(0, np.int32) for name in OUTCOME_ARRAYS}
        fits = {"spread": np.empty((0, 0), np.float32), "cost_spread": np.empty((n_nodes, 0), np.float32)}
        return cls(labels=(), stages=tuple(range(n_stages)), goes_on=False, **(empty | fits))

    @cached_property
    def passed(self) -> BoolArray:
        """For each stage of the trie, whether the workflow's own check has passed the previous answer; False for the first
        stage.
        """
        found = np.zeros(len(self.stages), np.bool_)
        goes_on = self.arm >= 0
        found[self.arm[goes_on]] = np.array([label.passed for label in self.labels], np.bool_)[self.label[goes_on]]
        return found

    def seen(self, node: int, outcome: Outcome, *, passed: bool, stage: int | None = None) -> Seen:
        """Return which outcome of the trie stands for an observed outcome after a node.

        An outcome that the profile lacks is replaced by the most similar one: an equal result of the check counts most, then an
        equal answer class, then an equal signal. Of equally similar outcomes, the most probable is taken.

        Args:
            node: The node.
            outcome: The observed signal and answer class.
            passed: The result of the workflow's own check.
            stage: Index of a stage of the workflow: only outcomes after which it comes next are considered; None for all.
        """
        low, high = (int(at) for at in np.searchsorted(self.node, (node, node + 1)))
        wanted = -1 if outcome.answer_class is None else outcome.answer_class
        shown = Label.of(passed, outcome.signal)
        best, found = (-1, -1.0), -1
        for i in range(low, high):
            if stage is not None and (self.arm[i] < 0 or self.stages[self.arm[i]] != stage):
                continue
            label, answer_class = self.labels[self.label[i]], int(self.answer_class[i])
            fit = 4 * (label.passed == passed) + 2 * (answer_class == wanted) + (label.signal == shown.signal)
            if fit == 7:
                return Seen(i, True)
            if (fit, self.chance[i]) > best:
                best, found = (fit, float(self.chance[i])), i
        return Seen(found, False)

    def returned_class(self, place: int) -> int | None:
        """Return the class of the earlier answer that a request should return if it ends with the outcome at index ``place``.

        None if the request should return its last answer. Also None if ``place`` is -1, or if the graph can only return the
        last answer.
        """
        if place < 0 or not self.returns_earlier:
            return None
        returned, last = int(self.returned[place]), int(self.answer_class[place])
        return None if returned < 0 or returned == last else returned

    def returning_last(self) -> Self:
        """Return a copy for graphs that can only return the last answer of a request, never an earlier one.

        In the copy, ``spread`` is multiplied by ``right_last / right``: the probability that the last answer is right, divided
        by the probability that the best answer is right.
        """
        share = np.divide(self.right_last, self.right, out=np.zeros(len(self.right)), where=self.right > 0.0)
        return replace(self, returns_earlier=False, spread=self.spread * share[:, None].astype(np.float32))

    def to_dict(self) -> dict[str, Any]:
        """Return all fields except the arrays as a dict of JSON types."""
        return {
            "labels": [[label.passed, label.signal] for label in self.labels],
            "stages": list(self.stages),
            "goes_on": self.goes_on,
        }

    @staticmethod
    def labels_from(items: Sequence[Sequence[Any]]) -> tuple[Label, ...]:
        """Parse the labels that :meth:`to_dict` wrote."""
        return tuple(Label(bool(passed), None if signal is None else str(signal)) for passed, signal in items)


def path_edges(trie: Trie, stages: Sequence[int], paths: Trie) -> npt.NDArray[np.int64]:
    """Return, for each edge of a trie of signals, the index of the corresponding edge in the trie of paths.

    The paths up to both edges have the same stages and models. The branches of a trie of signals also tell outcomes apart, so
    several of its edges may correspond to one edge.

    Args:
        trie: The trie of signals, whose branches are outcomes.
        stages: For each stage of ``trie``, the index of the workflow's stage.
        paths: The trie of paths.

    Raises:
        VineLMError: ``paths`` lacks a path of ``trie``.
    """
    n_stages = len(paths.stages)
    width = np.array([len(paths.models) * n_stages, n_stages, 1])
    keys = np.column_stack((paths.source, paths.model[paths.target], paths.stage[paths.target])) @ width
    order, base, found = np.argsort(keys), np.zeros(len(trie), np.int64), np.zeros(len(trie), np.int64)
    for level in trie.levels[1:]:
        wanted = np.column_stack((base[trie.parent[level]], trie.model[level], np.array(stages)[trie.stage[level]])) @ width
        at = order[np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)]
        if not np.array_equal(keys[at], wanted):
            raise VineLMError("the path trie lacks a path that the signals' trie has: estimate all paths of the template")
        found[level], base[level] = at, paths.target[at]
    return found[trie.target]


def arm_title(stage: str, label: Label, answer_class: int) -> str:
    """Return the name of a branch, such as ``repair [failed, answer 1]``: the next stage, then the label and answer class
    of the last call.
    """
    return f"{stage} [{label}, {'no answer' if answer_class < 0 else f'answer {answer_class + 1}'}]"
