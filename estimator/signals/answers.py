"""Converts results to answers. An answer has a model, correctness, a signal, and a class, which agreeing answers share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from vinelm.errors import EvidenceError
from vinelm.estimator.signals.course import Context, Course
from vinelm.estimator.signals.verdicts import Verdicts
from vinelm.rows.observation import Observation
from vinelm.signals import Label
from vinelm.signals.declaration import MOST_SIGNALS, STATUS
from vinelm.trie.arrays import BoolArray, FloatArray

Ints = npt.NDArray[np.int64]
Cells = dict[tuple[str, tuple[str, ...]], Observation]


@dataclass(frozen=True, eq=False)
class AnswerTable:
    """The scored answers of a profile. Arrays have one item per answer, shape (answers,).

    Results of the same request and model on different paths often hold the same answer, so each has the weight 1 / (number of
    these results). If the application branches, only results at the same stage after the same signal are counted together.

    Args:
        requests: The distinct requests, sorted.
        contexts: The distinct contexts (what an answer depends on except the request), including those without results.
        labels: The distinct labels (stop, signal and, if chosen, next stage), at most 16.
        request: Index into ``requests``.
        context: Index into ``contexts``.
        label: Index into ``labels``.
        right: Whether the answer is right, or its score in [0, 1].
        kind: Class of the answer within its request, a number that agreeing answers share; -1 without an answer.
        weight: Weight of the result.
        is_repeat: Whether the model repeats its earlier answer, or again gives none. Such a result gives no further information
            about the request.
        cost_usd: Cost of the result in dollars, tools included.
        turn: The number of the request's earlier calls.
        repeats: For each context in which the model has answered before: the number of results, and the number of those that
            repeat the model's earlier answer; shape (contexts, 2).
        verdicts: The results of judges and skipped stages, which leave the answer unchanged.
    """

    requests: tuple[str, ...]
    contexts: tuple[Context, ...]
    labels: tuple[Label, ...]
    request: Ints
    context: Ints
    label: Ints
    right: FloatArray
    kind: Ints
    weight: FloatArray
    is_repeat: BoolArray
    cost_usd: FloatArray
    turn: Ints
    repeats: FloatArray
    verdicts: Verdicts

    def __len__(self) -> int:
        return len(self.request)

    @cached_property
    def evidence(self) -> FloatArray:
        """The weight of each answer in counts of answers: 0 if the model repeats an earlier answer, otherwise ``weight``."""
        return np.where(self.is_repeat, 0.0, self.weight)

    @cached_property
    def label_follows_class(self) -> bool:
        """Whether agreeing answers (a class) to a request always have the same label.

        A label is the call's signal and whether its answer passed the check. If the application chooses between stages, only
        the signals are compared. The result is False if no class has two answers.
        """
        signals = [label.signal for label in self.labels]
        branches = any(context.arms for context in self.contexts)
        shown = np.array([signals.index(signal) for signal in signals])[self.label] if branches else self.label
        seen: dict[tuple[int, int], int] = {}
        pairs = 0
        for request, kind, label in zip(self.request.tolist(), self.kind.tolist(), shown.tolist(), strict=True):
            if kind < 0:
                continue
            before = seen.setdefault((request, kind), label)
            if before != label:
                return False
            pairs += 1
        return pairs > len(seen)

    @classmethod
    def of(cls, rows: Iterable[Observation], course: Course, begins: Mapping[str, str] | None = None) -> AnswerTable:
        """Return the table of scored results, encoded as arrays.

        Args:
            rows: The results, with the application's stage names. If it branches, results that follow another course are left
                out.
            course: Which stages may follow each other.
            begins: How each request began, one of ``course.starts``; needed if there are several starts.

        Raises:
            EvidenceError: No result is scored, or more than 8 signals occur.
        """
        kept, began = _as_chosen(list(rows), course), begins or {}
        by_cell = {(row.request_id, row.prefix): row for row in kept}
        scored = [row for row in kept if row.success is not None or row.failure is not None]
        scored = [row for row in scored if began.get(row.request_id, "") in course.starts]
        if course.branches:
            scored = [row for row in scored if course.after(_stages(row, by_cell)) is not None]
        if not scored:
            raise EvidenceError("no row is scored: nothing can be said about which answers are right")
        scored.sort(key=lambda row: (row.request_id, row.depth, row.prefix))
        signals = sorted({row.signal for row in scored if row.signal is not None})
        if len(signals) > MOST_SIGNALS:
            raise EvidenceError(f"the rows have {len(signals)} different signals, at most {MOST_SIGNALS} are possible")
        repeated: dict[Context, list[int]] = defaultdict(lambda: [0, 0])
        contexts, labels, is_repeat = [], [], []
        counts: dict[tuple[object, ...], int] = defaultdict(int)
        same = []
        for row in scored:
            context, repeats = _context(row, by_cell, repeated, course, began.get(row.request_id, ""))
            contexts.append(context)
            is_repeat.append(repeats)
            labels.append(_label(row, course))
            at: tuple[object, ...] = ()
            if course.branches or course.silent:
                at = (row.stage, context.arms, context.after[2:])
            at = (row.stage, context.arms, row.answer_class) if context.keeps else at
            same.append((row.request_id, row.model, context.is_again, *at))
            # Runs along different paths may hold the same call of a model many times. Together these rows weigh as one answer.
            counts[same[-1]] += 1
        # Contexts without a row are listed too: plans may lead there, and effects shared with other contexts describe them.
        names = sorted({*contexts, *_possible(course, contexts, _shown_in_silence(scored, course))})
        kinds = sorted(set(labels), key=lambda label: (str(label), label.arm or ""))
        requests = tuple(sorted({row.request_id for row in scored}))
        place = {name: i for i, name in enumerate(requests)}
        of_context = np.array([names.index(context) for context in contexts], np.int64)
        of_label = np.array([kinds.index(label) for label in labels], np.int64)
        return cls(
            requests=requests,
            contexts=tuple(names),
            labels=tuple(kinds),
            request=np.array([place[row.request_id] for row in scored], np.int64),
            context=of_context,
            label=of_label,
            right=np.array([float(row.success or 0.0) if row.failure is None else 0.0 for row in scored]),
            kind=np.array(
                [
                    row.answer_class if c.answers and row.answer_class is not None else -1
                    for row, c in zip(scored, contexts, strict=True)
                ],
                np.int64,
            ),
            weight=np.array([1.0 / counts[key] for key in same]),
            is_repeat=np.array(is_repeat, np.bool_),
            cost_usd=np.array([row.cost_usd + row.tool_cost_usd for row in scored]),
            turn=np.array([row.depth - 1 for row in scored], np.int64),
            repeats=np.array([repeated[context] for context in names], np.float64).reshape(-1, 2),
            verdicts=Verdicts(
                tuple(names), tuple(kinds), of_context, of_label, _labels_before(scored, by_cell, kinds, course),
                np.array([row.answer_class is None for row in scored], np.bool_),
            ),
        )  # fmt: skip


def _as_chosen(rows: list[Observation], course: Course) -> list[Observation]:
    """Return the results, with those fields removed that are still unknown when the next stage is chosen.

    Only a call that runs in parallel with the next stage is affected. Its success, stop, signal, class and failure are removed.
    """
    if not course.joint:
        return rows
    cells = {(row.request_id, row.prefix): row for row in rows}
    nothing: dict[str, Any] = {"success": False, "stopped": False, "signal": None, "answer_class": None, "failure": None}
    return [replace(row, **nothing) if course.after(_stages(row, cells)) in course.joint else row for row in rows]


def _labels_before(rows: Iterable[Observation], by_cell: Cells, labels: list[Label], course: Course) -> Ints:
    """Return, for each of ``rows``, the label of the previous result on the path of its request; shape (rows,).

    Labels are given as indices into ``labels``. The index is -1 without a previous result, or if ``labels`` lacks its label.
    """
    before = [by_cell.get((row.request_id, row.prefix[:-1])) for row in rows]
    shown = [None if row is None else _label(row, course) for row in before]
    return np.array([labels.index(label) if label in labels else -1 for label in shown], np.int64)


def _possible(course: Course, seen: Iterable[Context], silent: Mapping[str, set[tuple[str, ...]]]) -> Iterator[Context]:
    """Yield the contexts that are possible in a course. A context is everything that an answer depends on, except the request.

    Contexts in which a model is called again are included only if some context in ``seen`` is of this kind.

    Args:
        course: Which stages may follow each other.
        seen: The contexts of the results.
        silent: For each stage that writes no answer, the values of :attr:`Context.after` that contexts after this stage may
            have.
    """
    models, knows_again = {context.model for context in seen}, any(context.is_again for context in seen)
    for stage, has_answer, quiet, arms, begins in course.visits():
        answers = stage not in course.silent
        for model, after in product(models, [()] if quiet is None else silent[quiet]):
            if not course.allows(stage, model):
                continue
            if course.keeps(stage, model):
                yield Context(stage, model, False, False, arms, False, (), True, begins)
                continue
            yield Context(stage, model, has_answer and answers, False, arms, answers, after, False, begins)
            if has_answer and answers and knows_again:
                yield Context(stage, model, True, True, arms, True, after, False, begins)


def _shown_in_silence(rows: Iterable[Observation], course: Course) -> dict[str, set[tuple[str, ...]]]:
    """Return what the results of each stage without answers show to later calls, keyed by the stage's name.

    Each value is a set of descriptions in the form of :attr:`Context.after`.
    """
    found: dict[str, set[tuple[str, ...]]] = {stage: set() for stage in course.silent}
    for row in rows:
        if row.stage in found:
            found[row.stage].add(_after(row, course))
    return found


def _label(row: Observation, course: Course) -> Label:
    """Return the label of a result: whether its answer passed the check, its signal and, if the template branches, its next
    stage.
    """
    shown = Label.of(bool(row.stopped) and row.failure is None, STATUS[0] if row.failure else row.signal)
    return shown._replace(arm=row.arm) if course.branches else shown


def _after(row: Observation, course: Course) -> tuple[str, ...]:
    return Context(row.stage, row.model, False, False).shown(_label(row, course))


def _earlier(row: Observation, by_cell: Cells) -> list[Observation | None]:
    return [by_cell.get((row.request_id, row.prefix[:k])) for k in range(1, row.depth)]


def _stages(row: Observation, by_cell: Cells) -> list[str]:
    """Return the names of the stages of the calls on the result's path, the first call first.

    A call without a result gets an empty name, which no stage has.
    """
    return [*("" if other is None else other.stage for other in _earlier(row, by_cell)), row.stage]


def _context(
    row: Observation, by_cell: Cells, repeated: dict[Context, list[int]], course: Course, begins: str
) -> tuple[Context, bool]:
    """Return the context of the result ``row``, and whether the result repeats the model's earlier answer.

    A context is all that the probability of a right answer depends on, except the request. ``repeated`` maps a context to the
    numbers [results, repetitions]; these are updated in place.
    """
    arms: tuple[str, ...] = ()
    if course.branches:
        position = course.after(_stages(row, by_cell))
        arms = () if position is None else course.arms(position)
    before = [other for other in _earlier(row, by_cell) if other is not None]
    quiet = [other for other in before if other.stage in course.silent]
    after = _after(quiet[-1], course) if quiet else ()
    if course.keeps(row.stage, row.model):
        return Context(row.stage, row.model, False, False, arms, False, (), True, begins), False
    if row.stage in course.silent:
        return Context(row.stage, row.model, False, False, arms, False, after, False, begins), False
    earlier = [one for one in before if one.stage not in course.silent and not course.keeps(one.stage, one.model)]
    same = [other for other in earlier if other.model == row.model]
    context = Context(row.stage, row.model, bool(earlier), bool(same), arms, True, after, False, begins)
    if not same:
        return context, False
    is_repeat = same[-1].answer_class == row.answer_class
    repeated[context][0] += 1
    repeated[context][1] += is_repeat
    return context, is_repeat
