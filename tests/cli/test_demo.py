"""`vinelm demo`: tours, and the commands on the files that they write. Recorded answers: tests/demo."""

import contextlib
import io
import json

import pytest

from vinelm.cli.main import main


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["demo", "nope"], "'nope' is not one of 'code', 'exams', 'sql', 'support', 'graphqa'"),
        (["demo", "exams", "--limit", "3"], "--limit belongs to the tours (sql, support, graphqa)"),
    ],
)
def test_what_it_cannot_do_is_one_line(args, says, capsys):
    assert main(args) == 2
    said = capsys.readouterr()
    assert says in said.err
    assert said.err.startswith("error: ")
    assert (said.err.count("\n"), said.out) == (1, "")


SMALL = ("--limit", "24")


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The folder of a small demo of the support desk, and what it printed as JSON."""
    folder = tmp_path_factory.mktemp("demo")
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert main(["demo", "support", *SMALL, "--output-dir", str(folder), "--json", "--quiet"]) == 0
    return folder, json.loads(said.getvalue())


@pytest.mark.long
def test_the_commands_read_what_it_wrote(demo, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    folder, _ = demo
    store, trie = str(folder / "demo.db"), str(folder / "demo.vine")
    assert main(["store", "info", store]) == 0
    assert "Steps: router > (lookup up to 2 times | search | go on) > reply" in " ".join(capsys.readouterr().out.split())
    assert main(["report", store, trie, "-o", str(tmp_path), "--quiet"]) == 0
    capsys.readouterr()
    assert "Observations by depth and stage" in (tmp_path / "report.html").read_text()
    log = str(tmp_path / "log.jsonl")
    options = ["--maximize", "accuracy", "--requests", "2", "--log", log, "--json", "--quiet"]
    assert main(["verify", store, trie, *options]) in (0, 1, 2)


@pytest.mark.long
def test_the_demo_of_questions_to_a_graph(tmp_path, capsys, monkeypatch):
    pytest.importorskip("pydantic_monty", reason="the extra graph is not installed")
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "graphqa", "--limit", "40", "--json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["is_simulated"], found["report"]) == (True, "runs/demo-graphqa/report.html")
    assert "act_direct" in (tmp_path / "runs" / "demo-graphqa" / "report.html").read_text()
