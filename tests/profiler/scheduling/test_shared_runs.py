"""Several runs on one store in PostgreSQL: together they write what one run would, whoever is killed."""

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from kit.servers.postgres_server import connected
from kit.toys import shared_process
from kit.toys.profiling import ToyBackend, catalog_for, new_store, only_right, toy

from vinelm.catalog import Catalog
from vinelm.errors import BudgetExhausted, StoreError
from vinelm.profiler import ExecutionConfig, ProfileLimits, ProfileSettings, profile
from vinelm.profiler.execution.ledger import Ledger
from vinelm.traces import ObservationStore
from vinelm.traces.store.shared_run import UnitTaken, shared_run
from vinelm.traces.testing import a_row, an_identity

pytestmark = pytest.mark.long
BARE = ("in_flight",)


class Run:
    """A run in a process of its own."""

    def __init__(self, address, *, seed=0, coverage=1.0, sleep_s=0.02, lease_s=30.0, skew_s=0.0):
        arguments = [str(value) for value in (address, seed, coverage, sleep_s, lease_s, skew_s)]
        tests = Path(__file__).parents[2]
        self.process = subprocess.Popen(
            [sys.executable, "-m", shared_process.__name__, *arguments], stdout=subprocess.PIPE, text=True, cwd=tests
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


@pytest.mark.parametrize("coverage", [0.4, 1.0])
def test_three_runs_write_the_rows_of_one_and_pay_for_each_once(postgres_url, tmp_path, coverage):
    results = [run.result() for run in [Run(postgres_url, coverage=coverage) for _ in range(3)]]
    whole = undisturbed(tmp_path, coverage)
    with ObservationStore.open(postgres_url) as store:
        assert by_cell(store) == whole
        assert store.committed_usd() == pytest.approx(sum(row.cost_usd for row in whole.values()))
        assert store.held_by() is None
    assert sum(result["executed"] for result in results) == sum(result["calls"] for result in results) == len(whole)
    assert min(result["executed"] for result in results) > 0
    assert {result["stopped_by"] for result in results} == {"complete" if coverage == 1.0 else "coverage"}


def test_the_units_of_a_killed_run_are_taken_over_and_what_it_reserved_counts(postgres_url, tmp_path):
    killed = Run(postgres_url, sleep_s=0.1).started()
    other = Run(postgres_url, sleep_s=0.02).started()
    killed.process.kill()
    killed.process.communicate()
    assert other.result()["stopped_by"] == "complete"
    whole = undisturbed(tmp_path, 1.0)
    with ObservationStore.open(postgres_url) as store:
        assert by_cell(store) == whole
        paid = sum(row.cost_usd for row in whole.values())
        store.abandon_open()
        assert store.committed_usd() > paid  # calls in flight may have been billed: charged at their bound
    with connected(postgres_url) as connection:
        (lost,) = connection.execute("SELECT count(*) FROM ledger WHERE is_abandoned").fetchone()
    assert 1 <= lost <= 3


def test_a_run_that_hangs_loses_its_lease_and_its_late_row_is_paid_for_and_dropped(postgres_url):
    with (
        ObservationStore.create(postgres_url, an_identity()) as one,
        ObservationStore.open(postgres_url) as two,
        shared_run(one) as hung,
        shared_run(two) as taker,
    ):
        limits = ProfileLimits(budget_usd=10.0)
        late, fast = Ledger(one, limits, shared=hung), Ledger(two, limits, shared=taker)
        kept = late.reserve("q1", ("small",), 2.0)
        with pytest.raises(UnitTaken):
            fast.reserve("q1", ("small",), 2.0)
        with connected(postgres_url) as connection:
            connection.execute("UPDATE runs SET expires_at = now() - interval '1 s' WHERE run_id = %s", (hung.run_id,))
        taken = fast.reserve("q1", ("small",), 2.0)
        assert two.committed_usd() == 4.0
        fast.settle(taken, a_row("q1"), b"state")
        late.settle(kept, a_row("q1", cost_usd=1.0), b"state")
        assert one.observations() == [a_row("q1")]
        assert one.committed_usd() == 1.25
        with pytest.raises(UnitTaken):
            late.reserve("q1", ("small",), 2.0)


def test_another_workflow_and_other_settings_are_one_line(postgres_url):
    first = Run(postgres_url, sleep_s=0.1).started()
    other = Run(postgres_url, seed=1).result()["error"]
    assert "another run is at work on it, and differs: seed 1 instead of 0" in other
    assert "\n" not in other
    with pytest.raises(StoreError, match="the workflow 'toy', not 'elsewhere'"):
        new_store(postgres_url, toy(n_requests=12, n_models=3, name="elsewhere"))
    workflow, backend = toy(n_requests=13, n_models=3), ToyBackend()
    with new_store(postgres_url, workflow, backend) as store, pytest.raises(StoreError, match="at work on it, and differs"):
        profile(workflow, catalog_for(workflow), {"test": backend}, store, ProfileSettings(coverage=1.0))
    assert backend.calls == []
    first.process.kill()
    first.process.communicate()


def with_change(catalog, **changes):
    return Catalog(model.model_copy(update=changes) if model.name == "m1" else model for model in catalog.models)


def test_catalogs_that_differ_are_one_line_that_names_what(postgres_url):
    first = Run(postgres_url, sleep_s=0.1).started()
    workflow, backend = toy(n_requests=12, n_models=3), ToyBackend()
    catalog = catalog_for(workflow)
    cases = {
        "price of 'm1'": with_change(catalog, price=catalog["m1"].price.model_copy(update={"input": 9.0})),
        "max_tokens of 'm1'": with_change(catalog, max_tokens=50),
        "order of the models": Catalog(reversed(catalog.models)),
    }
    for words, other in cases.items():
        with ObservationStore.open(postgres_url) as store, pytest.raises(StoreError) as caught:
            profile(workflow, other, {"test": backend}, store, ProfileSettings(coverage=1.0))
        assert f"another run is at work on it, and differs: {words}: run the same line as it, or wait" in str(caught.value)
        assert "\n" not in str(caught.value)
    assert backend.calls == []
    first.process.kill()
    first.process.communicate()


def test_clocks_that_differ_by_days_take_no_unit_from_a_run_that_is_alive(postgres_url, tmp_path):
    results = [run.result() for run in [Run(postgres_url, skew_s=skew) for skew in (0, 3 * 86400, -3 * 86400)]]
    assert {result["stopped_by"] for result in results} == {"complete"}
    assert [result["abandoned"] for result in results] == [0, 0, 0]
    with ObservationStore.open(postgres_url) as store:
        assert by_cell(store) == undisturbed(tmp_path, 1.0)
        assert sum(result["calls"] for result in results) == len(store)
    with connected(postgres_url) as connection:
        assert connection.execute("SELECT count(*) FROM ledger WHERE is_abandoned").fetchone() == (0,)


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


def test_a_schema_that_is_upgraded_under_a_run_ends_it_in_one_line(postgres_url):
    run = Run(postgres_url, sleep_s=0.1).started()
    with connected(postgres_url) as connection:
        connection.execute("UPDATE meta SET value = '99' WHERE key = 'schema_version'")
    error = run.result()["error"]
    assert "upgraded to store version 99 while this one" in error
    assert "\n" not in error


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


@pytest.mark.parametrize("limits", [ProfileLimits(budget_usd=5.0), ProfileLimits(budget_calls=20)], ids=["dollars", "calls"])
def test_runs_that_race_for_the_last_dollar_never_pass_the_cap(postgres_url, limits):
    """Four runs reserve, raise and settle as fast as they can; the sums are looked at all the time."""
    ObservationStore.create(postgres_url, an_identity()).close()
    problems, sums, over = [], [], threading.Event()

    def work(number):
        try:
            with ObservationStore.open(postgres_url) as store, shared_run(store) as shared:
                ledger = Ledger(store, limits, shared=shared)
                for turn in range(40):
                    cell = f"q{number}-{turn}", ("small",)
                    try:
                        entry = ledger.reserve(*cell, 0.3)
                    except BudgetExhausted:
                        continue
                    if not ledger.top_up(entry, 0.5):
                        continue
                    ledger.settle(entry, a_row(*cell, cost_usd=0.2), None)
        except Exception as problem:
            problems.append(problem)

    def watch():
        with ObservationStore.open(postgres_url) as store, shared_run(store) as shared:
            while not over.is_set():
                sums.append((store.committed_usd(), shared.totals().calls))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    watcher = threading.Thread(target=watch)
    for thread in (watcher, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    over.set()
    watcher.join()
    assert problems == []
    assert len(sums) > 10
    if limits.budget_usd is not None:
        assert max(usd for usd, _ in sums) <= 5.0 + 1e-9
        assert max(usd for usd, _ in sums) > 4.5
    else:
        assert max(calls for _, calls in sums) == 20


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
    with ObservationStore.open(postgres_url) as store, shared_run(store) as shared:
        assert shared.correct_totals() is None
