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
MOST_OPEN = 4_000
"""Of more histories of one length, only the most likely ones are continued."""
MOST_ROWS, MOST_LAST_ROWS = 10_000, 100_000
"""Of histories with more rows than this, only the most likely ones are continued; the second bound is for the last answer, whose
rows are not continued and take little memory. Loops of five and more turns meet them: each row has some 30 to follow it."""
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
        size: Mean size of the requests with this history, relative to all; 1 where none is continued. Shape (histories,).
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
    growing = _Growing(model, models, len(stages), goes_on=goes_on, least_reach=least_reach)
    for stage, allowed in stages:
        if not growing.add_level(stage, [(m, name) for m, name in enumerate(models) if name in allowed]):
            break
    return growing.found


class _Growing:
    """The levels found so far; of the last one also its rows, and the label that each of its classes was seen with first."""

    def __init__(self, model: Predictive, models: Sequence[str], depth: int, *, goes_on: bool, least_reach: float) -> None:
        self.model, self.n_models, self.depth = model, len(models), depth
        self.goes_on, self.least_reach = goes_on, least_reach
        self.passed = np.array([label.passed for label in model.labels])
        self.of_fit = (model.fit[:, None] == np.arange(model.n_fits)).astype(float)
        self.found: list[HistoryLevel] = []
        one, zero = np.ones(1), np.zeros(1, np.int64)
        never = np.full((1, len(models)), NOT_ASKED)
        self.last = HistoryLevel(
            zero, zero, zero, zero, one, np.zeros((1, depth)), np.zeros((1, 1)), one, zero, never, np.ones(1, np.bool_)
        )  # fmt: skip
        self.rows = _Rows(zero, np.full((1, depth), -1, np.int8), np.exp(model.log_weights)[None, :])
        self.label_of_class = np.full((1, depth), -1, np.int64)

    def add_level(self, stage: str, asked: Sequence[tuple[int, str]]) -> bool:
        """Add the histories that are one invocation longer; return False if there are none."""
        is_final = len(self.found) + 1 == self.depth
        _close_rare(self.last, self.rows.history, MOST_LAST_ROWS if is_final else MOST_ROWS)
        contexts = _Contexts.of(self.model, stage, bool(self.found))
        keep = self.last.is_open[self.rows.history]
        rows = _Rows(self.rows.history[keep], self.rows.types[keep], self.rows.mass[keep])
        known = _Before(self.last, self.label_of_class, len(self.found), self.of_fit if is_final else None)
        parts = [part for each in asked for part in _expand(self.model, contexts, rows, known, each)]
        if not parts:
            self.last.is_open[:] = False
            return False
        part = _Part(*map(np.concatenate, zip(*parts, strict=True)))
        self.last.is_open[np.setdiff1d(np.arange(len(self.last)), part.history)] = False  # no model is known to be asked there
        code = (part.history * self.n_models + part.model) * (self.depth + 1) + part.kind + 1
        code = code * len(self.model.labels) + part.label
        _, first, of = np.unique(code, return_index=True, return_inverse=True)
        level = self._level(part, first, of, is_final=is_final)
        self.label_of_class = self._labels_of_classes(level)
        self.rows, self.last = _Rows(of, part.types, part.mass), level
        self.found.append(level)
        return True

    def _level(self, part: _Part, first: Ints, of: Ints, *, is_final: bool) -> HistoryLevel:
        """The histories of the rows ``part``: ``first`` is one row of each, ``of`` is each row's history."""
        n = len(first)
        parent, model, label, kind = part.history[first], part.model[first], part.label[first], part.kind[first]
        total = part.mass.sum(axis=1)
        reach = _sums(of, total, n)
        right = np.zeros((n, self.depth))
        for j in range(self.depth):
            right[:, j] = _sums(of, total * (part.types[:, j] == RIGHT), n)
        last = self.last.last[parent].copy()
        last[np.arange(n), model] = np.where(kind < 0, NO_ANSWER, kind)
        is_open = (reach >= self.least_reach) & (not is_final)
        if not self.goes_on:
            is_open &= ~self.passed[label]
        if np.count_nonzero(is_open) > MOST_OPEN:
            is_open &= reach > np.partition(reach[is_open], -MOST_OPEN)[-MOST_OPEN]
        return HistoryLevel(
            parent=parent, model=model, label=label, kind=kind, reach=reach, right=right,
            spread=_by_fit(self.model, right.argmax(axis=1), of, part.types, part.mass),
            size=np.ones(n) if is_final else _sums(of, part.mass @ self.model.size, n) / reach,
            context=part.context[first], last=last, is_open=is_open,
        )  # fmt: skip

    def _labels_of_classes(self, level: HistoryLevel) -> Ints:
        """The label that each class was seen with first, shape (histories, classes); -1 where there is no such class."""
        at, labels = np.arange(len(level)), self.label_of_class[level.parent].copy()
        is_new = (level.kind >= 0) & (labels[at, np.maximum(level.kind, 0)] < 0)
        labels[np.flatnonzero(is_new), level.kind[is_new]] = level.label[is_new]
        return labels


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
    of_fits = mass[rows] if mass.shape[1] == model.n_fits else np.add.reduceat(mass[rows], starts, axis=1)
    for fit in range(model.n_fits):
        found[:, fit] = np.bincount(of[rows], of_fits[:, fit] * model.n_fits, len(best))
    return found


def _close_rare(level: HistoryLevel, history: Ints, most_rows: int) -> None:
    """Do not continue the least likely histories of a level, so that those that are have at most ``most_rows`` rows."""
    rows = np.bincount(history, minlength=len(level)) * level.is_open
    if rows.sum() > most_rows:
        by_reach = np.argsort(-level.reach, kind="stable")
        level.is_open[by_reach[np.cumsum(rows[by_reach]) > most_rows]] = False


def _sums(of: Ints, values: FloatArray, n: int) -> FloatArray:
    return np.asarray(np.bincount(of, values, n), np.float64)


@dataclass(frozen=True, eq=False)
class _Before:
    """What was known of the histories before an invocation; ``points`` as in :class:`_Parts`."""

    level: HistoryLevel
    label_of_class: Ints
    depth: int
    points: FloatArray | None


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
        same = float(model.same_again[context]) if is_again else 0.0
        part = _Parts(parts, _Rows(rows.history[at], rows.types[at], rows.mass[at]), known.points, m, context)
        history, types = part.rows.history, part.rows.types
        earlier = before.last[history, m]
        classes = label_of_class[history]
        n_classes = (classes >= 0).sum(axis=1)
        p = np.exp(model.log_types[context])  # (types, points)
        everyone = np.arange(len(at))
        part.add(everyone, NO_ANSWER, p[NONE], model.label_rates[context, 1] * (1.0 - same))
        part.add(np.flatnonzero(earlier == NO_ANSWER), NO_ANSWER, None, model.label_rates[context, 1] * same)
        for kind in range(depth + 1):
            fresh, old = np.flatnonzero(n_classes == kind), np.flatnonzero(n_classes > kind)
            for type_ in (RIGHT, ALIKE, USUAL, SECOND, OWN):
                rates = model.label_rates[context, OF_TYPE[type_]] * (1.0 - same)
                unused = fresh[~np.isin(types[fresh], _EXCLUDES[type_]).any(axis=1)]
                part.add(unused, kind, p[type_], rates, new_type=type_)
                if type_ == OWN:
                    continue
                joins = p[RIGHT] + p[ALIKE] if type_ in (RIGHT, ALIKE) else p[type_]
                fits = old[types[old, kind] == type_]
                if model.label_follows_class:
                    part.add(fits, kind, joins, 1.0 - same, label=classes[fits, kind])
                else:
                    part.add(fits, kind, joins, rates)
            again = np.flatnonzero(earlier == kind)
            part.add(again, kind, None, same, label=classes[again, kind])
    return parts


@dataclass(frozen=True, eq=False)
class _Parts:
    """Collects the rows after asking one model. ``points`` joins the points of a fit, for rows that are not continued."""

    parts: list[_Part]
    rows: _Rows
    points: FloatArray | None
    model: int
    context: int

    def add(
        self,
        at: npt.NDArray[np.intp],
        kind: int,
        of_points: FloatArray | None,
        scale: FloatArray | float,
        *,
        label: Ints | None = None,
        new_type: int | None = None,
    ) -> None:
        """Add the rows ``at`` after an answer of a class; their mass is multiplied by ``of_points`` and ``scale``.

        Without ``label`` they are added once for each label, ``scale`` being its rate; else with that label of each row.
        """
        if not len(at):
            return
        types = self.rows.types[at]
        if new_type is not None:
            types[:, kind] = new_type
        mass = self.rows.mass[at]
        if self.points is not None:
            mass = mass @ (self.points if of_points is None else self.points * of_points[:, None])
        elif of_points is not None:
            mass = mass * of_points
        if label is not None:
            if float(np.max(scale)) > 0.0:
                self._append(at, label, kind, types, mass * scale)
            return
        for index, rate in enumerate(np.asarray(scale).tolist()):
            if rate > 0.0:
                self._append(at, np.full(len(at), index), kind, types, mass * rate)

    def _append(self, at: npt.NDArray[np.intp], label: Ints, kind: int, types: npt.NDArray[np.int8], mass: FloatArray) -> None:
        model, kinds, context = (np.full(len(at), value) for value in (self.model, kind, self.context))
        self.parts.append(_Part(self.rows.history[at], model, label, kinds, types, mass, context))
