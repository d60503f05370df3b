"""Simulates the models' first answers to requests by the latent model. A vote or a cascade takes these answers as input."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from vinelm.errors import EvidenceError
from vinelm.estimator.signals.answer_model import ALIKE, NONE, OF_TYPE, OWN, RIGHT, SECOND, USUAL
from vinelm.estimator.signals.answers import AnswerTable, Ints
from vinelm.estimator.signals.course import Context, Course
from vinelm.estimator.signals.predictive import FITS, Predictive
from vinelm.rows.observation import Observation
from vinelm.signals import Label
from vinelm.trie.arrays import BoolArray, FloatArray

NO_ANSWER = -1
_CLASS_OF_TYPE = {RIGHT: 0, ALIKE: 0, USUAL: 1, SECOND: 2, NONE: NO_ANSWER}
_FIRST_OWN = 3
"""The class of an answer that agrees with nothing, for the first model; those of the other models follow."""


@dataclass(frozen=True, eq=False)
class DrawnAnswers:
    """Simulated requests with every model's answer to each of them; arrays of shape (requests, models).

    Args:
        labels: The labels that an answer may have.
        right: Whether the answer is right.
        answer_class: Answers of one request with equal numbers agree; -1 without an answer.
        label: The answer's label, an index into ``labels``.
        cost_usd: Cost of the call in dollars; infinite for a model without a result.
    """

    labels: tuple[Label, ...]
    right: BoolArray
    answer_class: Ints
    label: Ints
    cost_usd: FloatArray


@dataclass(frozen=True, eq=False)
class FirstAnswers:
    """The fitted model restricted to first answers, which do not depend on earlier answers.

    This estimate is used for plans that depend on signals.

    Args:
        models: The models, in column order.
        predictive: The latent model of answers, as combined fits to resampled requests.
        stage: The stage of first answers.
    """

    models: tuple[str, ...]
    predictive: Predictive
    stage: str

    @classmethod
    def fit(cls, rows: Iterable[Observation], models: Sequence[str], *, fits: int = FITS) -> FirstAnswers:
        """Fit the model of first answers to the results of a linear template, in any order, and return it.

        Args:
            rows: All results, including those after a passed check.
            models: The models, in the order of the columns; models without a result are never right.
            fits: The number of fits to resampled requests that are combined; see :class:`Predictive`.

        Raises:
            EvidenceError: No result is scored or none is a first answer, or more than 8 signals occur.
        """
        kept = list(rows)
        stages = sorted({row.stage for row in kept if row.depth == 1})
        table = AnswerTable.of(kept, Course.chain(stages))
        if not stages:
            raise EvidenceError("no row is the first answer of its request: nothing can be said about first answers")
        return cls(tuple(models), Predictive.of(table, fits=fits), stages[0])

    @cached_property
    def _contexts(self) -> npt.NDArray[np.intp]:
        """For each model, the index of its first answer's context (stage and model) in ``predictive.contexts``, shape
        (models,).

        It is -1 for a model without a result.
        """
        index = {context: i for i, context in enumerate(self.predictive.contexts)}
        return np.array([index.get(Context(self.stage, name, False, False), -1) for name in self.models], np.intp)

    @cached_property
    def accuracy(self) -> FloatArray:
        """The expected accuracy of each model's first answer, shape (models,); 0 if the model has no result."""
        right = np.exp(self.predictive.log_types[self._contexts, RIGHT]) @ np.exp(self.predictive.log_weights)
        return np.where(self._contexts >= 0, right, 0.0)

    @cached_property
    def cost_usd(self) -> FloatArray:
        """Expected cost of a call of each model, in dollars, shape (models,); infinite if the model has no result."""
        return np.where(self._contexts >= 0, self.predictive.cost_usd[self._contexts], np.inf)

    def draw(self, requests: int, seed: int) -> DrawnAnswers:
        """Simulate ``requests`` requests and every model's answer to each of them. Equal arguments give equal answers.

        If answers that agree always have the same label, agreeing answers to a request get one common label.
        """
        model, contexts, rng = self.predictive, self._contexts, np.random.default_rng(seed)
        shape, known = (requests, len(contexts)), contexts >= 0
        point = _stratified(np.exp(model.log_weights), requests)
        types = _drawn(np.exp(model.log_types[contexts]).transpose(2, 0, 1)[point], rng)
        types = np.where(known, types, NONE)
        own = _FIRST_OWN + np.broadcast_to(np.arange(shape[1]), shape)
        classes = np.array([_CLASS_OF_TYPE.get(type_, 0) for type_ in range(len(OF_TYPE))])[types]
        answer_class = np.where(types == OWN, own, classes)
        label = _drawn(model.label_rates[contexts, OF_TYPE[types]], rng)
        if model.label_follows_class:
            same = (answer_class[:, :, None] == answer_class[:, None, :]) & (answer_class >= 0)[:, :, None]
            first = np.where(answer_class >= 0, same.argmax(axis=2), np.arange(shape[1]))
            label = np.take_along_axis(label, first, axis=1)
        cost = np.where(known, self.cost_usd, np.inf) * model.size[point][:, None]
        return DrawnAnswers(model.labels, types == RIGHT, answer_class, label, cost)


def _stratified(weights: FloatArray, n: int) -> npt.NDArray[np.intp]:
    """Return ``n`` random indices with frequencies as close as possible to their weights (stratified sampling)."""
    cumulative = np.cumsum(weights)
    at = np.searchsorted(cumulative, (np.arange(n) + 0.5) / n * cumulative[-1])
    return np.asarray(np.minimum(at, len(weights) - 1))


def _drawn(probabilities: FloatArray, rng: np.random.Generator) -> npt.NDArray[np.intp]:
    """Return one random index for each distribution along the last axis."""
    cumulative = np.cumsum(probabilities, axis=-1)
    at = rng.random(cumulative.shape[:-1])[..., None] * cumulative[..., -1:]
    return np.asarray((at >= cumulative).sum(axis=-1).clip(max=cumulative.shape[-1] - 1))
