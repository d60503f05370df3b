"""What ``vinelm init --apply`` leaves of an application: the same calls, for the same models, with the same settings."""

import ast
import importlib
import io
import json
import sys
import tokenize
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from vinelm.cli.main import main

pytest.importorskip("langchain_openai")

APP = '''"""Two models in one class."""

from typing import TypedDict

from langchain_openai import ChatOpenAI
from langgraph.graph import START, StateGraph


class State(TypedDict, total=False):
    question: str
    draft: str
    answer: str


class Agents:
    def __init__(self):
        self.big = ChatOpenAI(model="gpt-4.1", temperature=0.1, seed=7, max_tokens=900, model_kwargs={"user": "me"})
        self.small = ChatOpenAI(
            model="gpt-4.1-mini",  # it only drafts
            temperature=0.9,
        )

    def write(self, state: State):
        return {"draft": self.small.invoke(state["question"]).text}

    def check(self, state: State):
        return {"answer": self.big.invoke(state["draft"]).text}


def build():
    agents, builder = Agents(), StateGraph(State)
    builder.add_node("write", agents.write)
    builder.add_node("check", agents.check)
    builder.add_edge(START, "write")
    builder.add_edge("write", "check")
    return builder.compile()


graph = build()
'''

ANALYSTS = '''"""Nodes side by side, whose models a function makes by a name; a failure gives an empty answer."""
import operator
import os
from typing import Annotated, TypedDict

from langchain_openai import ChatOpenAI
from langgraph.graph import START, StateGraph


class State(TypedDict, total=False):
    question: str
    notes: Annotated[list, operator.add]
    answer: str


def make(name, **settings):
    return ChatOpenAI(model=os.environ.get("A_MODEL", name), **settings)  # the one place


def call(name, text, **settings):
    try:
        return make(name, **settings).invoke(text).text
    except Exception:
        return "nothing"


def bull(state: State):
    return {"notes": [call("gpt-4.1-mini", "bull " + state["question"], temperature=0.3)]}


def bear(state: State):
    return {"notes": [call("gpt-4.1-mini", "bear " + state["question"], max_tokens=7)]}


def owl(state: State):
    return {"notes": [call("gpt-4.1-nano", "owl " + state["question"], max_tokens=30_000)]}


def manage(state: State):
    if "nothing" in state["notes"]:
        raise ValueError(state["notes"])
    return {"answer": call("gpt-4.1", " ".join(state["notes"]))}


builder = StateGraph(State)
for node in (bull, bear, owl):
    builder.add_node(node.__name__, node)
    builder.add_edge(START, node.__name__)
    builder.add_edge(node.__name__, "manage")
builder.add_node("manage", manage)
graph = builder.compile()
'''
CHAINS = '''"""What is made of models: bindings, fallbacks, retries, configured fields, chains, and models that texts name."""

from typing import TypedDict

from langchain.agents import create_agent
from langchain.agents.middleware import ModelFallbackMiddleware
from langchain.chat_models import init_chat_model
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import ConfigurableField
from langchain_openai import ChatOpenAI
from langgraph.graph import START, StateGraph

NAME = "openai:gpt-4.1-mini"


class State(TypedDict, total=False):
    question: str
    answer: str


one = ChatOpenAI(model="gpt-4.1", max_tokens=50).bind(seed=3).with_retry(stop_after_attempt=2)
two = init_chat_model("gpt-4.1-mini", model_provider="openai").with_fallbacks([ChatOpenAI(model="gpt-4.1-nano")])
which = ChatOpenAI(model="gpt-4.1").configurable_fields(model_name=ConfigurableField(id="which"))
chain = ChatPromptTemplate.from_template("{text}") | two.with_config(tags=["x"]) | StrOutputParser()
agent = create_agent(NAME, [], middleware=[ModelFallbackMiddleware("gpt-4.1-nano", "openai:gpt-4.1")])


def write(state: State):
    said = one.invoke(state["question"]).text + chain.invoke({"text": state["question"]})
    said += which.invoke("?", {"configurable": {"which": "gpt-4.1-nano"}}).text
    return {"answer": agent.invoke({"messages": [("user", said)]})["messages"][-1].text}


builder = StateGraph(State)
builder.add_node("write", write)
builder.add_edge(START, "write")
graph = builder.compile()
'''
CLIENTS = '''"""Nodes over the openai SDK, with two models on one client."""
from typing import TypedDict

import openai
from langgraph.graph import START, StateGraph

client = openai.OpenAI(timeout=20, max_retries=4, default_headers={"x-team": "blue"})


class State(TypedDict, total=False):
    question: str
    draft: str
    answer: str


def ask(model, text, **settings):
    asked = [{"role": "user", "content": text}]
    return client.chat.completions.create(model=model, messages=asked, **settings).choices[0].message.content


def write(state: State):
    return {"draft": ask("gpt-4.1-mini", state["question"], temperature=0.2)}


def check(state: State):
    return {"answer": ask("gpt-4.1", state["draft"], seed=3)}


builder = StateGraph(State)
builder.add_node("write", write)
builder.add_node("check", check)
builder.add_edge(START, "write")
builder.add_edge("write", "check")
graph = builder.compile()
'''
APPS = {"two models in one class": APP, "side by side": ANALYSTS, "made of models": CHAINS, "the openai SDK": CLIENTS}


def unwrapped(text):
    """The syntax of a file without the wrappers and the lines that make ``vine``, and its comments."""

    class Unwrapping(ast.NodeTransformer):
        def visit_Call(self, node):
            self.generic_visit(node)
            is_wrapper = isinstance(node.func, ast.Attribute) and ast.unparse(node.func) == "vine.around"
            return node.args[0] if is_wrapper else node

    tree = Unwrapping().visit(ast.parse(text))
    made = ("from vinelm import VineLM", "vine = VineLM('models.toml')")
    tree.body = [node for node in tree.body if ast.unparse(node) not in made]
    comments = [one.string for one in tokenize.generate_tokens(io.StringIO(text).readline) if one.type == tokenize.COMMENT]
    return ast.dump(tree), comments


@contextmanager
def openai_server():
    """Its URL, and the bodies of the chat completions that it was asked for, as long as the block runs."""
    seen = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen.append(body)
            message, usage = (
                {"role": "assistant", "content": "4"},
                {"prompt_tokens": 10, "completion_tokens": 1, "total_tokens": 11},
            )
            reply = {"id": "c", "object": "chat.completion", "created": 1, "model": body["model"]}
            choice = {"index": 0, "finish_reason": "stop"}
            if body.get("stream"):
                chunks = [{"choices": [{**choice, "delta": message}]}, {"choices": [], "usage": usage}]
                chunks = [json.dumps({**reply, "object": "chat.completion.chunk", **chunk}) for chunk in chunks]
                content = "".join(f"data: {chunk}\n\n" for chunk in [*chunks, "[DONE]"]).encode()
            else:
                content = json.dumps({**reply, "choices": [{**choice, "message": message}], "usage": usage}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream" if body.get("stream") else "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def forget(*names):
    for name in names:
        sys.modules.pop(name, None)
    importlib.invalidate_caches()


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """The bodies of the calls of the application in the current folder."""
    (tmp_path / "wrapped_app.py").write_text(APP)
    rows = [{"id": f"q{n}", "question": f"{n} + 1?", "answer": str(n + 1)} for n in range(4)]
    (tmp_path / "q.jsonl").write_text("\n".join(map(json.dumps, rows)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    forget("wrapped_app", "workflow")
    with openai_server() as (url, seen):
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        yield seen
    forget("wrapped_app", "workflow")


def invoked(seen):
    """The bodies of three requests of the application as its file is now."""
    forget("wrapped_app", "workflow")
    graph = importlib.import_module("wrapped_app").graph
    before = len(seen)
    for number in range(3):
        assert graph.invoke({"question": f"{number}?"})["answer"] == "4"
    return seen[before:]


def by_model(bodies):
    """The calls, each with its settings, and how often each was made; whether an answer comes in pieces is the meter's."""
    of_the_meter = ("stream", "stream_options")
    return Counter(json.dumps({key: body[key] for key in body if key not in of_the_meter}, sort_keys=True) for body in bodies)


@pytest.mark.parametrize("kind", APPS)
def test_init_adds_wrappers_only_and_without_a_plan_each_call_is_what_it_was(asked, tmp_path, capsys, kind):
    file = tmp_path / "wrapped_app.py"
    file.write_text(APPS[kind])
    bare = invoked(asked)
    forget("wrapped_app")
    assert main(["init", "wrapped_app.py:graph", "--dataset", "q.jsonl", "--apply", "--json"]) == 0
    capsys.readouterr()
    text = file.read_text()
    assert "vine.around(" in text
    assert unwrapped(text) == unwrapped(APPS[kind])
    wrapped = invoked(asked)
    assert by_model(wrapped) == by_model(bare)
    forget("wrapped_app", "workflow")
    assert main(["init", "wrapped_app.py:graph", "--dataset", "q.jsonl", "--apply", "--json", "--force"]) == 0
    assert json.loads(capsys.readouterr().out)["edited"] == []
    assert file.read_text() == text


def test_a_line_stays_with_its_comments(asked, tmp_path, capsys):
    assert main(["init", "wrapped_app.py:graph", "--dataset", "q.jsonl", "--apply", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["today"] == {"write": "gpt-4.1-mini", "check": "gpt-4.1"}
    text = (tmp_path / "wrapped_app.py").read_text()
    assert 'self.small = vine.around(ChatOpenAI(\n            model="gpt-4.1-mini",  # it only drafts\n' in text
    added = text.replace("vine.around(ChatOpenAI(", "ChatOpenAI(").replace('"}))', '"})').replace("        ))", "        )")
    assert added.replace("from vinelm import VineLM\n", "").replace('\nvine = VineLM("models.toml")\n', "") == APP
    wrapped = invoked(asked)
    assert Counter(body["model"] for body in wrapped) == {"gpt-4.1": 3, "gpt-4.1-mini": 3}


def test_a_profile_runs_the_objects_themselves_and_others_with_their_shared_settings(asked, capsys):
    line = ["--models", "openai:gpt-4.1,openai:gpt-4.1-mini,openai:gpt-4.1-nano"]
    assert main(["init", "wrapped_app.py:graph", "--dataset", "q.jsonl", *line, "--apply", "--json"]) == 0
    capsys.readouterr()
    forget("wrapped_app", "workflow")
    bought = ("--sampler", "exhaustive", "--coverage", "1", "--budget-usd", "5", "--quiet")
    assert main(["profile", "workflow:workflow", "--models", "models.toml", *bought]) == 0
    of_check = [body for body in asked if body.get("seed") == 7]
    of_write = [body for body in asked if body.get("seed") is None]
    models = {"gpt-4.1", "gpt-4.1-mini", "gpt-4.1-nano"}
    assert {body["model"] for body in of_check} == {body["model"] for body in of_write} == models
    assert {body["temperature"] for body in of_check} == {0.1}
    assert {body["temperature"] for body in of_write} == {0.9}
    assert {body["model"] for body in asked if body.get("user") == "me"} == {"gpt-4.1"}


def test_models_that_are_made_at_each_call_and_models_that_a_text_names_are_wrapped_too(asked):
    from langchain.chat_models import init_chat_model

    from vinelm import VineLM
    from vinelm.adapters.langgraph.structure.chat_search import holds_stage

    vine = VineLM(["openai:gpt-4.1", "openai:gpt-4.1-mini"])
    llm = vine.around(init_chat_model(configurable_fields=("model", "seed")), "write")
    chosen = llm.with_config({"configurable": {"model": "gpt-4.1-mini", "seed": 3}})
    assert holds_stage(llm)
    assert holds_stage(chosen)
    assert chosen.invoke("?").text == llm.invoke("?", {"configurable": {"model": "gpt-4.1"}}).text == "4"
    assert vine.around("openai:gpt-4.1", "write").invoke("?").text == "4"
    assert [(body["model"], body.get("seed")) for body in asked] == [("gpt-4.1-mini", 3), ("gpt-4.1", None), ("gpt-4.1", None)]
