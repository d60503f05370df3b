"""`vinelm demo`: recorded answers of real models on one screen; tours, and the commands on the files that they write."""

import contextlib
import io
import json
from dataclasses import replace

import pytest

import vinelm
from vinelm.cli.main import main
from vinelm.demo import run_recorded
from vinelm.trie.verdict import LEADS


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Each demo on recorded answers, run once."""
    return {
        name: run_recorded(name, tmp_path_factory.mktemp(name), seed=0, advance=lambda *_: None) for name in ("code", "exams")
    }


@pytest.fixture
def lines(runs, capsys, monkeypatch):
    """Returns what is printed of a demo that finds in no time what it found the first time."""
    monkeypatch.setattr("vinelm.demo.run_recorded", lambda name, folder, **_: replace(runs[name], page=folder / "report.html"))
    monkeypatch.setenv("COLUMNS", "80")

    def printed(*args):
        assert main(["demo", *args, "--no-open", "--quiet"]) == 0
        return capsys.readouterr().out.splitlines()

    return printed


@pytest.mark.parametrize("name", ["code", "exams"])
def test_it_fits_18_lines_of_80_columns(lines, name):
    said = lines(name)
    assert len(said) <= 18
    assert max(map(len, said)) <= 80


def test_the_first_screen_says_what_is_replayed_then_the_figures_then_what_is_real(lines, runs):
    said = "\n".join(lines())
    order = [
        "Replayed: 376 methods of ClassEval", "gpt-4-turbo on every call (today)", "gemini-pro on every call",
        "gpt-3.5-turbo on every call", "deepseek-coder-6.7b on every call", "best fixed plan",
        "VineLM, for a tenth of the dollars",
        "VineLM costs ", "(95 %: ", "Plan: write ", "Real: ", "Computed: dollars", "Chosen because it pays",
        "`vinelm demo exams`", "Report: ",
    ]  # fmt: skip
    places = [said.find(words) for words in order]
    assert -1 not in places
    assert places == sorted(places)
    assert "imulated" not in said
    today = next(line for line in said.splitlines() if "(today)" in line)
    assert f"{100 * runs['code'].today.accuracy:.1f} %" in today


def test_the_second_demo_is_a_no_with_what_is_open_and_real_seconds(lines, runs):
    found = runs["exams"]
    said = " ".join(lines("exams"))
    assert found.found.advice == "keep"
    assert found.found.served.best_high < 0.0
    assert "KEEP: VineLM costs" in said
    assert said.index("KEEP: ") < said.index("Open: the cheapest plan that promises gpt-4's accuracy") < said.index("Real: ")
    assert "seconds" in said
    assert found.today.seconds == pytest.approx(11.95, abs=0.01)
    assert found.today.usd == pytest.approx(0.02162, abs=0.00001)
    assert said.index("Where it pays: `vinelm demo`") > 0


def test_its_json_has_every_policy_and_the_verdict(lines, runs):
    found = json.loads("\n".join(lines("--json")))
    assert [one["policy"] for one in found["policies"]] == [
        "gpt-4-turbo", "gemini-pro", "gpt-3.5-turbo", "deepseek-coder-6.7b", "best fixed plan", "VineLM",
    ]  # fmt: skip
    assert found["against_today"]["verdict"] == LEADS[runs["code"].found.advice]
    assert (found["is_simulated"], found["requests"], found["open"]) == (False, 376, None)
    assert len(json.loads("\n".join(lines("exams", "--json")))["policies"]) == 11


def test_it_writes_the_files_of_an_application_and_a_page_without_a_chart_library(runs):
    for found in runs.values():
        trie = vinelm.load_trie(found.trie)
        assert trie.meta["is_simulated"] is False
        page = found.page.read_text()
        assert "imulated models" not in page
        assert f"<strong>{LEADS[found.found.advice]}</strong>" in page
        assert page.count('<svg class="') == 2
        assert str(found.page.parent) not in page


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


SMALL = ("--preset", "paper-2", "--limit", "24")


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The folder of a small demo of the support desk, and what it printed as JSON."""
    folder = tmp_path_factory.mktemp("demo")
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert main(["demo", "support", *SMALL, "--output-dir", str(folder), "--json", "--quiet"]) == 0
    return folder, json.loads(said.getvalue())


@pytest.mark.long
def test_its_verdict_is_that_of_evaluate_on_its_store(demo):
    folder, found = demo
    again = vinelm.evaluate(folder / "demo.db", folder / "demo.vine")
    assert found["sentence"] == again.verdict.sentence
    assert found["is_simulated"] is True
    assert {one["policy"] for one in found["policies"]} >= {"paths", "static", "single"}
    page = (folder / "report.html").read_text()
    assert "simulated" in page
    assert str(folder) not in page


@pytest.mark.long
def test_each_budget_is_judged_alone(demo):
    _, found = demo
    assert [one["objective"] for one in found["by_budget"]] == found["objectives"]
    level = 1 - 0.05 / len(found["by_budget"])
    assert all(one["level"] == pytest.approx(level) for one in found["by_budget"])


@pytest.mark.long
def test_the_commands_read_what_it_wrote(demo, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    folder, _ = demo
    store, trie = str(folder / "demo.db"), str(folder / "demo.vine")
    assert main(["store", "info", store]) == 0
    assert "Steps: router → (lookup up to 2 times | search | go on) → reply" in " ".join(capsys.readouterr().out.split())
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
