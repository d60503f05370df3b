"""A run on a store in PostgreSQL: alone there, and the same line continues whatever died."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kit.servers.postgres_server import connected
from kit.toys import profiling_process
from kit.toys.profiling import ToyBackend, catalog_for, new_store, only_right, toy

from vinelm.profiler import ExecutionConfig, ProfileSettings, profile
from vinelm.traces import ObservationStore

pytestmark = pytest.mark.long


class Run:
    """A run in a process of its own."""

    def __init__(self, address, *, sleep_s=0.02):
        arguments = [str(value) for value in (address, sleep_s)]
        tests = Path(__file__).parents[2]
        self.process = subprocess.Popen(
            [sys.executable, "-m", profiling_process.__name__, *arguments], stdout=subprocess.PIPE, text=True, cwd=tests
        )

    def started(self):
        assert self.process.stdout.readline() == "started\n"
        return self

    def result(self):
        out, _ = self.process.communicate(timeout=120)
        return json.loads(out.strip().splitlines()[-1])


def undisturbed(folder, coverage):
    workflow, backend = toy(n_requests=12, n_models=3), ToyBackend()
    with new_store(folder / "one.db", workflow, backend) as store:
        profile(workflow, catalog_for(workflow), {"test": backend}, store, ProfileSettings(coverage=coverage))
        return by_cell(store)


def by_cell(store):
    return {(row.request_id, row.prefix): row for row in store.observations()}


def test_a_second_run_is_refused_in_one_line(postgres_url):
    first = Run(postgres_url, sleep_s=5.0).started()  # longer than a process takes to start
    error = Run(postgres_url).result()["error"]
    first.process.kill()
    first.process.communicate()
    assert f"another run is writing to it (vinelm pid {first.process.pid} on " in error
    assert "wait for it to end, or stop it" in error
    assert "\n" not in error


def test_a_killed_run_is_continued_and_what_it_reserved_counts(postgres_url, tmp_path):
    killed = Run(postgres_url, sleep_s=0.1).started()
    killed.process.kill()
    killed.process.communicate()
    assert Run(postgres_url).result()["stopped_by"] == "complete"
    whole = undisturbed(tmp_path, 1.0)
    with ObservationStore.open(postgres_url) as store:
        assert by_cell(store) == whole
        paid = sum(row.cost_usd for row in whole.values())
        assert store.committed_usd() > paid  # calls in flight may have been billed: charged at their bound
    with connected(postgres_url) as connection:
        (lost,) = connection.execute("SELECT count(*) FROM ledger WHERE is_abandoned").fetchone()
    assert 1 <= lost <= 3


def test_a_session_that_the_server_ends_ends_the_run_in_one_line(postgres_url, tmp_path):
    run = Run(postgres_url, sleep_s=0.1).started()
    with connected(postgres_url) as connection:
        (ended,) = connection.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name LIKE %s",
            (f"vinelm pid {run.process.pid} on %",),
        ).fetchone()
    assert ended == 1
    error = run.result()["error"]
    assert "the server cannot be reached: start it and run the same line again" in error
    assert "\n" not in error
    assert Run(postgres_url, sleep_s=0.0).result()["stopped_by"] == "complete"
    with ObservationStore.open(postgres_url) as store:
        assert by_cell(store) == undisturbed(tmp_path, 1.0)


def test_a_server_that_goes_away_ends_the_run_in_one_line_and_the_next_goes_on(postgres_server, tmp_path):
    run = Run(postgres_server.url, sleep_s=0.1).started()
    time.sleep(0.5)
    postgres_server.stop()
    error = run.result()["error"]
    assert "the server cannot be reached: start it and run the same line again" in error
    assert "\n" not in error
    postgres_server.start()
    assert Run(postgres_server.url, sleep_s=0.0).result()["stopped_by"] == "complete"
    with ObservationStore.open(postgres_server.url) as store:
        assert by_cell(store) == undisturbed(tmp_path, 1.0)


def test_one_run_in_processes_on_postgres_is_as_one_on_a_file(postgres_url, tmp_path):
    workflow, backend = toy(n_requests=12, n_models=3), ToyBackend()
    with new_store(postgres_url, workflow, backend) as store:
        result = profile(
            workflow, catalog_for(workflow), {"test": backend}, store, ProfileSettings(coverage=0.5,
            execution=ExecutionConfig(isolation="inline")),
        )  # fmt: skip
        assert result.stopped_by == "coverage"
        assert by_cell(store) == undisturbed(tmp_path, 0.5)


def test_a_store_grows_as_one_in_a_file_does(postgres_url, tmp_path):
    """Rows that no longer hold are retired, come back with their states, and their calls and dollars count all the time."""
    addresses, found = (tmp_path / "one.db", postgres_url), []
    workflows = [toy(n_requests=6), toy(n_requests=6, score=only_right), toy(n_requests=4), toy(n_requests=6, score=only_right)]
    for address in addresses:
        calls, notes = [], []
        for workflow in workflows:
            backend = ToyBackend()
            with new_store(address, workflow) if not calls else ObservationStore.open(address) as store:
                profile(
                    workflow,
                    catalog_for(workflow),
                    {"test": backend},
                    store,
                    ProfileSettings(sampler="exhaustive", coverage=1.0, on_note=notes.append),
                )
                calls.append(sorted(backend.calls))
                states = {cell: store.checkpoint(*cell) for cell in by_cell(store)}
                found_last = by_cell(store), states, store.retired_calls(), round(store.committed_usd(), 9)
        found.append((calls, [note.replace(str(address), "") for note in notes], found_last))
    assert found[0] == found[1]
    calls, _, (_, states, _, _) = found[1]
    assert calls[1] == calls[2] == []  # scored again from their states
    assert None not in states.values()
    assert calls[3] == []
