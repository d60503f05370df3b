"""A batch on real Ray nodes: processes of this machine that join and die. Needs the extra ray."""

import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest
from kit.batch_files import answers
from kit.catalogs import local_entries
from kit.servers.ray_cluster import NEEDS_RAY, cluster, node, wait_for_no_hosts

import vinelm
from vinelm.traces import ObservationStore, check_store
from vinelm.traces.served.answers import Answers

__all__ = ["cluster", "node"]
pytestmark = NEEDS_RAY
BEST = vinelm.Objective(maximize="accuracy")


def run(app, **changes):
    fields = {"output": "a.jsonl", "budget_usd": 1.0, "workers": 4}
    return vinelm.batch("my_app:workflow", "t.vine", BEST, **(fields | changes))


def spent_and_answered_usd(path):
    with ObservationStore.open(path) as store:
        return store.committed_usd(), sum(answer.cost_usd for answer in Answers(store).brief())


def wait_for_answers(process, path, number):
    """Wait until the store has so many answers."""
    until = time.monotonic() + 120
    while time.monotonic() < until and process.poll() is None:
        with suppress(sqlite3.OperationalError), closing(sqlite3.connect(path, timeout=0.1)) as store:
            if store.execute("SELECT count(*) FROM answers").fetchone()[0] >= number:
                return
        time.sleep(0.05)
    raise AssertionError(f"too late or ended: {finished(process) if process.poll() is not None else 'it runs'}")


def test_the_answers_of_two_nodes_are_those_of_one_machine(app, cluster, node):
    node()
    one = run(app, output="b.jsonl", budget_usd=0.1)
    found = run(app, budget_usd=0.1, engine=f"ray://{cluster.address}")
    assert answers("a.jsonl") == answers("b.jsonl")
    assert found.spent_usd == pytest.approx(one.spent_usd)
    wait_for_no_hosts()


# -- calls that take a while -------------------------------------------------------------------------------------------

SCRIPTS = Path(__file__).parents[2] / "scripts"
LATENCY_S = 0.2
APP = """
import sys
sys.path.insert(0, {scripts!r})
from bench_profiler import load
workflow = load(2, 2, 40).workflow
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A folder with an application over a local server, its trie, and ``b.jsonl``: what one machine answers."""
    folder = tmp_path_factory.mktemp("served")
    command = [sys.executable, str(SCRIPTS / "local_openai.py"), "--latency-s", str(LATENCY_S)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        url = process.stdout.readline().strip()
        (folder / "app.py").write_text(APP.format(scripts=str(SCRIPTS)))
        (folder / "models.toml").write_text(local_entries(url, "m0", "m1", key_env="F3_TOY_KEY"))
        (folder / ".env").write_text("F3_TOY_KEY=none\n")
        profiled = "profile app:workflow --models models.toml --store s.db --sampler exhaustive --limit 10 --budget-usd 1"
        for line in (f"{profiled} --workers 8 --isolation thread", "estimate s.db -o t.vine --max-error 1"):
            assert finished(vine(folder, *line.split()))[0] == 0
        assert finished(batch(folder, "b.jsonl"))[0] == 0
        yield folder
        process.terminate()


def vine(folder, *words):
    command = [sys.executable, "-c", "import sys; from vinelm.cli.main import main; sys.exit(main())", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=folder, text=True, env=dict(os.environ), **pipes)


def batch(folder, output, *options):
    words = "batch app:workflow --trie t.vine --models models.toml --maximize accuracy --budget-usd 1 --workers 4 -q"
    return vine(folder, *words.split(), "-o", output, *options)


def finished(process):
    out, said = process.communicate(timeout=180)
    return process.returncode, out, said


def test_a_batch_that_is_killed_leaves_no_host_and_goes_on_without_ray(served, cluster):
    killed = batch(served, "k.jsonl", "--engine", f"ray://{cluster.address}")
    wait_for_answers(killed, served / "k.db", 8)
    killed.kill()
    finished(killed)
    wait_for_no_hosts()
    spent, answered = spent_and_answered_usd(served / "k.db")
    assert spent > answered > 0.0  # the calls under way count at their bounds
    assert finished(batch(served, "k.jsonl"))[0] == 0
    assert answers(served / "k.jsonl") == answers(served / "b.jsonl")
    assert spent_and_answered_usd(served / "k.db")[0] >= spent
    assert check_store(served / "k.db").is_whole


def test_a_node_that_is_killed_costs_its_requests_under_way_and_no_answer(served, cluster, node):
    second = node()
    process = batch(served, "n.jsonl", "--engine", f"ray://{cluster.address}")
    wait_for_answers(process, served / "n.db", 8)
    cluster.remove_node(second, allow_graceful=False)
    code, _, said = finished(process)
    assert code == 0, said
    assert "was lost, and " in said
    assert answers(served / "n.jsonl") == answers(served / "b.jsonl")
    spent, answered = spent_and_answered_usd(served / "n.db")
    assert spent > answered
    assert spent_and_answered_usd(served / "b.db")[0] == pytest.approx(answered)


def test_an_address_where_nothing_answers_is_one_line_and_leaves_no_store(served):
    code, _, said = finished(batch(served, "x.jsonl", "--engine", "ray://127.0.0.1:1"))
    assert code == 2
    assert said.strip().splitlines()[-1].startswith("error: 127.0.0.1:1: no Ray cluster to join: ")
    assert not (served / "x.db").exists()
