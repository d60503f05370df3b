"""`vinelm try`: from an application to a verdict in one command, which goes on where it was and says what it lacks."""

import importlib
import inspect
import json
import re
import shutil
import sys
import typing
from pathlib import Path
from types import SimpleNamespace

import pytest

import vinelm
from vinelm import Loop, Stage, Template
from vinelm.cli.main import main
from vinelm.cli.try_app import command
from vinelm.errors import ConfigError
from vinelm.evaluation.comparison.comparison import Comparison
from vinelm.profiler import ExecutionConfig
from vinelm.scaffold.applied import contents
from vinelm.trying import Trial, trial
from vinelm.trying.project import asks_for_turns, note_today, note_turns, put_back

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """The example of the docs as a project that `vinelm init` left; its models are simulated."""
    shutil.copy(EXAMPLES / "models.toml", tmp_path)
    questions = (EXAMPLES / "questions.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "questions.jsonl").write_text("".join(questions[:10]), encoding="utf-8")
    text = (EXAMPLES / "my_app.py").read_text(encoding="utf-8")
    for stage in ("solve", "fix"):
        assert f'vine.stage("{stage}", {stage})' in text
        text = text.replace(f'vine.stage("{stage}", {stage})', f'vine.stage("{stage}", {stage}, default="large")')
    (tmp_path / "workflow.py").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("warm_python")
def test_the_whole_way_ends_in_one_verdict_and_in_python_the_same_steps_give_the_same_trial(project, capfd):
    assert main(["try", "workflow.py:build", "--budget-usd", "0.03", "--json", "--max-loss", "7"]) == 0
    said = capfd.readouterr()
    first, lines = json.loads(said.out), said.err.splitlines()
    steps = ("reading workflow.py:build", "checking workflow.py", "asking 2 models", "estimating")
    places = [lines.index(step) for step in steps]
    assert places == sorted(places)
    assert lines[0] == "reading workflow.py:build"
    assert lines[places[-1] - 1].endswith("calls/s")  # the progress of the profile, before the next step begins
    assert trial.kept_max_loss(Path("app.vine")) == first["verdict"]["max_loss"] == pytest.approx(0.07)
    assert first["verdict"]["advice"] in ("switch", "keep", "undecided", "not enough data")
    assert first["verdict"]["models"] == {"solve": "large", "fix": "large"}
    assert first["is_simulated"]
    assert Path(first["report"]).is_file()
    steps, notes = [], []
    again = vinelm.try_app(
        "workflow.py:build", budget_usd=0.03, on_step=steps.append, on_note=notes.append,
        on_verdict=lambda found: steps.append(f"{found.verdict.advice}, report {found.report}"),
    )  # fmt: skip
    assert steps.pop(-2) == f"{again.verdict.advice}, report None", "before the report, which may take minutes"
    assert steps == ["checking workflow.py", "asking 2 models", "estimating", "writing the report"]
    assert notes[0].startswith("With 10 labelled requests a loss below 25.9 points cannot be excluded")
    assert capfd.readouterr().out == ""
    assert again.report == project / "report" / "report.html"
    assert vinelm.load_trie(project / "app.vine").verdict == again.verdict
    assert json.loads(json.dumps(again.to_dict())) == first  # a loss of 7 points, as the first line said
    assert Path.cwd() == project


def a_trial(advice, **options):
    """A trial whose verdict has this advice, about a plan of $0.00205."""
    verdict = SimpleNamespace(advice=advice, max_cost_usd=0.00205)
    return Trial(folder=Path(), trie=SimpleNamespace(verdict=verdict), **options)


def test_an_unproven_plan_is_served_by_lines_that_say_so():
    proven, other = a_trial("switch").lines, a_trial("undecided", allow_unproven=True).lines
    assert proven[0] == 'vine = VineLM("models.toml", trie="app.vine")'
    assert other[0] == 'vine = VineLM("models.toml", trie="app.vine", allow_unproven=True)'
    assert (
        proven[1]
        == other[1]
        == 'app.invoke(inputs, context=vine.context(Objective(maximize="accuracy", max_cost_usd=0.00205, mix=False)))'
    )
    assert a_trial("undecided").lines == ()


LIBRARY_ONLY = {"on_step", "on_progress", "on_single_models", "on_verdict", "on_note"}
COMMAND_ONLY = {"as_json", "quiet"}


def test_the_command_and_the_function_have_the_same_options(tmp_path):
    """The same names, defaults and types: only a callback has no option, and only what shapes the output no parameter."""
    taken = inspect.signature(vinelm.try_app).parameters
    types = typing.get_type_hints(vinelm.try_app, {**vars(trial), "Progress": object, "SingleModels": object})
    ctx = command.make_context("try", ["app.py:graph"])
    assert taken.keys() - LIBRARY_ONLY == ctx.params.keys() - COMMAND_ONLY
    (given := tmp_path / "1").write_text("", encoding="utf-8")
    for option in command.params:
        if option.name in COMMAND_ONLY | {"app"}:
            continue
        parameter = taken[option.name]
        assert f"--{option.name.replace('_', '-')}" in option.opts
        assert parameter.kind is parameter.KEYWORD_ONLY
        assert parameter.default == ctx.params[option.name], option.name
        value = option.type.convert(str(given) if option.name == "dataset" else "1", option, ctx)
        assert isinstance(value, types[option.name]), option.name  # what the command hands on is what the function takes


def test_a_dry_run_buys_nothing(project, capfd):
    assert main(["try", "workflow.py:build", "--dry-run", "--json"]) == 0
    assert "calls" in capfd.readouterr().out
    assert not (project / "app.db").exists()


@pytest.mark.long
def test_a_dry_run_says_what_the_comparison_takes(project, capfd):
    assert main(["profile", "workflow:workflow", "--models", "models.toml", "--budget-usd", "0.001", "--dry-run"]) == 0
    said = " ".join(capfd.readouterr().out.split())
    assert "First all models, and what runs today, answer the same requests, for about $" in said
    assert "The budget may end before that, and then nothing is recommended" in said
    assert main(["profile", "workflow:workflow", "--models", "models.toml", "--budget-usd", "50", "--dry-run"]) == 0
    assert "may end before that" not in " ".join(capfd.readouterr().out.split())


def test_what_runs_today_has_to_be_known_before_a_dollar_is_spent(project, capfd, monkeypatch):
    real = '[[model]]\nname = "{0}"\nprovider = "openai"\nmodel = "{0}"\napi_key_env = "A_KEY"\n'
    (project / "models.toml").write_text("\n".join(map(real.format, ("gpt-5", "gpt-5-mini"))), encoding="utf-8")
    text = (project / "workflow.py").read_text(encoding="utf-8").replace(', default="large"', "")
    (project / "workflow.py").write_text(text, encoding="utf-8")
    monkeypatch.setenv("A_KEY", "none")
    assert main(["try", "workflow.py:build", "--budget-usd", "0.03", "--quiet"]) == 2
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert 'which model runs today at solve, fix? Say it with its name in the catalog: Stage("solve", default=NAME), in' in said
    assert not (project / "app.db").exists()
    line = ["try", "workflow.py:build", "--budget-usd", "0.03", "--dry-run", "--today"]
    assert main([*line, "openai:gpt-4"]) == 2
    assert "models.toml has no entry for it: add one, or name one of gpt-5, gpt-5-mini" in capfd.readouterr().err
    assert main([*line, "openai:gpt-5"]) == 0
    assert "today  solve gpt-5, fix gpt-5: as you say; written into workflow.py" in capfd.readouterr().err


def test_a_first_run_needs_a_dataset(tmp_path, monkeypatch, capfd):
    (tmp_path / "app_of_a_try.py").write_text(
        "from langgraph.graph import END, START, MessagesState, StateGraph\n"
        "from vinelm import VineLM\n"
        "def build(vine):\n"
        "    graph = StateGraph(MessagesState)\n"
        "    graph.add_node('a', vine.stage('a', lambda state, model: {}, state=MessagesState))\n"
        "    graph.add_edge(START, 'a')\n"
        "    graph.add_edge('a', END)\n"
        "    return graph\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    assert main(["try", "app_of_a_try.py:build"]) == 2
    assert "a first run needs --dataset" in capfd.readouterr().err


def test_the_application_may_be_the_graph_of_the_langgraph_file(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert main(["try"]) == 2
    assert "no graph is named, and there is no langgraph.json" in capfd.readouterr().err
    (tmp_path / "langgraph.json").write_text(json.dumps({"graphs": {"agent": "./not_there.py:graph"}}))
    assert main(["try"]) == 2
    assert "not_there.py" in capfd.readouterr().err


MADE_BY_NAME = """
from typing import TypedDict
from langchain_openai import ChatOpenAI
from langgraph.graph import START, StateGraph
MODELS = {"small": "gpt-5-mini", "large": "gpt-5"}
class State(TypedDict, total=False):
    question: str
    draft: str
    answer: str
def make(size):
    return ChatOpenAI(model=MODELS[size])
def write(state: State):
    return {"draft": make("small").invoke(state["question"]).text}
def check(state: State):
    return {"answer": make("large").invoke(state["draft"]).text}
builder = StateGraph(State)
builder.add_node("write", write)
builder.add_node("check", check)
builder.add_edge(START, "write")
builder.add_edge("write", "check")
graph = builder.compile()
"""


@pytest.mark.long
def test_models_of_today_that_no_source_says_are_found_by_running_the_script_and_nobody_is_asked(tmp_path, monkeypatch, capfd):
    pytest.importorskip("langchain_openai")
    (tmp_path / "made_by_name.py").write_text(MADE_BY_NAME, encoding="utf-8")
    rows = [{"question": f"{n} + 1?", "answer": str(n + 1)} for n in range(30)]
    (tmp_path / "qa.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    written, note = [], trial.note_today

    def noted(file, *told):
        said = note(file, *told)
        written.append(file.read_text(encoding="utf-8"))
        return said

    monkeypatch.setattr(trial, "note_today", noted)
    line = ["try", "made_by_name.py:graph", "--dataset", "qa.jsonl", "--apply", "--budget-usd", "1", "--dry-run"]
    assert main(line) == 0
    said = capfd.readouterr()
    assert "today  write gpt-5-mini, check gpt-5: so your app made its models; written into workflow.py" in said.err
    assert "First all models, and what runs today, answer the same requests" in " ".join(said.out.split())
    assert "a dry run leaves no trace: made_by_name.py, models.toml, workflow.py as before" in said.err
    assert (tmp_path / "made_by_name.py").read_text(encoding="utf-8") == MADE_BY_NAME
    assert sorted(path.name for path in tmp_path.glob("*.*")) == ["made_by_name.py", "qa.jsonl"]
    assert "made_by_name" not in sys.modules
    text = written[0]
    assert 'Stage("write", default="gpt-5-mini"' in text
    assert 'Stage("check", default="gpt-5"' in text
    assert "which model runs today" not in text


def test_models_of_today_that_cannot_be_written_are_said_in_one_line(project):
    file = project / "workflow.py"
    before = file.read_text(encoding="utf-8")
    with pytest.raises(ConfigError, match=r"write what runs today into the template of workflow\.py \(answer gpt-5\)"):
        note_today(file, {"answer": "gpt-5"}, "as you say")
    assert file.read_text(encoding="utf-8") == before


def test_what_a_dry_run_writes_is_put_back_even_if_it_fails(tmp_path, monkeypatch):
    app, new, notes = tmp_path / "app_of_a_dry_run.py", tmp_path / "workflow.py", []
    app.write_bytes(b"text = 'caf\xe9'\r\n")  # neither UTF-8 nor the line ends of this machine
    monkeypatch.syspath_prepend(str(tmp_path))
    before = contents([app, new])

    def stopped():
        with put_back(before, notes.append):
            app.write_text("changed = True\n", encoding="utf-8")
            new.write_text("", encoding="utf-8")
            assert importlib.import_module("app_of_a_dry_run").changed
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert app.read_bytes() == b"text = 'caf\xe9'\r\n"
    assert not new.exists()
    assert "app_of_a_dry_run" not in sys.modules
    assert notes == ["a dry run leaves no trace: app_of_a_dry_run.py, workflow.py as before"]
    with put_back(before, notes.append):
        pass
    assert len(notes) == 1


def test_the_allowed_loss_is_asked_once_on_a_terminal(project, monkeypatch):
    asked, used = [], []

    def answered(text, **settings):
        asked.append(text)
        return settings["value_proc"]("1.5")

    def tried(app, *, max_loss, **_):
        used.append(max_loss)
        return a_trial("keep")

    monkeypatch.setattr("click.prompt", answered)
    monkeypatch.setattr("vinelm.trying.try_app", tried)
    monkeypatch.setattr("vinelm.cli.try_app._show_end", lambda *_, **__: None)
    line = ["try", "workflow.py:build", "--budget-usd", "0.03"]
    for name in ("stdin", "stderr"):
        monkeypatch.setattr(f"vinelm.cli.try_app.sys.{name}.isatty", lambda: True, raising=False)
    assert main(line) == 0
    assert main([*line, "--max-loss", "2"]) == 0
    assert main([*line, "--quiet"]) == 0
    Path("app.vine").write_text("", encoding="utf-8")
    assert main(line) == 0  # an earlier run kept the answer
    assert used == [pytest.approx(0.015), pytest.approx(0.02), None, None]
    assert len(asked) == 1


def test_the_turns_that_nobody_has_said_are_doubled_in_the_file(tmp_path):
    def file(note):
        path = tmp_path / "workflow.py"
        path.write_text(f"# before\n{note}template = Template(\n    (Loop((Stage('a'),), times=3),),\n)\nx = 1\n")
        return path

    short = Template((Loop((Stage("a"),), times=3),))
    path = file("# TODO: how many turns does your loop take at most? The graph says none; times=3 is a start.\n")
    assert asks_for_turns(path)
    assert not asks_for_turns(file("# six at most\n"))
    assert note_turns(path, short, 2) == "turns  a request takes more than 3 turns of a loop: workflow.py allows 6 now"
    found: dict = {"Template": Template, "Loop": Loop, "Stage": Stage}
    exec(path.read_text(), found)
    assert (found["template"].steps[0].times, found["template"].steps[0].memory, found["x"]) == (6, None, 1)
    assert note_turns(path, Template((Loop((Stage("a"),), times=20),)), 2) is None  # too many to be tried
    note_turns(path, Template((Loop((Stage("a"),), times=12),)), 3)
    exec(path.read_text(), found)
    assert (found["template"].steps[0].times, found["template"].steps[0].memory) == (24, 1)


def test_a_file_without_a_verdict_keeps_no_loss(tmp_path):
    trie = tmp_path / "app.vine"
    assert trial.kept_max_loss(trie) is None
    trie.write_text("no trie", encoding="utf-8")
    assert trial.kept_max_loss(trie) is None


def test_without_labels_the_verdict_says_that_todays_answers_count(project, capfd, monkeypatch):
    threads = lambda **given: ExecutionConfig(isolation="thread", workers=given["workers"])  # noqa: E731
    monkeypatch.setattr("vinelm.profiler.ExecutionConfig", threads)  # the same rows, without a fork server to start
    judged, verdict_of = [], Comparison.verdict
    monkeypatch.setattr(
        Comparison, "verdict", lambda own, **settings: judged.append(len(own.rows)) or verdict_of(own, **settings)
    )
    text = (project / "workflow.py").read_text(encoding="utf-8")
    for old, new in (
        (r"from vinelm import \(", "from vinelm import (as_today,"),
        (r"score=lambda(.|\n)*?\),", "score=as_today(),"),
    ):
        text, found = re.subn(old, new, text)
        assert found == 1
    (project / "workflow.py").write_text(text, encoding="utf-8")
    assert main(["try", "workflow.py:build", "--budget-usd", "0.03", "--quiet", "--json", "--max-loss", "7"]) == 0
    verdict = json.loads(capfd.readouterr().out)["verdict"]
    assert verdict["by_today"]["requests"] == verdict["requests"]  # none has a label
    assert verdict["waiting"] == len(verdict["by_today"]["questions"])
    assert len(judged) == len(set(judged))  # the same rows are judged once
    again = vinelm.estimate("app.db", max_error=1.0, max_loss=0.07).verdict
    assert json.loads(json.dumps(again.to_dict())) == verdict
    assert main(["label", "app.db"]) == 2  # labels are typed on a terminal
    assert "labels are typed on a terminal" in capfd.readouterr().err
