"""A small shop dataset, and where the real data lies if it is at hand."""

import json
import os
import sqlite3
from pathlib import Path

import pytest

QUESTIONS = [
    ("q1", "How many customers are there?", "SELECT count(*) FROM customer"),
    ("q2", "Names of customers from Oslo?", "SELECT name FROM customer WHERE city = 'Oslo'"),
    ("q3", "Orders by price, dearest first?", "SELECT id, price FROM orders ORDER BY price DESC"),
    (
        "q4",
        "What did each customer spend?",
        "SELECT c.name, sum(o.price) FROM customer AS c JOIN orders AS o ON o.customer_id = c.id GROUP BY c.name",
    ),
]


def make_shop(path: Path) -> Path:
    """Customers and their orders; some text is not UTF-8, some cells are NULL."""
    connection = sqlite3.connect(path)
    connection.executescript(
        """
        CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT, city TEXT);
        CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER REFERENCES customer (id), price REAL, note TEXT);
        CREATE INDEX by_customer ON orders (customer_id);
        INSERT INTO customer VALUES (1, 'Ann', 'Oslo'), (2, 'Bo', 'Bergen'), (3, 'Cy', NULL), (4, 'Di', 'Oslo');
        INSERT INTO orders VALUES (1, 1, 10.5, 'x'), (2, 1, 4.25, NULL), (3, 2, 99.0, 'y'), (4, 4, 7.0, CAST(x'ff41' AS TEXT));
        """
    )
    connection.close()
    return path


def write_questions(path: Path, questions=QUESTIONS, db_id="shop") -> Path:
    lines = [
        json.dumps({"question_id": q, "db_id": db_id, "question": text, "gold_sql": gold, "gold_ms": 0.1})
        for q, text, gold in questions
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def shop(tmp_path) -> Path:
    """The path of the shop's database."""
    return make_shop(tmp_path / "shop.sqlite")


@pytest.fixture
def folder(tmp_path) -> Path:
    """A dataset folder: questions.jsonl and databases/shop.sqlite."""
    root = tmp_path / "dataset"
    (root / "databases").mkdir(parents=True)
    make_shop(root / "databases" / "shop.sqlite")
    write_questions(root / "questions.jsonl")
    return root


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data; the test is skipped where it is absent."""
    root = Path(os.environ.get("VINELM_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data")
    if not (root / "nl2sql").is_dir():
        pytest.skip("no real data at hand: set VINELM_DATA")
    return root
