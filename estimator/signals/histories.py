"""Enumerates the histories that are possible under the latent model, with their exact probabilities.

They are P(history) and P(history and class j is right). A history is a sequence of (model, outcome). A class is a set of
answers that agree. The types of a history's classes are unobserved, and are summed over: a *row* is a history with one
assignment of types, and its mass at each latent pair. This mass is a number times a vector over the pairs. Many rows share a
vector, because it depends only on the models and types, not on labels or on the order of the classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vinelm.estimator.signals.answer_model import ALIKE, N_TYPES, NONE, OF_TYPE, OWN, RIGHT, SECOND, USUAL
from vinelm.estimator.signals.answers import Ints
from vinelm.estimator.signals.course import Context, Course
from vinelm.estimator.signals.history_level import HistoryLevel
from vinelm.estimator.signals.predictive import Predictive
from vinelm.estimator.signals.verdicts import KINDS, kinds_of
from vinelm.trie.arrays import BoolArray, FloatArray

LEAST_REACH = 1e-3
"""A history that is less likely than this, given its models, is not continued: a plan can only end there."""
MOST_OPEN = 4_000
"""The maximum number of histories of one length that are continued: the most likely ones."""
MOST_ROWS, MOST_LAST_ROWS = 10_000, 100_000
"""For histories with more rows than this, only the most likely ones are continued; the second bound is for the last answer,
whose rows take less memory. Loops of five and more turns reach these bounds: some 30 rows follow each row."""
NO_ANSWER, NOT_ASKED = -1, -2
_JOINS, _REPEATS, _SAYS = N_TYPES, N_TYPES + 1, N_TYPES + 2
"""The factors of a vector other than P(a type): P(right or alike), for an answer that joins such a class; 1, for the model's
earlier answer again, or what a stage without an answer shows; and, from :data:`_SAYS` on, P(a judge's signal | right, missing
or wrong)."""
_MOST_SPARSE = 1 << 20
_AT_ONCE = 4096
"""The number of vectors that are multiplied at once: few enough to stay in the processor's cache."""
_EXCLUDES = {RIGHT: (RIGHT, ALIKE), ALIKE: (RIGHT, ALIKE), USUAL: (USUAL,), SECOND: (SECOND,), OWN: ()}
"""The types of earlier classes that a new class of each type would have agreed with. A class has the type of its first answer.
"""


class _Part(NamedTuple):
    """New rows, all for one kind of outcome of a call. A row is a history with one assignment of types to its answers.

    Attributes:
        history: the index of each row's history before the call.
        model: the index of the called model.
        label: the index of the label of the call's outcome.
        kind: the class of the answer (a number that agreeing answers share); -1 without an answer.
        types: the type of each class, shape (rows, classes).
        vector: the index of the vector of probabilities that each row had before the call.
        factor: a number that encodes by which probabilities this vector is multiplied. It is the context's number times the
            number of factors (:func:`_n_factors`), plus a type, :data:`_JOINS`, :data:`_REPEATS` or a judge's signal
            (:data:`_SAYS`).
        scale: a number by which the vector is multiplied, too.
    """

    history: Ints
    model: Ints
    label: Ints
    kind: Ints
    types: npt.NDArray[np.int8]
    vector: Ints
    factor: Ints
    scale: FloatArray


class _Rows(NamedTuple):
    """The rows for all histories of one length. A row is a history with one assignment of types to its classes of answers.

    Attributes:
        history: the index of each row's history.
        types: the type of each class of answers, shape (rows, classes).
        vector: the index of each row's vector of probabilities in :class:`_Vectors`.
        scale: the number by which this vector is multiplied to give the mass (probability) of the row.
    """

    history: Ints
    types: npt.NDArray[np.int8]
    vector: Ints
    scale: FloatArray

    def take(self, at: npt.NDArray[Any]) -> _Rows:
        """Return the rows at the given indices, as a new object."""
        return _Rows(*(values[at] for values in self))


class _Vectors(NamedTuple):
    """The vectors from which the masses (probabilities) of the histories of one length are computed.

    A history may have several rows, and several rows may share a vector (:class:`_Rows`). A vector has a number for each point.
    A point is a pair of latent traits of a request in one fit.

    Attributes:
        of_points: the vectors, shape (vectors, points); on the last level they are sums by fit, shape (vectors, fits).
        total: the sum of each vector, shape (vectors,).
        of_fits: the sums of each vector over the points of each fit, shape (vectors, fits).
        sized: the same sums after each number is multiplied by the size of the point's requests; None on the last level.
    """

    of_points: FloatArray
    total: FloatArray
    of_fits: FloatArray
    sized: FloatArray | None

    @classmethod
    def of(cls, model: Predictive, of_points: FloatArray, *, is_final: bool) -> _Vectors:
        """Return an object with the vectors ``of_points``, and compute its other attributes, which are sums of these vectors.

        ``is_final`` says that the histories are the longest; then a vector has one number for each fit, not for each point.
        """
        # The points of a fit lie side by side, so each fit is a slice. Final vectors are already sums by fit.
        starts = np.flatnonzero(np.diff(model.fit, prepend=-1))
        of_fits = of_points if is_final else np.add.reduceat(of_points, starts, axis=1)
        return cls(
            of_points,
            of_points.sum(axis=1),
            of_fits,
            None if is_final else np.add.reduceat(of_points * model.size, starts, axis=1),
        )


def histories(
    model: Predictive,
    course: Course,
    models: Sequence[str],
    *,
    goes_on: bool,
    least_reach: float = LEAST_REACH,
    shares: FloatArray | None = None,
) -> list[HistoryLevel]:
    """Return the possible histories (sequences of models and outcomes), one level for each length from 1.

    Args:
        model: The fitted model.
        course: Which stages may follow each other, with their models.
        models: All models, in the order of the indices.
        goes_on: Whether a history may continue after its answer has passed the workflow's check.
        least_reach: A history that is less likely than this, given its models, is not continued.
        shares: P(a request begins in the way ``course.starts[i]``), shape (starts,); None if all ways are equally frequent.
    """
    shares = np.full(len(course.starts), 1.0 / len(course.starts)) if shares is None else shares
    growing = _Growing(model, models, course, shares, goes_on=goes_on, least_reach=least_reach)
    while len(growing.found) < course.depth and growing.add_level():
        pass
    return growing.found


class _Growing:
    """The histories (sequences of calls with their outcomes) found so far, in levels by the number of calls.

    For the last level, the object also has the label of the first answer of each class of agreeing answers. It also has that
    level's rows: each is a history with a type for each class.
    """

    def __init__(
        self, model: Predictive, models: Sequence[str], course: Course, shares: FloatArray, *, goes_on: bool, least_reach: float
    ) -> None:
        self.model, self.models, self.course, self.depth = model, models, course, course.depth
        depth = course.depth
        self.answers = np.array([context.answers for context in model.contexts])
        self.keeps = np.array([context.keeps for context in model.contexts])
        self.afters: dict[tuple[str, ...], int] = {(): 0}
        self.goes_on, self.least_reach = goes_on, least_reach
        self.passed = np.array([label.passed for label in model.labels])
        self.of_fit = (model.fit[:, None] == np.arange(model.n_fits)).astype(float)
        self.found: list[HistoryLevel] = []
        n = len(course.starts)
        zero, first = np.zeros(n, np.int64), [course.stages.index(stage) for stage in course.starts.values()]
        never = np.full((n, len(models)), NOT_ASKED)
        self.last = HistoryLevel(
            parent=zero, model=zero, label=zero, kind=zero, reach=shares, right=np.zeros((n, depth)),
            right_by_fit=np.zeros((n, depth, model.n_fits)), size_by_fit=shares[:, None] * model.mean_size,
            size=np.ones(n), context=zero, last=never, position=zero, following=np.array(first), after=zero,
            is_open=np.ones(n, np.bool_), held=np.full(n, NOT_ASKED),
            judged=np.full((n, len(models) if course.judges else 0, depth), -1, np.int8), begins=np.arange(n),
        )  # fmt: skip
        # One row for each way to begin, without classes, and one vector for all: the prior of the latent pairs.
        self.rows = _Rows(np.arange(n), np.full((n, depth), -1, np.int8), zero, shares)
        self.vectors = _Vectors.of(model, np.exp(model.log_weights)[None, :], is_final=False)
        self.label_of_class = np.full((n, depth), -1, np.int64)

    def add_level(self) -> bool:
        """Extend the histories (sequences of calls with their outcomes) by one call; return False if none can be extended."""
        is_final = len(self.found) + 1 == self.depth
        _close_rare(self.last, self.rows.history, MOST_LAST_ROWS if is_final else MOST_ROWS)
        known = _Before(self.last, self.label_of_class, len(self.found))
        position = np.zeros(len(self.last), np.int64)
        parts: list[_Part] = []
        for open_here, contexts, after in self._stages():
            position[open_here] = after
            rows = self.rows.take(np.flatnonzero(open_here[self.rows.history]))
            parts += [part for each in contexts.asked for part in _expand(self.model, contexts, rows, known, each)]
        if not parts:
            self.last.is_open[:] = False
            return False
        part = _Part(*map(np.concatenate, zip(*parts, strict=True)))
        # A history that no model can follow, since no row shows such a call, is a leaf: a plan may only end there.
        is_known = np.zeros(len(self.last), np.bool_)
        is_known[part.history] = True
        self.last.is_open[~is_known] = False  # no model is known to run there
        # Rows with the same code (history, model, class, label) look the same to an application: together they are one history.
        number = np.cumsum(self.last.is_open) - 1
        code = (number[part.history] * len(self.models) + part.model) * (self.depth + 1) + part.kind + 1
        first, of = _numbered(code * len(self.model.labels) + part.label)
        self.vectors, vector = self._multiplied(part, is_final=is_final)
        self.rows = _Rows(of, part.types, vector, part.scale)
        level = self._level(part, first, position, is_final=is_final)
        self.label_of_class = self._labels_of_classes(level)
        self.last = level
        self.found.append(level)
        return True

    def _stages(self) -> Iterator[tuple[BoolArray, _Contexts, int]]:
        """Yield groups of the histories that may continue; in a group, the next calls differ only in the model.

        Each item is (mask of the group's histories, models and contexts of their next stage, position after this stage). A
        stage may have several groups.
        """
        last, course = self.last, self.course
        has_answer = (last.last != NOT_ASKED).any(axis=1)
        # Everything a context depends on except the model: histories that agree in it are expanded together.
        keys = np.column_stack((last.position, last.following, has_answer, last.after, last.begins))
        afters, starts = list(self.afters), list(course.starts)
        for at, stage, is_later, shown, begins in np.unique(keys[last.is_open], axis=0).tolist():
            name = course.stages[stage]
            after = course.follow[at][name]
            here = last.is_open & (keys == (at, stage, is_later, shown, begins)).all(axis=1)
            yield here, self._contexts(name, bool(is_later), course.arms(after), afters[shown], starts[begins]), after

    def _contexts(self, stage: str, is_later: bool, arms: tuple[str, ...], after: tuple[str, ...], begins: str) -> _Contexts:
        index, answers = {context: i for i, context in enumerate(self.model.contexts)}, stage not in self.course.silent
        number, keeps = self.model.verdicts.number, {}
        allowed = self.models if self.course.models is None else self.course.models[stage]
        asked = [(m, name) for m, name in enumerate(self.models) if name in allowed]
        found: list[dict[str, int]] = [{}, {}]
        for is_again in (False, True):
            for m, name in asked:
                # A judge leaves the answer as it is, so it does not matter whether its model has answered before.
                if self.course.keeps(stage, name):
                    kept = index.get(Context(stage, name, False, False, arms, False, (), True, begins))
                    if kept is not None:
                        found[0][name] = found[1][name] = kept
                        keeps[m] = number[kept]
                    continue
                later, again = is_later and answers, is_again and answers
                context = Context(stage, name, later, again, arms, answers, after, False, begins)
                # Without rows for a context there is nothing to predict from, so that no plan asks this model here.
                if context in index:
                    found[is_again][name] = index[context]
        labels, copies = self.model.labels, None
        ended = [label._replace(passed=True, arm=None) for label in labels]  # requests end there, whatever the answer
        # An answer that joins a class has the label of the class's first answer, as the check and the signal depend on the text
        # alone. But the label may name a stage that cannot follow here: then it is copied only where requests end anyway.
        if all(label.arm in (None, *arms) for label in labels):
            copies = np.arange(len(labels))
        elif not arms and set(ended) <= set(labels):
            copies = np.array([labels.index(label) for label in ended])
        return _Contexts(asked, found[0], found[1], answers, copies, keeps)

    def _multiplied(self, part: _Part, *, is_final: bool) -> tuple[_Vectors, Ints]:
        """Return the vectors of probabilities of the rows ``part`` after the last call, and the index of each row's vector.

        A vector has a probability for each grid point of the latent traits. It is the row's vector before the last call,
        multiplied by the probabilities of the call's outcome. With ``is_final`` (the last level), a vector has the sum over
        each fit's points instead.
        """
        model, before = self.model, self.vectors.of_points
        # Many rows share a factor and a vector: each product is computed once. The factor leads the code, so that the rows of
        # each factor are a slice.
        first, of = _numbered(part.factor * len(before) + part.vector)
        factor, parent = part.factor[first], part.vector[first]
        found = np.empty((len(first), model.n_fits if is_final else before.shape[1]))
        bounds = np.append(np.flatnonzero(np.diff(factor, prepend=-1)), len(factor))
        for low, high in pairwise(bounds.tolist()):
            of_points = _of_points(model, int(factor[low]))
            for start in range(low, high, _AT_ONCE):
                here = slice(start, min(start + _AT_ONCE, high))
                # The last level needs no points any more, only the sum of each fit: its vectors are the most numerous.
                found[here] = (
                    before[parent[here]] @ (self.of_fit * of_points[:, None]) if is_final else before[parent[here]] * of_points
                )
        return _Vectors.of(model, found, is_final=is_final), of

    def _level(self, part: _Part, first: Ints, after: Ints, *, is_final: bool) -> HistoryLevel:
        """Return the level of histories (calls and outcomes so far) that the rows ``part`` belong to, with probabilities.

        Args:
            part: the rows. Several rows may share a history; they differ in the types (such as right) of its answers.
            first: the index of one row of each history, shape (histories,).
            after: for each history of the previous level, the position in the application's course of stages after the
                history's next stage.
            is_final: whether this is the last level.
        """
        n, rows, vectors = len(first), self.rows, self.vectors
        sized = vectors.sized
        parent, model, label, kind = part.history[first], part.model[first], part.label[first], part.kind[first]
        total = rows.scale * vectors.total[rows.vector]
        reach = np.asarray(np.bincount(rows.history, total, n), np.float64)
        right, right_by_fit = np.zeros((n, self.depth)), np.zeros((n, self.depth, self.model.n_fits))
        for j in range(self.depth):
            # Only here the unobserved types matter: the rows in which class j is the right one.
            those = rows.take(np.flatnonzero(rows.types[:, j] == RIGHT))
            right[:, j] = np.bincount(those.history, those.scale * vectors.total[those.vector], n)
            right_by_fit[:, j] = _sums_by_fit(those, vectors.of_fits, n)
        size_by_fit = np.zeros((n, self.model.n_fits)) if sized is None else _sums_by_fit(rows, sized, n)
        context, position = part.factor[first] // _n_factors(self.model), after[parent]
        last = self.last.last[parent].copy()
        gave = np.flatnonzero(self.answers[context])
        last[gave, model[gave]] = np.where(kind < 0, NO_ANSWER, kind)[gave]
        held, judged = self.last.held[parent], self.last.judged[parent]
        # A router, or a judge, leaves the answer of the state in place.
        held[gave] = np.where(kind < 0, NO_ANSWER, kind)[gave]
        if judged.shape[1]:
            said = np.flatnonzero(self.keeps[context] & (kind >= 0))
            judged[said, model[said], kind[said]] = self.model.verdicts.signal[label[said]]
        leaves = self.answers[context] | self.keeps[context]
        following = self._following(position, label)
        is_open = (reach >= self.least_reach) & (following >= 0)
        if not self.goes_on:
            is_open &= ~self.passed[label]
        if np.count_nonzero(is_open) > MOST_OPEN:
            # Only the most likely ones, because the next level grows with each continued history.
            is_open &= reach > np.partition(reach[is_open], -MOST_OPEN)[-MOST_OPEN]
        return HistoryLevel(
            parent=parent, model=model, label=label, kind=kind, reach=reach, right=right,
            right_by_fit=right_by_fit, size_by_fit=size_by_fit,
            size=np.ones(n) if sized is None else size_by_fit.mean(axis=1) / reach,
            context=context, last=last, position=position, following=following,
            after=np.where(leaves, self.last.after[parent], self._shown(context, label)), is_open=is_open,
            held=held, judged=judged, begins=self.last.begins[parent],
        )  # fmt: skip

    def _shown(self, context: Ints, label: Ints) -> Ints:
        """Return, for each history, a number for the outcome of its last call, on which later calls can depend.

        The number stands for a value of ``Context.after``. It is 0 if the call wrote or judged an answer.
        """
        codes, of = np.unique(context * len(self.model.labels) + label, return_inverse=True)
        found = []
        for number, shown in (divmod(code, len(self.model.labels)) for code in codes.tolist()):
            ran = self.model.contexts[number]
            after = () if ran.answers or ran.keeps else ran.shown(self.model.labels[shown])
            found.append(self.afters.setdefault(after, len(self.afters)))
        return np.array(found, np.int64)[of]

    def _following(self, position: Ints, label: Ints) -> Ints:
        """Return the next stage of each history as an index into the course's stages; -1 if the history ends.

        It follows from the history's position and the label of its last call.
        """
        labels = self.model.labels
        codes, of = np.unique(position * len(labels) + label, return_inverse=True)
        found = [self.course.following(at, labels[shown].arm) for at, shown in (divmod(c, len(labels)) for c in codes.tolist())]
        return np.array(found, np.int64)[of]

    def _labels_of_classes(self, level: HistoryLevel) -> Ints:
        """Return the label of the first answer of each class of agreeing answers, shape (histories, classes).

        Labels are numbers. An element is -1 if the history has no answer of the class.
        """
        at, labels = np.arange(len(level)), self.label_of_class[level.parent].copy()
        is_new = (level.kind >= 0) & (labels[at, np.maximum(level.kind, 0)] < 0)
        labels[np.flatnonzero(is_new), level.kind[is_new]] = level.label[is_new]
        return labels


class _Contexts(NamedTuple):
    """The models of a stage, and the contexts in which they are called.

    Attributes:
        asked: the models as (index, name).
        first: the index of a model's context if the model has not answered before, by model name.
        again: the index of a model's context if the model has answered before, by model name. A model whose context has no
            results is missing in ``first`` or ``again``.
        answers: whether the stage writes an answer.
        copies: for each label, the label that this stage's answer gets if it equals an earlier answer with that label. None if
            the labels of earlier answers may name next stages that cannot follow this stage.
        keeps: the number of each judge of the answer, by the index of its model. A skipped stage counts as a judge.
    """

    asked: list[tuple[int, str]]
    first: dict[str, int]
    again: dict[str, int]
    answers: bool
    copies: Ints | None
    keeps: dict[int, int]


def _n_factors(model: Predictive) -> int:
    """Return the number of factors that may multiply the probability of a history when a call is added.

    There is one for each type of answer, one for an answer that joins an earlier class, and one for a repeated answer. Further
    ones are for each signal of a judge on a right, missing or wrong answer.
    """
    return _SAYS + KINDS * len(model.verdicts.signals)


def _sums_by_fit(rows: _Rows, values: FloatArray, n: int) -> FloatArray:
    """Return the probability of each of ``n`` histories under each fit alone, shape (n, fits).

    A history's probability is the sum over its rows (:class:`_Rows`). The points of one fit have the total mass 1 / fits, so
    the sums are multiplied by the number of fits.

    Args:
        rows: The rows of these histories.
        values: For each vector (see :class:`_Vectors`) and fit, the sum of the vector's elements over the fit's points; shape
            (vectors, fits).
        n: The number of histories.
    """
    n_fits, found = values.shape[1], np.zeros((n, values.shape[1]))
    # The points of each fit have 1 / fits of the mass, but a value by fit is a probability under that fit alone.
    for fit in range(n_fits):
        found[:, fit] = np.bincount(rows.history, values[rows.vector, fit] * (rows.scale * n_fits), n)
    return found


def _of_points(model: Predictive, factor: int) -> FloatArray:
    """Return the probability of a call's outcome at each grid point of the latent traits, shape (points,).

    ``factor`` is the code of the outcome, as in :attr:`_Part.factor`. For a repeated answer, all probabilities are 1.
    """
    context, which = divmod(factor, _n_factors(model))
    if which == _REPEATS:
        return np.ones(len(model.fit))
    if which >= _SAYS:
        kind, signal = divmod(which - _SAYS, len(model.verdicts.signals))
        return np.asarray(np.exp(model.log_verdicts[model.verdicts.number[context], kind, signal]))
    # A wrong answer may look like the right one. Then the two agree, so that answers of both types join the same class.
    p = np.exp(model.log_types[context])
    return np.asarray(p[RIGHT] + p[ALIKE] if which == _JOINS else p[which])


def _numbered(code: Ints) -> tuple[Ints, Ints]:
    """Number the distinct codes in ascending order, and return two arrays.

    The first has, for each distinct code, the position of one element with this code. The second has, for each element of
    ``code``, the number of its code.

    This is equivalent to ``np.unique`` for codes >= 0. It sorts only if the largest code is much larger than the number of
    elements.
    """
    if int(code.max()) > _MOST_SPARSE + 8 * len(code):
        _, first, of = np.unique(code, return_index=True, return_inverse=True)
        return first, of
    # Counting is linear where sorting is not, and most codes lie close together.
    place = np.full(int(code.max()) + 1, -1, np.int64)
    place[code] = np.arange(len(code))
    codes = np.flatnonzero(place >= 0)
    first = place[codes]
    place[codes] = np.arange(len(codes))
    return first, place[code]


def _close_rare(level: HistoryLevel, history: Ints, most_rows: int) -> None:
    """Close the least likely histories of a level, in place: no further calls are added to a closed history.

    The histories that stay open have at most ``most_rows`` rows in total (see :class:`_Rows`). ``history`` is the index of each
    row's history.
    """
    rows = np.bincount(history, minlength=len(level)) * level.is_open
    if rows.sum() > most_rows:
        # Stable, so that of equally likely histories the same ones are closed on every machine.
        by_reach = np.argsort(-level.reach, kind="stable")
        level.is_open[by_reach[np.cumsum(rows[by_reach]) > most_rows]] = False


@dataclass(frozen=True, eq=False)
class _Before:
    """The histories (models and outcomes of a request so far) after which a call is made.

    Attributes:
        level: the histories, all of one length.
        label_of_class: for each class of agreeing answers, the label that its first answer got; -1 for classes that a history
            lacks. Shape (histories, classes).
        depth: the number of calls that each of these histories has.
    """

    level: HistoryLevel
    label_of_class: Ints
    depth: int


def _expand(model: Predictive, contexts: _Contexts, rows: _Rows, known: _Before, asked: tuple[int, str]) -> list[_Part]:
    """Return the rows that continue ``rows`` by a call of the model ``asked`` (index, name).

    A row is a history with the types of its answers. Each returned part has the rows with one outcome of the call: no answer,
    an answer of a new class, an answer that agrees with an earlier one, or the model's own earlier answer again.
    """
    before, label_of_class, depth = known.level, known.label_of_class, known.depth
    m, name = asked
    was_asked = before.last[rows.history, m] != NOT_ASKED
    parts: list[_Part] = []
    # A model that has answered this request before repeats that answer with the probability `same`, so both cases differ.
    for is_again, of_model in ((False, contexts.first), (True, contexts.again)):
        context = of_model.get(name)
        at = np.flatnonzero(was_asked == is_again)
        if context is None or not len(at):
            continue
        part = _Parts(parts, rows.take(at), m, context * _n_factors(model))
        if m in contexts.keeps:
            _judge(model, contexts.keeps[m], part, known)
            continue
        if not contexts.answers:
            part.add(np.arange(len(at)), NO_ANSWER, _REPEATS, model.label_rates[context, 1])
            continue
        same = float(model.same_again[context]) if is_again else 0.0
        history, types = part.rows.history, part.rows.types
        earlier = before.last[history, m]
        classes = label_of_class[history]
        n_classes = (classes >= 0).sum(axis=1)
        everyone = np.arange(len(at))
        # All possible outcomes: no answer, a new class, an earlier class, or the model's own answer repeated.
        part.add(everyone, NO_ANSWER, NONE, model.label_rates[context, 1] * (1.0 - same))
        part.add(np.flatnonzero(earlier == NO_ANSWER), NO_ANSWER, _REPEATS, model.label_rates[context, 1] * same)
        for kind in range(depth + 1):
            fresh, old = np.flatnonzero(n_classes == kind), np.flatnonzero(n_classes > kind)
            for type_ in (RIGHT, ALIKE, USUAL, SECOND, OWN):
                rates = model.label_rates[context, OF_TYPE[type_]] * (1.0 - same)
                # It opens a class only if no class has a type that agrees with it; otherwise it would join that class.
                unused = fresh[~np.isin(types[fresh], _EXCLUDES[type_]).any(axis=1)]
                part.add(unused, kind, type_, rates, new_type=type_)
                if type_ == OWN:
                    continue  # a mistake that nothing else shares joins no class
                joins = _JOINS if type_ in (RIGHT, ALIKE) else type_
                fits = old[types[old, kind] == type_]
                if model.label_follows_class and contexts.copies is not None:
                    part.add(fits, kind, joins, 1.0 - same, label=contexts.copies[classes[fits, kind]])
                else:
                    part.add(fits, kind, joins, rates)
            again = np.flatnonzero(earlier == kind)
            if contexts.copies is None:
                part.add(again, kind, _REPEATS, model.label_rates[context, ::2].mean(axis=0) * same)
            else:
                part.add(again, kind, _REPEATS, same, label=contexts.copies[classes[again, kind]])
    return parts


def _judge(model: Predictive, judge: int, part: _Parts, known: _Before) -> None:
    """Add to ``part`` the rows that follow when the judge with number ``judge`` has given a verdict on the current answer.

    A row is a history with the types of its answers.

    A skipped judge gives no information. A judge that is called again on the same answer repeats its verdict, which adds no
    evidence.
    """
    rows, verdicts, before = part.rows, model.verdicts, known.level
    every = np.arange(len(rows.history))
    held, shown = before.held[rows.history], before.label[rows.history] if known.depth else np.full(len(every), -1)
    kind = np.maximum(held, NO_ANSWER)
    # 1 stands for a missing answer, for which judges have separate rates.
    truth = np.where(kind < 0, 1, kinds_of(rows.types[every, np.maximum(kind, 0)], RIGHT, NONE))
    said = np.full(len(every), -1)
    if before.judged.shape[1]:
        said = np.where(kind >= 0, before.judged[rows.history, part.model, np.maximum(kind, 0)], -1)
    of = np.column_stack((shown, truth, said))
    for last, y, again in np.unique(of, axis=0).tolist():
        at = np.flatnonzero((of == (last, y, again)).all(axis=1))
        # A repeated verdict multiplies by one, since the first already counted. Only the rest of its label may differ.
        for signal in np.flatnonzero(verdicts.possible[judge]) if again < 0 else [again]:
            rates = verdicts.follows[judge, last] * (verdicts.signal == signal)
            factor = _SAYS + y * len(verdicts.signals) + int(signal) if again < 0 else _REPEATS
            part.add(at, kind[at], factor, rates)


@dataclass(frozen=True, eq=False)
class _Parts:
    """Collects the rows that follow a call of one model.

    A row is a history (a sequence of calls with their outcomes), together with a type for each class of its answers.

    Attributes:
        parts: the list to which :meth:`add` appends the new rows, in groups of rows that were created in the same way.
        rows: the rows before the call.
        model: the index of the called model.
        factors: the code of the first factor that belongs to the call's context; :meth:`add` numbers factors from this one.
    """

    parts: list[_Part]
    rows: _Rows
    model: int
    factors: int

    def add(
        self,
        at: npt.NDArray[np.intp],
        kind: int | Ints,
        factor: int,
        scale: FloatArray | float,
        *,
        label: Ints | None = None,
        new_type: int | None = None,
    ) -> None:
        """Add to :attr:`parts` the rows that follow some of the rows in :attr:`rows` if the call gives an answer of class
        ``kind``.

        Args:
            at: the indices, in :attr:`rows`, of the rows before the answer.
            kind: the class of the answer (a number that agreeing answers share), or of each row's answer; -1 without an answer.
            factor: the number of the factor that multiplies a row's probability; see :class:`_Part`.
            scale: a number that also multiplies the probability; without ``label``, one number for each label.
            label: the label of each row; None to add the rows once for each label.
            new_type: the type of the class that this answer begins; None if the answer begins no class.
        """
        if not len(at):
            return
        rows = self.rows.take(at)
        # `take` has copied the types, so the rows before this answer keep theirs.
        if new_type is not None:
            rows.types[:, kind] = new_type
        alike = (np.full(len(at), value) for value in (self.model, kind, self.factors + factor))
        model, kinds, factors = alike
        if label is not None:
            labels = [(label, float(scale))]
        else:
            labels = [(np.full(len(at), index), rate) for index, rate in enumerate(np.asarray(scale).tolist())]
        for shown, rate in labels:
            # Labels that cannot occur would multiply the rows of each further level.
            if rate > 0.0:
                self.parts.append(_Part(rows.history, model, shown, kinds, rows.types, rows.vector, factors, rows.scale * rate))
