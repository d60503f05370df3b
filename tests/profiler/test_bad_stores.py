"""What may happen to a store under a run: each case ends in one line, and the next run goes on."""

import sqlite3
from contextlib import closing

import pytest
from kit.toys.profiling import ToyBackend, catalog_for, new_store, toy

from vinelm.errors import StoreError
from vinelm.profiler import ExecutionConfig, ProfileSettings, profile
from vinelm.traces.databases.migrations import migrate
from vinelm.traces.databases.schema import SCHEMA_VERSION

WORKFLOW = toy(n_requests=6)


def set_version(path, version):
    with closing(sqlite3.connect(path, timeout=10)) as connection, connection:
        connection.execute("UPDATE meta SET value = ? WHERE key = 'schema_version'", (str(version),))


def run(path, before=None, **settings):
    backend = ToyBackend(before)
    with new_store(path, WORKFLOW) as store:
        profile(
            WORKFLOW,
            catalog_for(WORKFLOW),
            {"test": backend},
            store,
            ProfileSettings(sampler="exhaustive", coverage=1.0, **settings),
        )
        return {(row.request_id, row.prefix): row for row in store.observations()}


@pytest.mark.parametrize("execution", [ExecutionConfig(), ExecutionConfig(isolation="thread", workers=3)])
def test_a_file_that_is_upgraded_under_a_run_ends_it_in_one_line_before_its_next_write(tmp_path, execution):
    path, calls = tmp_path / "s.db", []

    def upgrade(*_):
        calls.append(1)
        if len(calls) == 4:
            set_version(path, 99)

    with pytest.raises(StoreError, match="upgraded to store version 99 while this one, which writes") as caught:
        run(path, upgrade, execution=execution)
    assert caught.value.code == "store-upgraded"
    assert "\n" not in str(caught.value)
    with closing(sqlite3.connect(path)) as connection:
        (rows,) = connection.execute("SELECT count(*) FROM observations").fetchone()
    assert rows <= 4
    with pytest.raises(StoreError, match=f"store version 99, this one reads {SCHEMA_VERSION}"):
        new_store(path, WORKFLOW)
    set_version(path, SCHEMA_VERSION)
    assert run(path).keys() == run(tmp_path / "whole.db").keys()


def test_a_store_that_was_upgraded_is_not_written_to_at_the_second_try_either(tmp_path):
    path = tmp_path / "s.db"
    with new_store(path, WORKFLOW) as store:
        with store.together():
            store.reserve("q1", (), 0.1)
        set_version(path, 99)
        for _ in range(2):
            with pytest.raises(StoreError, match="upgraded to store version 99"), store.together():
                store.reserve("q1", (), 0.1)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM ledger").fetchone() == (1,)


def test_a_file_is_not_upgraded_while_a_run_is_at_work(tmp_path):
    path, refused = tmp_path / "s.db", []

    def upgrade(*_):
        with pytest.raises(StoreError, match="another run is writing to it") as caught:
            migrate(path)
        refused.append(str(caught.value))

    run(path, upgrade)
    assert refused
    assert all("\n" not in line for line in refused)
