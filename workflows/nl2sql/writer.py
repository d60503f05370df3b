"""How simulated models write SQL: the gold query in a harmless form, or one mutation of it."""

from __future__ import annotations

import random
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from vinelm.errors import DatasetError
from vinelm.workflow import Request

if TYPE_CHECKING:
    Node: TypeAlias = exp.Expr

Schema = Mapping[str, Sequence[str]]
"""Columns by table, both in lower case, in the order of the database."""

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
"""``wrong_value`` often comes back empty, ``unknown_column`` and ``syntax_error`` as an error of the database."""

_FALLBACKS = (
    "wrong_column",
    "missing_filter",
    "wrong_value",
    "wrong_aggregate",
    "wrong_order",
    "unknown_column",
    "syntax_error",
)
_DATE_LITERAL = re.compile(r"^\d{4}(-\d{2}){1,2}\b")
_DATE_FUNCTIONS = frozenset({"DATE", "DATETIME", "JULIANDAY", "STRFTIME", "TIME"})
_DATE_NODES = (exp.TimeToStr, exp.Date, exp.DateAdd, exp.DateSub, exp.DateDiff, exp.TsOrDsToDate, exp.CurrentDate)
_SWAPPED_AGGREGATES: Mapping[type[Node], type[Node]] = {
    exp.Sum: exp.Avg,
    exp.Avg: exp.Sum,
    exp.Max: exp.Min,
    exp.Min: exp.Max,
}
_NO_SCHEMA: Schema = {}

Change: TypeAlias = "Callable[[Node], None]"
"""Changes one node of a copied tree in place."""
Site: TypeAlias = "tuple[int, Change]"
"""Which node, in walk order, and what happens to it."""


class SqlWriter:
    """Writes right and wrong SQL for requests whose row has ``gold_sql`` (and ``db_id``).

    With a folder of databases (``DB_ID.sqlite``, opened read-only on first use) a wrong column may be any other of its
    table; without one it comes from the query itself. A mutation's text always differs from the gold query's; that its rows
    differ is usual and not promised. Pure otherwise: the same request, kind and generator state give the same text.
    """

    kinds: Sequence[str] = ERROR_KINDS

    def __init__(self, databases: str | Path | None = None) -> None:
        self._databases = None if databases is None else Path(databases)
        self._schemas: dict[str, Schema] = {}
        self._sites: dict[tuple[str, str, str], tuple[Site, ...]] = {}
        self._texts: dict[tuple[str, str, str, int], str | None] = {}

    def skills(self, request: Request) -> Mapping[str, float]:
        """Joins, aggregation, nesting, dates and filters that the gold query demands, each in [0, 1]."""
        return _skills(_gold(request))

    def right(self, request: Request, rng: random.Random) -> str:
        """The gold query, as it stands or with other spacing at its end."""
        gold = _gold(request).strip().rstrip(";").rstrip()
        return rng.choice((gold, f"{gold};", f"{gold}\n"))

    def wrong(self, request: Request, kind: str, rng: random.Random) -> str:
        """The gold query with one error of that kind; of the next kind that applies where this one does not."""
        gold, db_id = _gold(request), str(request.data.get("db_id", ""))
        for other in (kind, *_FALLBACKS):
            if other == "syntax_error":
                return _syntax_error(gold, rng)
            sites = self._sites_of(gold, db_id, other)
            first = rng.randrange(len(sites)) if sites else 0
            for index in (*range(first, len(sites)), *range(first)):
                text = self._mutation(gold, db_id, other, index)
                if text is not None:
                    return text
        raise AssertionError("the last fallback always applies")

    def _sites_of(self, gold: str, db_id: str, kind: str) -> tuple[Site, ...]:
        key = (gold, db_id, kind)
        if key not in self._sites:
            self._sites[key] = tuple(_FINDERS[kind](_parsed(gold), self._schema(db_id)))
        return self._sites[key]

    def _mutation(self, gold: str, db_id: str, kind: str, index: int) -> str | None:
        """The mutated text, None where it came out as the gold query."""
        key = (gold, db_id, kind, index)
        if key not in self._texts:
            tree = _parsed(gold)
            ordinal, change = self._sites_of(gold, db_id, kind)[index]
            mutant = tree.copy()
            change(_nodes(mutant)[ordinal])
            text = mutant.sql(dialect="sqlite")
            self._texts[key] = None if text == tree.sql(dialect="sqlite") else text
        return self._texts[key]

    def _schema(self, db_id: str) -> Schema:
        if self._databases is None:
            return _NO_SCHEMA
        if db_id not in self._schemas:
            self._schemas[db_id] = read_schema(self._databases / f"{db_id}.sqlite")
        return self._schemas[db_id]


def read_schema(path: Path) -> Schema:
    """Columns by table of a SQLite file, opened read-only. :class:`DatasetError` if it is missing or not SQLite."""
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        try:
            rows = connection.execute(
                "SELECT m.name, c.name FROM sqlite_master AS m, pragma_table_info(m.name) AS c "
                "WHERE m.type = 'table' ORDER BY m.name, c.cid"
            ).fetchall()
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise DatasetError(f"{path}: cannot read the database: {error}") from error
    schema: dict[str, list[str]] = {}
    for table, column in rows:
        schema.setdefault(str(table).lower(), []).append(str(column))
    return schema


def _gold(request: Request) -> str:
    try:
        return str(request.data["gold_sql"])
    except KeyError:
        raise DatasetError(
            f"request {request.id!r}: the row has no 'gold_sql': simulated models write their SQL from it"
        ) from None


@lru_cache(maxsize=8192)
def _parsed(gold: str) -> Node:
    """The query's tree. Shared: copy it before changing it."""
    try:
        tree: Node = sqlglot.parse_one(gold, read="sqlite")
    except SqlglotError as error:
        reason = str(error).splitlines()[0]
        raise DatasetError(f"gold_sql is not SQL that can be parsed: {gold[:80]!r}: {reason}") from error
    return tree


def _nodes(tree: Node) -> list[Node]:
    return list(tree.walk())


@lru_cache(maxsize=8192)
def _skills(gold: str) -> Mapping[str, float]:
    nodes = _nodes(_parsed(gold))

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


def _syntax_error(gold: str, rng: random.Random) -> str:
    """Text that no SQL parser takes: a misspelt keyword, a stray comma, an open or an extra parenthesis."""
    text = gold.strip().rstrip(";").rstrip()
    variants = [f"{text})", f"{text} WHERE (", f"{text} GROUP BY"]
    for pattern, instead in ((r"\bFROM\b", "FORM"), (r"\bFROM\b", ", FROM"), (r"^\s*SELECT\b", "SELCT")):
        variant = re.sub(pattern, instead, text, count=1, flags=re.IGNORECASE)
        if variant != text:
            variants.append(variant)
    return rng.choice(variants)


# Finders: where an error of a kind can be made, in walk order. They only read the tree.


def _wrong_columns(tree: Node, schema: Schema) -> Iterator[Site]:
    for ordinal, node in enumerate(_nodes(tree)):
        if isinstance(node, exp.Column) and not _is_joining(node) and _is_reference(node):
            for name in _other_columns(node, tree, schema):
                yield ordinal, _renamed(name)


def _unknown_columns(tree: Node, schema: Schema) -> Iterator[Site]:
    nodes = _nodes(tree)
    known = {column.lower() for columns in schema.values() for column in columns}
    known |= {node.name.lower() for node in nodes if isinstance(node, exp.Column | exp.Alias)}
    for ordinal, node in enumerate(nodes):
        if isinstance(node, exp.Column) and _is_reference(node) and not isinstance(node.this, exp.Star):
            for name in (f"{node.name}_name", f"{node.name}_id", f"{node.name}s"):
                if name.lower() not in known and name.isidentifier():
                    yield ordinal, _renamed(name)
                    break
        elif isinstance(node, exp.Table) and f"{node.name}s".lower() not in schema and node.name.isidentifier():
            yield ordinal, _renamed(f"{node.name}_list")


def _missing_filters(tree: Node, schema: Schema) -> Iterator[Site]:
    for ordinal, node in enumerate(_nodes(tree)):
        if isinstance(node, exp.Where | exp.Having):
            yield ordinal, _dropped
        elif isinstance(node, exp.And | exp.Or):
            yield ordinal, _keep("this")
            yield ordinal, _keep("expression")


def _wrong_aggregates(tree: Node, schema: Schema) -> Iterator[Site]:
    for ordinal, node in enumerate(_nodes(tree)):
        if type(node) in _SWAPPED_AGGREGATES:
            yield ordinal, _swap_aggregate
        elif isinstance(node, exp.Count):
            yield from ((ordinal, change) for change in _count_changes(node, tree, schema))
        elif isinstance(node, exp.Group):
            yield ordinal, _dropped


def _wrong_joins(tree: Node, schema: Schema) -> Iterator[Site]:
    for ordinal, node in enumerate(_nodes(tree)):
        if isinstance(node, exp.Column) and _is_joining(node) and _is_reference(node):
            # a table's first column is usually its key: a join of many rows with many could take for ever
            first, second = (*schema.get(_table_of(node, tree) or "", ()), "", "")[:2]
            other = second if first.lower() == node.name.lower() else first
            if other.isidentifier():
                yield ordinal, _renamed(other)


def _wrong_orders(tree: Node, schema: Schema) -> Iterator[Site]:
    for ordinal, node in enumerate(_nodes(tree)):
        if isinstance(node, exp.Ordered):
            yield ordinal, _reversed
        elif isinstance(node, exp.Limit):
            yield ordinal, _dropped
            yield ordinal, _one_more
        elif isinstance(node, exp.Distinct) and isinstance(node.parent, exp.Select):
            yield ordinal, _dropped


def _wrong_values(tree: Node, schema: Schema) -> Iterator[Site]:
    for ordinal, node in enumerate(_nodes(tree)):
        is_value = isinstance(node, exp.Literal) or (isinstance(node, exp.Column) and not _is_reference(node))
        if is_value and isinstance(node.parent, exp.Predicate):
            yield ordinal, _another_value
        elif isinstance(node, exp.GT | exp.GTE | exp.LT | exp.LTE):
            yield ordinal, _reversed_comparison


_FINDERS: Mapping[str, Callable[[Node, Schema], Iterator[Site]]] = {
    "wrong_column": _wrong_columns,
    "missing_filter": _missing_filters,
    "wrong_aggregate": _wrong_aggregates,
    "wrong_join": _wrong_joins,
    "wrong_order": _wrong_orders,
    "wrong_value": _wrong_values,
    "unknown_column": _unknown_columns,
}


def _is_joining(node: Node) -> bool:
    """Part of a join's condition."""
    join = node.find_ancestor(exp.Join, exp.Select)
    return isinstance(join, exp.Join)


def _is_reference(column: exp.Column) -> bool:
    """A column's name, and not a text in double quotes, which SQLite takes for a value."""
    identifier = column.this
    return not (isinstance(identifier, exp.Identifier) and identifier.quoted and not column.table)


def _table_of(column: exp.Column, tree: Node) -> str | None:
    """The table that a column belongs to, in lower case; None where the query does not tell."""
    select = column.find_ancestor(exp.Select)
    tables = [t for t in (select or tree).find_all(exp.Table) if t.find_ancestor(exp.Select) is select]
    if not column.table:
        return tables[0].name.lower() if len(tables) == 1 else None
    for table in tables or tree.find_all(exp.Table):
        if column.table.lower() in (table.alias.lower(), table.name.lower()):
            return table.name.lower()
    return None


def _other_columns(column: exp.Column, tree: Node, schema: Schema) -> list[str]:
    """Other columns of the same table, those that the query itself uses first; at most four."""
    table = _table_of(column, tree)
    same = [
        node.name for node in tree.find_all(exp.Column) if _is_reference(node) and node.table.lower() == column.table.lower()
    ]
    names = {name.lower(): name for name in (*same, *schema.get(table or "", ())) if name and name.isidentifier()}
    names.pop(column.name.lower(), None)
    return list(names.values())[:4]


def _renamed(name: str) -> Change:
    def change(node: Node) -> None:
        node.set("this", exp.to_identifier(name))

    return change


def _dropped(node: Node) -> None:
    node.pop()


def _keep(side: str) -> Change:
    def change(node: Node) -> None:
        node.replace(node.args[side].copy())

    return change


def _swap_aggregate(node: Node) -> None:
    node.replace(_SWAPPED_AGGREGATES[type(node)](this=node.this.copy()))


def _count_changes(node: exp.Count, tree: Node, schema: Schema) -> Iterator[Change]:
    counted = node.this
    if isinstance(counted, exp.Distinct):
        yield lambda count: count.set("this", count.this.expressions[0].copy())
        return
    if isinstance(counted, exp.Column):
        yield lambda count: count.set("this", exp.Distinct(expressions=[count.this.copy()]))
        return
    select = node.find_ancestor(exp.Select)
    tables = [t for t in (select or tree).find_all(exp.Table) if t.find_ancestor(exp.Select) is select]
    for table in tables[:2]:
        for name in schema.get(table.name.lower(), ())[1:3]:  # not the first, the key: its number is often the count
            yield _sum_of(name, table.alias_or_name)


def _sum_of(name: str, table: str) -> Change:
    def change(node: Node) -> None:
        node.replace(exp.Sum(this=exp.column(name, table=table)))

    return change


def _reversed(node: Node) -> None:
    node.set("desc", not node.args.get("desc"))


def _one_more(node: Node) -> None:
    limit = node.expression
    if isinstance(limit, exp.Literal) and not limit.is_string:
        limit.replace(exp.Literal.number(int(limit.this) + 1))


def _another_value(node: Node) -> None:
    """Another number, or the text in another case (what a model does that has not seen the values)."""
    if isinstance(node, exp.Literal) and not node.is_string:
        value: Any = float(node.this)
        node.replace(exp.Literal.number(int(value * 10 + 7) if value.is_integer() else value * 10 + 7))
        return
    text = node.name
    other = text.upper() if text != text.upper() else text.lower()
    node.replace(exp.Literal.string(other if other != text else f"{text}0"))


_REVERSED: Mapping[type[Node], type[Node]] = {
    exp.GT: exp.LT,
    exp.LT: exp.GT,
    exp.GTE: exp.LTE,
    exp.LTE: exp.GTE,
}


def _reversed_comparison(node: Node) -> None:
    node.replace(_REVERSED[type(node)](this=node.this.copy(), expression=node.expression.copy()))
