"""What a loader returns: the recorded answers of every system of a file, and how a choice of systems is priced."""

from __future__ import annotations

import csv
import gzip
import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from science.complete_tables import for_systems

from vinelm.errors import DatasetError
from vinelm.evaluation import OutcomeTable
from vinelm.trie.arrays import FloatArray

UsdPer1000 = Mapping[str, float | None]
"""Dollars per 1,000 calls of each chosen system; None: its price is recorded, or the loader's own assumption."""


@dataclass(frozen=True)
class Asked:
    """What is known of requests before the first call, by request: the kind (task, exam, database) and the text."""

    kinds: Mapping[str, str] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Record:
    """The answers of every system of one file.

    Args:
        name: of the data table.
        outcomes: every system; its dollars are not to be used, see ``cost_usd``.
        choices: the choices of systems that are measured by default, by the name of the table.
        cost_usd: dollars of the systems of a choice, (requests, systems in its order).
        about: one sentence: what is real and what is assumed.
        asked: what is known of the requests before the first call.
        most_calls: that may be made for one request; None without a limit of the record's own.
        own_budgets: budgets are spread between the prices of the table's own systems.
    """

    name: str
    outcomes: OutcomeTable
    choices: Mapping[str, UsdPer1000]
    cost_usd: Callable[[UsdPer1000], FloatArray]
    about: str
    asked: Asked = Asked()
    most_calls: int | None = None
    own_budgets: bool = False

    def table(self, choice: UsdPer1000) -> OutcomeTable:
        """The table of a choice of systems, priced."""
        return replace(for_systems(self.outcomes, tuple(choice)), cost_usd=self.cost_usd(choice))


N_SYSTEMS = 8
"""Systems of a choice that is made here."""


def some_systems(systems: tuple[str, ...], seed: int) -> tuple[str, ...]:
    """Eight of the systems, drawn at random with a fixed seed, by name; all if they are no more."""
    return tuple(sorted(random.Random(f"signals:{seed}").sample(sorted(systems), min(N_SYSTEMS, len(systems)))))


def read_rows(path: Path, columns: tuple[str, ...]) -> list[dict[str, str]]:
    """The rows of a gzipped CSV file that has these columns."""
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as lines:
            reader = csv.DictReader(lines)
            lacking = [name for name in columns if name not in (reader.fieldnames or ())]
            if lacking:
                raise DatasetError(f"{path}: the column {lacking[0]!r} is missing")
            rows = list(reader)
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise DatasetError(f"{path}: cannot read the recorded answers: {error}") from error
    if not rows:
        raise DatasetError(f"{path}: no rows")
    return rows


def read_questions(path: Path, key: Callable[[dict[str, Any]], str], text: Callable[[dict[str, Any]], str]) -> dict[str, str]:
    """The texts of questions by request, of gzipped JSON lines; nothing where the file is not there."""
    if not path.exists():
        return {}
    try:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            return {key(one): text(one) for one in map(json.loads, lines)}
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DatasetError(f"{path}: cannot read the questions: {error}") from error


def number(row: Mapping[str, str], column: str, path: Path) -> float:
    """A column as a number >= 0; empty is 0."""
    try:
        value = float(row[column] or 0.0)
    except ValueError:
        value = -1.0
    if not 0.0 <= value < float("inf"):
        raise DatasetError(f"{path}: {column} is {row[column]!r}: it must be a number >= 0")
    return value
