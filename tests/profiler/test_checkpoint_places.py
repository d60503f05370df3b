"""A profile whose checkpoints are kept outside its store has the same rows, and goes on from them."""

import uuid

import fsspec
import pytest
from kit.servers.postgres_server import postgres_server_url, postgres_url  # noqa: F401 - fixtures
from kit.toys.profiling import ToyBackend, catalog_for, new_store, only_right, toy

from vinelm.errors import StoreError
from vinelm.profiler import ExecutionConfig, ProfileSettings, profile
from vinelm.traces import CheckpointPlace, ObservationStore


def run(address, url, workflow=None, **settings):
    """The calls of a run, and all rows and states of the store after it."""
    workflow, backend = workflow or toy(n_requests=6), ToyBackend()
    with new_store(address, workflow) if workflow.score is not only_right else ObservationStore.open(address) as store:
        if url is not None:
            store.keep_checkpoints_under(CheckpointPlace(url))
        settings = {"coverage": 1.0, "execution": ExecutionConfig(isolation="thread", workers=3), **settings}
        profile(workflow, catalog_for(workflow), {"test": backend}, store, ProfileSettings(sampler="exhaustive", **settings))
        rows = {(row.request_id, row.prefix): row for row in store.observations()}
        return len(backend.calls), rows, {cell: store.checkpoint(*cell) for cell in rows}


def test_the_rows_are_those_of_a_store_that_holds_them_and_a_run_goes_on_from_them(tmp_path):
    url = f"memory://{uuid.uuid4().hex}"
    _, rows, states = run(tmp_path / "in.db", None)
    first, _, _ = run(tmp_path / "out.db", url, coverage=None, budget_calls=7)
    assert first == 7
    second, found, kept = run(tmp_path / "out.db", None)  # the store knows where they are
    assert second == len(rows) - 7
    assert (found, kept) == (rows, states)
    files = [
        path
        for path in fsspec.filesystem("memory").find(url.removeprefix("memory:/"))
        if not path.endswith("vinelm-checkpoints")
    ]
    assert len(files) == len(set(states.values()))
    calls, scored, _ = run(tmp_path / "out.db", None, workflow=toy(n_requests=6, score=only_right))
    assert calls == 0  # scored again from the states
    assert {cell: row.success for cell, row in scored.items()} != {cell: row.success for cell, row in rows.items()}


def test_a_place_that_is_lost_during_a_run_ends_it_in_one_line_and_the_next_run_goes_on(tmp_path):
    folder, workflow = tmp_path / "kept", toy(n_requests=6)
    (tmp_path / "file").write_text("in the way")
    calls = []

    def away(*_):
        calls.append(1)
        if len(calls) == 5:
            folder.rename(tmp_path / "away")
            (tmp_path / "file").rename(folder)

    backend = ToyBackend(away)
    with new_store(tmp_path / "s.db", workflow) as store:
        store.keep_checkpoints_under(CheckpointPlace(str(folder)))
        with pytest.raises(StoreError, match=r"checkpoints: .*: repair it and run the same line again") as caught:
            profile(workflow, catalog_for(workflow), {"test": backend}, store, ProfileSettings(coverage=1.0))
    assert "\n" not in str(caught.value)
    folder.unlink()
    (tmp_path / "away").rename(folder)
    _, rows, _ = run(tmp_path / "whole.db", None)
    _, found, _ = run(tmp_path / "s.db", None)
    assert found.keys() == rows.keys()


@pytest.mark.long
@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_store_in_postgres_holds_them_too(tmp_path, postgres_url, is_elsewhere):  # noqa: F811
    url = str(tmp_path / "kept") if is_elsewhere else None
    _, rows, states = run(tmp_path / "one.db", None)
    run(postgres_url, url, coverage=None, budget_calls=7)
    second, found, kept = run(postgres_url, None)
    assert second == len(rows) - 7
    assert (found, kept) == (rows, states)
    with ObservationStore.open(postgres_url) as store:
        assert (store.checkpoint_place is not None) == is_elsewhere
