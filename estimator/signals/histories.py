"""All histories that the latent model gives a chance to: reach, and the mass of "class j is right", by exact summation.

A history is a sequence of (model, outcome). What is not seen, the type of each class of answers, is summed over: a *row* is a
history with one assignment of types, and its mass at each latent pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vinelm.estimator.signals.answer_model import ALIKE, NONE, OF_TYPE, OWN, RIGHT, SECOND, USUAL
from vinelm.estimator.signals.answers import Context, Ints
from vinelm.estimator.signals.predictive import Predictive
from vinelm.trie import BoolArray, FloatArray

LEAST_REACH = 1e-3
"""A history that is less likely than this, given its models, is not continued: a plan can only end there."""
NO_ANSWER, NOT_ASKED = -1, -2
_EXCLUDES = {RIGHT: (RIGHT, ALIKE), ALIKE: (RIGHT, ALIKE), USUAL: (USUAL,), SECOND: (SECOND,), OWN: ()}
"""The types of earlier classes that a new class would have agreed with. A class has the type of its first answer."""


@dataclass(frozen=True, eq=False)
class HistoryLevel:
    """The histories of one length. Arrays of shape (histories,), sorted by parent, model and outcome.

    Args:
        parent: The history before, an index into the level before.
        model: The last model, an index into the models.
        label: What was seen of its answer, an index into the model's labels.
        kind: Class of its answer, -1 without one.
        reach: P(the history | its models).
        right: P(the history and an answer of class j is right | its models), shape (histories, classes).
        spread: The same for the class that is most probably right, by fit, as masses; shape (histories, fits).
        size: Mean size of the requests with this history, relative to all; shape (histories,).
        context: The context of the last answer, an index into the model's contexts.
        last: The class of each model's last answer, :data:`NO_ANSWER` or :data:`NOT_ASKED`; shape (histories, models).
        is_open: Whether it is continued.
    """

    parent: Ints
    model: Ints
    label: Ints
    kind: Ints
    reach: FloatArray
    right: FloatArray
    spread: FloatArray
    size: FloatArray
    context: Ints
    last: Ints
    is_open: BoolArray

    def __len__(self) -> int:
        return len(self.parent)

    def usd(self, model: Predictive) -> FloatArray:
        """Return each history's part of the expected dollars of its last invocation: over a node's outcomes they sum up."""
        return np.asarray(self.reach * self.size * model.cost_usd[self.context])


class _Part(NamedTuple):
    """Rows that came about in the same way. Each has a history before, and what its last answer was and showed."""

    history: Ints
    model: Ints
    label: Ints
    kind: Ints
    types: npt.NDArray[np.int8]
    mass: FloatArray
    context: Ints


class _Rows(NamedTuple):
    history: Ints
    types: npt.NDArray[np.int8]
    mass: FloatArray


def histories(
    model: Predictive,
    stages: Sequence[tuple[str, Sequence[str]]],
    models: Sequence[str],
    *,
    goes_on: bool,
    least_reach: float = LEAST_REACH,
) -> list[HistoryLevel]:
    """Return the histories of each length from 1.

    Args:
        model: The fitted model.
        stages: For each invocation its stage and the models that it may run on.
        models: All models, in the order of the indices.
        goes_on: Whether a history may go on after the workflow's own check has passed its answer.
        least_reach: See :data:`LEAST_REACH`.
    """
    depth = len(stages)
    labels = model.labels
    passed = np.array([label.passed for label in labels])
    one, zero = np.ones(1), np.zeros(1, np.int64)
    never = np.full((1, len(models)), NOT_ASKED)
    root = HistoryLevel(
        zero, zero, zero, zero, one, np.zeros((1, depth)), np.zeros((1, 1)), one, zero, never, np.ones(1, np.bool_)
    )  # fmt: skip
    rows = _Rows(np.zeros(1, np.int64), np.full((1, depth), -1, np.int8), np.exp(model.log_weights)[None, :])
    label_of_class = np.full((1, depth), -1, np.int64)
    before, found = root, []
    for d, (stage, allowed) in enumerate(stages):
        contexts = _Contexts.of(model, stage, d > 0)
        parts: list[_Part] = []
        keep = before.is_open[rows.history]
        open_rows = _Rows(rows.history[keep], rows.types[keep], rows.mass[keep])
        for m, name in enumerate(models):
            if name in allowed:
                parts += _expand(model, contexts, open_rows, _Before(before, label_of_class, d), (m, name))
        if not parts:
            break
        history, m_, label, kind, types, mass, context = map(np.concatenate, zip(*parts, strict=True))
        code = ((history * len(models) + m_) * (depth + 1) + kind + 1) * len(labels) + label
        codes, first, of = np.unique(code, return_index=True, return_inverse=True)
        total = mass.sum(axis=1)
        reach = _sums(of, total, len(codes))
        right = np.zeros((len(codes), depth))
        for j in range(depth):
            right[:, j] = _sums(of, total * (types[:, j] == RIGHT), len(codes))
        parent, m_first, kind_first, label_first = history[first], m_[first], kind[first], label[first]
        last = before.last[parent].copy()
        last[np.arange(len(codes)), m_first] = np.where(kind_first < 0, NO_ANSWER, kind_first)
        is_open = reach >= least_reach if goes_on else (reach >= least_reach) & ~passed[label_first]
        size = _sums(of, mass @ model.size, len(codes)) / reach
        is_open &= d + 1 < depth
        spread = _by_fit(model, right.argmax(axis=1), of, types, mass)
        level = HistoryLevel(
            parent, m_first, label_first, kind_first, reach, right, spread, size, context[first], last, is_open
        )
        classes = label_of_class[parent].copy()
        new = (kind_first >= 0) & (classes[np.arange(len(codes)), np.maximum(kind_first, 0)] < 0)
        classes[np.flatnonzero(new), kind_first[new]] = label_first[new]
        rows, before, label_of_class = _Rows(of, types, mass), level, classes
        found.append(level)
    return found


class _Contexts(NamedTuple):
    """Index of the contexts of one stage by model: asked for the first time, and again (None: not known)."""

    first: dict[str, int]
    again: dict[str, int]

    @classmethod
    def of(cls, model: Predictive, stage: str, is_later: bool) -> _Contexts:
        index = {context: i for i, context in enumerate(model.contexts)}
        first: dict[str, int] = {}
        again: dict[str, int] = {}
        for name in {c.model for c in model.contexts}:
            for into, is_again in ((first, False), (again, True)):
                found = index.get(Context(stage, name, is_later, is_again))
                if found is not None:
                    into[name] = found
        return cls(first, again)


def _by_fit(model: Predictive, best: Ints, of: Ints, types: npt.NDArray[np.int8], mass: FloatArray) -> FloatArray:
    """Mass of "the class ``best`` of the history is right" by fit, shape (histories, fits)."""
    rows = np.flatnonzero(types[np.arange(len(of)), best[of]] == RIGHT)
    found = np.zeros((len(best), model.n_fits))
    starts = np.flatnonzero(np.diff(model.fit, prepend=-1))
    np.add.at(found, of[rows], np.add.reduceat(mass[rows], starts, axis=1) * model.n_fits)
    return found


def _sums(of: Ints, values: FloatArray, n: int) -> FloatArray:
    return np.asarray(np.bincount(of, values, n), np.float64)


@dataclass(frozen=True, eq=False)
class _Before:
    """What was known of the histories before an invocation."""

    level: HistoryLevel
    label_of_class: Ints
    depth: int


def _expand(model: Predictive, contexts: _Contexts, rows: _Rows, known: _Before, asked: tuple[int, str]) -> list[_Part]:
    """The rows after asking one model (its index and name), in parts."""
    before, label_of_class, depth = known.level, known.label_of_class, known.depth
    m, name = asked
    was_asked = before.last[rows.history, m] != NOT_ASKED
    parts: list[_Part] = []
    for is_again, of_model in ((False, contexts.first), (True, contexts.again)):
        context = of_model.get(name)
        at = np.flatnonzero(was_asked == is_again)
        if context is None or not len(at):
            continue
        p = np.exp(model.log_types[context])  # (types, points)
        same = float(model.same_again[context]) if is_again else 0.0
        new_draw = 1.0 - same
        earlier = before.last[rows.history[at], m]
        n_classes = (label_of_class[rows.history[at]] >= 0).sum(axis=1)
        part = _Parts(parts, rows, m, context)
        for label in range(len(model.labels)):
            rate = model.label_rates[context, :, label]
            part.add(at, (label, NO_ANSWER), p[NONE], rate[1] * new_draw)
            part.add(at[earlier == NO_ANSWER], (label, NO_ANSWER), None, rate[1] * same)
            for kind in range(depth + 1):
                fresh, old = at[n_classes == kind], at[n_classes > kind]
                for type_ in (RIGHT, ALIKE, USUAL, SECOND, OWN):
                    unused = fresh[~np.isin(rows.types[fresh], _EXCLUDES[type_]).any(axis=1)]
                    part.add(unused, (label, kind), p[type_], rate[OF_TYPE[type_]] * new_draw, type_)
                of_class = label_of_class[rows.history[old], kind]
                for type_ in (RIGHT, ALIKE, USUAL, SECOND):
                    fits = rows.types[old, kind] == type_
                    joins = p[RIGHT] + p[ALIKE] if type_ in (RIGHT, ALIKE) else p[type_]
                    if model.label_follows_class:
                        part.add(old[fits & (of_class == label)], (label, kind), joins, new_draw)
                    else:
                        part.add(old[fits], (label, kind), joins, rate[OF_TYPE[type_]] * new_draw)
                again = at[earlier == kind]
                again = again[label_of_class[rows.history[again], kind] == label]
                part.add(again, (label, kind), None, same)
    return parts


@dataclass(frozen=True, eq=False)
class _Parts:
    """Collects the rows after asking one model."""

    parts: list[_Part]
    rows: _Rows
    model: int
    context: int

    def add(
        self,
        at: npt.NDArray[np.intp],
        outcome: tuple[int, int],
        of_points: FloatArray | None,
        scale: float,
        new_type: int | None = None,
    ) -> None:
        """Add the rows ``at`` after an outcome (label, class); their mass is multiplied by ``of_points`` and ``scale``."""
        n, (label, kind) = len(at), outcome
        if not n or scale <= 0.0:
            return
        types = self.rows.types[at]
        if new_type is not None:
            types[:, kind] = new_type
        mass = self.rows.mass[at] * (scale if of_points is None else of_points * scale)
        history = self.rows.history[at]
        model, labels, kinds, context = (np.full(n, value) for value in (self.model, label, kind, self.context))
        self.parts.append(_Part(history, model, labels, kinds, types, mass, context))
