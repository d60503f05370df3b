"""What makes a query unfit as a gold query."""

import sqlite3
from contextlib import closing

import pytest
from kit.gold_queries import MAX_ROWS, fault_of


@pytest.fixture
def shop():
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(
            """
            CREATE TABLE item (id INTEGER PRIMARY KEY, kind TEXT, price REAL, stock INTEGER);
            INSERT INTO item VALUES (1, 'a', 5.0, 1), (2, 'a', 7.0, 0), (3, 'b', 7.0, 4), (4, 'b', 9.0, NULL), (5, 'c', 1.0, 2);
            """
        )
        yield connection


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) FROM item",
        "SELECT DISTINCT kind FROM item",
        "SELECT id FROM item ORDER BY price DESC LIMIT 1",
        "SELECT id, price AS p FROM item ORDER BY p DESC, id LIMIT 2",
        "SELECT kind, COUNT(*) FROM item GROUP BY kind",
        "SELECT kind, COUNT(*) AS n FROM item WHERE id < 4 GROUP BY kind ORDER BY n DESC",
        "SELECT kind, RANK() OVER (ORDER BY SUM(price)) FROM item GROUP BY kind",
        "SELECT id / 2 * 2, COUNT(*) FROM item GROUP BY id / 2 * 2",
        "WITH dear AS (SELECT id, price FROM item WHERE price > 6) SELECT id FROM dear ORDER BY price DESC LIMIT 1",
        "SELECT kind FROM item UNION SELECT kind FROM item",
    ],
)
def test_a_sound_query_has_no_fault(shop, sql):
    assert fault_of(shop, sql) is None


@pytest.mark.parametrize(
    ("sql", "fault"),
    [
        ("SELECT nope FROM item", "no such column"),
        ("SELECT id FROM item WHERE id > 9", "no rows"),
        ("SELECT SUM(price) FROM item WHERE id > 9", "nothing but zeros"),
        ("SELECT COUNT(*) FROM item WHERE id > 9", "nothing but zeros"),
        ("SELECT kind FROM item", "duplicate rows"),
        ("SELECT kind, price FROM item GROUP BY kind", "bare column price"),
        ("SELECT kind, MAX(price) FROM item", "bare column kind"),
        ("SELECT kind, COUNT(*) FROM item GROUP BY kind HAVING price > 2", "bare column price"),
        ("SELECT kind, COUNT(*) FROM item GROUP BY kind ORDER BY price", "bare column price"),
        ("SELECT id FROM item ORDER BY price DESC LIMIT 2", "a tie"),
        ("SELECT id FROM item ORDER BY price", "a tie"),
        ("SELECT id FROM item ORDER BY price LIMIT 1 OFFSET 2", "a tie"),
        ("SELECT kind, COUNT(*) AS n FROM item GROUP BY kind ORDER BY n DESC LIMIT 1", "a tie"),
        ("SELECT COUNT(*) FROM item WHERE id IN (SELECT id FROM item ORDER BY price DESC LIMIT 2)", "a tie"),
        ("SELECT id FROM item ORDER BY stock LIMIT 1", "a NULL"),
        ("SELECT id FROM item UNION SELECT stock FROM item ORDER BY id", "an ordered set operation"),
        (f"SELECT a.id, b.id, c.id, {'d.id'} FROM item a, item b, item c, item d", "too many rows"),
    ],
)
def test_a_fault_is_named(shop, sql, fault):
    assert MAX_ROWS < 5**4
    assert fault in fault_of(shop, sql)


def test_sums_that_differ_only_in_their_last_bits_are_a_tie(shop):
    shop.execute("CREATE TABLE pair (id INTEGER, value REAL)")
    shop.executemany("INSERT INTO pair VALUES (?, ?)", [(1, 0.1 + 0.2), (2, 0.3)])
    assert fault_of(shop, "SELECT id FROM pair ORDER BY value LIMIT 1") == "a tie in the order"
