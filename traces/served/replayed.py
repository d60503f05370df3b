"""Stores recorded answers of the current setup, questions to people who compare other answers with them, and their labels.

Each row of the table ``units`` is a case to compare. In a replay, it is a sampled call, and an answer is identified by its
model. In a profile of unlabelled requests, it is a request, and an answer is identified by its digest.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import (
    Boolean,
    Column,
    Float,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    UniqueConstraint,
    delete,
    insert,
    inspect,
    or_,
    select,
    update,
)

from vinelm.traces.databases import schema
from vinelm.traces.store.store import ObservationStore

_NOTES = "replay"

metadata = MetaData()
units = Table(
    "replay_units",
    metadata,
    Column("unit_id", Integer, primary_key=True, comment="by step, in the random order in which requests are used"),
    Column("step", String, nullable=False, comment="key of the step that made the call"),
    Column("title", String, nullable=False, comment="the step's name, or the first words of its system prompt"),
    Column("request", String, nullable=False, comment="the request, as the trace names it"),
    Column("call", String, nullable=False, comment="the call, as the trace names it"),
    Column("model", String, nullable=False, comment="the model that answered, as the trace names it"),
    Column("weight", Integer, nullable=False, comment="calls of the step in the request, of which this one was drawn"),
    Column("cost_usd", Float, nullable=False, comment="dollars of the recorded call"),
    Column("latency_s", Float, comment="seconds of the recorded call; NULL: unknown"),
    Column("tokens_in", Integer, nullable=False, comment="prompt tokens, estimated where the trace has no count"),
    Column("tokens_out", Integer, nullable=False, comment="tokens of the answer, estimated likewise"),
    Column("answer", String, nullable=False, comment="the recorded answer: content and tool calls, JSON"),
    Column("cluster", String, nullable=False, comment="digest of the conversation or prompt: such units are not independent"),
    Column("recorded_at", Float, comment="when a service recorded it: seconds since 1970; NULL in a replay"),
    Column("prompt", LargeBinary, nullable=False, comment="messages, tools, response format, settings; zlib-compressed JSON"),
    comment="One call for each sampled request and step of a trace. Made by `vinelm replay`, like the two tables below.",
)
questions = Table(
    "replay_questions",
    metadata,
    Column("question_id", Integer, primary_key=True, autoincrement=True, comment="order in which they were first put"),
    Column("unit_id", Integer, nullable=False, comment="key into replay_units"),
    Column("model", String, nullable=False, comment="whose answer is compared with the recorded one: a model, or a digest"),
    Column("is_today_left", Boolean, nullable=False, comment="the recorded answer is shown on the left, drawn by the seed"),
    Column("is_open", Boolean, nullable=False, comment="the proof waits for it"),
    Column("leased_to", String, comment="who was given it last; NULL: nobody"),
    Column("leased_until_s", Float, nullable=False, comment="until when it is given to nobody else: seconds since 1970"),
    UniqueConstraint("unit_id", "model", name="one_question_per_answer"),
    comment="Pairs of answers that differ (or are to be checked), which persons compare.",
)
labels = Table(
    "replay_labels",
    metadata,
    Column("label_id", Integer, primary_key=True, autoincrement=True, comment="order in which they were given"),
    Column("question_id", Integer, nullable=False, comment="key into replay_questions"),
    Column("who", String, nullable=False, comment="the person"),
    Column("choice", String, nullable=False, comment="left, right, both, neither, skip, or two scores from 0 to 1: 0.7/0.4"),
    Column("given_s", Float, nullable=False, comment="when: seconds since 1970"),
    Column("is_undone", Boolean, nullable=False, comment="the person took it back"),
    comment="What persons answered. The last one of a person and question that is not undone holds.",
)

compared = Table(
    "compared_answers",
    metadata,
    Column("unit_id", Integer, nullable=False, comment="key into replay_units"),
    Column("model", String, nullable=False, comment="digest of the answer, as in observations"),
    Column("answer", String, nullable=False, comment="the answer: content and tool calls, JSON"),
    Column("is_today", Boolean, nullable=False, comment="what runs today has answered it"),
    Column("is_same", Boolean, nullable=False, comment="it is the same as what runs today has answered"),
    Column("is_audited", Boolean, nullable=False, comment="persons are asked about it although it is the same"),
    Column("may_hide", Boolean, nullable=False, comment="being the same does not imply an equal score here"),
    UniqueConstraint("unit_id", "model", name="one_comparison_per_answer"),
    comment="Answers of a profile whose requests have no labels, beside those of what runs today. Made anew by each run.",
)
RIGHT: Mapping[str, tuple[float, float]] = {"left": (1.0, 0.0), "right": (0.0, 1.0), "both": (1.0, 1.0), "neither": (0.0, 0.0)}
"""The scores of the answers on the left and on the right of a question, by a person's choice."""


def sides_of(choice: str) -> tuple[float, float] | None:
    """Return the scores in [0, 1] of the left and the right answer that a person's choice means; None for ``skip``.

    A choice is ``left``, ``right``, ``both`` or ``neither`` (:data:`RIGHT`), or two scores such as ``0.7/0.4``.

    Raises:
        ValueError: The text is neither a choice, nor scores, nor ``skip``.
    """
    if choice == "skip" or choice in RIGHT:
        return RIGHT.get(choice)
    left, right = map(float, choice.split("/"))
    if not (0.0 <= left <= 1.0 and 0.0 <= right <= 1.0):
        raise ValueError(choice)
    return left, right


class SaidOf(NamedTuple):
    """The average of the scores that people gave to the two answers of a question.

    Attributes:
        question: The question's number.
        today: The score of the current setup's recorded answer; None if everyone skipped the question.
        other: The score of the other answer; None if everyone skipped the question.
        people: The number of people who answered the question; skips do not count.
        is_split: Whether people disagree on the difference between the two scores.
    """

    question: int
    today: float | None
    other: float | None
    people: int = 0
    is_split: bool = False


_BRIEF = [column for column in units.c if column.name != "prompt"]


class ReplayRows:
    """Reads and writes a replay in a store: recorded calls or requests of the current setup, questions about them, and labels.

    Every write is a durable transaction, or joins the caller's transaction.
    """

    def __init__(self, store: ObservationStore) -> None:
        self._database = store.database
        with self._database.transaction() as connection:
            self.is_new = not inspect(connection).has_table(units.name)
            """Whether the store has no replay yet."""

    def create(self, rows: Sequence[Mapping[str, Any]], notes: Mapping[str, Any]) -> None:
        """Create the tables of the replay, and add ``rows`` and ``notes``, in one transaction.

        Args:
            rows: the sampled calls or requests, as mappings from the columns of the table ``units`` to values.
            notes: values that are in no table; see :meth:`note`.
        """
        with self._database.transaction() as connection:
            metadata.create_all(connection)
            if rows:
                connection.execute(insert(units), rows)
            self.note(notes)
        self.is_new = False

    def notes(self) -> dict[str, Any]:
        """Return the values that :meth:`note` has stored last, as plain JSON types; empty if nothing was stored."""
        with self._database.transaction() as connection:
            text = connection.execute(select(schema.meta.c.value).where(schema.meta.c.key == _NOTES)).scalar()
            found: dict[str, Any] = json.loads(text) if text else {}
            return found

    def note(self, notes: Mapping[str, Any]) -> None:
        """Replace the values that :meth:`notes` returns by ``notes`` (plain JSON types)."""
        with self._database.transaction() as connection:
            schema.set_meta(connection, _NOTES, json.dumps(notes))

    def units(self, after: int = 0) -> list[dict[str, Any]]:
        """Return the sampled calls or requests whose number is above ``after``, in order, without their prompts.

        Each is a mapping from the columns of the table ``units`` to values.
        """
        query = select(*_BRIEF).where(units.c.unit_id > after).order_by(units.c.unit_id)
        with self._database.transaction() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]

    def prompts(self, first: int, count: int) -> dict[int, bytes]:
        """Return the compressed prompts, by number, of the ``count`` sampled calls or requests from the number ``first`` on."""
        query = select(units.c.unit_id, units.c.prompt).where(units.c.unit_id >= first, units.c.unit_id < first + count)
        with self._database.transaction() as connection:
            return {unit_id: bytes(prompt) for unit_id, prompt in connection.execute(query)}

    def add_units(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append sampled calls or requests, given as mappings from the columns of the table ``units`` to values."""
        if rows:
            with self._database.transaction() as connection:
                connection.execute(insert(units), rows)

    def set_compared(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Store the comparisons between a profile's answers and the recorded answers, and delete all earlier comparisons.

        ``rows`` are the comparisons, as mappings from the columns of the table ``compared`` to values. All in one transaction.
        """
        with self._database.transaction() as connection:
            metadata.create_all(connection)
            connection.execute(delete(compared))
            if rows:
                connection.execute(insert(compared), rows)

    def compared(self) -> list[dict[str, Any]]:
        """Return the comparisons between a profile's answers and the recorded answers, in any order; empty if none were stored.

        Each is a mapping from the columns of the table ``compared`` to values.
        """
        with self._database.transaction() as connection:
            if not inspect(connection).has_table(compared.name):
                return []
            return [dict(row) for row in connection.execute(select(compared)).mappings()]

    def said(self) -> dict[tuple[int, str], SaidOf]:
        """Return people's average scores for each question that has a label.

        Each key has the number of the sampled call or request, and the name that identifies the other answer (its model or
        digest). Only a person's latest label of a question counts.
        """
        last: dict[int, dict[str, str]] = defaultdict(dict)
        for label in self.labels():
            last[label["question_id"]][label["who"]] = label["choice"]
        found: dict[tuple[int, str], SaidOf] = {}
        for row in self.questions():
            given = last[row["question_id"]].values()
            scores = [found_sides for choice in given if (found_sides := sides_of(choice)) is not None]
            if given:
                sides = [sum(side) / len(scores) for side in zip(*scores, strict=True)] or [None, None]
                today, other = sides if row["is_today_left"] else reversed(sides)
                is_split = len({left - right for left, right in scores}) > 1
                found[row["unit_id"], row["model"]] = SaidOf(row["question_id"], today, other, len(scores), is_split)
        return found

    def open_questions(self, wanted: Iterable[Mapping[str, Any]]) -> None:
        """Open the questions ``wanted``, so that people can answer them, and close all others.

        Each question is a mapping with ``unit_id``, ``model`` and ``is_today_left`` (whether the recorded answer is shown on
        the left). A question that already exists keeps its value of ``is_today_left``.
        """
        with self._database.transaction() as connection:
            connection.execute(update(questions).values(is_open=False))
            for one in wanted:
                here = (questions.c.unit_id == one["unit_id"]) & (questions.c.model == one["model"])
                if not connection.execute(update(questions).where(here).values(is_open=True)).rowcount:
                    connection.execute(insert(questions).values(**one, is_open=True, leased_until_s=0.0))

    def questions(self) -> list[dict[str, Any]]:
        """Return all questions in order, each as a mapping from the table's columns to values."""
        with self._database.transaction() as connection:
            query = select(questions).order_by(questions.c.question_id)
            return [dict(row) for row in connection.execute(query).mappings()]

    def lease(self, question_id: int, who: str, now_s: float, until_s: float) -> bool:
        """Reserve a question for the person ``who``; return False if another person has it. Safe for concurrent callers.

        ``now_s`` and ``until_s`` are the current time and the end of the reservation, in seconds since 1970.
        """
        is_free = or_(questions.c.leased_to.is_(None), questions.c.leased_to == who, questions.c.leased_until_s <= now_s)
        to = {"leased_to": who, "leased_until_s": until_s}
        with self._database.transaction() as connection:
            given = connection.execute(update(questions).where(questions.c.question_id == question_id, is_free).values(to))
            return bool(given.rowcount)

    def labels(self) -> list[dict[str, Any]]:
        """Return all labels except undone labels, in order, each as a mapping from the table's columns to values."""
        with self._database.transaction() as connection:
            query = select(labels).where(labels.c.is_undone.is_(False)).order_by(labels.c.label_id)
            return [dict(row) for row in connection.execute(query).mappings()]

    def add_label(self, question_id: int, who: str, choice: str, given_s: float) -> None:
        """Add the answer of the person ``who`` to a question.

        ``choice`` is a text as in :func:`sides_of`, ``given_s`` the time in seconds since 1970.
        """
        row = {"question_id": question_id, "who": who, "choice": choice, "given_s": given_s, "is_undone": False}
        with self._database.transaction() as connection:
            connection.execute(insert(labels), row)

    def undo(self, label_id: int) -> None:
        """Mark a label as undone, so that it no longer counts."""
        with self._database.transaction() as connection:
            connection.execute(update(labels).where(labels.c.label_id == label_id).values(is_undone=True))
