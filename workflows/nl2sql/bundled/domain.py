"""What a bundled database and its questions are made from."""

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
    """A kind of question about one database, with its answer in SQL.

    ``{slot}`` stands for a value in both. A slot's candidates are texts: ``spoken|sql`` where the two differ. ``wordings`` are
    used in turn; at most ``times`` questions are made, each with other values.
    """

    wordings: tuple[str, ...]
    sql: str
    slots: Mapping[str, tuple[str, ...]]
    times: int


def ask(wording: str | Sequence[str], sql: str, times: int = 2, **slots: Sequence[str]) -> Ask:
    """One kind of question; without slots it is one question."""
    wordings = (wording,) if isinstance(wording, str) else tuple(wording)
    return Ask(wordings, " ".join(sql.split()), {name: tuple(values) for name, values in slots.items()}, times if slots else 1)


@dataclass(frozen=True, slots=True)
class Domain:
    """One database: its ``CREATE TABLE`` statements, the rows that a seed gives, and what is asked about them."""

    db_id: str
    schema: str
    fill: Callable[[Dice], Tables]
    asks: tuple[Ask, ...]
