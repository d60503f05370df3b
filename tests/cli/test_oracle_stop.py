"""A stop that knows the right answers is named wherever its figures appear, and is no reason to use anything."""

import json
import random

import pytest

from vinelm.cli.main import main

COLUMNS = {"request": "id", "model": "model", "success": "right", "cost_usd": "usd", "latency_s": "secs"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The store and the trie of a log of answers, under either stop. The dearer model is right more often."""
    folder, dice = tmp_path_factory.mktemp("oracle"), random.Random(1)
    rows = [
        f"q{i},{name},{int(dice.random() < right)},{usd},1,{int(dice.random() < 0.5)}"
        for i in range(120)
        for name, right, usd in (("small", 0.6, 0.001), ("big", 0.85, 0.03))
    ]
    (folder / "log.csv").write_text("id,model,right,usd,secs,passed\n" + "\n".join(rows))
    stops = {"oracle": ["--stop", "oracle"], "own": ["--stopped-if", "passed"]}
    for stop, how in stops.items():
        columns = [word for field, column in COLUMNS.items() for word in ("--column", f"{field}={column}")]
        main(["store", "import", str(folder / "log.csv"), "-o", str(folder / f"{stop}.db"), *columns, *how, "--depth", "2"])
        main(["estimate", str(folder / f"{stop}.db"), "-o", str(folder / f"{stop}.vine")])
    return folder


AIM = ["--maximize", "accuracy"]
COMMANDS = {
    "info": ["store", "info", "{s}.db"],
    "estimate": ["estimate", "{s}.db", "-o", "{s}.again.vine"],
    "trie": ["trie", "show", "{s}.vine"],
    "diff": ["trie", "diff", "{s}.vine", "{s}.vine"],
    "plan": ["plan", "{s}.vine", *AIM],
    "explain": ["explain", "{s}.vine", *AIM],
    "evaluate": ["evaluate", "{s}.db", "{s}.vine"],
    "one aim": ["evaluate", "{s}.db", *AIM, "--max-cost-usd", "0.02"],
    "report": ["report", "{s}.db", "{s}.vine", "-o", "{s}"],
}


def said(made, monkeypatch, capsys, stop, words, *more):
    monkeypatch.chdir(made)
    capsys.readouterr()
    assert main([*(word.format(s=stop) for word in words), *more]) == 0
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_the_oracle_is_named_wherever_its_figures_appear(made, monkeypatch, capsys, name):
    """An application's own check is no oracle."""
    told = said(made, monkeypatch, capsys, "oracle", COMMANDS[name])
    assert "Oracle stop: a request ends when its answer is right, which no service can see." in told
    assert "SWITCH" not in told
    assert "oracle" not in said(made, monkeypatch, capsys, "own", COMMANDS[name]).lower()


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "report"])
def test_and_in_json(made, monkeypatch, capsys, name):
    found = json.loads(said(made, monkeypatch, capsys, "oracle", COMMANDS[name], "--json"))
    assert (found if "stop" in found else found["meta"])["stop"] == "oracle"
    assert "oracle" in found.get("verdict", {"why_not": "oracle"})["why_not"]
    own = json.loads(said(made, monkeypatch, capsys, "own", COMMANDS[name], "--json"))
    assert not own.get("verdict", {"why_not": ""})["why_not"]


def test_an_evaluation_gives_figures_and_no_advice(made, monkeypatch, capsys):
    told = said(made, monkeypatch, capsys, "oracle", COMMANDS["evaluate"])
    assert told.startswith("NOT ENOUGH DATA: the oracle stop ends a request when its answer is right, as no service can:")
    assert "VineLM over paths: " in told
    assert " yes " not in told


def test_the_page_says_it_in_its_head_and_in_every_picture(made, monkeypatch, capsys):
    told = said(made, monkeypatch, capsys, "oracle", COMMANDS["report"], "--json")
    assert json.loads(told)["oracle"].startswith("Oracle stop:")
    page = (made / "oracle" / "report.html").read_text(encoding="utf-8")
    head = page[page.index("<header>") : page.index("</header>")]
    assert "Oracle stop: a request ends when its answer is right" in head
    assert page.count("oracle stop") > page.count("<figure") > 0
    assert 'class="verdict gain"' not in page


def test_the_example_of_the_import_has_the_applications_own_check(capsys):
    assert main(["store", "import", "--help"]) == 0
    assert "--stopped-if passed --depth 2" in " ".join(capsys.readouterr().out.split())
