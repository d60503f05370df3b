"""``vinelm init``: from a graph as people write it to a workflow that `vinelm check` accepts."""

import importlib
import json
import shutil
import sys
from pathlib import Path

import pytest

from vinelm import Catalog
from vinelm.cli.main import main
from vinelm.workflows import load_workflow

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
APP = '''"""A writer and a critic."""

from typing import TypedDict

from langchain_core.language_models import FakeListChatModel
from langgraph.graph import END, START, StateGraph


class ChatOpenAI(FakeListChatModel):
    model: str = ""
    responses: list[str] = ["x"]


llm = ChatOpenAI(model="gpt-5-mini", temperature=0)


class State(TypedDict, total=False):
    question: str
    draft: str
    answer: str


def write(state: State):
    return {"draft": llm.invoke(state["question"]).text}


def look_up(state: State):
    return {}


def review(state: State):
    return {"answer": llm.invoke("Improve: " + state["draft"]).text}


builder = StateGraph(State)
builder.add_node("write", write)
builder.add_node("look_up", look_up)
builder.add_node("review", review)
builder.add_edge(START, "write")
builder.add_edge("write", "look_up")
builder.add_edge("look_up", "review")
builder.add_conditional_edges("review", lambda s: END if s["answer"] else "write", ["write", END])
graph = builder.compile()
'''
ROWS = [{"id": f"q{n}", "question": f"What is {n} + 1?", "expected": str(n + 1)} for n in range(12)]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with an app and a dataset, in which commands run; what they import is forgotten afterwards."""
    (tmp_path / "shop_app.py").write_text(APP)
    (tmp_path / "q.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    importlib.invalidate_caches()
    yield tmp_path
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


def forget():
    """What a new process would not have imported."""
    for name in ("workflow", "shop_app"):
        sys.modules.pop(name, None)
    importlib.invalidate_caches()


def made(capsys, *args: str) -> dict:
    assert main(["init", *args, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys, *args: str, code: int = 2) -> str:
    assert main(["init", *args]) == code
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


def test_an_app_of_ones_own_is_checked_without_an_edit_by_hand(folder, capsys):
    found = made(capsys, "shop_app.py:graph", "--dataset", "q.jsonl", "--apply", "--loop-times", "2")
    assert found["stages"] == ["write", "review"]
    assert found["models_today"] == ["openai:gpt-5-mini"]
    assert found["todo"] == []
    forget()
    assert 'llm = vine.around(ChatOpenAI(model="gpt-5-mini", temperature=0))' in (folder / "shop_app.py").read_text()
    assert tuple(Catalog.from_file("models.toml")) == ("gpt-5-mini", "gpt-5-nano", "gpt-5")
    workflow = load_workflow("workflow:workflow")
    assert [stage.name for stage in workflow.template.invocations] == ["write", "review"] * 2
    assert workflow.graph_input(workflow.requests[0]) == {"question": "What is 0 + 1?"}
    assert workflow.labels == ("expected",)
    assert workflow.score(workflow.requests[0], {"answer": " 1 "}) is True
    assert workflow.score(workflow.requests[0], {"answer": "2"}) is False
    assert main(["check", "workflow:workflow", "--models", "models.toml"]) == 0
    assert "Ready." in capsys.readouterr().out


def test_without_apply_the_app_stays_and_the_lines_to_change_are_named(folder, capsys):
    before = (folder / "shop_app.py").read_text()
    assert main(["init", "shop_app.py", "--dataset", "q.jsonl", "--models", "anthropic", "--yes"]) == 0
    said = capsys.readouterr().out
    assert 'shop_app.py:14: ChatOpenAI(model="gpt-5-mini", temperature=0)  ->' in said
    assert "how many turns does your loop take at most?" in said
    assert said.count("vinelm ") >= 3
    assert (folder / "shop_app.py").read_text() == before
    assert "claude" in (folder / "models.toml").read_text()
    compile((folder / "workflow.py").read_text(), "workflow.py", "exec")


def test_nothing_is_overwritten_without_force(folder, capsys):
    line = ["shop_app.py:graph", "--dataset", "q.jsonl", "--models", "openai", "--yes"]
    assert main(["init", *line]) == 0
    (folder / "workflow.py").write_text("# mine")
    (folder / "models.toml").unlink()
    capsys.readouterr()
    assert "workflow.py: exists already" in refused(capsys, *line)
    assert not (folder / "models.toml").exists()
    assert (folder / "workflow.py").read_text() == "# mine"
    assert main(["init", *line, "--force"]) == 0
    assert "Workflow(" in (folder / "workflow.py").read_text()


def test_a_catalog_that_is_there_is_kept(folder, capsys):
    shutil.copy(EXAMPLES / "models.toml", folder)
    found = made(capsys, "shop_app.py:graph", "--dataset", "q.jsonl")
    assert found["kept"] == [str(folder / "models.toml")]
    assert (folder / "models.toml").read_text() == (EXAMPLES / "models.toml").read_text()


def test_force_replaces_a_catalog_only_where_models_are_named(folder, capsys):
    (folder / "models.toml").write_text("# mine")
    line = ["shop_app.py:graph", "--dataset", "q.jsonl", "--force"]
    made(capsys, *line)
    made(capsys, *line)
    assert (folder / "models.toml").read_text() == "# mine"
    made(capsys, *line, "--models", "openai")
    assert "gpt-5" in (folder / "models.toml").read_text()


def test_several_labels_are_hidden_from_the_graph_and_all_scored(folder, capsys):
    rows = [{"id": "q0", "question": "2 + 2?", "draft": "four", "answer": "4"}]
    (folder / "two.jsonl").write_text("\n".join(map(json.dumps, rows)))
    made(capsys, "shop_app.py:graph", "--dataset", "two.jsonl", "--label-field", "draft", "--label-field", "answer",
         "--models", "openai", "--apply")  # fmt: skip
    forget()
    workflow = load_workflow("workflow:workflow")
    request = workflow.requests[0]
    assert workflow.labels == ("draft", "answer")
    assert workflow.graph_input(request) == {"question": "2 + 2?"}
    assert workflow.score(request, {"draft": " Four", "answer": "4"}) is True
    assert workflow.score(request, {"draft": "four", "answer": "5"}) is False


def test_a_label_that_is_an_object_is_compared_as_json(folder, capsys):
    rows = [{"question": f"What is {n} + 1?", "expected": {"sum": n + 1}} for n in range(12)]
    (folder / "q.jsonl").write_text("\n".join(map(json.dumps, rows)))
    made(capsys, "shop_app.py:graph", "--dataset", "q.jsonl", "--apply", "--loop-times", "2")
    forget()
    workflow = load_workflow("workflow:workflow")
    first = workflow.requests[0]
    assert [workflow.score(first, {"answer": text}) for text in ('{"sum": 1}', '{ "sum":1.0}', "{'sum': 1}", '{"sum": 2}')] == [
        True, True, False, False,
    ]  # fmt: skip
    assert workflow.score(first, {"answer": {"sum": 1}}) is True


def test_code_without_a_graph_is_not_run(folder, capsys):
    code = "from pathlib import Path\n\n\ndef answer(note: str) -> str:\n    Path('ran').touch()\n    return note\n"
    (folder / "plain_app.py").write_text(code)
    assert "is a function without a graph, and plain_app makes" in refused(capsys, "plain_app.py:answer", "--models", "openai")
    assert "docs/frameworks.md#plain-python-no-framework" in refused(capsys, "plain_app.py", "--models", "openai")
    assert not (folder / "ran").exists()


def test_a_server_of_ones_own_needs_a_catalog_first(folder, capsys):
    own = APP.replace('model="gpt-5-mini"', 'model="gpt-5-mini", base_url="http://gpu-1:8000/v1"')
    own = own.replace('    model: str = ""\n', '    model: str = ""\n    base_url: str = ""\n')
    (folder / "shop_app.py").write_text(own)
    said = refused(capsys, "shop_app.py:graph", "--dataset", "q.jsonl", "--yes")
    assert (
        'shop_app.py:15: a server of your own (base_url="http://gpu-1:8000/v1") has no list price: write models.toml first'
        in said
    )
    shutil.copy(EXAMPLES / "models.toml", folder)
    assert made(capsys, "shop_app.py:graph", "--dataset", "q.jsonl")["kept"] == [str(folder / "models.toml")]


@pytest.mark.parametrize("spec", [[], ["langgraph.json"], ["langgraph.json:agent"]])
def test_the_graph_of_the_langgraph_file_in_another_folder(folder, capsys, spec):
    (folder / "src").mkdir()
    (folder / "shop_app.py").rename(folder / "src" / "shop_app.py")
    (folder / "langgraph.json").write_text(json.dumps({"graphs": {"agent": "./src/shop_app.py:graph"}}))
    found = made(capsys, *spec, "--models", "simulated", "--out", "vine", "--dataset", "q.jsonl")
    assert found["graph"] == "shop_app:graph"
    text = (folder / "vine" / "workflow.py").read_text()
    assert '/ "../src"' in text
    assert '/ "../q.jsonl"' in text


def test_the_example_of_the_tutorial_is_checked_as_it_comes(folder, capsys):
    for name in ("my_app.py", "questions.jsonl"):
        shutil.copy(EXAMPLES / name, folder)
    made(capsys, "my_app.py:build", "--dataset", "questions.jsonl", "--models", "simulated")
    assert main(["check", "workflow:workflow", "--models", "models.toml"]) == 0
    sys.modules.pop("my_app")


def test_a_graph_that_waits_for_a_person_says_so(folder, capsys):
    source = APP.replace("    return {}\n", "    return interrupt(state)\n")
    source = source.replace("from typing", "from langgraph.types import interrupt\nfrom typing")
    (folder / "shop_app.py").write_text(source)
    found = made(capsys, "shop_app.py:graph", "--dataset", "q.jsonl", "--loop-times", "2")
    assert [todo["text"] for todo in found["todo"]] == [
        "what would a person answer where look_up waits? In a profile nobody is asked."
    ]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["nowhere.py:graph"], "nowhere.py: no such file"),
        (["shop_app.py:nothing"], "no attribute 'nothing': it has graph"),
        ([], "no graph is named, and there is no langgraph.json"),
        (["langgraph.json:chat"], "no graph is named, and there is no langgraph.json"),
        (["shop app:graph"], "is neither a file nor a module"),
        (["shop_app.py:graph", "--models", "gtp"], "'gtp' is neither PROVIDER:MODEL"),
        (["shop_app.py:graph", "--models", "openai:no-such-model"], "no price known for 'openai/no-such-model'"),
        (["shop_app.py:graph", "--models", "simulated,openai"], "do not mix"),
        (["shop_app.py:graph", "--models", "openai", "--dataset", "none.jsonl"], "cannot read the dataset"),
        (
            ["shop_app.py:graph", "--models", "openai", "--dataset", "q.jsonl", "--label-field", "gold"],
            "no column 'gold': it has id, question, expected",
        ),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(folder, capsys, args, words):
    before = sorted(path.name for path in folder.iterdir() if path.name != "__pycache__")
    assert words in refused(capsys, *args)
    assert sorted(path.name for path in folder.iterdir() if path.name != "__pycache__") == before


def test_an_app_that_does_not_say_its_models_asks_for_them(folder, capsys):
    shutil.copy(EXAMPLES / "my_app.py", folder)
    shutil.copy(EXAMPLES / "questions.jsonl", folder)
    assert "(--models openai, or --models simulated to try it" in refused(capsys, "my_app.py:build")
    sys.modules.pop("my_app")


def test_a_failing_import_says_why(folder, capsys):
    (folder / "broken_app.py").write_text("raise RuntimeError('set the OPENAI_API_KEY environment variable, or api_key')")
    assert "to any text: no model is called" in refused(capsys, "broken_app.py:graph")
