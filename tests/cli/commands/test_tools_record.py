"""`vinelm tools record`: requests are run once, their calls are kept, and the same line goes on."""

import json
import sqlite3
from contextlib import closing

import pytest

pytest.importorskip("langchain")

from vinelm.cli.main import main

REACT = "examples.react.app:workflow"
MODELS = """
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from vinelm import Catalog

class Chat(BaseChatModel):
    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **kwargs):
        return self.bind(tools=["bound"])

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        message = AIMessage("done")
        if not isinstance(messages[-1], ToolMessage):
            message = AIMessage("", tool_calls=[{"name": "look", "args": {"item": messages[-1].text}, "id": "1"}])
        return ChatResult(generations=[ChatGeneration(message=message)])

def catalog(price):
    prices = {"input": price, "output": 0.0, "source": "test", "as_of": "2026-11-01"}
    return Catalog.from_chat_models({"m0": Chat()}, prices={"m0": prices})
"""
APP = """
from langchain.agents import create_agent
from scripted_models import catalog

from vinelm import VineChatModel, VineLM, VineMiddleware

vine = VineLM(catalog(PRICE))

@vine.tool(read_only=True, cost_usd=0.25)
def look(item: str) -> str:
    "Look an item up."
    if "fail" in item:
        raise ValueError("planted")
    return item + " is fine"

graph = create_agent(VineChatModel(vine=vine, stage="model"), [look], middleware=[VineMiddleware(vine)])
"""

WORKFLOW = """
import json

from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from scripted_models import catalog

from vinelm import Request, VineLM, Workflow

vine = VineLM(catalog(0.0))

@vine.tool(read_only=True, cost_usd=0.25)
def look(item: str) -> str:
    "Look an item up."
    return item + " is fine"

llm = vine.chat_model().bind_tools([look])

def think(state):
    return {"messages": [llm.invoke(state["messages"])]}

builder = StateGraph(MessagesState)
builder.add_node("think", think)
builder.add_node("tools", ToolNode([look]))
builder.add_edge(START, "think")
builder.add_conditional_edges("think", tools_condition)
builder.add_edge("tools", "think")
graph = builder.compile()
requests = [Request("q", {"messages": [("user", "tea")]})]

class Writer:
    kinds = ("wrong_aggregate",)

    def skills(self, request):
        return {}

    def right(self, request, rng):
        return json.dumps({"calls": [{"name": "look", "args": {"item": "tea"}}], "answer": "fine"})

    def wrong(self, request, kind, rng):
        return self.right(request, rng)

workflow = Workflow(
    name="held", build=lambda vine: graph, requests=requests, score=lambda request, state: 1 / 0, writer=Writer()
)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def rows_in(path, columns="request_id, kind, tool, is_read, arguments"):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"SELECT {columns} FROM tool_calls ORDER BY call_id").fetchall()


def write_app(folder, name, price="0.0"):
    (folder / "scripted_models.py").write_text(MODELS)
    (folder / f"{name}.py").write_text(APP.replace("PRICE", price))
    rows = [{"id": f"q{at}", "messages": [{"role": "user", "content": f"tea {at}"}]} for at in range(3)]
    (folder / "inputs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return f"{name}.py:graph", "--dataset", "inputs.jsonl"


def test_a_workflow_is_run_once_and_the_same_line_goes_on(folder, capsys):
    line = ["tools", "record", REACT, "--preset", "paper", "--store", "t.db", "--values", "--read-only", "price", "--quiet"]
    assert main([*line, "--limit", "4"]) == 0
    said = capsys.readouterr().out
    assert "calls of 4 requests in t.db; $" in said
    assert "Simulated models." in said
    first = rows_in("t.db")
    assert next(row for row in first if row[1] == "message")[4] == '"What do 2 pieces of the lamp cost in EUR?"'
    assert {(row[2], row[3]) for row in first if row[2]} >= {("price", 1), ("calculate", None)}
    assert main([*line, "--limit", "4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["served"], found["requests"], found["is_simulated"]) == (4, 4, True)
    assert rows_in("t.db") == first


def test_without_values_there_are_none_and_nothing_can_be_mined(folder, capsys):
    assert main(["tools", "record", REACT, "--preset", "paper", "--limit", "3", "--store", "t.db", "--read-only", "*"]) == 0
    assert {row[4] for row in rows_in("t.db")} == {None}
    assert b"of the lamp" not in (folder / "t.db").read_bytes()
    with closing(sqlite3.connect("t.db")) as connection, connection:  # a service far away
        connection.execute("UPDATE tool_calls SET ended_s = ended_s + 1")
    capsys.readouterr()
    assert main(["tools", "mine", "t.db"]) == 2
    said = capsys.readouterr().err
    assert "recorded without arguments: which reads come next cannot be learnt" in said
    assert "% of the time would be saved" in said


def test_the_budget_ends_it_and_a_larger_one_goes_on(folder, capsys):
    line = ["tools", "record", REACT, "--preset", "paper", "--limit", "6", "--store", "t.db", "--values", "--json", "--quiet"]
    assert main([*line, "--budget-usd", "0.0004"]) == 3
    out, err = capsys.readouterr()
    first = json.loads(out)
    assert 0 < first["served"] < 6
    assert first["spent_usd"] <= 0.0004
    assert "raise --budget-usd and run the same line to continue" in err
    before = rows_in("t.db")
    assert main([*line, "--budget-usd", "1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["served"] == 6
    assert rows_in("t.db")[: len(before)] == before
    sessions = [row[0] for row in rows_in("t.db")]
    assert len(set(sessions)) == 6


def test_a_graph_with_a_file_of_inputs(folder, capsys):
    assert main(["tools", "record", *write_app(folder, "looking_app"), "--values", "--store", "t.db", "--budget-usd", "9"]) == 0
    assert "Recorded 3 calls of 3 requests in t.db; $0.750 spent." in capsys.readouterr().out  # the tool's declared dollars
    assert rows_in("t.db", "request_id, tool, is_read, cost_usd, arguments")[:2] == [
        ("q0", "", None, 0.0, '"tea 0"'),
        ("q0", "look", 1, 0.25, '{"item": "tea 0"}'),
    ]


def test_a_workflow_whose_graph_holds_a_vinelm_of_its_own(folder):
    (folder / "scripted_models.py").write_text(MODELS)
    (folder / "held_app.py").write_text(WORKFLOW)
    assert main(["tools", "record", "held_app:workflow", "--preset", "paper-2", "--store", "t.db"]) == 0
    assert rows_in("t.db", "tool, is_read, cost_usd") == [("look", 1, 0.25)]


def test_a_request_that_fails_is_told_and_not_run_again(folder, capsys):
    spec = write_app(folder, "failing_app")
    rows = [{"id": at, "messages": [{"role": "user", "content": text}]} for at, text in enumerate(("tea", "fail secretly"))]
    (folder / "inputs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert main(["tools", "record", *spec, "--store", "t.db", "--budget-usd", "9"]) == 0
    said = capsys.readouterr().out
    assert "1 of 2 failed: ValueError" in said
    assert "secretly" not in said
    assert rows_in("t.db", "is_ok") == [(1,), (0,)]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["no-such-workflow"], "unknown workflow"),
        (["missing.py:graph"], "a graph needs --dataset"),
        ([REACT, "--preset", "paper", "--read-only", "nothing_*"], "no recorded tool is named 'nothing_*'"),
        ([REACT, "--preset", "paper", "--store", "text.db"], "text.db"),
        ([REACT, "--preset", "paper", "--store", "no/t.db"], "does not exist"),
    ],
)
def test_bad_input_is_one_line(folder, capsys, args, says):
    (folder / "text.db").write_text("a text that is no store at all, whatever its name")
    assert main(["tools", "record", *args]) == 2
    err = capsys.readouterr().err
    assert says in err
    assert "Traceback" not in err


def test_models_that_cost_money_need_a_budget(folder, capsys):
    spec = write_app(folder, "paid_app", price="1.0")
    assert main(["tools", "record", *spec]) == 2
    assert "--budget-usd" in capsys.readouterr().err


def test_a_graph_that_makes_its_own_models_is_refused(folder, capsys):
    write_app(folder, "unused_app")
    (folder / "own_app.py").write_text(
        "from langchain_core.language_models import FakeListChatModel\n"
        "from langgraph.graph import START, MessagesState, StateGraph\n"
        "llm = FakeListChatModel(responses=['x'])\n"
        "def node(state):\n    return {'messages': [llm.invoke(state['messages'])]}\n"
        "graph = StateGraph(MessagesState).add_node('node', node).add_edge(START, 'node').compile()\n"
    )
    assert main(["tools", "record", "own_app.py:graph", "--dataset", "inputs.jsonl"]) == 2
    err = capsys.readouterr().err
    assert "makes its own models (own_app.py:3)" in err
