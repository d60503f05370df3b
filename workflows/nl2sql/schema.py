"""Renders the schema of a database as text for prompts."""

from __future__ import annotations

import re
import sqlite3
from itertools import groupby
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def read_schema(connection: sqlite3.Connection) -> str:
    """Return one ``CREATE TABLE`` line per table or view, in order of creation, with types, primary and foreign keys."""
    names = connection.execute(
        "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT GLOB 'sqlite_*' ORDER BY rowid"
    )
    return "\n".join(_table(connection, name) for (name,) in names.fetchall())


def _table(connection: sqlite3.Connection, table: str) -> str:
    # columns: cid, name, type, notnull, default, rank in the primary key (0: none)
    columns = connection.execute("SELECT * FROM pragma_table_info(?)", (table,)).fetchall()
    # foreign keys: id, seq, table, from, to, ...
    links = connection.execute("SELECT * FROM pragma_foreign_key_list(?) ORDER BY id DESC, seq", (table,)).fetchall()
    key = [name for _, name in sorted((column[5], column[1]) for column in columns if column[5])]
    parts = [
        " ".join(filter(None, [_name(column[1]), column[2], "PRIMARY KEY" if key == [column[1]] else ""])) for column in columns
    ]
    if len(key) > 1:
        parts.append(f"PRIMARY KEY ({_names(key)})")
    parts.extend(_foreign_key(list(group)) for _, group in groupby(links, key=lambda link: int(link[0])))
    return f"CREATE TABLE {_name(table)} ({', '.join(parts)});"


def _foreign_key(links: list[Any]) -> str:
    target = _name(links[0][2])
    columns = [link[4] for link in links if link[4] is not None]  # None: the target's primary key
    return (
        f"FOREIGN KEY ({_names([link[3] for link in links])}) REFERENCES {target}{f' ({_names(columns)})' if columns else ''}"
    )


def _names(names: list[str]) -> str:
    return ", ".join(map(_name, names))


def _name(name: str) -> str:
    if _PLAIN.fullmatch(name):
        return name
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
