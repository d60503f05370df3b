"""Which tables and systems are measured: the default choices, or those of a file."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from signals_parts import agents, classeval, exams, mixed, spider
from signals_parts.record import Asked, Record, UsdPer1000

from vinelm.errors import ConfigError, DatasetError
from vinelm.evaluation import OutcomeTable

LOADERS: Mapping[str, tuple[Path, Callable[[Path], Record]]] = {
    "spider": (spider.FILE, spider.load_spider),
    "exams": (exams.FILE, exams.load_exams),
    "classeval": (classeval.FILE, classeval.load_classeval),
    "routerbench": (mixed.ROUTERBENCH, mixed.load_routerbench),
    "llmrouter": (mixed.LLMROUTER, mixed.load_llmrouter),
    "swe": (agents.SWE_AGENTS, agents.load_swe_agents),
    "livecodebench": (agents.LIVECODEBENCH, agents.load_livecodebench),
}
FEWEST = 2
OWN_CHECK = ("spider", "exams", "classeval")
"""The records of workflows of several calls whose requests are of one kind, for studies of those."""


class Loaded(NamedTuple):
    """A priced table and its record: what is real and what is assumed, and what is known of the requests."""

    table: OutcomeTable
    about: str
    asked: Asked
    most_calls: int | None
    own_budgets: bool


def load_tables(data: Path, systems: Path | None, only: tuple[str, ...] = ()) -> dict[str, Loaded]:
    """The priced tables by name.

    Args:
        data: folder with ``outcomes/``, ``nl2sql/``, ``math/`` and ``mixed/``; files that it lacks are left out.
        systems: CSV file with the columns name and usd_per_1000 (empty: recorded or assumed); None for the default choices.
        only: names of tables, or of the files' records (``spider`` stands for all choices of Spider systems); empty for all.

    Raises:
        DatasetError: the folder has none of the files, or one cannot be read.
        ConfigError: ``systems`` or ``only`` names what is not there.
    """
    named = None if systems is None else read_systems(systems)
    found: dict[str, Loaded] = {}
    known: set[str] = set()
    is_there = False
    for name, (file, load) in LOADERS.items():
        if not (data / file).exists():
            print(f"{data / file}: not there, left out", file=sys.stderr)
            continue
        is_there = True
        if only and not any(one.split("-")[0] == name for one in only):
            continue
        record = load(data)
        known |= set(record.outcomes.systems)
        for choice, usd in (record.choices if named is None else in_record(record, named)).items():
            if not only or choice in only or name in only:
                found[choice] = Loaded(record.table(usd), record.about, record.asked, record.most_calls, record.own_budgets)
    if not is_there:
        raise DatasetError(f"{data}: none of {', '.join(str(file) for file, _ in LOADERS.values())} is there")
    lacking = sorted(set(named or ()) - known)
    if lacking and not only:
        raise ConfigError(f"{systems}: no table has the system {lacking[0]!r}")
    if not found:
        raise ConfigError(f"nothing to measure: the tables are {', '.join(LOADERS)}, each with {FEWEST} chosen systems or more")
    return found


def in_record(record: Record, named: UsdPer1000) -> dict[str, UsdPer1000]:
    """The named systems that the record has, as its one choice; none if they are too few."""
    here = {name: usd for name, usd in named.items() if name in record.outcomes.systems}
    if len(here) < FEWEST:
        print(f"{record.name}: {len(here)} of the named systems, left out", file=sys.stderr)
        return {}
    return {record.name: here}


def read_systems(path: Path) -> dict[str, float | None]:
    """Names and assumed prices."""
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            reader = csv.DictReader(lines)
            if not {"name", "usd_per_1000"} <= set(reader.fieldnames or ()):
                raise ConfigError(f"{path}: the columns are name,usd_per_1000")
            rows = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{path}: cannot read the systems: {error}") from error
    found: dict[str, float | None] = {}
    for row in rows:
        name, text = (row["name"] or "").strip(), (row["usd_per_1000"] or "").strip()
        try:
            usd = float(text) if text else None
        except ValueError:
            usd = -1.0
        if not name or name in found or (usd is not None and not 0.0 <= usd < float("inf")):
            raise ConfigError(f"{path}: {name or 'a row'}: give each system once, with dollars >= 0")
        found[name] = usd
    if not found:
        raise ConfigError(f"{path}: no system is named")
    return found
