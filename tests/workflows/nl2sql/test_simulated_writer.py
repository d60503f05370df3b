import random
import sqlite3

import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp

from vinelm.errors import DatasetError
from vinelm.requests.workflow import Request
from vinelm.workflows.nl2sql.simulated_writer import ERROR_KINDS, SqlWriter, read_schema

GOLD = (
    "SELECT count(*) FROM singer",
    'SELECT name FROM singer WHERE country = "France";',
    "SELECT name FROM singer WHERE age > 20 AND country = 'France'",
    "SELECT country, avg(age) FROM singer GROUP BY country HAVING count(*) > 1",
    "SELECT T1.name, T2.title FROM singer AS T1 JOIN song AS T2 ON T1.id = T2.singer_id WHERE T2.sold > 5",
    "SELECT name FROM singer WHERE id NOT IN (SELECT singer_id FROM song)",
    "SELECT name FROM singer WHERE age > 40 UNION SELECT name FROM singer WHERE country = 'Peru'",
    "SELECT DISTINCT country FROM singer ORDER BY country DESC LIMIT 2",
    "SELECT name FROM singer WHERE strftime('%Y', born) = '1980'",
    "SELECT max(sold), count(DISTINCT singer_id) FROM song WHERE released >= '2001-05-04'",
    "WITH big AS (SELECT singer_id FROM song WHERE sold > 3) SELECT count(*) FROM big",
)
APPLIES = {
    "wrong_column": "SELECT name FROM singer WHERE age > 20",
    "missing_filter": "SELECT name FROM singer WHERE age > 20 AND country = 'France'",
    "wrong_aggregate": "SELECT max(age) FROM singer",
    "wrong_join": "SELECT T2.title FROM singer AS T1 JOIN song AS T2 ON T1.id = T2.singer_id",
    "wrong_order": "SELECT name FROM singer ORDER BY age LIMIT 3",
    "wrong_value": "SELECT name FROM singer WHERE country = 'France'",
    "unknown_column": "SELECT name FROM singer",
}


def request(gold, db_id="music"):
    return Request("q1", {"question": "?", "db_id": db_id, "gold_sql": gold})


def parsed(sql):
    return sqlglot.parse_one(sql, read="sqlite")


@pytest.fixture(scope="module")
def databases(tmp_path_factory):
    folder = tmp_path_factory.mktemp("databases")
    db = sqlite3.connect(folder / "music.sqlite")
    db.execute("CREATE TABLE singer (id INTEGER PRIMARY KEY, name TEXT, country TEXT, age INTEGER, born TEXT)")
    db.execute("CREATE TABLE song (id INTEGER PRIMARY KEY, singer_id INTEGER, title TEXT, sold INTEGER, released TEXT)")
    rows = [(i, f"n{i}", ("France", "Peru", "Chad")[i % 3], 18 + i * 7 % 40, f"19{70 + i}-01-02") for i in range(1, 21)]
    db.executemany("INSERT INTO singer VALUES (?, ?, ?, ?, ?)", rows)
    songs = [(i, 1 + i * 3 % 20, f"t{i}", i * 5 % 17, f"200{i % 10}-05-04") for i in range(1, 61)]
    db.executemany("INSERT INTO song VALUES (?, ?, ?, ?, ?)", songs)
    db.commit()
    db.close()
    return folder


@pytest.fixture(scope="module")
def db(databases):
    connection = sqlite3.connect(databases / "music.sqlite")
    yield connection
    connection.close()


@pytest.mark.parametrize("gold", GOLD)
def test_right_gives_the_gold_rows(gold, db):
    texts = {SqlWriter().right(request(gold), random.Random(seed)) for seed in range(20)}
    assert len(texts) == 3
    for text in texts:
        assert db.execute(text).fetchall() == db.execute(gold).fetchall()


@pytest.mark.parametrize("kind", ERROR_KINDS)
@pytest.mark.parametrize("gold", GOLD)
@pytest.mark.parametrize("with_schema", [True, False])
def test_wrong_differs_and_fails_only_as_its_kind_says(gold, kind, with_schema, databases, db):
    writer = SqlWriter(databases if with_schema else None)
    for seed in range(8):
        text = writer.wrong(request(gold), kind, random.Random(seed))
        assert text == SqlWriter(databases if with_schema else None).wrong(request(gold), kind, random.Random(seed))
        if kind == "syntax_error":
            with pytest.raises(sqlite3.OperationalError, match=r"syntax error|incomplete input"):
                db.execute(text)
        elif kind == "unknown_column":
            with pytest.raises(sqlite3.OperationalError, match=r"no such (column|table)"):
                db.execute(text)
        else:
            assert parsed(text) != parsed(gold)
            if with_schema:
                db.execute(text).fetchall()


def test_mutations_usually_change_the_rows(databases, db):
    writer, changed, total = SqlWriter(databases), 0, 0
    for gold in GOLD:
        for kind in ERROR_KINDS[:6]:
            for seed in range(5):
                total += 1
                text = writer.wrong(request(gold), kind, random.Random(seed))
                changed += sorted(map(repr, db.execute(text))) != sorted(map(repr, db.execute(gold)))
    assert changed / total > 0.75


@pytest.mark.parametrize(("kind", "gold"), APPLIES.items())
def test_each_kind_makes_its_own_error(kind, gold, databases):
    texts = [SqlWriter(databases).wrong(request(gold), kind, random.Random(seed)) for seed in range(12)]
    before = parsed(gold)

    def parts(tree, *types):
        return sorted(node.sql() for node in tree.find_all(*types))

    for tree in map(parsed, texts):
        if kind in ("wrong_column", "unknown_column"):
            assert parts(tree, exp.Column, exp.Table) != parts(before, exp.Column, exp.Table)
        elif kind == "missing_filter":
            assert len(parts(tree, exp.Predicate)) < len(parts(before, exp.Predicate))
        elif kind == "wrong_aggregate":
            assert parts(tree, exp.AggFunc) != parts(before, exp.AggFunc)
        elif kind == "wrong_join":
            assert parts(tree, exp.Join) != parts(before, exp.Join)
        elif kind == "wrong_order":
            assert parts(tree, exp.Order, exp.Limit) != parts(before, exp.Order, exp.Limit)
        else:
            assert parts(tree, exp.Literal) != parts(before, exp.Literal)


def test_a_text_in_double_quotes_is_a_value(databases):
    texts = {SqlWriter(databases).wrong(request(GOLD[1]), "wrong_value", random.Random(seed)) for seed in range(9)}
    assert texts == {"SELECT name FROM singer WHERE country = 'FRANCE'"}


@pytest.mark.parametrize(
    ("gold", "least"),
    [
        (GOLD[0], {"aggregation": 0.1}),
        (GOLD[3], {"aggregation": 0.9}),
        (GOLD[4], {"joins": 0.3, "filters": 0.3}),
        (GOLD[5], {"nesting": 0.5}),
        (GOLD[6], {"nesting": 0.5}),
        (GOLD[8], {"dates": 1.0}),
        (GOLD[9], {"dates": 1.0}),
    ],
)
def test_skills_follow_the_querys_structure(gold, least):
    skills = SqlWriter().skills(request(gold))
    assert all(0.0 <= value <= 1.0 for value in skills.values())
    assert all(skills[name] >= value for name, value in least.items())
    assert SqlWriter().skills(request("SELECT name FROM singer")) == dict.fromkeys(skills, 0.0)


@given(st.sampled_from(GOLD), st.sampled_from(ERROR_KINDS), st.integers(0, 2**32))
def test_the_generators_state_decides_all(gold, kind, seed):
    one, two = SqlWriter(), SqlWriter()
    two.wrong(request(gold), kind, random.Random(0))
    assert one.wrong(request(gold), kind, random.Random(seed)) == two.wrong(request(gold), kind, random.Random(seed))


def test_reads_the_schema(databases):
    schema = read_schema(databases / "music.sqlite")
    assert list(schema) == ["singer", "song"]
    assert schema["song"] == ["id", "singer_id", "title", "sold", "released"]


def test_bad_input_names_the_request_and_not_the_query(tmp_path):
    with pytest.raises(DatasetError, match="request 'q1': the row has no 'gold_sql'"):
        SqlWriter().skills(Request("q1", {}))
    with pytest.raises(DatasetError, match=r"request 'q1': gold_sql cannot be parsed") as caught:
        SqlWriter().right(request("SELECT FROM WHERE secret ("), random.Random(0))
    assert "secret" not in str(caught.value)
    with pytest.raises(DatasetError, match=r"none\.sqlite"):
        SqlWriter(tmp_path).wrong(request(GOLD[0], "none"), "wrong_column", random.Random(0))
