"""`vinelm calibrate` against a real server on loopback: what it says it will send is what it sends."""

import itertools
import json
import signal
import subprocess
import sys
import threading
from datetime import date
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from vinelm.api import VineLM
from vinelm.catalog import Catalog
from vinelm.cli.main import main
from vinelm.controller import (
    Endpoint,
    EnginePoller,
    InFlightLoadMonitor,
    ReportedLoadMonitor,
    calibrate_endpoint,
    load_curves,
)
from vinelm.controller.load.calibration_client import PROMPTS
from vinelm.controller.load.engine_metrics import vllm_requests
from vinelm.errors import ConfigError, VineLMError

CANARY = "sk-canary-calibrate-1"
MODELS = """
[[model]]
name = "small"
provider = "openai"
model = "tiny"
engine = "gpu-1"
api_base = "{url}"
api_key_env = "ACME_API_KEY"
max_tokens = 20
price = {{ input = 1.0, output = 2.0, source = "a test", as_of = {TODAY} }}

[[model]]
name = "other"
provider = "simulated"
model = "gemma-27b"
price = {{ input = 1.0, output = 2.0, source = "a test", as_of = {TODAY} }}

[backend.openai]
stream = false
limits = {{ gpu-1 = {{ concurrency = 1 }} }}
""".replace("{TODAY}", date.today().isoformat())
INTERRUPTIBLE = """
import signal, sys
from vinelm.cli.main import main
from vinelm.controller.load.calibration_client import PROMPTS
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell ignores it
sys.exit(main())
"""
ANSWER = {
    "id": "c", "object": "chat.completion", "created": 1, "model": "tiny",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "SELECT 1"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 30, "completion_tokens": 5, "total_tokens": 35},
}  # fmt: skip


class Engine(ThreadingHTTPServer):
    request_queue_size = 512
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked, self.flushes, self.status, self.finish_reason = [], 0, 200, "stop"
        self.lock = threading.Lock()
        self.service_s, self.held, self.is_awaited = 0.0, 0, False
        self.turn = threading.Condition()
        self.others = iter(())
        self.stuck_at, self.is_stuck = None, threading.Event()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/v1"

    def serve(self, has_priority):
        """One at a time, those with a priority first; the others' work begins when the measured request is there, too."""
        with self.turn:
            if has_priority:
                self.held += 1
                self.turn.notify_all()
                assert self.turn.wait_for(lambda: self.is_awaited, 30)
                threading.Event().wait(self.service_s)
                self.held -= 1
                self.turn.notify_all()
                return
            others = next(self.others)
            assert self.turn.wait_for(lambda: self.held == others, 30)
            self.is_awaited = True
            self.turn.notify_all()
            assert self.turn.wait_for(lambda: self.held == 0, 30)
            self.is_awaited = False
            if others == self.stuck_at:
                self.is_stuck.set()
                self.turn.wait(30)
            threading.Event().wait(self.service_s)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        with self.server.lock:
            if self.path == "/flush_cache":
                self.server.flushes += 1
                return self.say(200, {})
            self.server.asked.append(json.loads(body))
        if self.server.service_s:
            self.server.serve("priority" in json.loads(body))
        ANSWER["choices"][0]["finish_reason"] = self.server.finish_reason
        self.say(self.server.status, ANSWER if self.server.status == 200 else {"error": {"message": CANARY}})

    def do_GET(self):
        self.say(200, f"vllm:num_requests_running 1.0\nvllm:num_requests_waiting {self.server.held}.0\n")

    def say(self, status, plain):
        data = (plain if isinstance(plain, str) else json.dumps(plain)).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *unused):
        pass


@pytest.fixture
def engine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ACME_API_KEY", CANARY)
    server = Engine()
    (tmp_path / "models.toml").write_text(MODELS.format(url=server.url))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


SMALL = ["--models", "models.toml", "--levels", "0,1,3", "--repeats", "2", "--delay-s", "0.01"]


def test_without_yes_nothing_is_sent_and_the_bill_is_stated(engine, capsys, tmp_path):
    assert main(["calibrate", "gpu-1", "--models", "models.toml"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Would send 3,501 calls to small on gpu-1" in said
    assert "Nothing was sent" in said
    assert main(["calibrate", engine.url + "/", *SMALL, "--json"]) == 0
    stated = json.loads(capsys.readouterr().out)
    assert (stated["calls"], stated["is_sent"]) == (1 + 2 * (1 + 2 + 4), False)
    assert 0 < stated["upper_bound_usd"] < 0.1
    assert engine.asked == []
    assert [path.name for path in tmp_path.iterdir()] == ["models.toml"]


def test_the_calls_are_those_stated_and_the_curve_is_what_vinelm_reads(engine, capsys, tmp_path):
    args = [*SMALL, "--others-priority", "9"]
    assert main(["calibrate", "gpu-1", *args, "--yes", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["calls"], len(engine.asked)) == (15, 15)
    assert (said["is_sent"], said["is_complete"], said["failed"]) == (True, True, 0)
    assert said["spent_usd"] == pytest.approx(15 * (30 * 1.0 + 5 * 2.0) / 1e6)
    assert said["spent_usd"] <= said["upper_bound_usd"]
    assert [row["runs"] for row in said["levels"]] == [2, 2, 2]

    texts = [body["messages"][0]["content"] for body in engine.asked]
    assert len(set(texts)) == 15  # no prompt cache can answer
    targets = [text for text, body in zip(texts, engine.asked, strict=True) if "priority" not in body]
    assert len(targets) == 7
    assert all(text.endswith(PROMPTS[0]) for text in targets)
    assert {body["priority"] for body in engine.asked if "priority" in body} == {9}

    curve = load_curves("slowdown.json")["gpu-1"]
    assert curve.to_dict() == said["curve"]
    assert CANARY not in (tmp_path / "slowdown.json").read_text()


def test_an_engine_that_really_queues_is_measured_polled_and_planned_around(engine, capsys, tmp_path):
    """Its queue shows in the latencies, the curve, and, by the engine's own report, in what the controller expects of it."""
    engine.service_s, engine.others = 0.02, iter([0, 0, 2, 6, 0, 2, 6])  # a first call that is not measured
    args = ["--models", "models.toml", "--levels", "0,2,6", "--repeats", "2", "--delay-s", "0", "--others-priority", "9"]
    assert main(["calibrate", "gpu-1", *args, "--yes"]) == 0
    capsys.readouterr()
    measured = json.loads((tmp_path / "slowdown.json").read_text())["curves"]["gpu-1"]["measured"]
    assert measured["requests"] == [0, 2, 6, 0, 2, 6]
    for others, took in zip(measured["requests"], measured["latency_s"], strict=True):
        assert took >= (1 + others) * engine.service_s
    curve = load_curves("slowdown.json")["gpu-1"]
    assert curve.at(6) > 0

    engine.held = 5  # and one runs
    load = ReportedLoadMonitor({"gpu-1": curve})
    with EnginePoller({"gpu-1": vllm_requests(engine.url)}, load, every_s=0.01):
        while "gpu-1" not in load.delays():
            threading.Event().wait(0.005)
    assert load.delays()["gpu-1"].extra_s == curve.at(6)
    assert VineLM("models.toml", load=load)._load_seen is load


@pytest.mark.parametrize("page", ["<html>welcome</html>", "{}"])
def test_a_server_that_is_no_engine_is_one_line(engine, capsys, tmp_path, page, monkeypatch):
    monkeypatch.setattr(Handler, "do_POST", lambda handler: handler.say(200, page))
    assert main(["calibrate", "gpu-1", *SMALL, "--yes"]) == 1
    said = capsys.readouterr()
    assert said.err.startswith("error: no call to the idle endpoint succeeded (small: malformed:")
    assert (said.err.count("\n"), said.out) == (1, "")
    assert not (tmp_path / "slowdown.json").exists()


def test_a_wrong_address_is_one_line(engine, capsys, tmp_path):
    (tmp_path / "models.toml").write_text(MODELS.format(url="http://127.0.0.1:9/v1"))
    assert main(["calibrate", "gpu-1", *SMALL, "--yes"]) == 1
    said = capsys.readouterr().err
    assert "the connection failed or broke off): check its address, model and key" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("others", [1, 3])
@pytest.mark.long
def test_ctrl_c_is_one_word_and_keeps_a_curve_if_there_is_one(engine, tmp_path, others):
    """In a process of its own, as from a terminal, while a measured call is under way: with one other, nothing is known yet."""
    engine.service_s, engine.others, engine.stuck_at = 0.001, itertools.cycle([0, 0, 1, 3]), others
    line = [sys.executable, "-c", INTERRUPTIBLE, "calibrate", "gpu-1", "--models", "models.toml", "--levels", "0,1,3"]
    settings = ["--repeats", "1", "--delay-s", "0", "--others-priority", "9", "--yes", "--quiet"]
    with subprocess.Popen([*line, *settings], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert engine.is_stuck.wait(60)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert (tmp_path / "slowdown.json").exists() == (others == 3)
    if others == 3:
        assert "Interrupted: the curve is fitted to the completed runs." in " ".join(out.split())
        assert err == ""
    else:
        assert (out, err.strip()) == ("", "interrupted")


def test_vinelm_reads_the_file(engine, capsys, tmp_path):
    assert main(["calibrate", "gpu-1", *SMALL, "--yes"]) == 0
    assert 'VineLM(..., load="slowdown.json")' in capsys.readouterr().out
    vine = VineLM("models.toml", load="slowdown.json")
    assert isinstance(vine._load_seen, InFlightLoadMonitor)
    assert max(map(len, capsys.readouterr().out.splitlines()), default=0) <= 80
    text = (tmp_path / "slowdown.json").read_text()
    (tmp_path / "slowdown.json").write_text(text.replace("gpu-1", "gpu-9"))
    with pytest.raises(ConfigError, match=r"curves of gpu-9.*engines are gpu-1, simulated"):
        VineLM("models.toml", load="slowdown.json")


def test_an_answer_that_is_cut_off_is_timed_all_the_same(engine, capsys):
    engine.finish_reason = "length"
    assert main(["calibrate", "gpu-1", *SMALL, "--yes", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["failed"], [row["runs"] for row in said["levels"]]) == (0, [2, 2, 2])


def test_an_endpoint_that_refuses_gets_one_call(engine, capsys, tmp_path):
    engine.status = 401
    assert main(["calibrate", "gpu-1", *SMALL, "--yes"]) == 1
    said = capsys.readouterr().err
    assert "no call to the idle endpoint succeeded" in said
    assert said.count("\n") == 1
    assert CANARY not in said
    assert len(engine.asked) == 1
    assert not (tmp_path / "slowdown.json").exists()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["gpu-2"], ("no model of the catalog runs on 'gpu-2'", "gpu-1, simulated")),
        (["gpu-1", "--model", "other"], ("model 'other' does not run on 'gpu-1'", "small")),
        (["simulated"], ("model 'other' is simulated", "no load to measure")),
        (["gpu-1", "--models", "none.toml"], ("none.toml", "cannot read the catalog")),
        (["gpu-1", "--levels", "0,two"], ("--levels 0,two", "whole numbers")),
        (["gpu-1", "--levels", "1,2"], ("level 0",)),
        (["gpu-1", "--levels", "0,-1"], ("level 0",)),
        (["gpu-1", "--repeats", "0"], ("--repeats",)),
        (["gpu-1", "--delay-s", "nan"], ("--delay-s is nan",)),
        (["gpu-1", "-o", "none/slowdown.json"], ("none/slowdown.json", "make the folder")),
        (["gpu-1", "-o", "empty.txt"], ("empty.txt", "holds no slowdown curves")),
        (["gpu-1", "-o", "slowdown.toml"], ("slowdown.toml", ".json")),
    ],
)
@pytest.mark.parametrize("yes", [[], ["--yes"]])
def test_bad_input_is_one_line_and_sends_nothing(engine, capsys, tmp_path, args, words, yes):
    (tmp_path / "empty.txt").write_text("\n\n")
    models = [] if "--models" in args else ["--models", "models.toml"]
    assert main(["calibrate", *args, *models, *yes]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert all(word in said.err for word in words), said.err
    assert engine.asked == []


def test_a_missing_key_is_found_before_the_first_call(engine, capsys, monkeypatch):
    monkeypatch.delenv("ACME_API_KEY")
    assert main(["calibrate", "gpu-1", *SMALL, "--yes"]) == 2
    assert "ACME_API_KEY is not set" in capsys.readouterr().err
    assert engine.asked == []


@pytest.fixture
def target(engine):
    catalog = Catalog.from_file("models.toml")
    return Endpoint(catalog, catalog["small"])


def test_the_cache_is_emptied_before_each_run(engine, target, monkeypatch):
    monkeypatch.setenv("ACME_API_KEY", CANARY)
    experiment = target.experiment(flush_url=engine.url[:-2] + "flush_cache", levels=(0, 1, 3), repeats=2, delay_s=0.01)
    assert calibrate_endpoint(experiment).is_complete
    assert (len(engine.asked), engine.flushes) == (15, 7)


def test_an_engine_that_cannot_flush_is_named(engine, target):
    with pytest.raises(ConfigError, match="'gpu-1/flush' is no URL"):
        target.experiment(flush_url="gpu-1/flush")
    experiment = target.experiment(flush_url="http://127.0.0.1:9/flush_cache", levels=(0, 1), repeats=1, delay_s=0.0)
    with pytest.raises(VineLMError, match="did not empty its cache"):
        calibrate_endpoint(experiment)
    assert engine.asked == []
