"""Fresh processes, threads, inline: the same rows, and whatever a unit does there stays its own affair."""

import os
import random
import time
from dataclasses import replace
from pathlib import Path

import pytest
from kit.toys.profiling import ToyBackend, catalog_for, expected, load, new_store, toy

from vinelm.errors import ConfigError, WorkflowError
from vinelm.profiler import ExecutionConfig, ProfileSettings, WorkflowSource, profile
from vinelm.traces.store.run_state import RunRecords


def processes(workers=2, *, mischief=None, settings=None, **more):
    source = WorkflowSource(function="kit.toys.profiling:load", arguments={"mischief": mischief or {}, **(settings or {})})
    return ExecutionConfig(isolation="process", workers=workers, source=source, **more)


INLINE = ExecutionConfig()


def run(path, workflow, execution=INLINE, backend=None, **settings):
    with new_store(path, workflow) as store:
        backends = {"test": backend or ToyBackend()}
        result = profile(workflow, catalog_for(workflow), backends, store, ProfileSettings(execution=execution, **settings))
        return result, store.observations(), store.committed_usd()


def by_cell(rows):
    return sorted(rows, key=lambda row: (row.request_id, row.prefix))


CAPS = [
    {},
    {"coverage": 0.3},
    {"sampler": "exhaustive", "budget_usd": 0.031},
    {"budget_usd": 0.02, "coverage": 0.9},
    {"budget_calls": 23},
    pytest.param({"sampler": "exhaustive", "coverage": 0.5}, marks=pytest.mark.long),
]


@pytest.mark.parametrize("caps", CAPS, ids=str)
def test_all_modes_and_any_number_of_workers_buy_the_same_rows(tmp_path, caps):
    """Units take random times, so that they end in any order."""
    workflow = toy(n_requests=6, n_models=3)
    result, rows, paid = run(tmp_path / "inline.db", workflow, **caps)
    rng = random.Random(1)

    def dawdle(request_id, prefix):
        time.sleep(rng.random() * 0.002)

    for workers in (3, 16):
        execution = ExecutionConfig(isolation="thread", workers=workers)
        there = run(tmp_path / f"{workers}.db", workflow, execution, ToyBackend(before=dawdle), **caps)
        assert by_cell(there[1]) == by_cell(rows)
        assert replace(there[0], committed_usd=result.committed_usd) == result
        assert there[2] == pytest.approx(paid)


def test_processes_buy_the_same_rows(tmp_path, one_zygote):
    workflow = toy(n_requests=6)
    settings = {"n_requests": 6}
    for caps in ({"coverage": 0.5}, {"budget_usd": 0.01}):
        name = next(iter(caps))
        result, rows, _ = run(tmp_path / f"{name}.db", workflow, **caps)
        there, theirs, _ = run(tmp_path / f"{name}-p.db", workflow, processes(3, settings=settings), **caps)
        assert by_cell(theirs) == by_cell(rows)
        assert replace(there, committed_usd=result.committed_usd) == result


def test_a_process_with_more_than_a_thousand_open_files_profiles(tmp_path):
    """What its units are forked from waited by ``select``, which takes no descriptor above 1,023."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1_100)]
    try:
        result, rows, _ = run(tmp_path / "s.db", toy(n_requests=1), processes(1, settings={"n_requests": 1}), coverage=0.1)
    finally:
        for number in held:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert rows
    assert result.failures == {}


def test_a_unit_that_dies_is_a_row_and_nothing_else_suffers(tmp_path, warm_python, monkeypatch, capfd):
    monkeypatch.setenv("TOY_API_KEY", "sk-canary-123456")
    mischief = {
        "q0/m0": "os._exit",
        "q0/m1": "segfault",
        "q1/m0": "abort",
        "q1/m1": "orphan",
        "q2/m0": "kill",
        "q2/m1": "secret",
        "q3/m0": "memory",
        "q3/m1": "print",
    }
    workflow = toy()
    execution = processes(2, mischief=mischief, memory_mb=1024)
    result, rows, _ = run(tmp_path / "s.db", workflow, execution, sampler="exhaustive")
    assert result.stopped_by == "complete"
    found = {"/".join((row.request_id, *row.prefix)): row for row in rows}
    details = {cell: found[cell].detail for cell in mischief if cell != "q3/m1"}
    assert all(found[cell].failure == "crash" for cell in details)
    assert details["q0/m0"] == "exit code 3: about to leave"
    assert details["q0/m1"].startswith("killed by SIGSEGV: Fatal Python error: Segmentation fault")
    assert details["q1/m0"].startswith("killed by SIGABRT: Fatal Python error: Aborted")
    assert details["q1/m1"] == "exit code 9"
    assert details["q2/m0"] == "killed by SIGKILL"
    assert details["q2/m1"] == "exit code 1: key=$TOY_API_KEY asked [question]"
    assert details["q3/m0"] == "MemoryError: the unit needs more memory than its limit"
    for cell, row in found.items():
        if cell not in details:
            wanted = expected(row.request_id, row.prefix)
            assert {name: getattr(row, name) for name in wanted} == wanted
    assert capfd.readouterr() == ("", "")
    assert result.committed_usd > result.spent_usd  # the calls that were under way may have been billed


@pytest.mark.long
def test_a_unit_that_hangs_is_ended_killed_and_recorded(tmp_path):
    workflow = toy(n_requests=1, depth=2)
    execution = processes(2, mischief={"q0/m0": "hang"}, settings={"n_requests": 1, "depth": 2}, timeout_s=1.0)
    result, rows, _ = run(tmp_path / "s.db", workflow, execution)
    (row,) = (row for row in rows if row.failure)
    assert (row.prefix, row.failure, row.detail) == (("m0",), "timeout", "no end after 1 s: killed")
    assert result.stopped_by == "complete"


def test_children_end_with_the_run_that_started_them(tmp_path, python):
    """kill -9 of the run: its fork server and the unit under way are gone as well."""
    code = """
import sys
from kit.toys.profiling import *
from vinelm.profiler import ProfileSettings
from vinelm.profiler.runner import profile
from vinelm.profiler import WorkflowSource
from vinelm.profiler import ExecutionConfig
workflow = toy(n_requests=1)
source = WorkflowSource(function="kit.toys.profiling:load", arguments={"mischief": {"q0/m0": 600}, "n_requests": 1})
store = new_store(sys.argv[1], workflow)
print("ready", flush=True)
execution = ExecutionConfig(isolation="process", source=source)
profile(workflow, catalog_for(workflow), {"test": ToyBackend()}, store, ProfileSettings(execution=execution))
"""
    with python.start(code, str(tmp_path / "s.db")) as child:
        assert child.stdout.readline() == "ready\n"
        family = wait_for(lambda: descendants(child.pid), 2)
        child.kill()
    wait_for(lambda: [1] * (not any(Path(f"/proc/{pid}").exists() for pid in family)), 1)


def descendants(pid):
    children = [int(found) for path in Path(f"/proc/{pid}/task").glob("*/children") for found in path.read_text().split()]
    return children + [grandchild for child in children for grandchild in descendants(child)]


def wait_for(look, n):
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        found = look()
        if len(found) >= n:
            return found
        time.sleep(0.02)
    raise AssertionError("did not come")


@pytest.mark.long
def test_a_workflow_that_does_not_load_or_is_another_one_in_a_fresh_process(tmp_path):
    workflow = toy()
    for source, words in (
        (
            WorkflowSource(function="kit.toys.profiling:load", arguments={"nonsense": 1}),
            "does not load in a fresh process: TypeError",
        ),
        (WorkflowSource(function="no_such_module:load"), "does not load in a fresh process: ModuleNotFoundError"),
        (
            WorkflowSource(function="kit.toys.profiling:load", arguments={"resources": {"db": "x"}}),
            r"another one .*\(resource db\)",
        ),
    ):
        execution = ExecutionConfig(isolation="process", source=source)
        with pytest.raises(WorkflowError, match=words) as caught:
            run(tmp_path / "s.db", workflow, execution)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"isolation": "docker"}, "unknown isolation 'docker': use process, thread, inline"),
        ({"workers": 0}, "workers is 0"),
        ({"workers": 2}, "inline runs one unit at a time"),
        ({"isolation": "thread", "timeout_s": 5.0}, 'timeout_s has no effect with isolation="thread"'),
        ({"memory_mb": 100}, 'memory_mb has no effect with isolation="inline"'),
        ({"isolation": "process", "source": WorkflowSource(function="a:b"), "timeout_s": 0.0}, "timeout_s is 0.0"),
        ({"isolation": "process", "source": WorkflowSource(function="a:b"), "memory_mb": -1}, "memory_mb is -1"),
    ],
)
def test_execution_configs_that_make_no_sense(settings, words):
    with pytest.raises(ConfigError, match=words):
        ExecutionConfig(**settings)


def test_fresh_processes_need_a_workflow_that_they_can_build():
    with pytest.raises(ConfigError, match="built in code cannot run in fresh processes"):
        ProfileSettings(execution=ExecutionConfig(isolation="process"))


def test_every_state_is_kept(tmp_path):
    workflow = toy(n_requests=5, stop="oracle")
    with new_store(tmp_path / "s.db", workflow) as store:
        profile(workflow, catalog_for(workflow), {"test": ToyBackend()}, store, ProfileSettings(sampler="exhaustive"))
        cells = {(row.request_id, row.prefix) for row in store.observations()}
        assert set(RunRecords(store).checkpoint_cells()) == cells


def test_load_gives_the_toy():
    assert load(n_requests=2).workflow.dataset_digest == toy(n_requests=2).dataset_digest
