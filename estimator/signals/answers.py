"""Rows as answers: who gave it, whether it is right, what was seen of it, and with which of the request's answers it agrees."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vinelm.errors import EvidenceError
from vinelm.rows.observation import Observation
from vinelm.signals import Label
from vinelm.signals.declaration import MOST_SIGNALS, STATUS
from vinelm.trie.arrays import BoolArray, FloatArray

Ints = npt.NDArray[np.int64]


class Context(NamedTuple):
    """Under which an answer is given: all that its chance of being right depends on, besides the request.

    Args:
        stage: The stage.
        model: The model.
        is_later: Whether an earlier invocation of the request has given an answer that this one may have seen.
        is_again: Whether the same model has answered before, at whatever stage.
    """

    stage: str
    model: str
    is_later: bool
    is_again: bool


@dataclass(frozen=True, eq=False)
class AnswerTable:
    """The scored answers of a profile; arrays of shape (answers,).

    Rows of one request and model on different paths often hold the same answer: each row weighs one over their number.

    Args:
        requests: The distinct requests, sorted.
        contexts: The distinct contexts, those of the template included that no row has.
        labels: The distinct labels, at most 16.
        request: Index into ``requests``.
        context: Index into ``contexts``.
        label: Index into ``labels``.
        right: Whether the answer is right, or its score in [0, 1].
        kind: Class of the answer within its request; -1 without an answer.
        weight: Weight of the row.
        is_repeat: Whether it is the model's earlier answer again, or again none, which says nothing more about the request.
        cost_usd: Dollars of the row, tools included.
        repeats: For each context with ``is_again``: rows, and those whose answer is the model's earlier one; (contexts, 2).
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
    repeats: FloatArray

    def __len__(self) -> int:
        return len(self.request)

    @cached_property
    def evidence(self) -> FloatArray:
        """Weight of the row where answers are counted: none of a repeated one, whose chance is that of repeating."""
        return np.where(self.is_repeat, 0.0, self.weight)

    @cached_property
    def label_follows_class(self) -> bool:
        """Whether answers of one class always have one label, as they do where it is a function of the answer."""
        seen: dict[tuple[int, int], int] = {}
        pairs = 0
        for request, kind, label in zip(self.request.tolist(), self.kind.tolist(), self.label.tolist(), strict=True):
            if kind < 0:
                continue
            before = seen.setdefault((request, kind), label)
            if before != label:
                return False
            pairs += 1
        return pairs > len(seen)

    @classmethod
    def of(cls, rows: Iterable[Observation], invocations: Sequence[str]) -> AnswerTable:
        """Encode rows.

        Args:
            rows: Of a linear template.
            invocations: The stage of each invocation; each writes an answer.

        Raises:
            EvidenceError: No row is scored, or more than 8 signals occur.
        """
        kept = list(rows)
        by_cell = {(row.request_id, row.prefix): row for row in kept}
        scored = [row for row in kept if row.success is not None or row.failure is not None]
        if not scored:
            raise EvidenceError("no row is scored: nothing can be said about which answers are right")
        scored.sort(key=lambda row: (row.request_id, row.depth, row.prefix))
        signals = sorted({row.signal for row in scored if row.signal is not None})
        if len(signals) > MOST_SIGNALS:
            raise EvidenceError(f"the rows have {len(signals)} different signals, at most {MOST_SIGNALS} are possible")
        repeated: dict[Context, list[int]] = defaultdict(lambda: [0, 0])
        contexts, labels, is_repeat = [], [], []
        counts: dict[tuple[str, str, bool], int] = defaultdict(int)
        for row in scored:
            context, repeats = _context(row, by_cell, repeated)
            contexts.append(context)
            is_repeat.append(repeats)
            labels.append(Label.of(bool(row.stopped) and row.failure is None, STATUS[0] if row.failure else row.signal))
            counts[row.request_id, row.model, context.is_again] += 1
        names = sorted({*contexts, *_possible(invocations, {c.model for c in contexts}, any(c.is_again for c in contexts))})
        kinds = sorted(set(labels), key=str)
        requests = tuple(sorted({row.request_id for row in scored}))
        place = {name: i for i, name in enumerate(requests)}
        return cls(
            requests=requests,
            contexts=tuple(names),
            labels=tuple(kinds),
            request=np.array([place[row.request_id] for row in scored], np.int64),
            context=np.array([names.index(context) for context in contexts], np.int64),
            label=np.array([kinds.index(label) for label in labels], np.int64),
            right=np.array([float(row.success or 0.0) if row.failure is None else 0.0 for row in scored]),
            kind=np.array([-1 if row.answer_class is None else row.answer_class for row in scored], np.int64),
            weight=np.array(
                [1.0 / counts[row.request_id, row.model, c.is_again] for row, c in zip(scored, contexts, strict=True)]
            ),
            is_repeat=np.array(is_repeat, np.bool_),
            cost_usd=np.array([row.cost_usd + row.tool_cost_usd for row in scored]),
            repeats=np.array([repeated[context] for context in names], np.float64).reshape(-1, 2),
        )


def _possible(invocations: Sequence[str], models: set[str], knows_again: bool) -> Iterator[Context]:
    """The contexts that may occur; asking a model again only if some row has done so."""
    for depth, stage in enumerate(invocations):
        for model in models:
            yield Context(stage, model, depth > 0, False)
            if depth and knows_again:
                yield Context(stage, model, True, True)


def _context(
    row: Observation, by_cell: dict[tuple[str, tuple[str, ...]], Observation], repeated: dict[Context, list[int]]
) -> tuple[Context, bool]:
    """The row's context, and whether its answer is the model's earlier one; such rows are counted."""
    earlier = [by_cell.get((row.request_id, row.prefix[:k])) for k in range(1, row.depth)]
    same = [other for other in earlier if other is not None and other.model == row.model]
    context = Context(row.stage, row.model, any(other is not None for other in earlier), bool(same))
    if not same:
        return context, False
    is_repeat = same[-1].answer_class == row.answer_class
    repeated[context][0] += 1
    repeated[context][1] += is_repeat
    return context, is_repeat
