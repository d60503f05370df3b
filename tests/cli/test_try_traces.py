"""`vinelm try --traces`: recorded calls give requests and today's answers, which are not paid again; in child processes."""

import json
import stat
import subprocess
from pathlib import Path

import pytest

import vinelm
from scripts.local_openai import local_openai
from vinelm.cli.main import main
from vinelm.traces import ObservationStore

COUNT = 12
APP = """
from typing import TypedDict

from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph

llm = ChatOpenAI(model="gpt-5-mini")


class State(TypedDict, total=False):
    question: str
    answer: str


def solve(state: State):
    return {"answer": llm.invoke(f"Say right or wrong. {state['question']}").text}


builder = StateGraph(State)
builder.add_node("solve", solve)
builder.add_edge(START, "solve")
builder.add_edge("solve", END)
graph = builder.compile()
"""
TODAY = f"""
from traced_app import graph
from vinelm import VineRecorder

for number in range({COUNT}):
    graph.invoke({{"question": f"Is {{number}} even?"}}, config={{"callbacks": [VineRecorder("calls.jsonl")]}})
"""
LINE = ["try", "traced_app.py:graph", "--apply", "--models", "openai:gpt-5-mini,openai:gpt-5-nano", "--budget-usd", "1"]


@pytest.fixture
def folder(tmp_path, monkeypatch, warm_python):
    """An application on a local server, and calls.jsonl of its requests today; what the server is asked from now on."""
    monkeypatch.setenv("OPENAI_API_KEY", "no-key")
    monkeypatch.chdir(tmp_path)
    Path("traced_app.py").write_text(APP, encoding="utf-8")
    record = tmp_path / "asked.txt"
    with local_openai(0.0, record=str(record)) as url:
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        subprocess.run([warm_python, "-c", TODAY], check=True)
        record.write_text("", encoding="utf-8")
        yield tmp_path


def asked(folder):
    """The models that were asked, in order."""
    lines = [json.loads(line) for line in (folder / "asked.txt").read_text(encoding="utf-8").splitlines()]
    return [line["model"] for line in lines if line["what"] == "began"]


def test_requests_and_todays_answers_come_from_the_traces_and_cost_nothing(folder, capfd):
    assert main([*LINE, "--traces", "calls.jsonl", "--max-loss", "30", "--json"]) == 0
    told, found = capfd.readouterr(), Path("requests.jsonl")
    rows = [json.loads(line) for line in found.read_text(encoding="utf-8").splitlines()]
    assert {row["question"] for row in rows} == {f"Is {number} even?" for number in range(COUNT)}
    assert stat.S_IMODE(found.stat().st_mode) == 0o600
    assert "calls were found in the traces: the recorded answers count, and cost nothing" in told.err
    assert set(asked(folder)) == {"gpt-5-nano"}, "today's calls are recorded"
    with ObservationStore.open("app.db") as store:
        rows = store.observations()
        mini = [row for row in rows if row.prefix == ("gpt-5-mini",)]
        assert store.committed_usd() == pytest.approx(sum(row.cost_usd for row in rows if row.prefix == ("gpt-5-nano",)))
    assert len(mini) == COUNT
    assert all(row.cost_usd == 0.0 and row.list_usd > 0.0 and row.is_timed for row in mini)
    verdict = json.loads(told.out)["verdict"]
    assert verdict["models"] == {"solve": "gpt-5-mini"}
    found = vinelm.load_trie("app.vine")
    estimated_usd = float(found.cost_usd[found.trie.node(("gpt-5-mini",))])
    assert estimated_usd == pytest.approx(sum(row.list_usd for row in mini) / COUNT), "no model is taken for free"


def test_a_file_of_that_name_is_not_overwritten(folder, capfd):
    Path("requests.jsonl").write_text("mine\n", encoding="utf-8")
    assert main([*LINE, "--traces", "calls.jsonl", "--quiet"]) == 2
    assert "requests.jsonl is there already" in capfd.readouterr().err
    assert Path("requests.jsonl").read_text(encoding="utf-8") == "mine\n"
