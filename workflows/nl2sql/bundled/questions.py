"""Generate the questions of a database from its question templates."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from vinelm.workflows.nl2sql.bundled.domain import Ask, Domain
from vinelm.workflows.nl2sql.bundled.question_checks import fault_of
from vinelm.workflows.nl2sql.bundled.seeded_random import Dice


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its gold query."""

    text: str
    gold_sql: str


def questions_of(domain: Domain, connection: sqlite3.Connection, seed: str) -> list[Question]:
    """Return the domain's questions in an order that depends on the seed; each has been executed and checked."""
    dice = Dice(f"{seed}/{domain.db_id}/questions")
    made: dict[str, Question] = {}
    for kind in domain.asks:
        made.update((question.text, question) for question in _sound(kind, connection, dice))
    return dice.shuffled(list(made.values()))


def candidates(kind: Ask, dice: Dice) -> Iterator[Mapping[str, str]]:
    """Yield every combination of values for the slots, in random order."""
    yield from (
        dict(zip(kind.slots, values, strict=True)) for values in dice.shuffled(list(itertools.product(*kind.slots.values())))
    )


def _sound(kind: Ask, connection: sqlite3.Connection, dice: Dice) -> list[Question]:
    """At most ``times`` suitable questions; no two share a value of a slot."""
    found: list[Question] = []
    used: list[set[str]] = []
    for values in candidates(kind, dice):
        if len(found) == kind.times:
            break
        if any(set(values.values()) & earlier for earlier in used):
            continue
        question = worded(kind, values, len(found))
        if fault_of(connection, question.gold_sql) is None:
            found.append(question)
            used.append(set(values.values()))
    return found


def worded(kind: Ask, values: Mapping[str, str], turn: int) -> Question:
    """Return the question with these values; ``turn`` selects the wording."""
    text, sql = kind.wordings[turn % len(kind.wordings)], kind.sql
    for slot, value in values.items():
        spoken, _, written = value.partition("|")
        text = text.replace(f"{{{slot}}}", spoken)
        sql = sql.replace(f"{{{slot}}}", written or spoken)
    return Question(text, sql)
