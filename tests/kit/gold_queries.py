"""Check that a gold query has one well-defined, non-trivial answer that is the same on every version of SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import sqlglot
from sqlglot import exp

if TYPE_CHECKING:
    Node: TypeAlias = exp.Expr

MAX_ROWS = 300
_NEARLY = 1e-6
"""Sums of floats differ in the last bits between versions of SQLite: keys closer than this count as tied."""


def fault_of(connection: sqlite3.Connection, sql: str) -> str | None:
    """Describe why ``sql`` is unsuitable as a gold query; None if it is suitable."""
    try:
        rows = connection.execute(sql).fetchmany(MAX_ROWS + 1)
        tree = sqlglot.parse_one(sql, read="sqlite")
        return _fault_of_rows(tree, rows) or _bare_column(tree) or _tie(connection, tree)
    except sqlite3.Error as error:
        return f"{type(error).__name__}: {error}"


def _fault_of_rows(tree: Node, rows: list[tuple[Any, ...]]) -> str | None:
    if not rows:
        return "no rows"
    if len(rows) > MAX_ROWS:
        return "too many rows"
    if all(cell is None or cell == 0 for row in rows for cell in row):
        return "nothing but zeros and NULLs"
    if isinstance(tree, exp.Select) and not tree.args.get("distinct") and len(set(rows)) < len(rows):
        return "duplicate rows: the question does not say whether to keep them"
    return None


def _bare_column(tree: Node) -> str | None:
    """A column of an aggregating SELECT that is neither grouped nor aggregated: SQLite picks an arbitrary row's value."""
    for select in tree.find_all(exp.Select):
        group = select.args.get("group")
        own = [part for part in (*select.expressions, select.args.get("having"), select.args.get("order")) if part]
        if not group and not any(_is_aggregate(node) for part in own for node in _own_nodes(part)):
            continue
        grouped = {item.sql() for item in group.expressions} if group else set()
        aliases = {item.alias for item in select.expressions if item.alias}
        for column in (found for part in own for found in _ungrouped_columns(part, grouped)):
            if column.table or column.name not in aliases:
                return f"bare column {column.sql()}"
    return None


def _ungrouped_columns(part: Node, grouped: set[str]) -> Iterator[exp.Column]:
    if part.sql() in grouped or _is_aggregate(part) or isinstance(part, exp.Subquery | exp.Select):
        return
    if isinstance(part, exp.Column):
        yield part
    for child in part.iter_expressions():
        yield from _ungrouped_columns(child, grouped)


def _own_nodes(part: Node) -> Iterator[Node]:
    """The nodes of ``part`` without those of nested queries."""
    if isinstance(part, exp.Subquery | exp.Select):
        return
    yield part
    for child in part.iter_expressions():
        yield from _own_nodes(child)


def _is_aggregate(node: Node) -> bool:
    return isinstance(node, exp.AggFunc) and not isinstance(node.parent, exp.Window)


def _tie(connection: sqlite3.Connection, tree: Node) -> str | None:
    """An ORDER BY with ties, at the top level or with a LIMIT, where the order of rows matters."""
    for query in tree.find_all(exp.Select, exp.SetOperation):
        order = query.args.get("order")
        if not order or not (query is tree or query.args.get("limit")):
            continue
        if not isinstance(query, exp.Select):
            return "an ordered set operation: its ties are not checked"
        keys = [_resolved(item.this, query) for item in order.expressions]
        decided = _decided_rows(query)
        rows = connection.execute(_keyed(query, keys).sql(dialect="sqlite")).fetchall()
        values = [row[-len(keys) :] for row in rows[:decided]]
        if any(cell is None for row in values[:decided] for cell in row):
            return "a NULL among the ordered"
        if any(_is_same(first, second) for first, second in pairwise(values)):
            return "a tie in the order"
    return None


def _decided_rows(query: exp.Select) -> int | None:
    """Number of leading rows that the order must distinguish: all (None), or one more than are kept."""
    limit, offset = query.args.get("limit"), query.args.get("offset")
    if limit is None:
        return None
    return int(limit.expression.name) + (int(offset.expression.name) if offset else 0) + 1


def _resolved(key: Node, query: exp.Select) -> Node:
    """The expression that an alias in ORDER BY refers to."""
    if isinstance(key, exp.Column) and not key.table:
        for item in query.expressions:
            if isinstance(item, exp.Alias) and item.alias == key.name:
                meant: Node = item.this
                return meant
    return key


def _keyed(query: exp.Select, keys: Sequence[Node]) -> Node:
    """The query without its limit, with the ORDER BY keys as additional last columns."""
    keyed = query.copy()
    keyed.set("limit", None)
    keyed.set("offset", None)
    for key in keys:
        keyed.append("expressions", key.copy())
    return keyed


def _is_same(first: Sequence[Any], second: Sequence[Any]) -> bool:
    return all(_is_near(a, b) for a, b in zip(first, second, strict=True))


def _is_near(a: Any, b: Any) -> bool:
    if isinstance(a, int | float) and isinstance(b, int | float):
        return abs(a - b) <= _NEARLY
    return bool(a == b)
