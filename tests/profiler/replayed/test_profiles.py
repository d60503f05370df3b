"""Whole profiles of replayed workflows: the ledger, the workers, a kill, and what follows the profile."""

import signal
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from kit.toys.profiling import State, ToyBackend, catalog_for, new_store, one_stage, toy
from kit.toys.replayed import TOYS, jittery_toy

from vinelm import Objective, VineLM
from vinelm.adapters.langgraph import build_graph
from vinelm.profiler import ExecutionConfig, ProfileSettings, WorkflowSource, check_workflow, profile
from vinelm.profiler.execution.replayed import application
from vinelm.template import Stage, Template
from vinelm.traces import ObservationStore

INLINE = ExecutionConfig()


def run(path, workflow, execution=INLINE, backend=None, **settings):
    with new_store(path, workflow) as store:
        backends = {"test": backend or ToyBackend()}
        result = profile(workflow, catalog_for(workflow), backends, store, ProfileSettings(execution=execution, **settings))
        return result, store.observations(), store.committed_usd()


def by_cell(rows):
    return sorted(rows, key=lambda row: (row.request_id, row.prefix))


@pytest.mark.parametrize("name", [pytest.param(one, marks=pytest.mark.long) if one == "supervisor" else one for one in TOYS])
def test_every_cell_is_bought_once_by_any_number_of_threads(tmp_path, name):
    workflow, backend = TOYS[name](n_requests=2), ToyBackend()
    result, rows, paid = run(tmp_path / "one.db", workflow, backend=backend, sampler="exhaustive")
    assert (result.stopped_by, result.failures) == ("complete", {})
    assert sorted(backend.calls) == sorted((row.request_id, row.prefix) for row in rows)  # replays bought nothing
    assert paid == pytest.approx(sum(row.cost_usd for row in rows))
    threads = ExecutionConfig(isolation="thread", workers=4)
    _, theirs, _ = run(tmp_path / "many.db", workflow, threads, sampler="exhaustive")
    assert by_cell(theirs) == by_cell(rows)


@pytest.mark.parametrize("is_async", [True, False])
def test_calls_side_by_side_in_a_function_have_one_order_however_long_the_work_between_them_takes(
    tmp_path, monkeypatch, is_async
):
    monkeypatch.setattr(application, "_LONGEST_WAIT_S", 60.0)  # on a busy machine a thread may not begin within a second
    workflow = jittery_toy(is_async, n_requests=4)
    result, rows, _ = run(tmp_path / "s.db", workflow, sampler="exhaustive")
    assert (result.stopped_by, result.failures) == ("complete", {})
    # Calls side by side are one invocation: of the two branches, one after the other, and of the graph's three nodes.
    assert {(row.depth, row.calls) for row in rows} == ({(1, 2), (2, 2)} if is_async else {(1, 3)})


@pytest.mark.parametrize("name", ["coroutine", "supervisor"])
@pytest.mark.long
def test_processes_buy_the_same_rows(tmp_path, name):
    workflow = TOYS[name](n_requests=2)
    source = WorkflowSource(function="kit.toys.replayed:load", arguments={"name": name, "n_requests": 2})
    execution = ExecutionConfig(isolation="process", workers=2, source=source)
    result, rows, _ = run(tmp_path / "here.db", workflow, coverage=0.5)
    there, theirs, _ = run(tmp_path / "there.db", workflow, execution, coverage=0.5)
    assert by_cell(theirs) == by_cell(rows)
    assert there.stopped_by == result.stopped_by


def test_calls_in_a_pool_that_all_requests_share_belong_to_the_request_that_makes_them(tmp_path):
    """Four requests at once in one process: a thread of the pool serves one after the other."""
    rows, one = [], Template((Stage("generate", ("m0", "m1")),))

    def is_even(request, state):
        return len(state["answer"]) % 2 == 0

    with ThreadPoolExecutor(2) as pool:

        def in_pool(state: State, model):
            return {"answer": pool.submit(model.invoke, f"{state['question']}?").result().text}

        def here(state: State, model):
            return {"answer": model.invoke(f"{state['question']}?").text}

        for node in (here, in_pool):
            workflow = toy(n_requests=12, build=one_stage(node), template=one, score=is_even)
            threads = ExecutionConfig(isolation="thread", workers=4)
            result, found, _ = run(tmp_path / f"{node.__name__}.db", workflow, threads, sampler="exhaustive")
            assert (result.stopped_by, result.failures) == ("complete", {})
            rows.append([(row.request_id, row.prefix, row.success, row.cost_usd) for row in by_cell(found)])
    assert rows[0] == rows[1]
    assert len(rows[0]) == 24


def test_a_budget_is_kept_and_the_capped_run_is_a_prefix(tmp_path):
    workflow = TOYS["supervisor"](n_requests=1)
    _, rows, total = run(tmp_path / "whole.db", workflow, sampler="exhaustive")
    for share in (0.1, 0.5):
        result, capped, paid = run(tmp_path / f"{share}.db", workflow, sampler="exhaustive", budget_usd=total * share)
        assert result.stopped_by == "budget"
        assert paid <= total * share + 1e-12
        assert 0 < len(capped) < len(rows)
        assert capped == rows[: len(capped)]


CHILD = """
import os, signal, sys
from kit.toys.profiling import *
from kit.toys.replayed import TOYS
from vinelm.profiler import ProfileSettings
from vinelm.profiler.runner import profile
path, n = sys.argv[1], int(sys.argv[2])
left = [n]
def die(*_):
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
workflow = TOYS["supervisor"](n_requests=2)
store = new_store(path, workflow)
profile(workflow, catalog_for(workflow), {"test": ToyBackend(before=die)}, store, ProfileSettings(sampler="exhaustive"))
"""


def test_kill_9_and_resume_gives_the_undisturbed_store(tmp_path, python):
    workflow = TOYS["supervisor"](n_requests=2)
    _, whole, total = run(tmp_path / "whole.db", workflow, sampler="exhaustive")
    killed = tmp_path / "killed.db"
    for n in (5, 9):
        with python.start(CHILD, str(killed), str(n)) as child:
            assert child.wait() == -signal.SIGKILL
    _, rows, paid = run(killed, workflow, sampler="exhaustive")
    assert rows == whole
    assert paid > total  # the calls in flight, at their bound
    with ObservationStore.open(killed) as one, ObservationStore.open(tmp_path / "whole.db") as other:
        for row in whole:
            assert one.checkpoint(row.request_id, row.prefix) == other.checkpoint(row.request_id, row.prefix)


def only_right(request, state):
    return state["answer"] == "right"


def test_another_scorer_judges_the_records_without_a_call(tmp_path):
    make, backend = partial(TOYS["nested"], n_requests=2), ToyBackend()
    _, before, _ = run(tmp_path / "s.db", make(), sampler="exhaustive")
    _, after, _ = run(tmp_path / "s.db", make(score=only_right), backend=backend, sampler="exhaustive")
    assert backend.calls == []
    assert len(after) == len(before)
    ends = [(one.success, other.success) for one, other in zip(by_cell(before), by_cell(after), strict=True)]
    assert ends != [(one, one) for one, _ in ends]


@pytest.mark.parametrize("name", TOYS)
def test_check_runs_it_without_a_call(name):
    report = check_workflow(TOYS[name](), catalog_for(TOYS[name]()))
    assert report.is_ok, [item for item in report.items if not item.is_ok]
    assert any("from its start with recorded answers" in item.detail for item in report.items)


@pytest.mark.parametrize("name", ["function", "entrypoint", "nested", "twice"])
def test_what_was_profiled_is_served(tmp_path, name):
    from vinelm.api.estimation import estimate_store

    workflow = TOYS[name](n_requests=6)
    run(tmp_path / "s.db", workflow, sampler="exhaustive")
    trie = estimate_store(tmp_path / "s.db", estimator="latent")
    backend = ToyBackend()
    vine = VineLM(catalog_for(workflow), {"test": backend}, template=trie.template, trie=trie)
    app = build_graph(workflow, vine)
    objective = Objective(maximize="accuracy", max_cost_usd=0.01)
    for request in workflow.requests[:3]:
        session = vine.session(objective, request=request)
        state = app.invoke(workflow.graph_input(request), context=vine.context(policy=session, request=request))
        assert "answer" in state
        planned = [step for step in session.trace() if step.get("kind") == "model"]
        assert [len(step["prefix"]) for step in planned] == list(range(len(session.invocations)))
        assert [step["stage"] for step in planned] == [one.stage for one in session.invocations], planned
        assert [step["model"] for step in planned] == list(session.invocations[-1].prefix)
