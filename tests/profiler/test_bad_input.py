"""What goes wrong in the world: each time a clear line, or a row that says so, and nothing that was bought is lost."""

import shutil

import pytest
from kit.toys.profiling import State, ToyBackend, build, catalog_for, new_store, toy

from vinelm.backends import OfflineChatModel
from vinelm.errors import DatasetError, StoreError, WorkflowError
from vinelm.profiler import ExecutionConfig, ProfileSettings, profile
from vinelm.requests.workflow import Request
from vinelm.rows.observation import Usage


def run(store, workflow, backend=None, **settings):
    return profile(workflow, catalog_for(workflow), {"test": backend or ToyBackend()}, store, ProfileSettings(**settings))


@pytest.mark.parametrize(
    "execution", [ExecutionConfig(), ExecutionConfig(isolation="thread", workers=4)], ids=["inline", "thread"]
)
def test_a_full_disk_is_one_line_and_what_was_written_stays(tmp_path, execution):
    workflow = toy(n_requests=12)
    with new_store(tmp_path / "whole.db", workflow) as store:
        run(store, workflow, sampler="exhaustive")
        whole = sorted(store.observations(), key=lambda row: (row.request_id, row.prefix))
    with new_store(tmp_path / "s.db", workflow) as store:
        with store._database.transaction() as connection:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
            connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + 6}")
        with pytest.raises(StoreError, match="disk is full: free some space and resume") as caught:
            run(store, workflow, sampler="exhaustive", execution=execution)
        assert "\n" not in str(caught.value)
        kept = store.observations()
    assert kept
    with new_store(tmp_path / "s.db", workflow) as store:  # the limit was the connection's
        run(store, workflow, sampler="exhaustive", execution=execution)
        rows = store.observations()
        assert rows[: len(kept)] == kept
        assert sorted(rows, key=lambda row: (row.request_id, row.prefix)) == whole
        assert store.abandon_open() == 0


def test_a_store_copied_while_a_run_writes_goes_on_by_itself(tmp_path):
    workflow = toy(n_requests=8)
    path = tmp_path / "s.db"

    def copy(progress):
        if progress.executed == 9:
            for suffix in ("", "-wal"):
                shutil.copy(f"{path}{suffix}", f"{tmp_path / 'copy.db'}{suffix}")

    with new_store(path, workflow) as store:
        run(store, workflow, coverage=0.9, on_progress=copy)
        whole = store.observations()
    with new_store(tmp_path / "copy.db", workflow) as store:
        assert store.observations() == whole[:9]
        run(store, workflow, coverage=0.9)
        assert store.observations() == whole


def test_a_model_that_answers_nothing_is_a_row(tmp_path):
    workflow = toy(n_requests=2)
    with new_store(tmp_path / "s.db", workflow) as store:
        result = run(store, workflow, ToyBackend(before=lambda request, prefix: "empty" if prefix == ("m0",) else None))
        rows = [row for row in store.observations() if row.prefix == ("m0",)]
    assert [(row.failure, row.success) for row in rows] == [("empty", None)] * 2
    assert all(row.cost_usd > 0 for row in rows)
    assert result.failures == {"empty": 2}


class NaNBackend(ToyBackend):
    def answer(self, model, call, prompt_chars):
        if call.prefix == ("m0",):
            return "right", Usage(model=model.name, cost_usd=float("nan"), latency_s=0.0)
        return super().answer(model, call, prompt_chars)


def test_a_cost_that_is_no_number_is_a_row_that_says_so(tmp_path):
    workflow = toy(n_requests=1)
    with new_store(tmp_path / "s.db", workflow) as store:
        result = run(store, workflow, NaNBackend())
        (row,) = (row for row in store.observations() if row.prefix == ("m0",))
    assert (row.failure, row.detail) == ("tool", "cost_usd is nan: it must be a finite number >= 0")
    assert result.spent_usd == result.spent_usd > 0


def test_a_request_that_no_model_ever_finishes_ends_in_failures_and_not_in_an_endless_profile(tmp_path):
    workflow = toy(n_requests=3)
    backend = ToyBackend(before=lambda request, prefix: "timeout" if request == "q1" else None)
    with new_store(tmp_path / "s.db", workflow) as store:
        result = run(store, workflow, backend)
        rows = [row for row in store.observations() if row.request_id == "q1"]
    assert result.stopped_by == "complete"
    assert sorted((row.prefix, row.failure) for row in rows) == [(("m0",), "timeout"), (("m1",), "timeout")]


def test_a_state_that_no_checkpoint_can_hold_names_its_key_and_type(tmp_path):
    def generate(state, model):
        return {"answer": model.invoke("question").text, "log": [lambda: None]}

    def with_function(vine):
        class Careless:
            route = staticmethod(vine.route)

            def stage(self, name, fn):
                return vine.stage(name, generate, state=State) if name == "generate" else vine.stage(name, fn)

        return build(Careless())

    workflow = toy(n_requests=1, build=with_function)
    with new_store(tmp_path / "s.db", workflow) as store:
        result = run(store, workflow, sampler="exhaustive")
        details = {row.detail for row in store.observations() if row.failure == "state"}
    assert result.stopped_by == "complete"
    assert len(details) == 1
    assert "the state's key 'log' (list) cannot be checkpointed" in details.pop()


def test_ids_that_repeat_are_refused_before_anything_else():
    with pytest.raises(DatasetError, match="the request id 'q0' repeats"):
        toy(requests=[Request("q0", {}), Request("q0", {})])


def test_a_worker_that_dies_with_the_wrong_error_leaves_what_was_bought(tmp_path):
    """An error of the graph ends the run; rows before it are kept, and the line says what to mend."""
    workflow = toy(n_requests=3)
    backend = ToyBackend()

    class Refuses(OfflineChatModel):
        def _generate(self, *args, **kwargs):
            raise WorkflowError("workflow 'toy': mend it")

    def chat_model(model, call):
        kind = Refuses if call.prefix == ("m1", "m0") else OfflineChatModel
        return kind.bound(backend, model, call)

    backend.chat_model = chat_model
    with new_store(tmp_path / "s.db", workflow) as store:
        with pytest.raises(WorkflowError, match="mend it"):
            run(store, workflow, backend, execution=ExecutionConfig(isolation="thread", workers=4), sampler="exhaustive")
        kept = store.observations()
        assert kept
        run(store, workflow, sampler="exhaustive")
        rows = store.observations()
    assert rows[: len(kept)] == kept
    with new_store(tmp_path / "whole.db", workflow) as store:
        run(store, workflow, sampler="exhaustive")
        key = lambda row: (row.request_id, row.prefix)  # noqa: E731
        assert sorted(rows, key=key) == sorted(store.observations(), key=key)


def test_a_changed_workflow_is_refused_with_the_change(tmp_path, monkeypatch, capsys):
    from vinelm.cli.main import main

    monkeypatch.chdir(tmp_path)
    few = ["profile", "nl2sql", "--preset", "paper-2", "--isolation", "inline", "--coverage", "0.2"]
    assert main([*few, "--limit", "3", "--quiet"]) == 0
    capsys.readouterr()
    line = [*few, "--limit", "4"]
    assert main([*line, "--seed", "1"]) == 2
    assert "rows would stay (the workflow changed (setting seed))" in (said := capsys.readouterr().err)
    assert "give another --store, or move this one away" in said
    (tmp_path / "runs" / "nl2sql.db").rename(tmp_path / "runs" / "old.db")
    assert main([*line, "--seed", "1"]) == 0
