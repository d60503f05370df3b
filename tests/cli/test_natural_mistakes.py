"""What a newcomer types: it is understood, or one line names what would have worked. Nothing is written or spent meanwhile."""

import re
import sys

import click
import pytest
from kit.tables import random_table

from vinelm.cli import main as edge
from vinelm.cli.failures import EXIT_INTERRUPTED
from vinelm.cli.main import main
from vinelm.cli.options import option, resumable
from vinelm.cli.quantities import Count
from vinelm.controller.planning.decision import told_apart
from vinelm.traces import ObservationStore
from vinelm.traces.testing import a_row, an_identity
from vinelm.vinefile import save_trie

APP = """
from typing import TypedDict
from langgraph.graph import END, START, StateGraph
class State(TypedDict):
    question: str
builder = StateGraph(State)
builder.add_node("node", lambda state: state)
builder.add_edge(START, "node")
builder.add_edge("node", END)
graph = builder.compile()
x = 3
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A store, a trie, an application and its questions."""
    monkeypatch.chdir(tmp_path)
    with ObservationStore.create(tmp_path / "app.db", an_identity()) as store:
        store.add(a_row())
    save_trie(tmp_path / "app.vine", random_table(0, n_requests=20, n_models=2, depth=2).annotate())
    (tmp_path / "qa.csv").write_text("question,answer\na,b\n")
    (tmp_path / "qa.json").write_text('[\n{"question": "a", "answer": "b"}]')
    (tmp_path / "empty.vine").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "natural_app.py").write_text(APP)
    yield tmp_path
    sys.modules.pop("natural_app", None)


PLAN = ["plan", "app.vine", "--maximize", "accuracy"]
TRY = ["try", "natural_app.py:graph", "--dataset", "qa.csv"]
PROFILE = ["profile", "nl2sql", "--store", "new.db", "--quiet"]


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if "__pycache__" not in path.parts)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        # quantities
        (["plan", "app.vine", "--minimize", "cost", "--min-accuracy", "80"],
         "--min-accuracy is 80: it must be a fraction in [0, 1] (did you mean 0.8?)"),
        ([*PLAN, "--max-cost-usd", "five"], "--max-cost-usd is 'five': write dollars such as 0.002, or '$0.002'"),
        ([*PLAN, "--max-cost-usd", "-1"], "--max-cost-usd is -1: it must be a finite number >= 0"),
        ([*PLAN, "--max-latency-s", "soon"], "--max-latency-s is 'soon': write seconds such as 1.5, or 90s"),
        ([*TRY, "--budget-usd", "-1"], "--budget-usd is -1: it must be a finite number >= 0"),
        ([*TRY, "--workers", "0"], "--workers is 0: it must be a whole number >= 1"),
        ([*PROFILE, "--coverage", "50"], "--coverage is 50: it must be a fraction in [0, 1] (did you mean 0.5?)"),
        ([*PROFILE, "--max-error", "15"], "--max-error is 15: it must be a fraction in [0, 1] (did you mean 0.15?)"),
        (["estimate", "app.db", "--max-error", "15"], "(did you mean 0.15?)"),
        (["drift", "app.vine", "--traces", "app.db", "--alpha", "5"],
         "--alpha is 5: it must be a fraction in [0, 1] (did you mean 0.05?)"),
        # files of another kind
        (["plan", "app.db", "--maximize", "accuracy"],
         "app.db: this is a store (`vinelm estimate` and `store info` read it), not a trie file"),
        (["estimate", "app.vine"], "app.vine: this is a trie (`vinelm plan` reads it), not a store"),
        (["store", "info", "app.vine"], "app.vine: this is a trie"),
        (["report", "app.vine", "app.db", "-o", "out"], "not a trie file"),
        (["drift", "app.vine", "--traces", "app.vine"], "app.vine: this is a trie"),
        (["plan", "folder", "--maximize", "accuracy"], "this is a folder, not a trie file"),
        (["plan", "empty.vine", "--maximize", "accuracy"], "empty.vine: this is an empty file, not a trie file"),
        (["estimate", "qa.csv"], "qa.csv: this is a table in CSV, not a store"),
        # files that were named, and are not there
        (["plan", "ap.vine", "--maximize", "accuracy"], "no such trie file (did you mean app.vine?)"),
        (["estimate", "runs/app.db"], "no such store (there is no folder runs)"),
        (["estimate", "apps.db"], "no such store (did you mean app.db?)"),
        (["try", "natural_app.py:graph", "--dataset", "qaa.csv"], "--dataset is qaa.csv: no such file (did you mean qa.csv?)"),
        ([*PROFILE, "--dataset", "qaa.csv"], "qaa.csv"),
        (["init", "natural_ap.py:graph", "--yes"], "natural_ap.py: no such file (did you mean"),
        # a file in the place of a subcommand
        (["store", "app.db", "--json"], "Did you mean 'vinelm store info app.db --json'?"),
        (["tools", "app.db"], "Did you mean 'vinelm tools mine app.db'?"),
        (["app.vine"], "Did you mean 'vinelm plan --show app.vine'?"),
        (["app.db"], "Did you mean 'vinelm store info app.db'?"),
        (["natural_app.py:graph"], "Did you mean 'vinelm try natural_app.py:graph'?"),
        # slips in names
        (["esitmate", "app.db"], "Did you mean 'estimate'?"),
        ([*PLAN, "--risk", "men"], "--risk is 'men' (did you mean 'mean'?)"),
        (["plan", "app.vine", "--maximize", "acuracy"], "--maximize is 'acuracy' (did you mean 'accuracy'?)"),
        (["estimate", "app.db", "--estimator", "latnt"], "unknown estimator 'latnt' (did you mean 'latent'?)"),
        (["profile", "nl2sq", "--store", "new.db"], "unknown workflow 'nl2sq' (did you mean 'nl2sql'?)"),
        ([*PROFILE, "--preset", "papr"], "unknown preset 'papr' (did you mean 'paper'?)"),
        ([*PROFILE, "--sampler", "pricd"], "unknown sampler 'pricd' (did you mean 'priced'?)"),
        ([*PLAN[:1], *PLAN[1:], "--max-cost", "1"], "--max-cost-usd"),
        # no graph, or a graph where a workflow is wanted
        (["init", "natural_app.py:x", "--yes"], "natural_app:x is of type int, not a LangGraph graph"),
        (["init", "natural_app.py:x", "--yes"], "name natural_app:graph"),
        (["check", "natural_app.py:graph"], "`vinelm try FILE.py:GRAPH --dataset FILE` takes a graph"),
        # too early
        (["evaluate", "app.db", "--serve", "5"], "serving needs one objective"),
    ],
)  # fmt: skip
def test_one_line_names_what_would_have_worked(folder, capsys, args, words):
    before = names(folder)
    assert main(args) == 2
    said = capsys.readouterr()
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1
    assert words in said.err
    assert names(folder) == before


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["--minimize", "cost", "--min-accuracy", "20%"], ["--minimize", "cost", "--min-accuracy", "0.2"]),
        (["--maximize", "accuracy", "--max-cost-usd", "$5"], ["--maximize", "accuracy", "--max-cost-usd", "5"]),
        (["--maximize", "accuracy", "--max-cost-usd", "5$"], ["--maximize", "accuracy", "--max-cost-usd", "5"]),
        (["--maximize", "accuracy", "--max-cost-usd", "$0.02"], ["--maximize", "accuracy", "--max-cost-usd", "0.02"]),
        (["--maximize", "accuracy", "--max-latency-s", "1m"], ["--maximize", "accuracy", "--max-latency-s", "60"]),
    ],
)
def test_quantities_are_taken_with_their_signs(capsys, one, other):
    said = []
    for bounds in (one, other):
        assert main(["plan", "app.vine", "--accept-optimism", *bounds]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]


def test_a_dataset_that_is_not_there_is_refused_also_where_the_project_was_written(folder, capsys):
    (folder / "workflow.py").write_text("raise SystemExit('imported')")
    assert main(["try", "natural_app.py:graph", "--dataset", "qa.cvs"]) == 2
    assert "did you mean qa.csv?" in capsys.readouterr().err


def test_the_command_alone_shows_its_help_and_is_no_failure(capsys):
    assert main([]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("Usage: vinelm")
    assert "vinelm demo" in said.out
    assert said.err == ""


def every_command():
    root = click.Context(edge.cli, info_name="vinelm")
    found = []
    for name in edge.COMMANDS:
        one = edge.cli.get_command(root, name)
        found += [one, *(one.commands.values() if isinstance(one, click.Group) else ())]
    return found


@pytest.mark.parametrize("command", every_command(), ids=lambda one: str(one.name))
def test_help_has_no_markup_and_no_default_twice(command):
    with click.Context(command, info_name=command.name, max_content_width=100) as ctx:
        text = command.get_help(ctx)
        assert "\\b" not in text
        assert "\b" not in text
        for param in command.params:
            shown = " ".join((param.get_help_record(ctx) or ("", ""))[1].split())
            assert len(re.findall(r"\[default:", shown)) <= 1, shown


def test_a_default_in_better_words_is_said_once():
    @click.command()
    @option("--workers N", "At a time [default: 4].", Count(1), default=4)
    @option("--top N", "Paths.", Count(1), default=15)
    def command(workers, top):
        """Do it."""

    with click.Context(command) as ctx:
        shown = [param.get_help_record(ctx)[1] for param in command.params]
    assert shown == ["At a time [default: 4].", "Paths.  [default: 15]"]


def interrupted(monkeypatch, capsys, run, args=()):
    command = click.command()(run)
    monkeypatch.setattr(edge.LazyGroup, "get_command", lambda *_: command)
    assert main(["profile", *args]) == EXIT_INTERRUPTED
    return capsys.readouterr().err


def test_ctrl_c_says_that_the_same_command_continues_only_where_it_does(monkeypatch, capsys):
    def stop():
        raise KeyboardInterrupt

    assert interrupted(monkeypatch, capsys, stop) == "\ninterrupted\n"
    said = interrupted(monkeypatch, capsys, resumable(stop))
    assert said == "\ninterrupted: what was bought is kept: the same command continues\n"

    for args, is_said in ([], False), (["--serve", "3"], True):

        @option("--serve N", "", Count(1))
        @resumable
        def serving(serve):
            raise KeyboardInterrupt

        assert ("the same command continues" in interrupted(monkeypatch, capsys, serving, args)) is is_said


@pytest.mark.parametrize("name", ["batch", "evaluate", "profile", "try", "verify"])
def test_the_runs_that_continue_are_declared(name):
    with open(sys.modules[edge.cli.get_command(click.Context(edge.cli), name).callback.__module__].__file__) as file:
        assert "@resumable\ndef command(" in file.read()


def test_two_plans_of_the_same_words_are_told_apart():
    class Plan:
        def __init__(self, shown, lines):
            self.shown, self._lines = shown, lines

        def lines(self, limit=None):
            return self._lines

    one, other = Plan(("m1",), ["1-2  agent: m1", "3  end"]), Plan(("m1",), ["1-3  agent: m1", "4  end"])
    assert told_apart(one, other) == (("m1 (1-2 agent: m1; 3 end)",), ("m1 (1-3 agent: m1; 4 end)",))
    assert told_apart(one, Plan(("m2",), [])) == (("m1",), ("m2",))
