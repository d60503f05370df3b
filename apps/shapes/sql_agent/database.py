"""A small database of orders in memory, and the tools that read it."""

import random
import sqlite3

from langchain_core.tools import tool

TOWNS = ("Arnfeld", "Belloch", "Corvale", "Dunmere")
ITEMS = ("lamp", "desk", "chair", "rug", "clock")


def rows():
    rng = random.Random(11)
    return [(n, rng.choice(TOWNS), rng.choice(ITEMS), rng.randrange(1, 9), rng.randrange(2020, 2026)) for n in range(300)]


ROWS = rows()


def connect():
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE orders (id INTEGER, town TEXT, item TEXT, pieces INTEGER, year INTEGER)")
    connection.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?)", ROWS)
    connection.execute("PRAGMA query_only = 1")
    return connection


@tool("sql_db_list_tables")
def list_tables_tool() -> str:
    """List the tables."""
    return "orders"


@tool("sql_db_schema")
def schema_tool(table_names: str) -> str:
    """The schema of these tables, separated by commas."""
    if "orders" not in table_names:
        return f"Error: no table {table_names}"
    return "CREATE TABLE orders (id INTEGER, town TEXT, item TEXT, pieces INTEGER, year INTEGER)"


@tool("sql_db_query")
def run_query_tool(query: str) -> str:
    """Execute a query and return its result."""
    connection = connect()
    try:
        return str(connection.execute(query).fetchall())
    except sqlite3.Error as error:
        return f"Error: {error}"
    finally:
        connection.close()
