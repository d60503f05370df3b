"""A graph that branches is profiled like a chain: right cells, once each, in the same order whatever happens."""

import signal

import pytest
from kit.toys.branching import BranchingBackend, branching, cost_of, new_store, reachable
from kit.toys.profiling import catalog_for

from vinelm.profiler import ExecutionConfig, ProfileLimits, ProfileSettings, WorkflowSource, profile
from vinelm.traces import ObservationStore


def run(store, workflow, backend=None, **settings):
    return profile(workflow, catalog_for(workflow), {"test": backend or BranchingBackend()}, store, ProfileSettings(**settings))


def rows_of(tmp_path, workflow, name="store.db", **settings):
    with new_store(tmp_path / name, workflow) as store:
        run(store, workflow, **settings)
        return store.observations()


@pytest.mark.parametrize("sampler", ["exhaustive", "cascade", "priced"])
def test_without_a_cap_every_reached_cell_is_run_once(tmp_path, sampler):
    workflow, backend = branching(), BranchingBackend()
    with new_store(tmp_path / "s.db", workflow) as store:
        result = run(store, workflow, backend, sampler=sampler)
        rows = store.observations()
    wanted = list(reachable(workflow))
    cells = [(row["request_id"], row["prefix"]) for row in wanted]
    assert {row["arm"] for row in wanted} == {"search", "grade", "write", None}
    assert sorted(backend.calls) == sorted(cells)
    if sampler == "exhaustive":
        assert backend.calls == cells
    by_cell = {(row["request_id"], row["prefix"]): row for row in wanted}
    for row in rows:
        expected = by_cell[row.request_id, row.prefix]
        assert {name: getattr(row, name) for name in expected} == expected
    assert result.stopped_by == "complete"
    assert result.coverage == 1.0
    total = sum(cost_of(*cell) for cell in cells)
    assert result.spent_usd == pytest.approx(total)
    assert result.exhaustive_usd == pytest.approx(total)


@pytest.mark.parametrize("coverage", [0.3, pytest.param(1.0, marks=pytest.mark.long)])
@pytest.mark.parametrize("sampler", ["exhaustive", pytest.param("cascade", marks=pytest.mark.long), "priced"])
def test_any_number_of_workers_buys_the_same_rows(tmp_path, sampler, coverage):
    workflow = branching(n_requests=8)
    one = rows_of(tmp_path, workflow, "one.db", sampler=sampler, coverage=coverage)
    place = ExecutionConfig(isolation="thread", workers=4)
    many = rows_of(tmp_path, workflow, "many.db", sampler=sampler, coverage=coverage, execution=place)
    assert {(row.request_id, row.prefix): row for row in many} == {(row.request_id, row.prefix): row for row in one}


def test_a_budget_is_kept_and_the_capped_run_is_a_prefix(tmp_path):
    workflow = branching(n_requests=10)
    whole = rows_of(tmp_path, workflow, "whole.db", coverage=0.9)
    for cap in (0.0, 0.004, 0.01):
        with new_store(tmp_path / f"{cap}.db", workflow) as store:
            result = run(store, workflow, whole=ProfileLimits(coverage=0.9), coverage=0.9, budget_usd=cap)
            rows = store.observations()
            assert result.stopped_by == "budget"
            assert store.committed_usd() == pytest.approx(result.spent_usd)
        assert rows == whole[: len(rows)]
        assert sum(row.cost_usd for row in rows) <= cap
    assert len(rows) > 1


@pytest.mark.long
def test_the_same_seed_buys_the_same_rows_and_another_seed_others(tmp_path):
    workflow = branching(n_requests=20)
    first = rows_of(tmp_path, workflow, "a.db", coverage=0.3, seed=1)
    assert first == rows_of(tmp_path, workflow, "b.db", coverage=0.3, seed=1)
    assert first != rows_of(tmp_path, workflow, "c.db", coverage=0.3, seed=2)


CHILD = """
import os, signal, sys
from kit.toys.branching import *
from vinelm.profiler import ExecutionConfig
from vinelm.profiler import ProfileSettings
from vinelm.profiler.runner import profile
path, n, workers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
workflow = branching(n_requests=8)
store = new_store(path, workflow)
left = [n]
def die(*_):
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
from sqlalchemy import event
event.listen(store.database._engine, "commit", die)
place = ExecutionConfig(isolation="thread" if workers > 1 else "inline", workers=workers)
profile(workflow, catalog_for(workflow), {"test": BranchingBackend()}, store, ProfileSettings(coverage=0.6, execution=place))
"""


@pytest.mark.long
@pytest.mark.parametrize("workers", [1, 3])
def test_kill_9_at_any_point_and_resume_gives_the_undisturbed_store(tmp_path, python, workers):
    calm = rows_of(tmp_path, branching(n_requests=8), "calm.db", coverage=0.6)
    path = tmp_path / "killed.db"
    for n in (2, 7, 41):
        with python.start(CHILD, str(path), str(n), str(workers)) as child:
            assert child.wait() == -signal.SIGKILL
    workflow = branching(n_requests=8)
    with new_store(path, workflow) as store:
        run(store, workflow, coverage=0.6)
        found = {(row.request_id, row.prefix): row for row in store.observations()}
        assert store.abandon_open() == 0
    assert found == {(row.request_id, row.prefix): row for row in calm}


@pytest.mark.long
def test_units_in_processes_leave_the_same_rows(tmp_path):
    workflow = branching(n_requests=5)
    one = rows_of(tmp_path, workflow, "one.db", coverage=0.7)
    source = WorkflowSource(function="kit.toys.branching:load", arguments={"n_requests": 5})
    place = ExecutionConfig(isolation="process", workers=3, source=source)
    many = rows_of(tmp_path, workflow, "many.db", coverage=0.7, execution=place)
    assert {(row.request_id, row.prefix): row for row in many} == {(row.request_id, row.prefix): row for row in one}


@pytest.mark.long
def test_a_unit_that_dies_names_the_stage_that_it_was_of(tmp_path):
    workflow = branching(n_requests=5)
    wanted = next(row for row in reachable(workflow) if row["stage"] == "grade")
    place = "/".join((wanted["request_id"], *wanted["prefix"]))
    source = WorkflowSource(function="kit.toys.branching:load", arguments={"n_requests": 5, "mischief": {place: "os._exit"}})
    rows = rows_of(
        tmp_path, workflow, sampler="exhaustive", execution=ExecutionConfig(isolation="process", workers=2, source=source)
    )
    died = {(row.request_id, row.prefix): row for row in rows}[wanted["request_id"], wanted["prefix"]]
    assert (died.failure, died.stage, died.arm) == ("crash", "grade", None)
    assert not [row for row in rows if row.prefix[: len(died.prefix)] == died.prefix and row.request_id == died.request_id][1:]


@pytest.mark.parametrize("workers", [pytest.param(2, marks=pytest.mark.long), 5])
@pytest.mark.parametrize("cap", [0.006, pytest.param(0.02, marks=pytest.mark.long), 0.05])
def test_a_budget_buys_the_same_rows_with_any_number_of_workers(tmp_path, workers, cap):
    workflow = branching(n_requests=10)
    one = rows_of(tmp_path, workflow, "one.db", budget_usd=cap)
    place = ExecutionConfig(isolation="thread", workers=workers)
    many = rows_of(tmp_path, workflow, "many.db", budget_usd=cap, execution=place)
    assert {(row.request_id, row.prefix): row for row in many} == {(row.request_id, row.prefix): row for row in one}


def test_a_lost_state_is_made_again(tmp_path):
    """A store of rows alone, as after an import, is extended: the path before is executed again and paid for."""
    workflow = branching(n_requests=3)
    whole = rows_of(tmp_path, workflow, "whole.db", sampler="exhaustive")
    with new_store(tmp_path / "rows.db", workflow) as store:
        store.register(workflow.requests)
        store.add_many(row for row in whole if row.depth <= 2)
        run(store, workflow, sampler="exhaustive")
        rows = store.observations()
    assert {(row.request_id, row.prefix): row for row in rows} == {(row.request_id, row.prefix): row for row in whole}


def test_rows_go_out_and_come_back(tmp_path):
    from vinelm.traces import export_store, import_export

    workflow = branching(score=lambda request, state: 0.25 if state["said"] == "right" else 0.0)
    with new_store(tmp_path / "s.db", workflow) as store:
        run(store, workflow, sampler="exhaustive")
        rows = store.observations()
        for kind in ("csv", "parquet"):
            export_store(store, tmp_path / f"rows.{kind}")
    assert {row.success for row in rows} == {0.25, 0.0}
    for kind in ("csv", "parquet"):
        import_export(tmp_path / f"rows.{kind}", tmp_path / f"{kind}.db")
        with ObservationStore.open(tmp_path / f"{kind}.db") as store:
            assert store.observations() == rows
