"""A tiny shop database with enough questions to split."""

import json
import sqlite3

import pytest

QUESTIONS = [
    *((f"How many items cost more than {p}?", f"SELECT count(*) FROM item WHERE price > {p}") for p in range(10)),
    *((f"Names of {k} items by price", f"SELECT name FROM item WHERE kind = '{k}' ORDER BY price") for k in "abc"),
    *((f"Mean price of kind {k}", f"SELECT avg(price) FROM item WHERE kind = '{k}'") for k in "abc"),
    *((f"The {n} dearest items", f"SELECT name, price FROM item ORDER BY price DESC LIMIT {n}") for n in range(1, 9)),
]


def shop_in(folder):
    """Writes ``data/`` there; the folder."""
    (folder / "data" / "databases").mkdir(parents=True)
    database = sqlite3.connect(folder / "data" / "databases" / "shop.sqlite")
    with database:
        database.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, kind TEXT, price REAL)")
        rows = [(f"item{i}", "abc"[i % 3], (i * 7 % 13) + i / 100) for i in range(40)]
        database.executemany("INSERT INTO item (name, kind, price) VALUES (?, ?, ?)", rows)
    database.close()
    lines = (
        json.dumps({"question_id": f"q{i}", "db_id": "shop", "question": question, "gold_sql": sql})
        for i, (question, sql) in enumerate(QUESTIONS)
    )
    (folder / "data" / "questions.jsonl").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="session")
def make_shop():
    return shop_in


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """The working folder, with ``data/`` in it."""
    monkeypatch.chdir(tmp_path)
    return shop_in(tmp_path)
