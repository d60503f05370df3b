"""Makes SQL errors of simulated models: finds the positions in a query for each kind of error, and changes the syntax tree."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from sqlglot import exp

if TYPE_CHECKING:
    Node: TypeAlias = exp.Expr

Schema = Mapping[str, Sequence[str]]
"""The columns of each table, in the order of the database; table names are in lower case."""
Change: TypeAlias = "Callable[[Node], None]"
"""A function that changes one node of a copied syntax tree, in place."""
Site: TypeAlias = "tuple[int, Change]"
"""A possible error: the index of the node in traversal order, and the change to this node."""

_SWAPPED_AGGREGATES: Mapping[type[Node], type[Node]] = {
    exp.Sum: exp.Avg,
    exp.Avg: exp.Sum,
    exp.Max: exp.Min,
    exp.Min: exp.Max,
}


def nodes_of(tree: Node) -> list[Node]:
    """Return all nodes in traversal order, which is the same for a tree and its copy."""
    return list(tree.walk())


def sites(kind: str, tree: Node, schema: Schema) -> tuple[Site, ...]:
    """Return the positions in the query ``tree`` at which an error of the given kind is possible.

    Each position is the index of a node in traversal order, with the change that makes the error. ``schema`` has the columns of
    each table, by table name.
    """
    return tuple(_FINDERS[kind](tree, schema))


def mutated(tree: Node, site: Site) -> Node:
    """Return a copy of the query with the change of ``site`` applied at its position."""
    ordinal, change = site
    copy: Node = tree.copy()
    change(nodes_of(copy)[ordinal])
    return copy


def syntax_error(gold: str, rng: random.Random) -> str:
    """Return the gold query made invalid by a misspelt keyword, a stray comma, an unbalanced parenthesis, or the like."""
    text = gold.strip().rstrip(";").rstrip()
    variants = [f"{text})", f"{text} WHERE (", f"{text} GROUP BY"]
    for pattern, instead in ((r"\bFROM\b", "FORM"), (r"\bFROM\b", ", FROM"), (r"^\s*SELECT\b", "SELCT")):
        variant = re.sub(pattern, instead, text, count=1, flags=re.IGNORECASE)
        if variant != text:
            variants.append(variant)
    return rng.choice(variants)


# Finders yield the places where a kind of error is possible, in traversal order. They do not change the tree.


def _wrong_columns(tree: Node, schema: Schema) -> Iterator[Site]:
    for ordinal, node in enumerate(nodes_of(tree)):
        if isinstance(node, exp.Column) and not _is_joining(node) and _is_reference(node):
            for name in _other_columns(node, tree, schema):
                yield ordinal, _renamed(name)


def _unknown_columns(tree: Node, schema: Schema) -> Iterator[Site]:
    nodes = nodes_of(tree)
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
    for ordinal, node in enumerate(nodes_of(tree)):
        if isinstance(node, exp.Where | exp.Having):
            yield ordinal, _dropped
        elif isinstance(node, exp.And | exp.Or):
            yield ordinal, _keep("this")
            yield ordinal, _keep("expression")


def _wrong_aggregates(tree: Node, schema: Schema) -> Iterator[Site]:
    for ordinal, node in enumerate(nodes_of(tree)):
        if type(node) in _SWAPPED_AGGREGATES:
            yield ordinal, _swap_aggregate
        elif isinstance(node, exp.Count):
            yield from ((ordinal, change) for change in _count_changes(node, tree, schema))
        elif isinstance(node, exp.Group):
            yield ordinal, _dropped


def _wrong_joins(tree: Node, schema: Schema) -> Iterator[Site]:
    for ordinal, node in enumerate(nodes_of(tree)):
        if isinstance(node, exp.Column) and _is_joining(node) and _is_reference(node):
            # a table's first column is usually its key: a join of many rows with many could take forever
            first, second = (*schema.get(_table_of(node, tree) or "", ()), "", "")[:2]
            other = second if first.lower() == node.name.lower() else first
            if other.isidentifier():
                yield ordinal, _renamed(other)


def _wrong_orders(tree: Node, schema: Schema) -> Iterator[Site]:
    for ordinal, node in enumerate(nodes_of(tree)):
        if isinstance(node, exp.Ordered):
            yield ordinal, _reversed
        elif isinstance(node, exp.Limit):
            yield ordinal, _dropped
            yield ordinal, _one_more
        elif isinstance(node, exp.Distinct) and isinstance(node.parent, exp.Select):
            yield ordinal, _dropped


def _wrong_values(tree: Node, schema: Schema) -> Iterator[Site]:
    for ordinal, node in enumerate(nodes_of(tree)):
        is_value = isinstance(node, exp.Literal) or (isinstance(node, exp.Column) and not _is_reference(node))
        if is_value and isinstance(node.parent, exp.Predicate):
            yield ordinal, _another_value
        elif isinstance(node, exp.GT | exp.GTE | exp.LT | exp.LTE):
            yield ordinal, _reversed_comparison


def _is_joining(node: Node) -> bool:
    """Return whether the node is part of a join's condition."""
    join = node.find_ancestor(exp.Join, exp.Select)
    return isinstance(join, exp.Join)


def _is_reference(column: exp.Column) -> bool:
    """Return whether ``column`` is the name of a column, not a text in double quotes, which SQLite treats as a value."""
    identifier = column.this
    return not (isinstance(identifier, exp.Identifier) and identifier.quoted and not column.table)


def _table_of(column: exp.Column, tree: Node) -> str | None:
    """Return the name of the table of ``column`` in the query ``tree``, in lower case; None if it is ambiguous."""
    select = column.find_ancestor(exp.Select)
    tables = [t for t in (select or tree).find_all(exp.Table) if t.find_ancestor(exp.Select) is select]
    if not column.table:
        return tables[0].name.lower() if len(tables) == 1 else None
    for table in tables or tree.find_all(exp.Table):
        if column.table.lower() in (table.alias.lower(), table.name.lower()):
            return table.name.lower()
    return None


def _other_columns(column: exp.Column, tree: Node, schema: Schema) -> list[str]:
    """Return at most four other columns of the table of ``column``; columns that the same SELECT uses come first."""
    select = column.find_ancestor(exp.Select)
    used = [
        node.name
        for node in (select or tree).find_all(exp.Column)
        if node.table.lower() == column.table.lower() and _is_reference(node) and node.find_ancestor(exp.Select) is select
    ]
    columns = schema.get(_table_of(column, tree) or "", ())
    own = {name.lower() for name in columns}
    names = {name.lower(): name for name in (*used, *columns) if name.isidentifier() and (not own or name.lower() in own)}
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
    """Replace a number by another number, or a text by a similar text, usually the same in upper or lower case.

    This is a mistake of a writer who does not know the data.
    """
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


_FINDERS: Mapping[str, Callable[[Node, Schema], Iterator[Site]]] = {
    "wrong_column": _wrong_columns,
    "missing_filter": _missing_filters,
    "wrong_aggregate": _wrong_aggregates,
    "wrong_join": _wrong_joins,
    "wrong_order": _wrong_orders,
    "wrong_value": _wrong_values,
    "unknown_column": _unknown_columns,
}
