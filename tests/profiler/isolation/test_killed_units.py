"""A unit that somebody else killed is run once more; what its calls may have cost is settled besides."""

import os
import signal

import pytest
from kit.toys.profiling import LoadedWorkflow, ToyBackend, catalog_for, cost_of, expected, new_store, toy

from vinelm.errors import InputError, WorkerDied
from vinelm.profiler import ExecutionConfig, ProfileSettings, WorkflowSource, profile


def run(path, arguments, function="test_killed_units:load", **settings):
    loaded = load(**arguments)
    source = WorkflowSource(function=function, arguments=arguments)
    execution = ExecutionConfig(isolation="process", workers=2, source=source)
    with new_store(path, loaded.workflow) as store:
        result = profile(
            loaded.workflow,
            loaded.catalog,
            loaded.backends,
            store,
            ProfileSettings(execution=execution, sampler="exhaustive", **settings),
        )
        return result, store.observations(), store.committed_usd()


def load(folder, signal_name="SIGKILL", times=1, cell="q0/m0", victim="child", n_requests=2):
    """The unit of ``cell`` is killed in its call, the first ``times`` times."""

    def before(request_id, prefix):
        if "/".join((request_id, *prefix)) != cell:
            return
        number = len(os.listdir(folder))
        if number >= times:
            return
        open(os.path.join(folder, str(number)), "w").close()
        os.kill(os.getpid() if victim == "child" else os.getppid(), getattr(signal, signal_name))
        signal.pause()

    workflow = toy(n_requests=n_requests)
    return LoadedWorkflow(workflow, catalog_for(workflow), {"test": ToyBackend(before=before)})


@pytest.fixture(autouse=True)
def importable(monkeypatch, warm_python):
    """By the children as well: the path of this process is theirs."""
    monkeypatch.syspath_prepend(os.path.dirname(__file__))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "kills").mkdir()
    return str(tmp_path / "kills")


@pytest.mark.parametrize("name", ["SIGKILL", pytest.param("SIGTERM", marks=pytest.mark.long)])
def test_a_unit_that_is_killed_once_is_run_again(tmp_path, folder, name):
    result, rows, paid = run(tmp_path / "s.db", {"folder": folder, "signal_name": name})
    assert (result.stopped_by, result.failures) == ("complete", {})
    for row in rows:
        wanted = expected(row.request_id, row.prefix)
        assert {name: getattr(row, name) for name in wanted} == wanted
    earned = sum(row.cost_usd for row in rows)
    assert paid == pytest.approx(earned + bound_of_the_first_try())
    assert os.listdir(folder) == ["0"]


def bound_of_the_first_try():
    """The reservation of the unit: the toy's backend reports no bounds, so that its call may have cost all of it."""
    from vinelm.profiler.execution.ledger import PriceBound

    return PriceBound(catalog_for(toy())).usd("generate", "m0")


@pytest.mark.long
def test_a_unit_that_is_killed_twice_is_a_row(tmp_path, folder):
    result, rows, paid = run(tmp_path / "s.db", {"folder": folder, "times": 2})
    assert result.failures == {"crash": 1}
    (dead,) = (row for row in rows if row.failure)
    assert (dead.request_id, dead.prefix, dead.detail) == ("q0", ("m0",), "killed by SIGKILL")
    assert paid == pytest.approx(sum(row.cost_usd for row in rows) + 2 * bound_of_the_first_try())


def test_a_unit_that_crashes_of_itself_is_not_run_again(tmp_path, folder):
    result, _, _ = run(tmp_path / "s.db", {"folder": folder, "signal_name": "SIGABRT"})
    assert result.failures == {"crash": 1}
    assert os.listdir(folder) == ["0"]


def test_it_is_not_run_again_beyond_the_budget(tmp_path, folder):
    budget = 1.5 * bound_of_the_first_try()
    result, rows, paid = run(tmp_path / "s.db", {"folder": folder}, budget_usd=budget)
    assert (result.stopped_by, rows) == ("budget", [])
    assert paid <= budget


@pytest.mark.long
def test_the_death_of_the_fork_server_is_no_bad_input_and_no_row(tmp_path, folder):
    arguments = {"folder": folder, "victim": "server"}
    with pytest.raises(WorkerDied, match="the process that runs the units died: run the profile again") as died:
        run(tmp_path / "s.db", arguments)
    assert not isinstance(died.value, InputError)
    result, rows, _ = run(tmp_path / "s.db", arguments)  # the second time nobody kills it
    assert (result.stopped_by, result.failures) == ("complete", {})
    assert {(row.request_id, row.prefix) for row in rows} >= {("q0", ("m0",))}
    assert sum(row.cost_usd for row in rows) == pytest.approx(sum(cost_of(row.request_id, row.prefix) for row in rows))
