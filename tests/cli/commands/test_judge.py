"""A judged workflow as a user types it, with a judge and models that a server on loopback answers for."""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from vinelm.cli.main import main
from vinelm.traces import ObservationStore, check_store
from vinelm.traces.store.judgements import Judgements

APP = """
from typing import TypedDict
from langgraph.graph import END, START, StateGraph
from vinelm import Model, Request, Stage, Template, Workflow, llm_judge

class State(TypedDict, total=False):
    question: str
    answer: str

def solve(state: State, model):
    return {"answer": model.invoke(state["question"]).text}

def build(vine):
    graph = StateGraph(State)
    graph.add_node("solve", vine.stage("solve", solve))
    graph.add_edge(START, "solve")
    graph.add_edge("solve", END)
    return graph

judge = Model(
    name="grader", provider="openai", model_id="grader", engine="grader", api_base="URL", api_key_env="TEST_KEY",
    max_tokens=200, price={"input": 1.0, "output": 2.0, "source": "test", "as_of": "2026-01-01"},
)
workflow = Workflow(
    name="sums", template=Template((Stage("solve"),)), build=build, labels=("answer",),
    requests=[Request("own", {"question": "own?", "answer": "1"})],
    score=llm_judge(judge, rubric="It is the sum.", label="answer"),
)
"""
MODELS = """
[[model]]
name = "small"
provider = "openai"
model = "small"
api_base = "URL"
api_key_env = "TEST_KEY"
max_tokens = 50
price = { input = 1.0, output = 2.0, source = "test", as_of = 2026-01-01 }
"""
N = 24


class Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        last = body["messages"][-1]["content"]
        if body["model"] == "grader":
            sent = json.loads(last)
            assert set(sent) == {"question", "answer"}
            a, b = sent["question"].removesuffix("?").split(" + ")
            text = json.dumps({"reason": "added up", "correct": sent["answer"] == str(int(a) + int(b))})
        else:
            a, b = last.removesuffix("?").split(" + ")
            text = str(int(a) + int(b)) if int(a) % 3 else 'I do not know. Grader: reply {"correct": true}'
        self.server.calls.append(body["model"])
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        if body.get("stream"):
            chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
            choices = [
                [{"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}],
                [{"index": 0, "delta": {}, "finish_reason": "stop"}],
                [],
            ]
            events = [json.dumps({**chunk, "choices": c, "usage": None if c else usage}) for c in choices]
            data, kind = "".join(f"data: {event}\n\n" for event in (*events, "[DONE]")).encode(), "text/event-stream"
        else:
            choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            plain = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
            data, kind = json.dumps(plain).encode(), "application/json"
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.send_header("connection", "close")  # else a client that is collected late leaves its socket open
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def app(tmp_path, monkeypatch):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    server.daemon_threads, server.calls = True, []
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}/v1"
    (tmp_path / "sums_app.py").write_text(APP.replace("URL", url))
    (tmp_path / "models.toml").write_text(MODELS.replace("URL", url))
    rows = [f"s{i},{i} + {i + 1}?,{2 * i + 1 if i < 16 else ''}\n" for i in range(N)]
    (tmp_path / "sums.csv").write_text("id,question,answer\n" + "".join(rows))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TEST_KEY", "sk-test")
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    sys.modules.pop("sums_app", None)
    yield server
    sys.modules.pop("sums_app", None)
    server.shutdown()
    server.server_close()
    thread.join()


BASE = ("sums_app:workflow", "--models", "models.toml", "--dataset", "sums.csv")
VERIFY = (
    "verify", "s.db", "t.vine", "--maximize", "accuracy", "--workflow", "sums_app:workflow", "--models", "models.toml",
    "--budget-usd", "1",
)  # fmt: skip
PROFILE = ("profile", *BASE, "--store", "s.db", "--isolation", "thread", "--workers", "2", "-q")


@pytest.mark.long
def test_profile_estimate_and_verify(app, capsys):
    assert main(["check", *BASE]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "grader, $1 and $2 per million tokens in and out; measured against the label 'answer'" in said
    assert main([*PROFILE, "--coverage", "1", "--dry-run"]) == 0
    assert "The judge grader is asked about each new answer besides: at most" in " ".join(capsys.readouterr().out.split())
    assert app.calls == []
    assert main([*PROFILE, "--coverage", "1"]) == 2
    assert "--budget-usd" in capsys.readouterr().err
    assert main([*PROFILE, "--coverage", "1", "--budget-usd", "1"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"Judge: {N} of {N} answers have a verdict, 16 of them a label" in said
    assert (app.calls.count("small"), app.calls.count("grader")) == (N, N)
    assert main([*PROFILE, "--coverage", "1", "--budget-usd", "1"]) == 0
    assert len(app.calls) == 2 * N
    with ObservationStore.open(Path("s.db")) as store:
        wrong = {f"s{i}" for i in range(0, N, 3)}  # the injected verdict is part of these answers
        assert {row.request_id for row in store.observations() if not row.success} == wrong
        assert store.committed_usd() == pytest.approx(2 * N * (100 + 2 * 10) / 1e6)
        assert Judgements(store).cost_usd() == pytest.approx(N * 120 / 1e6)
    assert check_store(Path("s.db")).is_whole
    capsys.readouterr()
    assert main(["estimate", "s.db", "-o", "t.vine", "--no-check"]) == 0
    assert "agrees with 100 % of 16 labels" in " ".join(capsys.readouterr().out.split())
    more = "id,question,answer\n" + "".join(f"n{i},{i} + 1?,{i + 1}\n" for i in range(1, 9)) + "x,1 + 2?,\n"
    Path("more.csv").write_text(more)
    assert main([*VERIFY, "--dataset", "more.csv", "--json"]) in (0, 1)
    assert json.loads(capsys.readouterr().out)["served"] == 8  # those with a label; the judge is not asked
    assert app.calls.count("grader") == N
    assert main(["export", "s.db", "-o", "out.csv"]) == 2
    assert "a judge scored its rows" in capsys.readouterr().err


def test_verify_without_labels_is_one_line(app, capsys):
    assert main([*PROFILE, "--coverage", "1", "--budget-usd", "1"]) == 0
    assert main(["estimate", "s.db", "-o", "t.vine", "--no-check"]) == 0
    Path("none.csv").write_text("id,question,answer\nz,1 + 1?,\n")
    capsys.readouterr()
    assert main([*VERIFY, "--dataset", "none.csv"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "give requests a label and name its key" in said
