"""Profiles on real Ray nodes: processes of this machine that join, die and refuse. Needs the extra ray."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest
from kit.catalogs import local_entries
from kit.servers.ray_cluster import NEEDS_RAY, cluster, hosts_left, node, wait_for_no_hosts
from kit.toys.wired import CALLS, TOKENS, CountingLimiter, wired

from vinelm.backends.limits.rate_limits import RateLimits
from vinelm.errors import ConfigError, DatasetError, WorkflowError
from vinelm.profiler import ExecutionConfig, ProfileSettings, RayCluster, WorkflowSource, profile
from vinelm.profiler.execution.fingerprint import store_identity
from vinelm.traces import ObservationStore
from vinelm.version import __version__

__all__ = ["cluster", "node"]
pytestmark = NEEDS_RAY
SCRIPTS = Path(__file__).parents[3] / "scripts"
TIMES = ("latency_s", "tool_latency_s", "ttft_s", "in_flight")


def run(path, address=None, *, on_row=None, limiter=None, notes=None, function="kit.toys.wired:wired", there=None, **settings):
    """(rows by cell without times, committed dollars, result) of every cell of the wired toy."""
    settings = {"n_requests": 6, "seconds": 0.05} | settings
    loaded = wired(**settings)
    if limiter is not None:
        loaded.backends["test"]._rate_limiters = {"east": limiter}
    identity = store_identity(loaded.workflow, loaded.catalog, loaded.backends)
    execution = ExecutionConfig(
        isolation="process", workers=4, source=WorkflowSource(function=function, arguments=settings | (there or {})),
        cluster=None if address is None else RayCluster(address=address),
    )  # fmt: skip
    with ObservationStore.open_or_create(path, identity) as store:
        result = profile(
            loaded.workflow,
            loaded.catalog,
            loaded.backends,
            store,
            ProfileSettings(
                execution=execution,
                sampler="exhaustive",
                budget_usd=1.0,
                on_progress=on_row,
                on_note=(notes if notes is not None else []).append,
            ),
        )
        return by_cell(store), store.committed_usd(), result


def by_cell(store):
    return {
        (row.request_id, row.prefix): {name: getattr(row, name) for name in row.__slots__ if name not in TIMES}
        for row in store.observations()
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What one machine makes of the wired toy."""
    return run(tmp_path_factory.mktemp("one") / "one.db", n_requests=6)


def test_the_rows_of_two_nodes_are_those_of_one_machine_and_every_call_waits_at_the_runs_limits(cluster, node, whole, tmp_path):
    node()
    limiter = CountingLimiter(RateLimits(concurrency=2))
    rows, usd, result = run(tmp_path / "s.db", cluster.address, limiter=limiter)
    assert (rows, usd, result.stopped_by) == (whole[0], pytest.approx(whole[1]), "complete")
    assert len(limiter.tickets) == len(rows) * CALLS
    assert limiter.most == 2
    assert {ticket.tokens for ticket in limiter.tickets} == {sum(TOKENS)}


def test_a_node_that_is_killed_costs_its_calls_in_flight_and_no_row(cluster, node, whole, tmp_path):
    second, notes = node(), []

    def on_row(progress):
        if progress.executed == 5:
            cluster.remove_node(second, allow_graceful=False)

    rows, usd, result = run(tmp_path / "s.db", cluster.address, on_row=on_row, notes=notes, seconds=0.3)
    assert (rows, result.stopped_by) == (whole[0], "complete")
    (note,) = notes
    assert "was lost, and " in note
    assert usd > whole[1]
    with ObservationStore.open(tmp_path / "s.db") as store:
        assert store.abandon_open() == 0


def test_a_node_with_another_version_is_one_line(cluster, node, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import vinelm.version\nvinelm.version.__version__ = '0.0.1'\n")
    node(env_vars={"PYTHONPATH": str(tmp_path)})
    says = rf"^Ray node [\d.]+: VineLM 0\.0\.1 is installed there, and {__version__} here: install the same version$"
    with pytest.raises(ConfigError, match=says):
        run(tmp_path / "s.db", cluster.address)


def test_a_cluster_with_another_python_is_one_line(monkeypatch):
    """In the words of Ray 2.60, which refuses the driver."""
    import ray

    from vinelm.profiler.cluster.ray_hosts import connect

    def init(**_):
        raise RuntimeError(
            "Version mismatch: The cluster was started with:\n    Ray: 2.60.0\n    Python: 3.12.1\n"
            "This process on node 10.0.0.7 was started with:\n    Ray: 2.60.0\n    Python: 3.11.7\n"
        )

    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(ConfigError) as caught:
        connect(RayCluster())
    assert str(caught.value) == (
        "The cluster was started with: Ray: 2.60.0 Python: 3.12.1 This process on node 10.0.0.7 was started with: "
        "Ray: 2.60.0 Python: 3.11.7: use the same versions of Python and Ray everywhere"
    )
    assert caught.value.code == "ray-version"


def test_a_node_without_vinelm_is_one_line(cluster, node, tmp_path):
    hidden = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name == "vinelm":
            raise ModuleNotFoundError("No module named 'vinelm'", name=name)
sys.meta_path.insert(0, Hidden())
"""
    (tmp_path / "sitecustomize.py").write_text(hidden)
    node(env_vars={"PYTHONPATH": str(tmp_path)})
    says = rf"^Ray node [\d.]+: VineLM {__version__} is not installed there: install it$"
    with pytest.raises(ConfigError, match=says):
        run(tmp_path / "s.db", cluster.address)


def test_a_node_without_the_workflow_is_one_line(cluster, tmp_path):
    with pytest.raises(WorkflowError, match=r"^Ray node [\d.]+: the workflow does not load.*No module named 'gone'$"):
        run(tmp_path / "s.db", cluster.address, function="gone:load")


def test_a_workflow_that_is_another_one_there_is_one_line(cluster, tmp_path):
    with pytest.raises(WorkflowError, match=r"^Ray node [\d.]+: the workflow is another one in a fresh process"):
        run(tmp_path / "s.db", cluster.address, there={"is_async": True})


def test_a_dataset_that_is_another_one_there_is_one_line(cluster, tmp_path):
    with pytest.raises(DatasetError, match=r"^Ray node [\d.]+: request q5 is missing there: use the same dataset everywhere$"):
        run(tmp_path / "s.db", cluster.address, there={"n_requests": 5})


# -- the command ---------------------------------------------------------------------------------------------------------

APP = """
import os, sys
from pathlib import Path
sys.path.insert(0, {scripts!r})
from bench_profiler import load

with open({log!r}, "a") as file:
    print(os.getcwd(), Path(".env").exists(), file=file)
workflow = load(2, 2, 10).workflow
"""
SECRET = "sk-toy-0123456789abcdef0123456789abcdef"


@pytest.fixture(scope="module")
def url():
    command = [sys.executable, str(SCRIPTS / "local_openai.py"), "--latency-s", "0.3"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process.stdout.readline().strip()
        process.terminate()


@pytest.fixture
def app(tmp_path, url):
    """A folder with a workflow, a catalog and a key."""
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "app.py").write_text(APP.format(scripts=str(SCRIPTS), log=str(tmp_path / "seen.txt")))
    (folder / "models.toml").write_text(local_entries(url, "m0", "m1", key_env="F3_TOY_KEY"))
    (folder / ".env").write_text(f"F3_TOY_KEY={SECRET}\n")
    return folder


def started(app, *options, store="s.db", **environment):
    words = ["profile", "app:workflow", "--models", "models.toml", "--store", store, "--sampler", "exhaustive"]
    command = [sys.executable, "-c", "import sys; from vinelm.cli.main import main; sys.exit(main())", *words]
    return subprocess.Popen(
        [*command, "--budget-usd", "1", *options], cwd=app, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, **environment},
    )  # fmt: skip


def finished(process):
    out, said = process.communicate(timeout=180)
    return process.returncode, out, said


def rows_of(path):
    with ObservationStore.open(path) as store:
        return by_cell(store)


def wait_for_rows(process, path, number):
    """Wait until the store has so many rows."""
    until = time.monotonic() + 120
    while time.monotonic() < until and process.poll() is None:
        with suppress(sqlite3.OperationalError), closing(sqlite3.connect(path, timeout=0.1)) as store:
            if store.execute("SELECT count(*) FROM observations").fetchone()[0] >= number:
                return
        time.sleep(0.05)
    raise AssertionError(f"too late or ended: {finished(process) if process.poll() is not None else 'it runs'}")


def test_a_run_that_is_interrupted_or_killed_goes_on_with_or_without_ray(cluster, app):
    on_ray = ("--engine", f"ray://{cluster.address}", "--workers", "2")
    interrupted = started(app, *on_ray)
    wait_for_rows(interrupted, app / "s.db", 2)
    interrupted.send_signal(signal.SIGINT)
    code, _, said = finished(interrupted)
    assert code == 130, said
    some = len(rows_of(app / "s.db"))
    killed = started(app, *on_ray)
    wait_for_rows(killed, app / "s.db", some + 2)
    killed.kill()
    finished(killed)
    wait_for_no_hosts()
    assert finished(started(app, "--workers", "2"))[0] == 0
    assert finished(started(app, "--workers", "2", store="one.db"))[0] == 0
    rows = rows_of(app / "s.db")
    assert rows == rows_of(app / "one.db")
    assert 0 < some < len(rows)


def test_a_folder_is_shipped_without_its_keys_and_ray_never_sees_one(cluster, app):
    shipped = started(app, "--engine", f"ray://{cluster.address}", "--ship", "--coverage", "0.2")
    code, _, said = finished(shipped)
    assert code == 2
    last = said.strip().splitlines()[-1]
    assert "Ray node" in last
    assert "F3_TOY_KEY" in last
    seen = {tuple(line.rsplit(" ", 1)) for line in (app.parent / "seen.txt").read_text().splitlines()}
    assert (str(app), "True") in seen
    assert [has_keys for folder, has_keys in seen if folder != str(app)] == ["False"]
    code, out, said = finished(started(app, "--engine", f"ray://{cluster.address}", "--coverage", "0.2", "--json"))
    assert code == 0, said
    assert json.loads(out)["executed"] > 0
    session = Path(cluster.head_node.get_session_dir_path())
    logs = [path for path in session.rglob("*") if path.is_file() and path.stat().st_size < 50_000_000]
    assert len(logs) > 5
    assert [path for path in logs if SECRET.encode() in path.read_bytes()] == []


def test_a_cluster_of_its_own_ends_with_the_run(app):
    code, _, said = finished(started(app, "--engine", "ray://local", "--coverage", "0.2"))
    assert code == 0, said
    assert hosts_left() == []


def test_an_address_where_nothing_answers_is_one_line(app):
    code, _, said = finished(started(app, "--engine", "ray://127.0.0.1:1"))
    assert code == 2
    assert said.strip().splitlines()[-1].startswith("error: 127.0.0.1:1: no Ray cluster to join: ")
