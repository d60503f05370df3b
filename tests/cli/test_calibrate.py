"""`vinelm calibrate` against a real server on loopback: what it says it will send is what it sends."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from vinelm.cli.main import main
from vinelm.controller.curves import load_curves
from vinelm.controller.load import OwnLoad
from vinelm.controller.vinelm import VineLM
from vinelm.errors import ConfigError

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
price = {{ input = 1.0, output = 2.0, source = "a test", as_of = 2026-01-01 }}

[[model]]
name = "other"
provider = "simulated"
model = "gemma-27b"
price = {{ input = 1.0, output = 2.0, source = "a test", as_of = 2026-01-01 }}

[backend.openai]
stream = false
limits = {{ gpu-1 = {{ concurrency = 1 }} }}
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

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/v1"


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
        ANSWER["choices"][0]["finish_reason"] = self.server.finish_reason
        self.say(self.server.status, ANSWER if self.server.status == 200 else {"error": {"message": CANARY}})

    def say(self, status, plain):
        data = json.dumps(plain).encode()
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
    assert "Would send 3,500 calls to small on gpu-1" in said
    assert "Nothing was sent" in said
    assert main(["calibrate", engine.url + "/", *SMALL, "--json"]) == 0
    stated = json.loads(capsys.readouterr().out)
    assert (stated["calls"], stated["is_sent"]) == (2 * (1 + 2 + 4), False)
    assert 0 < stated["upper_bound_usd"] < 0.1
    assert engine.asked == []
    assert [path.name for path in tmp_path.iterdir()] == ["models.toml"]


def test_the_calls_are_those_stated_and_the_curve_is_what_vinelm_reads(engine, capsys, tmp_path):
    (tmp_path / "prompts.txt").write_text("How many items?\n\nMean price?\nNames?\n")
    args = [*SMALL, "--prompts", "prompts.txt", "--others-priority", "9", "--flush-url", engine.url[:-2] + "flush_cache"]
    assert main(["calibrate", "gpu-1", *args, "--yes", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["calls"], len(engine.asked), engine.flushes) == (14, 14, 6)
    assert (said["is_sent"], said["is_complete"], said["failed"]) == (True, True, 0)
    assert said["spent_usd"] == pytest.approx(14 * (30 * 1.0 + 5 * 2.0) / 1e6)
    assert said["spent_usd"] <= said["upper_bound_usd"]
    assert [row["runs"] for row in said["levels"]] == [2, 2, 2]

    texts = [body["messages"][0]["content"] for body in engine.asked]
    assert len(set(texts)) == 14  # no prompt cache can answer
    targets = [text for text, body in zip(texts, engine.asked, strict=True) if "priority" not in body]
    assert len(targets) == 6
    assert all(text.endswith("How many items?") for text in targets)
    assert {body["priority"] for body in engine.asked if "priority" in body} == {9}

    curve = load_curves("slowdown.json")["gpu-1"]
    assert curve.to_dict() == said["curve"]
    assert CANARY not in (tmp_path / "slowdown.json").read_text()


def test_vinelm_reads_the_file(engine, capsys, tmp_path):
    assert main(["calibrate", "gpu-1", *SMALL, "--yes"]) == 0
    assert 'VineLM(..., load="slowdown.json")' in capsys.readouterr().out
    vine = VineLM("models.toml", load="slowdown.json")
    assert isinstance(vine._load_seen(), OwnLoad)
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
        (["gpu-1", "--delay-s", "nan"], ("delay_s is nan",)),
        (["gpu-1", "--prompts", "none.txt"], ("none.txt", "cannot read the prompts")),
        (["gpu-1", "--prompts", "empty.txt"], ("empty.txt", "holds no prompt")),
        (["gpu-1", "--flush-url", "gpu-1/flush"], ("'gpu-1/flush' is no URL",)),
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


def test_an_engine_that_cannot_flush_is_named(engine, capsys):
    assert main(["calibrate", "gpu-1", *SMALL, "--flush-url", "http://127.0.0.1:9/flush_cache", "--yes"]) == 1
    assert "did not empty its cache" in capsys.readouterr().err
    assert engine.asked == []
