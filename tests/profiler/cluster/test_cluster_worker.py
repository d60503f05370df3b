"""Units on the hosts of a cluster: the rows of one machine, whatever is lost. Hosts are threads here, nodes in test_ray.py."""

import asyncio
import re
import threading
import time
from types import SimpleNamespace

import pytest
from kit.servers.fake_cluster import FakeCluster
from kit.toys.profiling import ToyBackend, catalog_for, new_store, toy

from vinelm import extras
from vinelm.backends.limits.rate_limits import EngineRateLimiter, RateLimits
from vinelm.errors import ConfigError, MissingExtra, WorkerDied, WorkflowError
from vinelm.profiler import ExecutionConfig, ProfileSettings, RayCluster, WorkflowSource, profile, runner
from vinelm.profiler.cluster import worker as worker_module
from vinelm.profiler.cluster.bridge import said_by
from vinelm.profiler.cluster.messages import Connected, HostSetup
from vinelm.profiler.cluster.worker import LOSSES, ClusterWorker
from vinelm.profiler.execution.job import Job, UnitOutcome, UnitSetup
from vinelm.profiler.execution.replayed.runner import make_units
from vinelm.profiler.execution.unit import LocalWorker
from vinelm.requests.workflow import Request
from vinelm.traces.testing import a_row
from vinelm.version import __version__

WORKFLOW = toy(n_requests=8, n_models=2, depth=2)


def setup_of(**changes):
    units = UnitSetup(
        source=WorkflowSource(function="none:none"), template=WORKFLOW.template, fingerprint={}, timeout_s=1.0, memory_mb=0,
        is_virtual_time=True,
    )  # fmt: skip
    fields = {"version": __version__, "units": units, "limited": (), "folder": None, "path": ()}
    return HostSetup(**(fields | changes))


def toy_cluster(before=None, nodes=("one", "two")):
    """Hosts that run the toy."""

    def make_worker(setup, _limiters):
        return LocalWorker(make_units(WORKFLOW, catalog_for(WORKFLOW), {"test": ToyBackend(before)}))

    return FakeCluster(setup_of(), make_worker, nodes)


def profiled(path, monkeypatch=None, cluster=None, notes=None, **limits):
    """(rows by cell, committed dollars, result) of a run, on the cluster where one is given."""
    if cluster is not None:
        monkeypatch.setattr(
            runner, "make_worker", lambda *_: ClusterWorker(cluster, {}, None if notes is None else notes.append)
        )
    with new_store(path, WORKFLOW) as store:
        result = profile(
            WORKFLOW, catalog_for(WORKFLOW), {"test": ToyBackend()}, store,
            ProfileSettings(execution=ExecutionConfig(isolation="thread", workers=4), **limits),
        )  # fmt: skip
        return {(row.request_id, row.prefix): row for row in store.observations()}, store.committed_usd(), result


class Fake:
    """A host's worker that does as it is told; ``run`` may use the limiters."""

    def __init__(self, run, limiters=None):
        self.run_unit, self.limiters = run, limiters or {}

    def run(self, job, top_up):
        return self.run_unit(self, job, top_up)

    def close(self):
        pass


def fake_cluster(run, nodes=("one",), limited=()):
    return FakeCluster(setup_of(limited=limited), lambda _, limiters: Fake(run, limiters), nodes)


def job(upper_usd=1.0):
    return Job(Request("q1", {"question": "why", "table": object()}), ("m0",), None, upper_usd)


def row():
    return a_row("q1", ("m0",), cost_usd=0.25)


def granted(asked):
    return lambda usd: asked.append(usd) or True


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What one machine makes of every cell: (rows by cell, committed dollars, result)."""
    return profiled(tmp_path_factory.mktemp("one") / "one.db", sampler="exhaustive")


# -- the rows of one machine ---------------------------------------------------------------------------------------------


def test_the_rows_of_a_cluster_are_those_of_one_machine(tmp_path, monkeypatch):
    rows, usd, one = profiled(tmp_path / "one.db", coverage=0.6)
    cluster = toy_cluster()
    found, their_usd, result = profiled(tmp_path / "many.db", monkeypatch, cluster, coverage=0.6)
    assert (found, their_usd, result.stopped_by) == (rows, pytest.approx(usd), one.stopped_by)
    assert {host for host, _ in cluster.sent} == {0, 1}


def test_a_node_that_is_lost_costs_the_bound_of_its_units_and_no_row(whole, tmp_path, monkeypatch):
    rows, usd, _ = whole
    calls, notes = [], []

    def before(*cell):
        calls.append(cell)
        if len(calls) == 12:
            cluster.drop(cluster.host_of(cell))

    cluster = toy_cluster(before)
    found, their_usd, result = profiled(tmp_path / "many.db", monkeypatch, cluster, notes, sampler="exhaustive")
    assert (found, result.stopped_by) == (rows, "complete")
    again = len(calls) - len(rows)
    assert 1 <= again <= 4
    assert their_usd > usd
    (note,) = notes
    assert re.fullmatch(r"Ray node (one|two) was lost, and \d units? with it: counted at their bound, executed again", note)


def test_a_budget_holds_with_what_was_lost(whole, tmp_path, monkeypatch):
    _, usd, _ = whole
    calls = []

    def before(*cell):
        calls.append(cell)
        if len(calls) in (5, 9):
            cluster.join("three")
            cluster.drop(cluster.host_of(cell))

    cluster, budget = toy_cluster(before), 0.5 * usd
    _, committed, result = profiled(tmp_path / "many.db", monkeypatch, cluster, sampler="exhaustive", budget_usd=budget)
    assert result.stopped_by == "budget"
    assert 0 < committed <= budget


def test_a_run_without_any_host_ends_with_a_line_and_goes_on_on_one_machine(whole, tmp_path, monkeypatch):
    calls = []

    def before(*cell):
        calls.append(cell)
        if len(calls) == 6:
            cluster.disconnect("the head node is gone")
            time.sleep(0.05)

    cluster = toy_cluster(before)
    with monkeypatch.context() as patch, pytest.raises(WorkerDied) as caught:
        profiled(tmp_path / "s.db", patch, cluster, sampler="exhaustive")
    assert str(caught.value) == "the connection to Ray was lost: the head node is gone: run the same again to continue"
    rows, _, result = profiled(tmp_path / "s.db", sampler="exhaustive")
    assert rows == whole[0]
    assert 0 < result.executed < len(rows)


# -- one unit --------------------------------------------------------------------------------------------------------------


def test_units_go_to_the_host_with_the_fewest():
    gate = threading.Event()
    cluster = fake_cluster(lambda *_: gate.wait(5) and UnitOutcome(row()), nodes=("one", "two", "three"))
    worker = ClusterWorker(cluster, {})
    threads = [threading.Thread(target=worker.run, args=(job(), granted([]))) for _ in range(6)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 5
    while len(cluster.sent) < 6 and time.monotonic() < until:
        time.sleep(0.001)
    assert sorted(host for host, _ in cluster.sent) == [0, 0, 1, 1, 2, 2]
    gate.set()
    for thread in threads:
        thread.join(5)
    worker.close()


def test_a_request_is_sent_without_what_cannot_be_pickled():
    def run(_, told, top_up):
        assert dict(told.request.data) == {"question": "why"}
        return UnitOutcome(row())

    assert ClusterWorker(fake_cluster(run), {}).run(job(), granted([])).observation == row()


def test_a_unit_asks_for_money_through_its_host_and_is_lost_at_what_it_was_granted():
    asked, answers = [], []

    def run(_, told, top_up):
        answers.append(top_up(1.5))
        if len(answers) == 1:
            cluster.drop(0)
            cluster.join("two")
            return UnitOutcome(row())  # not heard any more
        return UnitOutcome(row(), paid_usd=0.3)

    cluster = fake_cluster(run)
    outcome = ClusterWorker(cluster, {}).run(job(1.0), granted(asked))
    assert answers == [True, True]
    assert asked == [1.5, 1.5 + 1.0, 1.5 + 1.5]
    assert outcome.settled_usd == pytest.approx(1.5 + 0.3)
    assert outcome.observation == row()


def test_a_unit_that_may_not_be_paid_for_twice_ends_without_a_row():
    def run(_, told, top_up):
        cluster.drop(0)

    cluster = fake_cluster(run)
    outcome = ClusterWorker(cluster, {}).run(job(1.0), lambda _: False)
    assert (outcome.observation, outcome.settled_usd) == (None, 1.0)


def test_a_refused_reservation_reaches_the_unit():
    def run(_, told, top_up):
        return UnitOutcome(None, paid_usd=0.1) if not top_up(2.0) else UnitOutcome(row())

    assert ClusterWorker(fake_cluster(run), {}).run(job(), lambda _: False).observation is None


def test_a_unit_that_is_always_lost_ends_the_run_with_a_line():
    def run(*_):
        cluster.join("next")
        cluster.drop(min(cluster.hosts))

    cluster = fake_cluster(run)
    with pytest.raises(WorkerDied, match=r"^request q1, models m0: its node was lost 4 times while it ran") as caught:
        ClusterWorker(cluster, {}).run(job(), granted([]))
    assert (LOSSES, caught.value.code) == (4, "unit-lost")


def test_a_host_whose_forking_process_died_is_replaced():
    tries = []

    def run(*_):
        tries.append(1)
        if len(tries) == 1:
            cluster.join("two")
            raise WorkerDied("the process that runs the units died")
        return UnitOutcome(row())

    cluster = fake_cluster(run)
    outcome = ClusterWorker(cluster, {}).run(job(1.0), granted([]))
    assert (outcome.observation, outcome.settled_usd, len(tries)) == (row(), 1.0 + 0.25, 2)


@pytest.mark.parametrize(
    ("raised", "kind", "text"),
    [
        (ConfigError("model 'm0': no key", code="no-key"), ConfigError, "Ray node one: model 'm0': no key"),
        (ValueError("odd"), RuntimeError, "a unit failed unexpectedly: ValueError: Ray node one: odd"),
    ],
)
def test_an_error_of_a_unit_names_the_node(raised, kind, text):
    def run(*_):
        raise raised

    with pytest.raises(kind) as caught:
        ClusterWorker(fake_cluster(run), {}).run(job(), granted([]))
    assert str(caught.value) == text
    assert getattr(caught.value, "code", None) == getattr(raised, "code", None)


# -- the beginning ---------------------------------------------------------------------------------------------------------


def test_a_node_with_another_version_ends_the_run_before_it_begins():
    cluster = FakeCluster(setup_of(version="0.0.1"), lambda *_: None)
    says = rf"^Ray node one: VineLM {__version__} is installed there, and 0.0.1 here: install the same version$"
    with pytest.raises(ConfigError, match=says):
        ClusterWorker(cluster, {})
    assert cluster.hosts == {}


def test_a_node_that_lacks_the_workflow_ends_the_run_before_it_begins():
    def make_worker(*_):
        raise WorkflowError("the workflow does not load in a fresh process: no module 'mine'", code="load-failed")

    with pytest.raises(WorkflowError, match=r"^Ray node one: the workflow does not load") as caught:
        ClusterWorker(FakeCluster(setup_of(), make_worker, ["one"]), {})
    assert caught.value.code == "load-failed"


def test_a_cluster_without_a_free_cpu_is_a_line(monkeypatch):
    monkeypatch.setattr(worker_module, "FIRST_S", 0.01)
    with pytest.raises(ConfigError, match=r"^no Ray node has a free CPU, after 0\.01 s") as caught:
        ClusterWorker(fake_cluster(None, nodes=()), {})
    assert caught.value.code == "no-node"


def test_a_node_that_joins_later_and_is_refused_is_a_note():
    notes, tries = [], []

    def make_worker(setup, _):
        tries.append(1)
        if len(tries) > 1:
            raise ConfigError("there is no folder /srv/app, from which the run was started", code="node-folder")
        return Fake(lambda *_: UnitOutcome(row()))

    cluster = FakeCluster(setup_of(), make_worker, ["one"])
    worker = ClusterWorker(cluster, {}, notes.append)
    cluster.join("late")
    assert worker.run(job(), granted([])).observation == row()
    until = time.monotonic() + 5
    while not notes and time.monotonic() < until:
        time.sleep(0.001)
    assert notes == ["Ray node late: there is no folder /srv/app, from which the run was started: this node executes no unit"]


def test_a_node_that_answers_last_is_refused_before_the_run_begins():
    tries = []

    def make_worker(setup, _):
        tries.append(1)
        if len(tries) > 1:
            raise ConfigError("there is no folder /srv/app, from which the run was started", code="node-folder")
        return Fake(lambda *_: UnitOutcome(row()))

    def join():
        time.sleep(0.1)
        cluster.join("two")

    late = threading.Thread(target=join)
    cluster = FakeCluster(setup_of(), make_worker, ["one"], announced=2)
    late.start()
    with pytest.raises(ConfigError, match=r"^Ray node two: there is no folder"):
        ClusterWorker(cluster, {})
    late.join()


def test_a_node_that_gives_no_cpu_delays_the_run_only_so_long(monkeypatch):
    monkeypatch.setattr(worker_module, "ANSWERS_S", 0.01)
    cluster = FakeCluster(setup_of(), lambda *_: Fake(lambda *_: UnitOutcome(row())), ["one"], announced=2)
    assert ClusterWorker(cluster, {}).run(job(), granted([])).observation == row()


# -- rate limits -----------------------------------------------------------------------------------------------------------


def patient(_):
    """The host's side of an attempt is woken, it does not sleep."""


def test_attempts_of_all_hosts_wait_at_the_runs_rate_limits_and_settle_there():
    inside, most, lock = [], [], threading.Lock()

    def run(host, told, top_up):
        with host.limiters["m0"].admit(100, patient) as permit:
            with lock:
                inside.append(told)
                most.append(len(inside))
            time.sleep(0.005)
            with lock:
                inside.remove(told)
            permit.settle(42)
        return UnitOutcome(row())

    limiter = EngineRateLimiter(RateLimits(concurrency=2))
    tickets, admit = [], limiter.admit

    def noted(*arguments):
        return _Noted(admit(*arguments), tickets)

    cluster = fake_cluster(run, nodes=("one", "two"), limited=("m0",))
    worker = ClusterWorker(cluster, {"m0": SimpleNamespace(admit=noted)})
    threads = [threading.Thread(target=worker.run, args=(job(), granted([]))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert (len(most), max(most)) == (8, 2)
    until = time.monotonic() + 5
    while limiter_in_use(tickets) and time.monotonic() < until:
        time.sleep(0.001)
    assert [ticket.tokens for ticket in tickets] == [42] * 8


def limiter_in_use(tickets):
    return any(ticket.tokens != 42 for ticket in tickets)


class _Noted:
    """Keeps the tickets of a rate limiter."""

    def __init__(self, admission, tickets):
        self.admission, self.tickets = admission, tickets

    def __enter__(self):
        ticket = self.admission.__enter__()
        self.tickets.append(ticket)
        return ticket

    def __exit__(self, *problem):
        return self.admission.__exit__(*problem)


def test_the_place_of_a_lost_hosts_attempt_is_free_again():
    tries = []

    def run(host, told, top_up):
        tries.append(1)
        with host.limiters["m0"].admit(100, patient):
            if len(tries) == 1:
                cluster.join("two")
                cluster.drop(0)
                time.sleep(0.02)
        return UnitOutcome(row())

    cluster = fake_cluster(run, limited=("m0",))
    worker = ClusterWorker(cluster, {"m0": EngineRateLimiter(RateLimits(concurrency=1))})
    assert worker.run(job(), granted([])).observation == row()


def test_an_attempt_whose_unit_is_gone_gives_its_turn_up():
    def gone(_):
        raise ConnectionError("the child is gone")

    def run(host, told, top_up):
        if told.request.id == "q1":
            with pytest.raises(ConnectionError), host.limiters["m0"].admit(100, gone):
                raise AssertionError("it cannot be admitted while the other holds the place")
        with host.limiters["m0"].admit(100, patient):
            pass
        return UnitOutcome(row())

    limiter = EngineRateLimiter(RateLimits(concurrency=1))
    worker = ClusterWorker(fake_cluster(run, limited=("m0",)), {"m0": limiter})
    with limiter.admit(1, patient):
        thread = threading.Thread(target=worker.run, args=(job(), granted([])))
        thread.start()
        time.sleep(0.3)
    thread.join(5)
    assert not thread.is_alive()


def test_an_attempt_in_a_coroutine_waits_at_the_runs_rate_limit_and_settles_there():
    entered, released = [], []

    def run(host, told, top_up):
        async def attempt():
            async with host.limiters["m0"].aadmit(100, asyncio.sleep) as permit:
                entered.append(permit.attempt)
                permit.settle(42)

        asyncio.run(attempt())
        return UnitOutcome(row())

    limiter, tickets = EngineRateLimiter(RateLimits(concurrency=1)), []
    admit = limiter.admit
    worker = ClusterWorker(
        fake_cluster(run, limited=("m0",)), {"m0": SimpleNamespace(admit=lambda *a: _Noted(admit(*a), tickets))}
    )
    with limiter.admit(1, patient):
        thread = threading.Thread(target=lambda: released.append(worker.run(job(), granted([]))))
        thread.start()
        time.sleep(0.3)
        assert entered == []
    thread.join(5)
    assert len(entered) == 1
    assert released[0].observation == row()
    until = time.monotonic() + 5
    while limiter_in_use(tickets) and time.monotonic() < until:
        time.sleep(0.001)
    assert [ticket.tokens for ticket in tickets] == [42]


# -- settings --------------------------------------------------------------------------------------------------------------


def test_ray_client_and_other_isolation_are_refused():
    with pytest.raises(ConfigError, match="run this on a machine of the cluster"):
        RayCluster(address="ray://head:10001")
    with pytest.raises(ConfigError, match="units on a cluster run in fresh processes") as caught:
        ExecutionConfig(isolation="thread", cluster=RayCluster())
    assert caught.value.code == "cluster-needs-process"


def test_only_a_cluster_of_the_run_itself_is_told_to_report_nothing():
    assert RayCluster(address="local").environment()["RAY_USAGE_STATS_ENABLED"] == "0"
    assert "RAY_USAGE_STATS_ENABLED" not in RayCluster().environment()


def test_without_ray_a_line_names_the_extra(monkeypatch):
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    execution = ExecutionConfig(isolation="process", source=WorkflowSource(function="none:none"), cluster=RayCluster())
    units = make_units(WORKFLOW, catalog_for(WORKFLOW), {"test": ToyBackend()})
    with pytest.raises(MissingExtra, match=r"^a profile on a Ray cluster needs ray: pip install 'vinelm\[ray\]'$"):
        runner.make_worker(ProfileSettings(execution=execution), units, {})


def test_a_cluster_that_does_not_answer_is_a_line(monkeypatch):
    monkeypatch.setattr(worker_module, "CONNECT_S", 0.01)
    cluster = fake_cluster(None, nodes=())
    assert isinstance(cluster.events.get(), Connected)
    with pytest.raises(ConfigError, match=r"^Ray does not answer, after 0\.01 s$"):
        ClusterWorker(cluster, {})


def test_what_the_process_that_speaks_to_ray_said_last_is_one_sentence():
    lost = (
        "[2026-11-22 23:42:31,910 E 1451 1652] rpc_client.h:204: Failed to connect to GCS within 60 seconds. GCS may have been "
        "killed. It's either GCS is terminated by `ray stop` or is killed unexpectedly."
    )
    assert said_by(["before", lost, ""]) == "Failed to connect to GCS within 60 seconds"
    assert said_by([]) == ""
