"""Every connection to a store is closed by whoever opened it: Python 3.13 warns of the others, wherever they are collected."""

import sqlite3
from contextlib import closing, suppress

import pytest
from kit.toys.profiling import new_store, toy

from vinelm.errors import StoreError
from vinelm.traces import ObservationStore, check_store


@pytest.fixture
def made(monkeypatch):
    """The connections that are opened in a test, each with whether it was closed."""
    found, connect = [], sqlite3.connect

    class Noted(sqlite3.Connection):
        is_closed = False

        def close(self):
            self.is_closed = True
            super().close()

    def noting(*arguments, **more):
        found.append(connect(*arguments, **{**more, "factory": Noted}))
        return found[-1]

    for module in (sqlite3, sqlite3.dbapi2):
        monkeypatch.setattr(module, "connect", noting)
    return found


def test_a_store_that_is_used_checked_and_copied(made, tmp_path):
    path = tmp_path / "s.db"
    with new_store(path, toy()) as store:
        store.database.copy_to(tmp_path / "copy.db")
    with ObservationStore.open(path) as store:
        store.observations()
    check_store(path)
    assert len(made) >= 3
    assert all(one.is_closed for one in made)


@pytest.mark.parametrize("damage", ["no database", "another database", "half of it"])
def test_a_file_that_is_refused(damage, made, tmp_path):
    path = tmp_path / "s.db"
    new_store(path, toy()).close()
    whole = path.read_bytes()
    if damage == "another database":
        path.unlink()
        with closing(sqlite3.connect(path)) as other:
            other.execute("CREATE TABLE t (a)")
    else:
        path.write_bytes(b"nothing of the kind" * 100 if damage == "no database" else whole[: len(whole) // 2])
    with pytest.raises(StoreError):
        ObservationStore.open(path)
    with suppress(StoreError):
        check_store(path)
    assert all(one.is_closed for one in made)
