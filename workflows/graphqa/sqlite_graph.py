"""Reads the nodes and edges of a SQLite database: its rows, and the foreign keys between them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from vinelm.errors import DatasetError
from vinelm.workflows.graphqa.node import Node, plain

_NAMED = ("name", "title")


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of a database.

    Attributes:
        name: the table's name.
        columns: the type of each column, by column name.
        key: the columns of the primary key.
        links: the foreign keys, each as (column, referenced table, referenced column).
    """

    name: str
    columns: dict[str, str]
    key: tuple[str, ...]
    links: tuple[tuple[str, str, str], ...]


def read_sqlite(path: Path) -> tuple[list[Node], list[tuple[str, str, str]]]:
    """Return the nodes and edges of a database, which is opened read-only and read into memory.

    Foreign keys of several columns, and those that point to no row, are left out.

    Raises:
        DatasetError: The file cannot be read, or no foreign key can be used.
    """
    if not path.is_file():
        raise DatasetError(f"{path}: no such file: name a SQLite database")
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
            tables = {table.name.lower(): table for table in _tables(connection)}
            if not any(table.links for table in tables.values()):
                raise DatasetError(
                    f"{path}: the database declares no foreign keys, which would be its edges: declare some, or use from_tables"
                )
            return _graph(connection, tables)
    except sqlite3.Error as error:
        raise DatasetError(f"{path}: cannot read the database: {error}: name a SQLite database") from error


def _graph(connection: sqlite3.Connection, tables: dict[str, _Table]) -> tuple[list[Node], list[tuple[str, str, str]]]:
    nodes: list[Node] = []
    by_value: dict[tuple[str, str], dict[Any, str]] = {
        (target.lower(), column.lower()): {} for table in tables.values() for _, target, column in table.links
    }
    rows: list[tuple[_Table, str, dict[str, Any]]] = []
    for table in tables.values():
        keyed = list(_keyed(connection, table))
        naming = _naming(table, [row for _, row in keyed])
        for key, row in keyed:
            nodes.append(_node(table, key, row, naming))
            rows.append((table, key, row))
            for column, value in row.items():
                known = by_value.get((table.name.lower(), column.lower()))
                if known is not None and value is not None:
                    known.setdefault(value, key)
    edges = []
    for table, key, row in rows:
        for column, target, other in table.links:
            end = by_value[target.lower(), other.lower()].get(row[column])
            if end is not None:
                edges.append((key, f"{table.name}-{column}-{tables[target.lower()].name}", end))
    return nodes, edges


def _tables(connection: sqlite3.Connection) -> Iterator[_Table]:
    names = [
        name for (name,) in connection.execute("SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table'")
    ]
    names = sorted(name for name in names if not name.startswith("sqlite_"))
    keys: dict[str, tuple[str, ...]] = {}
    columns: dict[str, dict[str, str]] = {}
    for name in names:
        found = connection.execute("SELECT name, type, pk FROM pragma_table_info(?)", (name,)).fetchall()
        columns[name.lower()] = {column: str(kind).upper() for column, kind, _ in found}
        keys[name.lower()] = tuple(column for rank, column in sorted((pk, column) for column, _, pk in found if pk) if rank)
    for name in names:
        yield _Table(name, columns[name.lower()], keys[name.lower()], _links(connection, name, columns, keys))


def _links(
    connection: sqlite3.Connection, name: str, columns: dict[str, dict[str, str]], keys: dict[str, tuple[str, ...]]
) -> tuple[tuple[str, str, str], ...]:
    found = connection.execute('SELECT id, "table", "from", "to" FROM pragma_foreign_key_list(?) ORDER BY id, seq', (name,))
    by_id: dict[int, list[tuple[str, str, str | None]]] = {}
    for number, target, own, other in found:
        by_id.setdefault(number, []).append((own, target, other))
    own_names = {column.lower(): column for column in columns[name.lower()]}
    links = []
    for parts in by_id.values():
        own, target, other = parts[0]
        key = keys.get(target.lower(), ())
        column = other if other is not None else (key[0] if len(key) == 1 else None)
        if len(parts) == 1 and column is not None and own.lower() in own_names and target.lower() in columns:
            links.append((own_names[own.lower()], target, column))
    return tuple(sorted(links))


def _keyed(connection: sqlite3.Connection, table: _Table) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (node id, row) for each row of a table. The id consists of the table and the primary key, or the row number."""
    quoted = table.name.replace('"', '""')
    cursor = connection.execute(f'SELECT * FROM "{quoted}"')  # noqa: S608 - a name from the schema, quoted
    names = [column[0] for column in cursor.description]
    seen: set[str] = set()
    for number, values in enumerate(cursor, start=1):
        row = dict(zip(names, values, strict=True))
        key = f"{table.name}:{'/'.join(str(plain(row[column])) for column in table.key) or number}"
        if key in seen:  # a declared key that is NULL or a shortened text
            key = f"{key}#{number}"
        seen.add(key)
        yield key, row


def _naming(table: _Table, rows: list[dict[str, Any]]) -> list[str]:
    """Return the columns whose values are used as the name of a row; empty if there are none.

    They are first and last name, else a column for a name or title, else the first text column with unique values.
    """
    linked = {column for column, _, _ in table.links}
    own = [column for column in table.columns if column not in linked]
    full = [column for column in own if column.lower() in ("first_name", "last_name")]
    named = [column for column in own if column.lower() in _NAMED] or [c for c in own if c.lower().endswith(_NAMED)]
    texts = [column for column in own if "CHAR" in table.columns[column] or "TEXT" in table.columns[column]]
    distinct = (column for column in texts if len({row[column] for row in rows}) == len(rows))
    return full if len(full) == 2 else named[:1] or list(islice(distinct, 1))


def _node(table: _Table, key: str, row: dict[str, Any], naming: list[str]) -> Node:
    linked = {column for column, _, _ in table.links}
    name = " ".join(str(plain(row[column])) for column in naming if row[column] is not None)
    features = {column: plain(value) for column, value in row.items() if column not in linked and column.lower() != "name"}
    return Node(key, table.name, name or key, features)
