"""The text-to-SQL service over a socket: an objective per request, bad input in one line, a clean end."""

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from examples.example_cli import SIMULATED
from examples.sql.app import workflow as sql_service
from examples.sql.http_server import MAX_BODY_BYTES, HttpServer
from examples.sql.http_service import HttpService
from vinelm import AnnotatedTrie, Objective, VineLM
from vinelm.adapters.langgraph import build_graph
from vinelm.backends import create_backends
from vinelm.backends.offline.presets import simulated_catalog
from vinelm.errors import CallError, ConfigError
from vinelm.trie.trie import Trie
from vinelm.vinefile import save_trie

CHEAP, DEAR = SIMULATED[0], SIMULATED[-1]


@pytest.fixture(scope="module")
def workflow():
    return sql_service()


@pytest.fixture(scope="module")
def annotated(workflow):
    """Made up: each dearer model is more accurate, and so is each further turn."""
    catalog = simulated_catalog().subset(SIMULATED)
    template = workflow.template.bind(tuple(catalog))
    trie = Trie.from_template(template)
    below = trie.depth > 0
    success = np.where(below, 0.2 + 0.1 * trie.depth + 0.05 * trie.model, 0.0)
    cost, zeros = np.where(below, 0.001 * (1.0 + trie.model), 0.0), np.zeros(len(trie))
    return AnnotatedTrie(
        trie, template, catalog, success, np.where(below, 0.1, 0.0), 0.1 * success, cost, zeros, below * 1.0, zeros
    )


@pytest.fixture(scope="module")
def service(workflow, annotated):
    vine = VineLM(annotated.catalog, create_backends(annotated.catalog, workflow=workflow), trie=annotated)
    return HttpService(workflow, vine, build_graph(workflow, vine), Objective(maximize="accuracy"), is_simulated=True)


@pytest.fixture
def running():
    """``running(ask)`` is the port of a server; all are shut down at the end."""
    servers = []

    def start(ask):
        server = HttpServer(ask, 0)
        thread = threading.Thread(target=server.serve)
        thread.start()
        servers.append((server, thread))
        return server.address[1]

    yield start
    for server, thread in servers:
        server.stop()
        thread.join()


def sent(port, body, *, method="POST", path="/ask", headers=None):
    """(status, answer)"""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, body if isinstance(body, bytes) else json.dumps(body), headers or {})
        response = connection.getresponse()
        text = response.read()
    finally:
        connection.close()
    assert text.count(b"\n") == 1
    return response.status, json.loads(text)


def asked(workflow, number=0, **more):
    row = workflow.requests[number].data
    return {"question": row["question"], "db_id": row["db_id"], **more}


def test_each_request_has_its_own_objective(service, running, workflow):
    port = running(service.ask)
    status, best = sent(port, asked(workflow))
    assert status == 200
    assert best["models"][0] == DEAR
    assert best["sql"].upper().startswith(("SELECT", "WITH"))
    assert best["cost_usd"] > 0
    status, cheap = sent(port, asked(workflow, objective={"minimize": "cost"}))
    assert (status, cheap["models"]) == (200, [CHEAP])
    assert cheap["cost_usd"] < best["cost_usd"]


def test_many_at_once(service, running, workflow):
    port = running(service.ask)
    alone = [sent(port, asked(workflow, number)) for number in range(16)]
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(lambda number: sent(port, asked(workflow, number)), range(16))) == alone


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b"[" * 50_000, "not valid JSON"),
        (b"[]", "not a JSON object"),
        ({"question": "", "db_id": "music"}, "question must be a non-empty string"),
        ({"question": 3, "db_id": "music"}, "question must be a non-empty string"),
        ({"question": "How many?", "db_id": "nowhere"}, "db_id must be one of airline, "),
        ({"question": "How many?", "db_id": ["music"]}, "db_id must be one of"),
        ({"question": "Never asked?", "db_id": "music"}, "simulated models answer only questions of the dataset"),
        ({"more": 1}, "unknown key 'more'"),
    ],
)
def test_a_body_that_cannot_be_used(service, running, body, says):
    status, answer = sent(running(service.ask), body)
    assert status == 400
    assert says in answer["error"]


@pytest.mark.parametrize(
    ("objective", "says"),
    [
        (3, "must be an object"),
        ({}, "exactly one target"),
        ({"maximize": "speed"}, "use 'accuracy'"),
        ({"maximize": "accuracy", "max_cost_usd": "cheap"}, "max_cost_usd is 'cheap': it must be a number"),
        ({"maximize": "accuracy", "max_cost_usd": -1}, "finite number >= 0"),
        ({"maximize": "accuracy", "budget": 1}, "no field 'budget'"),
        ({"minimize": "cost", "min_accuracy": 1, "on_infeasible": "raise"}, "no path meets min_accuracy"),
    ],
)
def test_an_objective_that_cannot_be_used(service, running, workflow, objective, says):
    status, answer = sent(running(service.ask), asked(workflow, objective=objective))
    assert status == 400
    assert says in answer["error"]


def test_what_is_not_a_question(service, running):
    port = running(service.ask)
    assert sent(port, b"", method="GET")[0] == 405
    assert sent(port, b"", method="GET", path="/")[0] == 404
    assert sent(port, b"{}", path="/other")[0] == 404
    assert sent(port, b"", headers={"Content-Length": str(MAX_BODY_BYTES + 1)})[0] == 413
    assert sent(port, b"", headers={"Content-Length": "-1"})[0] == 400


def test_a_failed_call_and_a_fault_of_ours(running, capsys):
    def failed(body):
        raise CallError("sim: call failed: timeout", kind="timeout", cost_usd=0.0)

    def broken(body):
        raise KeyError("a secret")

    assert sent(running(failed), b"{}") == (502, {"error": "no model answered: sim: call failed: timeout"})
    assert sent(running(broken), b"{}") == (500, {"error": "internal error"})
    assert capsys.readouterr().err == "error: unexpected KeyError\n"


@pytest.mark.parametrize("ends", [pytest.param(signal.SIGINT, marks=pytest.mark.long), signal.SIGTERM])
def test_it_is_started_and_stopped_by_a_command(workflow, annotated, tmp_path, ends):
    save_trie(tmp_path / "x.vine", annotated)
    command = [sys.executable, "-m", "examples.sql.app", "--trie", str(tmp_path / "x.vine"), "--port", "0"]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        head = [process.stdout.readline(), process.stdout.readline()]
        assert head[0].startswith("Simulated models")
        port = int(head[1].partition("127.0.0.1:")[2].partition("/")[0])
        assert sent(port, asked(workflow))[0] == 200
        process.send_signal(ends)
        rest, errors = process.communicate(timeout=60)
    assert (process.returncode, rest, errors) == (0, "Stopped.\n", "")


def test_a_port_that_cannot_be_had_is_one_line(service, running):
    for port in (running(service.ask), 99_999):
        with pytest.raises(ConfigError, match=rf"--port {port}: cannot listen there: [^\n]+$"):
            HttpServer(service.ask, port)


@pytest.mark.parametrize(
    "headers", [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Host": "evil.example:80"}, {"Host": ""}]
)
def test_requests_of_web_pages_are_refused(running, headers):
    asked = []
    port = running(lambda body: asked.append(body) or {})
    assert sent(port, b"{}", headers=headers)[0] == 403
    assert sent(port, b"{}", headers={"Host": "localhost"})[0] == 200
    assert asked == [b"{}"]
