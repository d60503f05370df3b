"""kill -9 of every verb that spends money: a few of the kills of ``tests/attacks/kill_verbs.py``; all in the long form."""

import sqlite3
from contextlib import closing

import kill_verbs
import pytest


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    made = kill_verbs.Runs(tmp_path_factory.mktemp("kills"))
    yield made
    made.close()


@pytest.mark.parametrize("kills", [1, pytest.param(200, marks=pytest.mark.long)])
@pytest.mark.parametrize("verb", kill_verbs.VERBS)
def test_a_verb_that_is_killed_and_run_again_ends_as_undisturbed(runs, verb, kills):
    found = kill_verbs.torture(runs, verb, kills)
    assert found.problems == []
    assert found.kills >= kills


CHANGES = {
    "DELETE FROM served WHERE entry_id = 1": "1 rows are missing",
    "UPDATE served SET cost_usd = 0 WHERE entry_id = 1": "1 are others",
    "UPDATE ledger SET settled_usd = 0 WHERE entry_id = 2": "$3.0 count in place of $4.5",
    "UPDATE ledger SET settled_usd = NULL WHERE entry_id = 1": "1 entries are open",
    "UPDATE ledger SET settled_usd = 2.5 WHERE entry_id = 3": "1 entries that a kill left open are not settled at their bounds",
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_it_looks_for_would_be_found(tmp_path, change):
    verb = kill_verbs.VERBS["verify"]
    with closing(sqlite3.connect(tmp_path / "k.db")) as store:
        store.execute("CREATE TABLE served (entry_id INTEGER, request_id TEXT, cost_usd FLOAT)")
        store.execute("CREATE TABLE ledger (entry_id INTEGER, reserved_usd FLOAT, settled_usd FLOAT)")
        store.executemany("INSERT INTO served VALUES (?, ?, ?)", [(1, "a", 1.0), (2, "b", 1.5)])
        store.executemany("INSERT INTO ledger VALUES (?, ?, ?)", [(1, 3.0, 1.0), (2, 3.0, 1.5), (3, 2.0, 2.0)])
        store.commit()
        whole = kill_verbs.content(tmp_path, verb)
        assert kill_verbs.differences(tmp_path, verb, whole, {3: 2.0}, 2.5) == []
        store.execute(change)
        store.commit()
    assert CHANGES[change] in "; ".join(kill_verbs.differences(tmp_path, verb, whole, {3: 2.0}, 2.5))
