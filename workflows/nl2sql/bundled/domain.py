"""Definition of a bundled database and its questions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from vinelm.workflows.nl2sql.bundled.seeded_random import Dice

Row: TypeAlias = tuple[Any, ...]
Tables: TypeAlias = dict[str, list[Row]]
"""Rows by table. A table comes after those that it refers to."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A template for questions about one database, with the answer in SQL.

    ``{slot}`` is a placeholder in both. Values of a slot are texts, ``spoken|sql`` where question and SQL differ. ``wordings``
    are used in turn; at most ``times`` questions are generated, each with different values.
    """

    wordings: tuple[str, ...]
    sql: str
    slots: Mapping[str, tuple[str, ...]]
    times: int


def ask(wording: str | Sequence[str], sql: str, times: int = 2, **slots: Sequence[str]) -> Ask:
    """Define a question template; without slots it yields one question."""
    wordings = (wording,) if isinstance(wording, str) else tuple(wording)
    return Ask(wordings, " ".join(sql.split()), {name: tuple(values) for name, values in slots.items()}, times if slots else 1)


@dataclass(frozen=True, slots=True)
class Domain:
    """One database: ``CREATE TABLE`` statements, a function that generates rows from a seed, and question templates."""

    db_id: str
    schema: str
    fill: Callable[[Dice], Tables]
    asks: tuple[Ask, ...]
