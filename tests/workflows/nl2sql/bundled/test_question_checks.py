"""What makes a query unfit as a gold query, and how questions and rows are drawn."""

import sqlite3
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vinelm.workflows.nl2sql.bundled.build import SEED, write_database
from vinelm.workflows.nl2sql.bundled.domain import Domain, ask
from vinelm.workflows.nl2sql.bundled.domains.registry import DOMAINS
from vinelm.workflows.nl2sql.bundled.question_checks import MAX_ROWS, fault_of
from vinelm.workflows.nl2sql.bundled.questions import questions_of
from vinelm.workflows.nl2sql.bundled.seeded_random import Dice, later


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


def make(connection, *kinds):
    return questions_of(Domain("shop", "", lambda dice: {}, kinds), connection, SEED)


def test_wordings_take_turns_and_no_value_is_asked_for_twice(shop):
    kind = ask(["How many {k}?", "Count {k}."], "SELECT COUNT(*) FROM item WHERE kind = '{k}'", k=("As|a", "Bs|b", "Ds|d"))
    questions = sorted(make(shop, kind), key=lambda question: question.text)
    assert [question.text[:5] for question in questions] == ["Count", "How m"]
    assert {question.gold_sql[-3:] for question in questions} == {"'a'", "'b'"}  # there is no d


def test_only_sound_questions_are_made(shop):
    kind = ask("The dearest {k}?", "SELECT id FROM item ORDER BY price DESC LIMIT {k}", k=("one|1", "two|2"), times=2)
    assert [question.text for question in make(shop, kind, ask("Kinds?", "SELECT kind FROM item"))] == ["The dearest one?"]


@pytest.mark.parametrize("domain", DOMAINS, ids=lambda domain: domain.db_id)
def test_every_kind_of_question_gives_as_many_as_it_should(domain):
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        write_database(connection, domain)
        assert len(questions_of(domain, connection, SEED)) == sum(kind.times for kind in domain.asks)


@given(st.text(), st.integers(-50, 50), st.integers(0, 100))
def test_draws_stay_within_their_bounds(seed, low, width):
    dice = Dice(seed)
    for draw in (dice.between, dice.bell, dice.heavy):
        assert low <= draw(low, low + width) <= low + width
    assert dice.skewed(range(low, low + width + 1)) in range(low, low + width + 1)
    assert low <= dice.cents(low, low + width) <= low + width + 1
    assert sorted(dice.shuffled(range(width))) == list(range(width))
    assert len(set(dice.sample(range(width), 7))) == min(7, width)
    assert "2023-01-30" <= dice.day("2023-01-30", "2023-02-02") <= "2023-02-02"


def test_draws_are_the_same_for_ever():
    dice = Dice("vinelm")
    drawn = [
        dice.below(100),
        dice.bell(0, 100),
        dice.heavy(0, 100),
        dice.skewed("abcdefghij"),
        dice.day("2020-01-01", "2020-12-31"),
    ]
    assert drawn == [89, 84, 52, "i", "2020-04-12"]
    assert later("2024-02-28", 2) == "2024-03-01"
