"""Asks people which of two answers is right, without naming models. For terminals, pages and files."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, cast, get_args

from vinelm.errors import ConfigError
from vinelm.replay.kept import Kept
from vinelm.replay.same import Message, called
from vinelm.traces.served.replayed import sides_of

Choice = Literal["left", "right", "both", "neither", "skip"]
LEASE_S = 300.0
"""How long a question that was given to somebody is not given to anybody else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelQuestion:
    """Two answers to one prompt, without their models.

    Attributes:
        number: The question's number in the store.
        step: The step that made the call.
        messages: The prompt.
        tools: Names of the tools that could be called.
        left, right: The answers, with ``content`` and ``tool_calls``. It is random which of them is the recorded one.
    """

    number: int
    step: str
    messages: list[dict[str, Any]]
    tools: list[str]
    left: Message
    right: Message


def next_questions(store: Kept, n: int, who: str = "", *, now_s: float | None = None) -> list[LabelQuestion]:
    """Return the next open questions, and reserve them for this person for five minutes.

    Args:
        store: The open store, see :func:`vinelm.replay.kept.opened`.
        n: The maximum number of questions to return.
        who: The person's name. Questions that this person has answered are not given again. Questions that others have answered
            come last; several people's answers to one question are averaged.
        now_s: The current time in seconds since 1970; None takes the clock.
    """
    now_s = time.time() if now_s is None else now_s
    given: dict[int, set[str]] = defaultdict(set)
    for label in store.rows.labels():
        given[label["question_id"]].add(label["who"])
    mine = [one for one in store.rows.questions() if one["is_open"] and who not in given[one["question_id"]]]
    mine.sort(key=lambda one: (bool(given[one["question_id"]]), one["question_id"]))
    leased = (one for one in mine if store.rows.lease(one["question_id"], who, now_s, now_s + LEASE_S))
    return [_shown(store, one) for one in islice(leased, n)]


def _shown(store: Kept, row: Mapping[str, Any]) -> LabelQuestion:
    unit = store.units[row["unit_id"]]
    prompt, other = store.prompt(unit), store.message(unit, row["model"])
    assert other is not None
    left, right = (unit.answer, other) if row["is_today_left"] else (other, unit.answer)
    names = [str((tool.get("function") or tool).get("name") or "") for tool in prompt["tools"]]
    return LabelQuestion(
        number=row["question_id"], step=unit.title, messages=prompt["messages"], tools=names, left=left, right=right
    )


def question_of(store: Kept, number: int) -> LabelQuestion:
    """Return a question by its number, even if it is reserved for somebody else."""
    return next(_shown(store, row) for row in store.rows.questions() if row["question_id"] == number)


def put_label(store: Kept, question: int, choice: str, who: str = "", *, now_s: float | None = None) -> None:
    """Store a person's answer to a question, durably; it replaces the person's earlier answer.

    Args:
        store: The open store, see :func:`vinelm.replay.kept.opened`.
        question: The question's number.
        choice: The answer that is right: ``left``, ``right``, ``both`` or ``neither``; ``skip`` if the person cannot
            say. Or the scores of both answers from 0 to 1, the left answer's first: ``0.7/0.4``.
        who: The person.
        now_s: The time of the answer in seconds since 1970; None takes the clock.

    Raises:
        ConfigError: There is no such question or choice.
    """
    try:
        sides_of(choice)
    except ValueError:
        choices = ", ".join(get_args(Choice))
        raise ConfigError(
            f"the choice {choice!r} is unknown: take {choices}, or two scores from 0 to 1 such as 0.7/0.4"
        ) from None
    if question not in {row["question_id"] for row in store.rows.questions()}:
        raise ConfigError(f"{store.store.path}: there is no question {question}: take one that next_questions() gave")
    store.rows.add_label(question, who, choice, time.time() if now_s is None else now_s)


def put_scores(store: Kept, score: Callable[[list[dict[str, Any]], Message], float], who: str) -> int:
    """Let a function score both answers of each open question without a label, store the scores as labels, and return the
    number of these questions.

    Args:
        store: The open store, see :func:`vinelm.replay.kept.opened`.
        score: ``score(messages, answer)`` returns a score from 0 to 1.
        who: The name under which the labels are stored.

    Raises:
        WorkflowError: The function raised an exception.
        ConfigError: The function did not return a score.
    """
    labelled = {label["question_id"] for label in store.rows.labels()}
    waiting = [row["question_id"] for row in store.rows.questions() if row["is_open"] and row["question_id"] not in labelled]
    for number in waiting:
        asked = question_of(store, number)
        given = [called(score, "score", asked.messages, side) for side in (asked.left, asked.right)]
        for one in given:
            if isinstance(one, bool) or not isinstance(one, int | float) or not 0.0 <= one <= 1.0:
                raise ConfigError(f"score returned {one!r}: return a score from 0 to 1")
        put_label(store, number, "/".join(map(str, given)), who)
    return len(waiting)


def undo_label(store: Kept, who: str = "") -> int | None:
    """Delete a person's last label durably. Return the number of the label's question, which is asked again; None
    without labels.
    """
    mine = [label for label in store.rows.labels() if label["who"] == who]
    if not mine:
        return None
    store.rows.undo(mine[-1]["label_id"])
    return cast("int", mine[-1]["question_id"])


def scores(store: Kept) -> dict[tuple[int, str], tuple[int, float | None]]:
    """Return (number of the question, difference) for each labelled answer, keyed by (number of the sampled call,
    model).

    The difference is the score of the model's answer minus that of the recorded answer, in [-1, 1]. If several people have
    answered, their last answers are averaged. None if everybody skipped the question.
    """
    return {
        key: (one.question, None if one.today is None or one.other is None else one.other - one.today)
        for key, one in store.rows.said().items()
    }
