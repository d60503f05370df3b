"""All bundled databases: schema and question templates are data files, the rows come from a function here."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

from vinelm.workflows.nl2sql.bundled.domain import Domain, Tables, ask
from vinelm.workflows.nl2sql.bundled.domains import (
    airline,
    bikeshare,
    clinic,
    company,
    league,
    library,
    museum,
    music,
    university,
    webshop,
)
from vinelm.workflows.nl2sql.bundled.seeded_random import Dice

_DATA = Path(__file__).parents[1] / "data"


def read_domain(db_id: str, fill: Callable[[Dice], Tables]) -> Domain:
    """Return the database of ``<db_id>.sql`` (schema) and ``<db_id>.toml`` (question templates)."""
    schema = (_DATA / f"{db_id}.sql").read_text(encoding="utf-8")
    rows = tomllib.loads((_DATA / f"{db_id}.toml").read_text(encoding="utf-8"))["ask"]
    asks = tuple(ask(row["wordings"], row["sql"], row.get("times", 2), **row.get("slots", {})) for row in rows)
    return Domain(db_id, schema, fill, asks)


DOMAINS: tuple[Domain, ...] = (
    read_domain("airline", airline.fill),
    read_domain("library", library.fill),
    read_domain("clinic", clinic.fill),
    read_domain("university", university.fill),
    read_domain("webshop", webshop.fill),
    read_domain("league", league.fill),
    read_domain("music", music.fill),
    read_domain("bikeshare", bikeshare.fill),
    read_domain("museum", museum.fill),
    read_domain("company", company.fill),
)
"""In the order of the question file, in which databases take turns."""
