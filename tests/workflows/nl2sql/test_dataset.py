import gzip
import json
import pickle
import shutil
import sqlite3
from contextlib import closing

import pytest

from vinelm.errors import DatasetError
from vinelm.requests.workflow import Request
from vinelm.workflows.nl2sql import dataset as module
from vinelm.workflows.nl2sql.databases import Databases
from vinelm.workflows.nl2sql.dataset import Dataset, GoldResults, load_dataset
from vinelm.workflows.nl2sql.sql import run_sql


def rewrite(folder, number, **changes):
    """Change the keys of one line; a value of None drops the key."""
    path = folder / "questions.jsonl"
    lines = path.read_text().splitlines()
    row = {**json.loads(lines[number - 1]), **changes}
    lines[number - 1] = json.dumps({key: value for key, value in row.items() if value is not None})
    path.write_text("\n".join(lines) + "\n")
    return path


def test_requests_from_a_folder_a_file_and_a_gzip(folder):
    data = load_dataset(folder)
    assert [request.id for request in data.requests] == ["q1", "q2", "q3", "q4"]
    assert dict(data.requests[0].data) == {
        "question": "How many customers are there?",
        "db_id": "shop",
        "gold_sql": "SELECT count(*) FROM customer",
    }
    questions = folder / "questions.jsonl"
    assert load_dataset(questions).requests == data.requests
    with gzip.open(folder / "questions.jsonl.gz", "wb") as packed:
        packed.write(questions.read_bytes())
    questions.unlink()
    assert load_dataset(folder).requests == data.requests
    assert load_dataset(folder / "questions.jsonl.gz").source == folder / "questions.jsonl.gz"


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"gold_sql": None}, "the key 'gold_sql' is missing"),
        ({"db_id": None}, "the key 'db_id' is missing"),
        ({"question_id": None}, "the key 'question_id' is missing"),
        ({"question_id": "q1"}, "the id 'q1' repeats line 1"),
        ({"question": 7}, "'question' must be a text that is not empty"),
        ({"gold_sql": "  "}, "'gold_sql' must be a text that is not empty"),
        ({"db_id": "nope"}, "db_id 'nope' has no database: put it at .*nope.sqlite"),
        ({"db_id": "../databases/shop"}, "is not the name of a file in"),
        ({"db_id": ".."}, "has no database|is not the name of a file"),
        ({"gold_sql": "SELECT nope FROM customer"}, "the gold SQL fails: no such column: nope: mend"),
        ({"gold_sql": "DELETE FROM customer"}, "the gold SQL fails: only a statement that reads"),
    ],
)
def test_a_line_at_fault_is_named(folder, changes, complaint):
    path = rewrite(folder, 3, **changes)
    with pytest.raises(DatasetError, match=complaint) as caught:
        load_dataset(folder)
    assert str(caught.value).startswith(f"{path}:3: ")
    assert "\n" not in str(caught.value)


def test_lines_are_counted_with_blank_ones(folder):
    path = rewrite(folder, 3, gold_sql="SELECT nope")
    path.write_text("\n\n" + path.read_text())
    with pytest.raises(DatasetError, match=r"questions\.jsonl:5: the gold SQL fails"):
        load_dataset(folder)


def test_a_malformed_line_in_a_gzip(folder):
    text = (folder / "questions.jsonl").read_text() + "{oops\n"
    (folder / "questions.jsonl").unlink()
    with gzip.open(folder / "questions.jsonl.gz", "wt") as packed:
        packed.write(text)
    with pytest.raises(DatasetError, match=r"questions\.jsonl\.gz:5: not valid JSON"):
        load_dataset(folder)


def test_files_that_are_missing_or_something_else(folder, tmp_path):
    with pytest.raises(DatasetError, match=r"no questions\.jsonl or questions\.jsonl\.gz"):
        load_dataset(tmp_path)
    with pytest.raises(DatasetError, match=r"none\.jsonl: cannot read the dataset"):
        load_dataset(tmp_path / "none.jsonl")
    (folder / "databases" / "shop.sqlite").write_text("question,answer\n")
    with pytest.raises(DatasetError, match=r"shop\.sqlite: not a SQLite database"):
        load_dataset(folder)
    shutil.rmtree(folder / "databases")
    with pytest.raises(DatasetError, match="databases: no such folder"):
        load_dataset(folder)


def test_without_validation_a_failing_gold_query_shows_on_use(folder):
    rewrite(folder, 2, gold_sql="SELECT nope")
    data = load_dataset(folder, validate=False)
    gold = GoldResults(data)
    assert gold.of(data.requests[0]).rows == ((4,),)
    with pytest.raises(DatasetError, match=r":2: the gold SQL fails"):
        gold.of(data.requests[1])


def test_a_gold_result_beyond_the_row_cap_is_refused(folder, monkeypatch):
    monkeypatch.setattr(module, "GOLD_MAX_ROWS", 3)
    with pytest.raises(DatasetError, match=r":3: the gold SQL gives more than 3 rows"):
        load_dataset(folder)


def test_each_gold_query_runs_once(folder, monkeypatch):
    data = load_dataset(folder, validate=False)
    ran = []
    monkeypatch.setattr(module, "run_sql", lambda path, sql, **caps: ran.append(sql) or run_sql(path, sql, **caps))
    gold = GoldResults(data)
    for _ in range(3):
        assert [len(gold.of(request).rows) for request in data.requests] == [1, 2, 4, 3]
    assert ran == [request.data["gold_sql"] for request in data.requests]
    assert [gold.of(request).is_ordered for request in data.requests] == [False, False, True, False]


def test_right_by_execution(folder):
    data = load_dataset(folder)
    gold = GoldResults(data)

    def is_right(number, sql, **caps):
        return gold.is_right(data.requests[number], run_sql(data.databases.path("shop"), sql, **caps))

    assert is_right(0, "SELECT 4.0")
    assert not is_right(0, "SELECT 5")
    assert not is_right(0, "SELECT nope")
    assert is_right(1, "SELECT name FROM customer WHERE city LIKE 'oslo' ORDER BY name DESC")
    assert is_right(2, "SELECT price, id FROM orders ORDER BY price DESC")
    assert not is_right(2, "SELECT price, id FROM orders ORDER BY price")
    assert not is_right(2, "SELECT price, id FROM orders ORDER BY price DESC", max_rows=3)


def test_a_request_without_a_file_is_named_by_its_id(folder):
    request = Request("r7", {"db_id": "shop", "question": "?", "gold_sql": "SELEC"})
    gold = GoldResults(Dataset((request,), Databases(folder / "databases")))
    with pytest.raises(DatasetError, match=r"^request 'r7': the gold SQL fails"):
        gold.of(request)


def test_the_real_data_loads_with_its_counts(real_data):
    data = load_dataset(real_data / "nl2sql")
    gold = GoldResults(data)
    with gzip.open(real_data / "nl2sql" / "questions.jsonl.gz", "rt") as lines:
        counts = {row["question_id"]: row["gold_rows"] for row in map(json.loads, lines)}
    assert len(data.requests) == 508
    assert {request.id: len(gold.of(request).rows) for request in data.requests} == counts
    assert all("CREATE TABLE" in data.databases.schema_text(db) for db in {r.data["db_id"] for r in data.requests})


def test_results_are_remembered_within_bounds(folder, monkeypatch):
    databases = Databases(folder / "databases")
    first = databases.recall("shop", "SELECT random()")
    assert databases.recall("shop", "SELECT random()") is first
    assert databases.run("shop", "SELECT random()").rows != first.rows  # run executes now
    monkeypatch.setattr("vinelm.workflows.nl2sql.databases.MEMO_CELLS", 50)
    kept = databases.recall("shop", "SELECT random(), 2")
    databases.recall("shop", "SELECT 3")
    assert databases.recall("shop", "SELECT random(), 2") is kept
    databases.recall("shop", "SELECT 4")
    assert databases.recall("shop", "SELECT random(), 2") is kept  # the least recently used one went
    databases.recall("shop", "SELECT * FROM customer")
    assert databases.recall("shop", "SELECT random(), 2") is not kept


def test_databases_travel_to_another_process_without_their_memory(folder):
    databases = Databases(folder / "databases")
    kept = databases.recall("shop", "SELECT random()")
    twin = pickle.loads(pickle.dumps(databases))  # noqa: S301 - ours, in memory
    assert twin.folder == databases.folder
    assert twin.recall("shop", "SELECT random()").rows != kept.rows


def test_schema_text_has_keys_views_and_odd_names(tmp_path):
    connection = sqlite3.connect(tmp_path / "odd.sqlite")
    connection.executescript(
        """
        CREATE TABLE "order line" (a INT, "b ""c" TEXT NOT NULL, PRIMARY KEY ("b ""c", a));
        CREATE TABLE part (id INTEGER PRIMARY KEY AUTOINCREMENT, x INT, y TEXT, z INT REFERENCES part,
            FOREIGN KEY (y, x) REFERENCES "order line" ("b ""c", a));
        CREATE VIEW v AS SELECT id FROM part;
        INSERT INTO part (x) VALUES (1);
        """
    )
    connection.close()
    assert Databases(tmp_path).schema_text("odd").splitlines() == [
        'CREATE TABLE "order line" (a INT, "b ""c" TEXT, PRIMARY KEY ("b ""c", a));',
        "CREATE TABLE part (id INTEGER PRIMARY KEY, x INT, y TEXT, z INT, FOREIGN KEY (z) REFERENCES part, "
        'FOREIGN KEY (y, x) REFERENCES "order line" ("b ""c", a));',
        "CREATE TABLE v (id INTEGER);",
    ]


def test_digests_change_with_the_file(folder):
    databases = Databases(folder / "databases")
    before = databases.digests(["shop", "shop"])
    assert list(before) == ["database:shop"]
    with closing(sqlite3.connect(folder / "databases" / "shop.sqlite")) as connection, connection:
        connection.execute("DELETE FROM orders WHERE id = 1")
    connection.close()
    assert databases.digests(["shop"]) != before
