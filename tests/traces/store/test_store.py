"""The SQLite store: the contract, and what only a file can get wrong."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import fields

import pytest
from kit.contracts.stores import StoreContract

from vinelm.errors import StoreError
from vinelm.rows.observation import Observation
from vinelm.traces import ObservationStore
from vinelm.traces.databases import schema
from vinelm.traces.databases.schema import SCHEMA_VERSION
from vinelm.traces.store.rows import decode_prefix, encode_prefix
from vinelm.traces.testing import a_row, an_identity


class TestSqliteStore(StoreContract):
    """The contract."""


def change(path, sql, *values):
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(sql, values)
    connection.close()


def refused(path, words, identity=None):
    before = {p.name: p.read_bytes() for p in path.parent.iterdir()}
    with pytest.raises(StoreError, match=words) as caught:
        ObservationStore.open(path, identity)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    assert {p.name: p.read_bytes() for p in path.parent.iterdir()} == before


def test_every_field_of_an_observation_has_a_column_and_every_column_a_comment():
    columns = schema.observations.c
    assert {f.name for f in fields(Observation)} | {"row_id", "model", "depth", "identity_id", "recorded_usd"} == {
        c.name for c in columns
    }
    for table in schema.metadata.sorted_tables:
        assert table.comment
        assert all(column.comment for column in table.columns), table.name


def test_a_missing_store_is_refused(tmp_path):
    refused(tmp_path / "none.db", "no such store")


def test_a_file_that_is_not_sqlite_is_refused(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("these are not the rows you are looking for")
    refused(path, "not a SQLite file")


def test_somebody_elses_database_is_refused(tmp_path):
    path = tmp_path / "other.db"
    change(path, "CREATE TABLE songs (title TEXT)")
    refused(path, "not an observation store")
    with pytest.raises(StoreError, match="not an observation store"):
        ObservationStore.open_or_create(path, an_identity())


def test_a_newer_store_is_refused(tmp_path):
    path = tmp_path / "s.db"
    ObservationStore.create(path, an_identity()).close()
    change(path, "UPDATE meta SET value = ? WHERE key = 'schema_version'", str(SCHEMA_VERSION + 1))
    refused(path, f"store version {SCHEMA_VERSION + 1}")


def test_another_workflows_store_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "s.db"
    ObservationStore.create(path, an_identity()).close()
    refused(path, "the workflow 'toy', not 'other'", an_identity(workflow="other"))


def test_a_damaged_file_is_one_line(tmp_path):
    path = tmp_path / "s.db"
    ObservationStore.create(path, an_identity()).close()
    content = path.read_bytes()
    path.write_bytes(content[:100] + b"\xff" * (len(content) - 100))
    refused(path, "malformed|not a database|cannot read")


def test_create_does_not_overwrite_and_needs_its_folder(tmp_path):
    path = tmp_path / "s.db"
    ObservationStore.create(path, an_identity()).close()
    with pytest.raises(StoreError, match="exists already"):
        ObservationStore.create(path, an_identity())
    with pytest.raises(StoreError, match="does not exist"):
        ObservationStore.create(tmp_path / "nowhere" / "s.db", an_identity())


@pytest.mark.parametrize("leftover", ["nothing", "empty file", "no tables"])
def test_a_creation_that_was_cut_short_starts_over(tmp_path, leftover):
    path = tmp_path / "s.db"
    if leftover == "empty file":
        path.touch()
    if leftover == "no tables":
        change(path, "PRAGMA user_version = 7")
    with ObservationStore.open_or_create(path, an_identity()) as store:
        store.add(a_row())
    with ObservationStore.open_or_create(path, an_identity()) as store:
        assert store.observations() == [a_row()]


def test_whoever_only_reads_adds_no_identity(tmp_path):
    path = tmp_path / "a.db"
    ObservationStore.create(path, an_identity()).close()
    change(path, "UPDATE identities SET value = replace(value, ?, ?)", an_identity().workflow, "another")
    refused(path, "the file is damaged: restore it from a copy")


def test_a_damaged_checkpoint_is_not_handed_out(tmp_path):
    path = tmp_path / "s.db"
    with ObservationStore.create(path, an_identity()) as store:
        store.add(a_row(), b"state")
    change(path, "UPDATE blobs SET content = x'00'")
    with ObservationStore.open(path) as store, pytest.raises(StoreError, match=r"q1.*damaged"):
        store.checkpoint("q1", ("small",))


def test_rows_survive_the_death_of_the_writer(tmp_path):
    """The child dies without closing anything, right after ``add`` returned."""
    path = tmp_path / "s.db"
    code = (
        "import os, sys\n"
        "from vinelm.traces.store.store import ObservationStore\n"
        "from vinelm.traces.testing import a_row, an_identity\n"
        "store = ObservationStore.create(sys.argv[1], an_identity())\n"
        "entry = store.reserve('q1', ('small',), 1.0)\n"
        "store.add(a_row(), b'state', reservation=entry)\n"
        "store.reserve('q2', ('small',), 1.0)\n"
        "os._exit(9)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == 9
    with ObservationStore.open(path) as store:
        assert store.observations() == [a_row()]
        assert store.checkpoint("q1", ("small",)) == b"state"
        assert store.committed_usd() == 1.25
        assert store.abandon_open() == 1


def test_equal_checkpoints_take_one_blob(tmp_path):
    path = tmp_path / "s.db"
    with ObservationStore.create(path, an_identity()) as store:
        for i in range(5):
            store.add(a_row(f"q{i}"), b"the same")
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM blobs").fetchone() == (1,)


def test_a_locked_store_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("vinelm.traces.databases.database._BUSY_TIMEOUT_S", 0.01)
    path = tmp_path / "s.db"
    with ObservationStore.create(path, an_identity()) as store:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked: another process is writing"):
            store.add(a_row(detail="a secret prompt"))
        other.execute("ROLLBACK")
        other.close()
        store.add(a_row())
        assert len(store) == 1


def test_prefixes_are_plain_json():
    prefix = ("openai:gpt", 'a "b"', "ü")
    assert json.loads(encode_prefix(prefix)) == list(prefix)
    assert decode_prefix(encode_prefix(prefix)) == prefix


def test_a_data_frame_has_a_row_per_observation_and_a_column_per_field(tmp_path):
    with ObservationStore.create(tmp_path / "s.db", an_identity()) as store:
        assert len(store.to_pandas()) == 0
        store.add(a_row("q1"))
        store.add(a_row("q2", ("small", "large"), success=None, tokens_in=None))
        frame = store.to_pandas()
    assert set(frame.columns) == {f.name for f in fields(Observation)} | {"model", "depth"}
    assert list(frame.columns[:4]) == ["request_id", "prefix", "model", "depth"]
    assert frame.loc[1, "prefix"] == ("small", "large")
    assert (frame.loc[1, "model"], frame.loc[1, "depth"]) == ("large", 2)
    assert frame["success"].isna().tolist() == [a_row().success is None, True]
    assert frame.loc[0, "cost_usd"] == a_row().cost_usd
