"""The histories of one length, with their probabilities under the latent model of answers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vinelm.estimator.signals.answers import Ints
from vinelm.trie.arrays import BoolArray, FloatArray

_ROUNDING = 1e-12
"""The relative difference below which two sums are equal: which answer is returned must not depend on the order of additions.
"""


@dataclass(frozen=True, eq=False)
class HistoryLevel:
    """The histories (sequences of models and outcomes) of one length, sorted by parent, model and outcome.

    All arrays have the shape (histories,) unless another shape is given. A class is a number that agreeing answers share. A fit
    is one fit of the latent model to resampled requests. The course says which stages may follow each other.

    Args:
        parent: The history without its last call, an index into the previous level.
        model: The last model, an index into the models.
        label: The label of the last answer, an index into the model's labels.
        kind: Class of the last answer; -1 without an answer.
        reach: P(the history occurs | its models).
        right: P(the history occurs, and answers of class j are right | its models), shape (histories, classes).
        right_by_fit: The same probability according to each fit, shape (histories, classes, fits). Its mean over the fits is
            ``right``.
        size_by_fit: P(the history occurs | its models) times the mean size of its requests, according to each fit; 0 if no
            history is continued. Shape (histories, fits).
        size: Mean size of the requests with this history, relative to all requests; 1 if no history is continued. Shape
            (histories,).
        context: The context of the last answer, an index into the model's contexts.
        last: The class of each model's last answer; -1 if its call gave none, -2 if the model was not called; shape
            (histories, models).
        position: The position in the course after the history.
        following: The stage that comes next, an index into the stages of the course; -1 if there is none.
        after: The outcome of the last stage that writes no answer, an index into the distinct values of ``Context.after``.
        is_open: Whether the history is continued.
        held: The class of the current answer; -1 if the last stage that should answer gave none, -2 before the first
            answer.
        judged: Each model's verdict, as a judge, on each class: a signal's number, -1 if it was not called; shape
            (histories, models or 0 without judges, classes).
        begins: How the request began, an index into the starts of the course.
    """

    parent: Ints
    model: Ints
    label: Ints
    kind: Ints
    reach: FloatArray
    right: FloatArray
    right_by_fit: FloatArray
    size_by_fit: FloatArray
    size: FloatArray
    context: Ints
    last: Ints
    position: Ints
    following: Ints
    after: Ints
    is_open: BoolArray
    held: Ints
    judged: npt.NDArray[np.int8]
    begins: Ints

    def __len__(self) -> int:
        return len(self.parent)

    @property
    def spread(self) -> FloatArray:
        """For each history and fit, the probability that the history occurs and its most probably right answer is right.

        Shape (histories, fits).
        """
        return np.asarray(self.right_by_fit[np.arange(len(self)), best_class(self.right)])


def best_class(right: FloatArray) -> Ints:
    """Return the class of answers that is most probably right after each history; on ties, the first.

    ``right`` has the shape (histories, classes).
    """
    highest = right.max(axis=1, keepdims=True)
    return np.asarray((right >= highest * (1.0 - _ROUNDING)).argmax(axis=1))
