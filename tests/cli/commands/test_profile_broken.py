"""A profile of an application that is broken: one line with the reason, the place and the price, exit code 1, rows kept."""

import re
import sys

import pytest

from vinelm.cli.main import main
from vinelm.traces import ObservationStore

APP = """
from typing import TypedDict

from vinelm import Request, Stage, Template, Workflow
from vinelm.backends import TextWriter


class State(TypedDict, total=False):
    question: str
    answer: str


def answer(state: State, model) -> State:
    return {"answer": {}["nowhere"]}


def build(vine):
    from langgraph.graph import END, START, StateGraph

    graph = StateGraph(State)
    graph.add_node("answer", vine.stage("answer", answer))
    graph.add_edge(START, "answer")
    graph.add_edge("answer", END)
    return graph


workflow = Workflow(
    name="app",
    template=Template((Stage("answer"),)),
    build=build,
    requests=[Request(f"q{i}", {"question": f"number {i}", "label": "yes"}) for i in range(12)],
    score=lambda request, state: True,
    labels=("label",),
    writer=TextWriter("label"),
)
"""


@pytest.mark.parametrize("isolation", ["inline", "process"])
@pytest.mark.long
def test_it_is_one_line_and_exit_1(tmp_path, monkeypatch, capsys, isolation):
    name = f"broken_app_{isolation}"
    (tmp_path / f"{name}.py").write_text(APP)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    line = ["profile", f"{name}:workflow", "--sampler", "exhaustive", "--coverage", "1", "--store", "s.db"]
    assert main([*line, "--isolation", isolation]) == 1
    told = capsys.readouterr()
    assert "vinelm estimate" not in told.out
    last = told.err.splitlines()[-1]
    start = r"error: stage 'answer' is broken: all of its first \d+ rows failed alike, whatever the model "
    place = rf"\(tool: KeyError at {name}.py:\d+\), which cost \$0.0000: "
    end = r"repair it and run the same line again, which executes these rows again \(--keep-going does not stop\)"
    wanted = start + place + end
    assert re.fullmatch(wanted, last), last
    with ObservationStore.open(tmp_path / "s.db") as store:
        assert len(store) == 8
    assert main([*line, "--isolation", isolation, "--keep-going"]) == 1
    wanted = rf"error: all \d+ rows failed {place}repair it and run it without --keep-going, which executes these rows again"
    assert re.fullmatch(wanted, capsys.readouterr().err.splitlines()[-1])


@pytest.mark.parametrize("as_json", [False, True])
def test_a_few_rows_that_all_failed_are_one_line_and_are_executed_again_once_it_is_repaired(
    tmp_path, monkeypatch, capsys, as_json
):
    """Too few to call a stage broken; and failures at no price reach any coverage."""
    name = f"few_rows_{as_json}"
    few = APP.replace("range(12)", "range(3)")
    (tmp_path / f"{name}.py").write_text(few)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    line = ["profile", f"{name}:workflow", "--coverage", "0.1", "--store", "s.db", "--isolation", "inline"]
    assert main([*line, "--json"] if as_json else line) == 1
    told = capsys.readouterr()
    assert "vinelm estimate" not in told.out
    wanted = (
        rf"error: (the only row|all \d rows) failed \(tool: KeyError at {name}.py:\d+\), which cost \$0.0000: "
        "repair it and run the same line again, which executes these rows again"
    )
    assert re.fullmatch(wanted, told.err.splitlines()[-1]), told.err
    with ObservationStore.open(tmp_path / "s.db") as store:
        failed = len(store)
        assert 0 < failed < 8
    repaired = few.replace('{}["nowhere"]', "model.invoke(state['question']).text")
    (tmp_path / f"{name}.py").write_text(repaired)
    del sys.modules[name]
    assert main(line) == 0
    told = capsys.readouterr()
    assert "none failed" in told.err or as_json
    with ObservationStore.open(tmp_path / "s.db") as store:
        assert all(row.failure is None for row in store.observations())


def test_a_missing_key_is_one_line_and_leaves_no_store(tmp_path, monkeypatch, capsys):
    (tmp_path / "keyless_app.py").write_text(APP)
    (tmp_path / "models.toml").write_text(
        '[[model]]\nname = "mini"\nprovider = "openai"\nmodel = "gpt-5-mini"\napi_key_env = "VINELM_NO_SUCH_KEY"\n'
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    line = ["profile", "keyless_app:workflow", "--models", "models.toml", "--budget-usd", "1", "--store", "s.db"]
    assert main(line) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        "error: model 'mini': environment variable VINELM_NO_SUCH_KEY is not set: put the API key there"
    )
    assert not (tmp_path / "s.db").exists()
