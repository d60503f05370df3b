"""A scorer for applications in which no request has a label, or only some requests have one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vinelm.judging.reference import AsToday, Score
from vinelm.replay.same import Sameness


def as_today(
    answer: Callable[[Mapping[str, Any]], Any] | None = None,
    *,
    score: Score | None = None,
    labels: Sequence[str] = (),
    same: str | Callable[[str, str], bool] | None = None,
    database: str | Path | None = None,
    ignore: Sequence[str] = (),
    audit: float | None = None,
) -> AsToday:
    """Return a scorer for a :class:`~vinelm.Workflow` that uses today's answer for requests without a label.

    An answer equal to the current setup's counts as right. A different answer counts as wrong until a person has labelled it
    (``vinelm label``). See docs/profiling.md.

    Args:
        answer: ``answer(state)`` returns the answer in a final state, a text or JSON types. None takes the keys that
            the workflow names in ``answer=``.
        score: ``score(request, state)`` for the requests with a label, as :class:`~vinelm.Workflow` takes it.
        labels: The keys of the label. A request in which one of these keys is missing or empty has no label.
        same: ``same(today, other)``: whether two free texts are the same; see :class:`~vinelm.replay.Sameness`. None
            compares characters.
        database: A SQLite file on which SQL is executed: queries with the same rows are the same.
        ignore: Fields of structured answers that are not compared.
        audit: Share of equal answers that people are asked about, to check whether they really score alike. None: 0.2 if equal
            answers may have different scores, otherwise 0.

    Raises:
        WorkflowError: Only one of ``score`` and ``labels`` is given.
        ConfigError: ``same`` names no function, the database is missing, or ``audit`` is not in [0, 1].

    Examples:
        >>> from vinelm import as_today
        >>> scorer = as_today(lambda state: state["answer"])
        >>> scorer.labels
        ()
    """
    compared = Sameness(same, database=database, ignore=ignore, audit=audit)
    named = (labels,) if isinstance(labels, str) else tuple(labels)
    return AsToday(answer=answer, same=compared, score=score, labels=named)
