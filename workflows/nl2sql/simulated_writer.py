"""Writes the SQL of simulated models: the gold query, or one mutation of it."""

from __future__ import annotations

import random
import re
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from vinelm.errors import DatasetError
from vinelm.requests.workflow import Request
from vinelm.workflows.nl2sql.sql import open_reading
from vinelm.workflows.nl2sql.sql_mutations import Schema, Site, mutated, nodes_of, sites, syntax_error

if TYPE_CHECKING:
    Node: TypeAlias = exp.Expr

ERROR_KINDS = (
    "wrong_column",
    "missing_filter",
    "wrong_aggregate",
    "wrong_join",
    "wrong_order",
    "wrong_value",
    "unknown_column",
    "syntax_error",
)
"""The kinds of error in a query. ``wrong_value`` often returns no rows; the last two give a database error."""

_FALLBACKS = (
    "wrong_column",
    "missing_filter",
    "wrong_value",
    "wrong_aggregate",
    "wrong_order",
    "unknown_column",
    "syntax_error",
)
_COLUMNS = (
    "SELECT m.name, c.name FROM sqlite_master AS m, pragma_table_info(m.name) AS c "
    "WHERE m.type = 'table' ORDER BY m.name, c.cid"
)
_DATE_LITERAL = re.compile(r"^\d{4}(-\d{2}){1,2}\b")
_DATE_FUNCTIONS = frozenset({"DATE", "DATETIME", "JULIANDAY", "STRFTIME", "TIME"})
_DATE_NODES = (exp.TimeToStr, exp.Date, exp.DateAdd, exp.DateSub, exp.DateDiff, exp.TsOrDsToDate, exp.CurrentDate)
_NO_SCHEMA: Schema = {}


class SqlWriter:
    """Writes right and wrong SQL for requests whose row has ``gold_sql`` (and ``db_id``).

    A wrong answer replaces, for example, a column by another one. With a folder of databases (``DB_ID.sqlite``, opened
    read-only on first use), any other column of the table is used. Without such a folder, another column of the query is used.
    A mutation's text always differs from the gold query's; its rows usually differ too, but not always. The same request, kind
    and generator state give the same text.
    """

    kinds: Sequence[str] = ERROR_KINDS

    def __init__(self, databases: str | Path | None = None) -> None:
        self._databases = None if databases is None else Path(databases)
        self._schemas: dict[str, Schema] = {}
        self._sites: dict[tuple[str, str, str], tuple[Site, ...]] = {}
        self._texts: dict[tuple[str, str, str, int], str | None] = {}

    def skills(self, request: Request) -> Mapping[str, float]:
        """Return the difficulty of the gold query in joins, aggregation, nesting, dates and filters, each in [0, 1]."""
        return _skills(_gold(request))

    def right(self, request: Request, rng: random.Random) -> str:
        """Return the gold query, sometimes with a semicolon or a line break added at the end."""
        gold = _gold(request).strip().rstrip(";").rstrip()
        return rng.choice((gold, f"{gold};", f"{gold}\n"))

    def wrong(self, request: Request, kind: str, rng: random.Random) -> str:
        """Return the gold query with one error of the given kind, or of another kind if that one does not apply."""
        gold, db_id = _gold(request), str(request.data.get("db_id", ""))
        for other in (kind, *_FALLBACKS):
            if other == "syntax_error":
                return syntax_error(gold, rng)
            count = len(self._sites_of(gold, db_id, other))
            first = rng.randrange(count) if count else 0
            for index in (*range(first, count), *range(first)):
                text = self._mutation(gold, db_id, other, index)
                if text is not None:
                    return text
        raise AssertionError("the last fallback always applies")

    def _sites_of(self, gold: str, db_id: str, kind: str) -> tuple[Site, ...]:
        key = (gold, db_id, kind)
        if key not in self._sites:
            self._sites[key] = sites(kind, _parsed(gold), self._schema(db_id))
        return self._sites[key]

    def _mutation(self, gold: str, db_id: str, kind: str, index: int) -> str | None:
        """Return the gold query with an error of the given kind at the position ``index``; None if the text does not change.

        ``index`` counts the positions that :meth:`_sites_of` returns.
        """
        key = (gold, db_id, kind, index)
        if key not in self._texts:
            tree = mutated(_parsed(gold), self._sites_of(gold, db_id, kind)[index])
            text = tree.sql(dialect="sqlite", copy=False)
            self._texts[key] = None if text == _written(gold) else text
        return self._texts[key]

    def _schema(self, db_id: str) -> Schema:
        if self._databases is None:
            return _NO_SCHEMA
        if db_id not in self._schemas:
            self._schemas[db_id] = read_schema(self._databases / f"{db_id}.sqlite")
        return self._schemas[db_id]


def read_schema(path: Path) -> Schema:
    """Return the columns of each table of a SQLite file, by the table's name; the file is opened read-only.

    Raises:
        DatasetError: the file is missing or not SQLite.
    """
    try:
        with closing(open_reading(path)) as connection:
            rows = connection.execute(_COLUMNS).fetchall()
    except sqlite3.Error as error:
        raise DatasetError(f"{path}: cannot read the schema: {error}") from error
    schema: dict[str, list[str]] = {}
    for table, column in rows:
        schema.setdefault(str(table).lower(), []).append(str(column))
    return schema


def _gold(request: Request) -> str:
    try:
        gold = str(request.data["gold_sql"])
    except KeyError:
        raise DatasetError(
            f"request {request.id!r}: the row has no 'gold_sql': simulated models write their SQL from it"
        ) from None
    try:
        _parsed(gold)
    except SqlglotError as error:
        raise DatasetError(f"request {request.id!r}: gold_sql cannot be parsed: it must be one SQLite query") from error
    return gold


@lru_cache(maxsize=8192)
def _parsed(gold: str) -> Node:
    """Return the syntax tree of the gold query. The tree is cached and shared, so copy it before a change."""
    tree: Node = sqlglot.parse_one(gold, read="sqlite")
    for node in tree.walk():
        node.meta.clear()  # positions in the text: unused, and half of the time of a copy
    return tree


@lru_cache(maxsize=8192)
def _written(gold: str) -> str:
    """Return the gold query as text generated from its syntax tree."""
    return _parsed(gold).sql(dialect="sqlite")


@lru_cache(maxsize=8192)
def _skills(gold: str) -> Mapping[str, float]:
    nodes = nodes_of(_parsed(gold))

    def count(*types: type[Node]) -> int:
        return sum(isinstance(node, types) for node in nodes)

    grouping = 0.35 * min(count(exp.AggFunc), 2) + 0.3 * min(count(exp.Group), 1) + 0.3 * min(count(exp.Having), 1)
    nesting = 0.6 * min(count(exp.Select) - 1, 2) + 0.2 * min(count(exp.SetOperation), 1)
    filters = 0.3 * count(exp.Predicate) + 0.2 * count(exp.Like, exp.Between, exp.In, exp.Case, exp.Window)
    return {
        "joins": min(1.0, count(exp.Join) / 3.0),
        "aggregation": min(1.0, grouping),
        "nesting": min(1.0, nesting),
        "dates": 1.0 if any(map(_is_date, nodes)) else 0.0,
        "filters": min(1.0, filters),
    }


def _is_date(node: Node) -> bool:
    if isinstance(node, exp.Literal):
        return bool(node.is_string and _DATE_LITERAL.match(node.this))
    if isinstance(node, exp.Anonymous):
        return node.name.upper() in _DATE_FUNCTIONS
    return isinstance(node, _DATE_NODES)
