"""The bundled databases and questions: many, unlike, sound and cheap."""

import re
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from datetime import date

import pytest
import sqlglot
from kit.gold_queries import fault_of
from sqlglot import exp

from vinelm.workflows.nl2sql.bundled import bundled_dataset
from vinelm.workflows.nl2sql.bundled.cache import DATA
from vinelm.workflows.nl2sql.result_comparison import orders_rows, same_result
from vinelm.workflows.nl2sql.sql import run_sql

NAMES = sorted(path.stem for path in DATA.glob("*.sql"))
MAX_STEPS = 2_000_000
"""Of SQLite's virtual machine: some 40 ms on a slow core."""


@pytest.fixture(scope="module")
def bundled(tmp_path_factory):
    return bundled_dataset(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module", params=NAMES)
def database(request, bundled):
    return bundled.databases / f"{request.param}.sqlite"


@pytest.fixture
def connection(database):
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as opened:
        yield opened


def asked(bundled, database):
    return [row for row in bundled.questions if row["db_id"] == database.stem]


def tables(connection):
    return [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]


def shape(sql):
    """The query with every name and every literal replaced by one placeholder."""
    tree = sqlglot.parse_one(sql, read="sqlite")
    for identifier in list(tree.find_all(exp.Identifier)):
        identifier.set("this", "x")
    for literal in list(tree.find_all(exp.Literal)):
        literal.replace(exp.Placeholder())
    return tree.sql("sqlite")


def test_databases_are_of_the_size_that_was_asked_for(bundled, database, connection):
    assert len(list(bundled.databases.glob("*.sqlite"))) == len(NAMES) >= 8
    assert 3 <= len(tables(connection)) <= 8
    assert sum(connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0] for table in tables(connection)) >= 2000


def test_foreign_keys_hold(connection):
    links = [link for table in tables(connection) for link in connection.execute(f"PRAGMA foreign_key_list({table})")]
    assert len(links) >= 3
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_databases_have_missing_values_and_real_dates(connection):
    missing, dates = 0, 0
    for table in tables(connection):
        for _, column, kind, *_ in connection.execute(f"PRAGMA table_info({table})").fetchall():
            cells = [cell for (cell,) in connection.execute(f"SELECT {column} FROM {table}")]
            missing += cells.count(None)
            if kind == "DATE":
                dates += sum(date.fromisoformat(cell).isoformat() == cell for cell in cells if cell is not None)
    assert missing > 30
    assert dates > 500


def test_no_column_is_empty_or_constant(connection):
    for table in tables(connection):
        for _, column, *_ in connection.execute(f"PRAGMA table_info({table})").fetchall():
            assert connection.execute(f"SELECT COUNT(DISTINCT {column}) FROM {table}").fetchone()[0] > 1, (table, column)


def test_databases_cannot_be_written_by_accident(database):
    assert database.stat().st_mode & 0o222 == 0


def test_questions_are_many_and_unlike(bundled):
    questions = bundled.questions
    assert len(questions) >= 400
    assert all(set(row) == {"question_id", "db_id", "question", "gold_sql"} for row in questions)
    assert len({row["question_id"] for row in questions}) == len(questions)
    assert len({row["question"] for row in questions}) == len(questions)
    assert len({(row["db_id"], row["gold_sql"]) for row in questions}) == len(questions)
    assert all(re.fullmatch(rf"{row['db_id']}-\d{{3}}", row["question_id"]) for row in questions)
    first_words = Counter(row["question"].split()[0] for row in questions)
    assert len(first_words) >= 20
    assert first_words.most_common(1)[0][1] / len(questions) < 0.35


def test_questions_are_whole_sentences(bundled):
    for row in bundled.questions:
        text = row["question"]
        assert text[0].isupper(), text
        assert text[-1] in ".?", text
        assert not set("{}|") & set(text + row["gold_sql"].replace("||", "")), text


def test_every_value_in_the_query_is_named_by_the_question(bundled):
    """What a text literal compares with must be told, in these words or as a date."""
    for row in bundled.questions:
        for literal in sqlglot.parse_one(row["gold_sql"], read="sqlite").find_all(exp.Literal):
            if literal.is_string and re.fullmatch(r"[A-Za-z].*", literal.name):
                assert literal.name.lower() in row["question"].lower().replace("female", "f"), row


def test_query_shapes_are_many_and_none_prevails(bundled):
    shapes = Counter(shape(row["gold_sql"]) for row in bundled.questions)
    assert len(shapes) >= 200
    assert shapes.most_common(1)[0][1] / len(bundled.questions) <= 0.05


@pytest.mark.parametrize(
    ("feature", "least"),
    [
        (r"\bJOIN\b", 150),
        (r"\bJOIN\b.*\bJOIN\b.*\bJOIN\b", 15),
        (r"\bLEFT JOIN\b", 12),
        (r"\bGROUP BY\b", 120),
        (r"\bHAVING\b", 40),
        (r"\bSELECT\b.*\bSELECT\b", 80),
        (r"\b(UNION|INTERSECT|EXCEPT)\b", 12),
        (r"\bLIMIT\b", 35),
        (r"\b(strftime|julianday)\(|'\d{4}-\d\d", 50),
        (r"\bCASE\b", 8),
        (r"\bEXISTS\b", 10),
        (r"\bWITH\b", 6),
        (r"\bDISTINCT\b", 15),
        (r"\bIS (NOT )?NULL\b", 30),
    ],
)
def test_every_kind_of_sql_is_asked_for(bundled, feature, least):
    assert sum(re.search(feature, row["gold_sql"]) is not None for row in bundled.questions) >= least


def test_every_gold_query_gives_rows(bundled, database):
    for row in asked(bundled, database):
        result = run_sql(database, row["gold_sql"])
        assert result.status == "ok", (row, result.error)
        assert 1 <= len(result.rows) <= 300, row
        assert any(cell not in (None, 0) for found in result.rows for cell in found), row


def test_every_gold_query_has_one_well_defined_answer(bundled, database, connection):
    faults = {row["question_id"]: fault_of(connection, row["gold_sql"]) for row in asked(bundled, database)}
    assert not {name: fault for name, fault in faults.items() if fault is not None}


def test_gold_results_do_not_depend_on_how_sqlite_goes_about_it(bundled, database, tmp_path):
    """The same rows, in the same order where the query orders them, from a copy without indexes that is scanned backwards."""
    copy = tmp_path / "backwards.sqlite"
    shutil.copy(database, copy)
    copy.chmod(0o644)
    with closing(sqlite3.connect(copy)) as backwards:
        for (name,) in backwards.execute("SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL").fetchall():
            backwards.execute(f"DROP INDEX {name}")
        backwards.execute("PRAGMA reverse_unordered_selects = ON")
        for row in asked(bundled, database):
            here, there = run_sql(database, row["gold_sql"]).rows, backwards.execute(row["gold_sql"]).fetchall()
            assert same_result(here, there, is_ordered=orders_rows(row["gold_sql"])), row


def test_gold_queries_are_cheap(bundled, database, connection):
    for row in asked(bundled, database):
        ticks = []
        connection.set_progress_handler(lambda ticks=ticks: ticks.append(1), 10_000)
        connection.execute(row["gold_sql"]).fetchall()
        assert len(ticks) * 10_000 <= MAX_STEPS, row


def test_databases_take_turns_in_the_file(bundled):
    assert {row["db_id"] for row in bundled.questions[: len(NAMES)]} == set(NAMES)
