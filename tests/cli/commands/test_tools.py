"""`vinelm tools`: what it mines, what it refuses, and when it says that there is nothing to gain."""

import json

import pytest
from kit.tool_sessions import shop_sessions, write_log

from vinelm.cli.main import main
from vinelm.estimator.patterns.pattern_file import read_patterns
from vinelm.traces import ObservationStore
from vinelm.traces.testing import an_identity

READ_ONLY = ("--read-only", "get_*", "--read-only", "list_offers", "--read-only", "convert")
APP = """
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

@tool
def get_user({argument}: str) -> str:
    "A user."
    return ""

@tool
def get_order(order_id: str) -> str:
    "An order."
    return ""

@tool
def list_offers() -> str:
    "The offers."
    return ""

builder = StateGraph(MessagesState)
builder.add_node("tools", ToolNode([get_user, get_order, list_offers]))
builder.add_edge(START, "tools")
builder.add_edge("tools", END)
graph = builder.compile()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    write_log(tmp_path / "log.jsonl", shop_sessions(12))
    return tmp_path


def events_file(path, *, tool_s):
    lines = []
    for session in shop_sessions(8, tool_s=tool_s):
        events = [
            {"kind": "user", "text": one} if isinstance(one, str) else {
                "kind": "call", "tool": one.tool, "args": one.arguments, "result": one.result, "started_s": one.started_s,
                "ended_s": one.ended_s,
            }
            for one in session
        ]  # fmt: skip
        lines.append(json.dumps({"events": events}))
    path.write_text("\n".join(lines))


def test_a_log_is_mined_and_judged(folder, capsys):
    assert main(["tools", "mine", "log.jsonl", *READ_ONLY]) == 0
    text = capsys.readouterr().out
    assert " calls in 12 requests" in text
    assert "reads ready when asked for" in text
    assert "No times were recorded" in text
    assert read_patterns(folder / "log.patterns").sets


def test_a_log_in_a_store_says_the_same(folder, capsys):
    ObservationStore.create(folder / "app.db", an_identity()).close()
    assert main(["tools", "import", "log.jsonl", "--store", "app.db", *READ_ONLY]) == 0
    assert "of 12 requests to app.db" in capsys.readouterr().out
    assert main(["tools", "mine", "app.db", "-o", "a.patterns", "--json"]) == 0
    of_store = json.loads(capsys.readouterr().out)
    assert main(["tools", "mine", "log.jsonl", *READ_ONLY, "-o", "b.patterns", "--json"]) == 0
    of_log = json.loads(capsys.readouterr().out)
    assert (of_store["ready"], of_store["sets"]) == (of_log["ready"], of_log["sets"])
    assert of_store["ready"] > 0.8
    assert (folder / "a.patterns").read_bytes() == (folder / "b.patterns").read_bytes()


def test_seconds_are_said_where_there_are_any(folder, capsys):
    events_file(folder / "timed.jsonl", tool_s=2.0)
    assert main(["tools", "mine", "timed.jsonl", *READ_ONLY]) == 0
    assert "A request of" in capsys.readouterr().out


def test_nothing_to_gain_is_said_and_no_file_is_written(folder, capsys):
    events_file(folder / "fast.jsonl", tool_s=0.01)
    assert main(["tools", "mine", "fast.jsonl", *READ_ONLY]) == 0
    assert "nothing to gain here" in capsys.readouterr().out
    assert not (folder / "fast.patterns").exists()


def test_patterns_are_compared_with_an_application(folder, capsys):
    (folder / "shop_app.py").write_text(APP.format(argument="user_id"))
    (folder / "other_shop_app.py").write_text(APP.format(argument="name"))
    assert main(["tools", "mine", "log.jsonl", *READ_ONLY, "--app", "shop_app.py:graph"]) == 0
    assert main(["tools", "check", "log.patterns", "shop_app.py:graph"]) == 0
    assert "fit the application's tools: get_order, get_user, list_offers" in capsys.readouterr().out
    assert main(["tools", "check", "log.patterns", "other_shop_app.py:graph"]) == 2
    assert "tool 'get_user' takes other arguments" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["mine", "log.jsonl"], "no tool is known to only read"),
        (["mine", "log.jsonl", "--read-only", "nope*"], "no recorded tool is named 'nope*'"),
        (["mine", "absent.jsonl", "--read-only", "x"], "absent.jsonl"),
        (["mine", "log.jsonl", "--read-only", "get_*", "-o", "log.jsonl"], "log.jsonl"),
        (["check", "log.jsonl", "x.py:graph"], "not a file of patterns"),
        (["import", "log.jsonl", "--store", "absent.db"], "absent.db"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(folder, capsys, args, says):
    assert main(["tools", *args]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert "Traceback" not in error
    assert len(error.strip().splitlines()) == 1
