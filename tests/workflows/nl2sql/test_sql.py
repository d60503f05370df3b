import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pytest

from vinelm.errors import DatasetError
from vinelm.workflows.nl2sql.sql import MAX_RESULT_BYTES, open_reading, run_sql

ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) "
DOUBLING = (
    "WITH c0 AS (SELECT 1 AS x), "
    + ", ".join(f"c{i} AS (SELECT x FROM c{i - 1} UNION SELECT x FROM c{i - 1})" for i in range(1, 16))
    + " SELECT * FROM c15"
)
"""Each level compiles the one below twice: no step runs before the time is over."""


def test_rows_columns_and_none(shop):
    result = run_sql(shop, "SELECT name, city AS town FROM customer ORDER BY id LIMIT 3; -- that is all")
    assert result.status == "ok"
    assert result.columns == ("name", "town")
    assert result.rows == (("Ann", "Oslo"), ("Bo", "Bergen"), ("Cy", None))
    assert result.error is None
    assert not result.is_truncated
    assert result.elapsed_s > 0


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO customer VALUES (9, 'Eve', 'Oslo')",
        "WITH a AS (SELECT 1) DELETE FROM customer",
        "WITH a AS (SELECT 9 AS id) INSERT INTO customer SELECT id, 'Eve', 'Oslo' FROM a RETURNING *",
        "UPDATE customer SET name = 'Eve'",
        "EXPLAIN DELETE FROM customer",
        "DROP TABLE customer",
        "CREATE TABLE t (a)",
        "CREATE TEMP TABLE t (a)",
        "CREATE TEMP VIEW v AS SELECT 1",
        "CREATE VIRTUAL TABLE t USING fts5(a)",
        "PRAGMA user_version",
        "PRAGMA writable_schema = 1",
        "/* harmless */ PRAGMA table_info(customer)",
        "SELECT * FROM pragma_table_info('customer')",
        "SELECT * FROM pragma_database_list",
        "ATTACH ':memory:' AS other",
        "ATTACH DATABASE 'evil.sqlite' AS other",
        "DETACH main",
        "VACUUM",
        "VACUUM INTO 'evil.sqlite'",
        "SELECT load_extension('evil')",
        "SELECT LOAD_EXTENSION('evil', 'entry')",
        "BEGIN",
        "SAVEPOINT s",
        "REINDEX",
        "ANALYZE",
        "SELECT 1; SELECT 2",
        "SELECT 1;;",
        "SELECT 1; DROP TABLE customer",
    ],
)
def test_all_but_reading_is_refused(shop, sql, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    before = shop.read_bytes()
    result = run_sql(shop, sql)
    assert (result.status, result.rows, result.columns) == ("refused", (), ())
    assert "may run" in result.error
    assert shop.read_bytes() == before
    assert os.listdir(tmp_path) == ["shop.sqlite"]


@pytest.mark.parametrize(
    ("sql", "complaint"),
    [
        ("SELEC 1", "syntax error"),
        ("SELECT nope FROM customer", "no such column: nope"),
        ("SELECT * FROM nope", "no such table: nope"),
        ("", "no query"),
        ("-- only a comment", "no query"),
        (" ;", "no query"),
        ("SELECT '\ud800'", "surrogates"),
        ("SELECT 1\0", "null character"),
        ("SELECT randomblob(1e9)", "too big"),
        ("SELECT zeroblob(2000000000)", "too big"),
        ("SELECT replace(hex(zeroblob(40000)), '0', 'ab')", "too big"),
        ("SELECT instr(hex(zeroblob(1900000)), hex(zeroblob(900000)) || '1')", "too big"),
        ("SELECT " + "+".join(["1"] * 5000), "too large"),
        ("SELECT " + "(" * 5000 + "1" + ")" * 5000, "overflow"),
        ("SELECT '" + "x" * 200_000 + "'", "too large"),
        ("SELECT 'a' LIKE '" + "%a" * 500 + "'", "pattern too complex"),
        ("SELECT ?", "binding"),
    ],
)
def test_what_cannot_run_is_an_error_with_its_message(shop, sql, complaint):
    result = run_sql(shop, sql)
    assert result.status == "error"
    assert complaint in result.error
    assert result.rows == ()


@pytest.mark.parametrize(
    "sql",
    [
        ENDLESS + "SELECT count(*) FROM c",
        ENDLESS + "SELECT x FROM c WHERE x < 0",
        ENDLESS + "SELECT randomblob(90000) FROM c ORDER BY 1",
        "SELECT count(*) FROM " + ", ".join(f"orders o{i}" for i in range(40)),
        DOUBLING,
    ],
)
def test_what_takes_too_long_times_out(shop, sql):
    result = run_sql(shop, sql, timeout_s=0.05)
    assert result.status == "timeout"
    assert "too long" in result.error
    assert result.rows == ()


def test_rows_are_capped(shop):
    result = run_sql(shop, ENDLESS + "SELECT x FROM c", max_rows=7)
    assert result.rows == tuple((i,) for i in range(1, 8))
    assert result.is_truncated
    exact = run_sql(shop, ENDLESS + "SELECT x FROM c LIMIT 7", max_rows=7)
    assert (exact.rows, exact.is_truncated) == (result.rows, False)


def test_bytes_are_capped(shop):
    result = run_sql(shop, ENDLESS + "SELECT randomblob(99000) FROM c")
    assert (result.status, result.is_truncated) == ("ok", True)
    assert sum(len(cell) for (cell,) in result.rows) <= MAX_RESULT_BYTES + 2 * 99_000


def test_text_that_is_not_utf8_is_replaced(shop):
    assert run_sql(shop, "SELECT note FROM orders WHERE id = 4").rows == (("\ufffdA",),)
    assert run_sql(shop, "SELECT CAST(x'41ff' AS TEXT) AS a").rows == (("A\ufffd",),)


def test_json_functions_and_the_schema_table_may_be_read(shop):
    assert run_sql(shop, "SELECT value FROM json_each('[1, 2]')").rows == ((1,), (2,))
    assert run_sql(shop, "SELECT name FROM sqlite_master WHERE type = 'table'").rows == (("customer",), ("orders",))


def test_a_database_in_wal_mode_is_read_without_files_beside_it(shop, tmp_path):
    writer = sqlite3.connect(shop)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.close()
    assert run_sql(shop, "SELECT count(*) FROM customer").rows == ((4,),)
    assert os.listdir(tmp_path) == ["shop.sqlite"]


def test_a_live_wal_is_seen(shop):
    writer = sqlite3.connect(shop, isolation_level=None)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("INSERT INTO customer VALUES (5, 'Eve', 'Oslo')")
    assert run_sql(shop, "SELECT count(*) FROM customer").rows == ((5,),)
    writer.close()


def test_a_name_with_uri_characters_is_a_plain_name(shop):
    odd = shop.rename(shop.with_name("a?mode=rwc#b%41 c.sqlite"))
    assert run_sql(odd, "SELECT count(*) FROM customer").rows == ((4,),)
    assert run_sql(odd, "DELETE FROM customer").status == "refused"


@pytest.mark.parametrize("content", [b"", b"question,answer\n", b"SQLite format 3", b"\0" * 4096])
def test_a_file_that_is_not_sqlite(tmp_path, content):
    path = tmp_path / "x.sqlite"
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=r"x\.sqlite: not a SQLite database"):
        run_sql(path, "SELECT 1")


def test_a_missing_file_and_a_folder(tmp_path):
    with pytest.raises(DatasetError, match=r"none\.sqlite: cannot read the database: No such file"):
        run_sql(tmp_path / "none.sqlite", "SELECT 1")
    assert not (tmp_path / "none.sqlite").exists()
    with pytest.raises(DatasetError, match="cannot read the database"):
        run_sql(tmp_path, "SELECT 1")


@pytest.mark.parametrize("keep", [100, 5000])
def test_a_damaged_file_is_the_files_fault(shop, keep):
    whole = shop.read_bytes()
    shop.write_bytes(whole[:keep] + b"\xa5" * (len(whole) - keep))
    with pytest.raises(DatasetError, match=r"shop\.sqlite: cannot read the database: .*: restore the file") as caught:
        run_sql(shop, "SELECT * FROM customer, orders")
    assert "\n" not in str(caught.value)


def test_a_database_held_by_a_writer_is_no_wrong_answer(shop):
    writer = sqlite3.connect(shop, isolation_level=None)
    writer.execute("BEGIN EXCLUSIVE")
    with pytest.raises(DatasetError, match="locked: wait until its writer is done"):
        run_sql(shop, "SELECT 1 FROM customer")
    writer.close()


def test_many_threads_get_their_own_answers(shop):
    def ask(i: int) -> tuple:
        if i % 10 == 0:
            return run_sql(shop, "DELETE FROM customer").status, ()
        result = run_sql(shop, f"SELECT name, {i} FROM customer ORDER BY id")
        return result.status, result.rows[0]

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(200)))
    assert answers == [("refused", ()) if i % 10 == 0 else ("ok", ("Ann", i)) for i in range(200)]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="open files are listed on Linux only")
def test_no_connection_stays_open(shop):
    connection = open_reading(shop)
    connection.close()
    for sql in ("SELECT 1", "SELEC", "PRAGMA user_version"):
        run_sql(shop, sql)
    held = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")]
    assert str(shop) not in held
