"""A file says what it is, and a name without a file says which was meant."""

import os
import sqlite3
from contextlib import closing

import pytest

from vinelm.io.file_kinds import STORE, TRIE, instead_of, near, unread, what_is


def database(path, table):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"CREATE TABLE {table} (key TEXT)")
        connection.commit()


def test_files_are_told_by_their_content(tmp_path):
    database(tmp_path / "a.db", "meta")
    database(tmp_path / "shop.db", "item")
    (tmp_path / "a.vine").write_bytes(b"PK\x03\x04rest")
    (tmp_path / "a.zip").write_bytes(b"PK\x03\x04rest")
    (tmp_path / "no.vine").write_text("question,answer\n")
    (tmp_path / "q.csv").write_text("question,answer\n")
    (tmp_path / "empty.db").touch()
    (tmp_path / "folder").mkdir()
    found = {path.name: what_is(path) for path in tmp_path.iterdir()}
    assert found == {
        "a.db": STORE,
        "shop.db": "a SQLite database that is no store",
        "a.vine": TRIE,
        "a.zip": "a zip file",
        "no.vine": None,
        "q.csv": "a table in CSV",
        "empty.db": "an empty file",
        "folder": "a folder",
    }
    assert what_is(tmp_path / "none") is None


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert what_is(tmp_path / "pipe") == "no regular file"


def test_the_command_for_the_file_is_named(tmp_path):
    database(tmp_path / "a.db", "meta")
    words = instead_of(tmp_path / "a.db", "a trie file", "`vinelm estimate`")
    assert words == (
        "this is a store (`vinelm estimate` and `store info` read it), not a trie file: `vinelm estimate` makes one"
    )
    assert instead_of(tmp_path / "a.db", "a store", "`vinelm profile`") is None


def test_the_file_that_was_meant_is_named(tmp_path):
    (tmp_path / "models.toml").touch()
    assert near(tmp_path / "model.toml") == f" (did you mean {tmp_path / 'models.toml'}?)"
    assert near(tmp_path / "quite-another.csv") == ""
    assert near(tmp_path / "runs" / "a.db") == f" (there is no folder {tmp_path / 'runs'})"
    assert near("a\0b") == ""


def test_the_reason_does_not_repeat_the_name(tmp_path):
    with pytest.raises(IsADirectoryError) as error:
        (tmp_path).open()
    assert unread(tmp_path, error.value) == "it is a folder, and a file is wanted here"
    assert unread(tmp_path, PermissionError(13, "Permission denied", "x")) == "Permission denied"
