"""Every kind of damage is found, and nothing else."""

import re
import sqlite3
import zlib

import pytest

from vinelm.errors import StoreError
from vinelm.requests.workflow import Request
from vinelm.traces import ObservationStore, check_store
from vinelm.traces.testing import a_row, an_identity


@pytest.fixture
def path(tmp_path):
    """A whole store: two requests, three rows, checkpoints, a lost call, one in flight."""
    with ObservationStore.create(tmp_path / "s.db", an_identity()) as store:
        store.register([Request("q1", {}), Request("q2", {})])
        for row in (a_row("q1"), a_row("q1", ("small", "large")), a_row("q2")):
            store.add(row, b"state " + row.model.encode(), reservation=store.reserve(row.request_id, row.prefix, 1.0))
        store.reserve("q2", ("large",), 2.0)
        store.abandon_open()
    return tmp_path / "s.db"


def change(path, sql, *values):
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(sql, values)
    connection.close()


def test_a_whole_store_is_whole(path):
    found = check_store(path)
    assert (found.rows, found.checkpoints, found.ledger_entries) == (3, 3, 4)
    assert found.findings == ()
    assert found.is_whole


@pytest.mark.parametrize(
    ("sql", "what", "first"),
    [
        ("UPDATE observations SET stage = 'polish' WHERE row_id = 2", "do not fit this workflow", "row 2: .*not 'polish'"),
        ("""UPDATE observations SET prefix = '["ghost"]' WHERE row_id = 3""", "do not fit this", "row 3: .*'ghost'"),
        ("UPDATE observations SET prefix = 'small' WHERE row_id = 1", "do not fit this", "row 1: "),
        ("UPDATE observations SET cost_usd = -1 WHERE row_id = 1", "do not fit this", "cost_usd is -1"),
        ("UPDATE observations SET cost_usd = 9e999 WHERE row_id = 1", "do not fit this", "cost_usd is inf"),
        ("UPDATE observations SET depth = 2 WHERE row_id = 1", "do not fit this", "model 'small' at depth 2"),
        ("UPDATE observations SET failure = 'crash' WHERE row_id = 3", "do not fit this", "neither success nor stopped"),
        (
            "UPDATE observations SET failure = 'crash', success = NULL, stopped = NULL WHERE row_id = 1",
            "below a failed",
            "large",
        ),
        ("DELETE FROM requests WHERE request_id = 'q2'", "never registered", "request 'q2'"),
        ("UPDATE blobs SET content = x'00'", "do not match their digest", "request 'q1'"),
        ("DELETE FROM blobs", "do not match their digest", "request 'q1'"),
        ("DELETE FROM observations WHERE row_id = 3", "checkpoints without a row", "request 'q2'"),
        ("UPDATE ledger SET settled_usd = -1 WHERE entry_id = 2", "an invalid amount", "entry 2"),
        ("ALTER TABLE requests RENAME COLUMN digest TO hash", "columns are missing", "requests: digest"),
    ],
)
def test_damage_is_found_and_the_first_is_named(path, sql, what, first):
    change(path, sql)
    found = check_store(path)
    assert not found.is_whole
    finding = next(f for f in found.findings if f.is_damage)
    assert what in finding.what
    assert re.search(first, finding.first)


def test_a_blob_with_another_content_is_found(path):
    change(path, "UPDATE blobs SET content = ? WHERE rowid = 1", zlib.compress(b"another state"))
    assert [f.count for f in check_store(path).findings] == [2]


def test_two_rows_of_one_cell_are_found_behind_the_index(path):
    """The index that forbids it is gone: what a damaged or foreign file may look like."""
    connection = sqlite3.connect(path)
    (columns,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'observations'").fetchone()
    open_ = columns.replace("CONSTRAINT one_row_per_cell UNIQUE (request_id, prefix)", "CHECK (1)")
    assert open_ != columns
    with connection:
        connection.execute("ALTER TABLE observations RENAME TO before")
        connection.execute(open_)
        connection.execute("INSERT INTO observations SELECT * FROM before")
        connection.execute("DROP TABLE before")
    names = ", ".join(name for _, name, *_ in connection.execute("PRAGMA table_info(observations)") if name != "row_id")
    with connection:
        connection.execute(f"INSERT INTO observations ({names}) SELECT {names} FROM observations WHERE row_id = 1")
    connection.close()
    (finding,) = check_store(path).findings
    assert finding.what == "cells with more than one row"
    assert "request 'q1'" in finding.first


def test_what_is_only_worth_knowing_is_no_damage(path):
    with ObservationStore.open(path) as store:
        store.reserve("q2", ("large",), 2.5)
        store.add(a_row("q2", ("small", "small")))
    change(path, "INSERT INTO blobs VALUES ('0123456789abcdef', x'00')")
    found = check_store(path)
    assert found.is_whole
    assert [f.first for f in found.findings] == [
        "request 'q2', prefix [\"large\"], 2.5 dollars",
        'request \'q2\', prefix ["small","small"]',
        "digest 0123456789ab",
    ]


def test_money_of_a_live_run_does_not_dangle(path):
    with ObservationStore.open(path) as store, store.exclusive():
        store.reserve("q2", ("large",), 2.5)
        assert check_store(path).findings == ()


def test_a_damaged_page_is_found_and_nothing_is_written(path):
    content = bytearray(path.read_bytes())
    content[4096 * 3 : 4096 * 3 + 200] = b"\xff" * 200
    path.write_bytes(content)
    found = check_store(path)
    assert not found.is_whole
    assert "restore it from a copy" in found.findings[0].what
    assert path.read_bytes() == content


def test_what_is_no_store_is_refused(tmp_path):
    with pytest.raises(StoreError, match="no such store"):
        check_store(tmp_path / "none.db")
    (tmp_path / "notes.txt").write_text("these are not the rows you are looking for")
    with pytest.raises(StoreError, match="not a SQLite file"):
        check_store(tmp_path / "notes.txt")
