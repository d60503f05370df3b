"""Writes that share a transaction: one that fails leaves nothing of its own, and the others stay."""

import threading

import pytest
from sqlalchemy import text

from vinelm.errors import StoreError
from vinelm.traces import ObservationStore
from vinelm.traces.store.group_commit import GroupCommit
from vinelm.traces.testing import an_identity


@pytest.fixture
def store(tmp_path):
    with ObservationStore.create(tmp_path / "s.db", an_identity()) as found, found.exclusive():
        with found.database.transaction() as connection:
            connection.execute(text("CREATE TABLE notes (name TEXT)"))
        yield found


def note(store, name, error=None):
    def write():
        with store.database.transaction() as connection:
            connection.execute(text("INSERT INTO notes VALUES (:name)"), {"name": name})
        if error is not None:
            raise error
        return name

    return write


def noted(store):
    with store.database.transaction() as connection:
        return sorted(row.name for row in connection.execute(text("SELECT name FROM notes")))


def together(commits, writes):
    """Run writes that all wait while another one is under way; what each returned or raised."""
    is_busy, may_end = threading.Event(), threading.Event()
    first = threading.Thread(target=commits.run, args=(lambda: (is_busy.set(), may_end.wait(10)),))
    first.start()
    is_busy.wait(10)
    found = [None] * len(writes)

    def run(at):
        try:
            found[at] = commits.run(writes[at])
        except Exception as error:
            found[at] = error

    threads = [threading.Thread(target=run, args=(at,)) for at in range(len(writes))]
    for thread in threads:
        thread.start()
    while len(commits._waiting) < len(writes):
        pass
    may_end.set()
    for thread in (first, *threads):
        thread.join(10)
    return found


def test_a_write_that_fails_leaves_nothing_and_the_others_stay(store):
    error = ValueError("no")
    found = together(GroupCommit(store), [note(store, "a"), note(store, "b", error), note(store, "c")])
    assert found == ["a", error, "c"]
    assert noted(store) == ["a", "c"]


def test_where_the_store_fails_nothing_of_the_transaction_is_there(store):
    error = StoreError("full")
    found = together(GroupCommit(store), [note(store, "a"), note(store, "b", error), note(store, "c")])
    assert found == [error, error, error]
    assert noted(store) == []


def test_many_threads_leave_every_write(store):
    commits = GroupCommit(store)

    def work(name):
        for number in range(20):
            assert commits.run(note(store, f"{name} {number}")) == f"{name} {number}"

    threads = [threading.Thread(target=work, args=(name,)) for name in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(set(noted(store))) == 12 * 20
