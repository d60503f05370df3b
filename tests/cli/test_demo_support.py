"""`vinelm demo support` on a few tickets, and the commands on the store and the trie that it writes."""

import json
from pathlib import Path

import pytest

from vinelm.cli.main import main

SMALL = ("--preset", "paper-2", "--limit", "30", "--coverage", "0.15")


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The folder of a small demo, and what it printed as JSON."""
    import contextlib
    import io

    folder = tmp_path_factory.mktemp("demo")
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert main(["demo", "support", *SMALL, "--output-dir", str(folder), "--json", "--quiet"]) == 0
    return folder, json.loads(said.getvalue())


def test_it_serves_every_policy_and_gives_a_verdict(demo):
    folder, found = demo
    assert found["is_simulated"] is True
    assert found["verdict"]
    assert len(found["objectives"]) == 3
    for objective in found["objectives"]:
        names = [run["policy"] for run in objective["runs"]]
        assert names == ["VineLM", "best static plan", "best single model", "sim-gemma-27b", "sim-sonnet"]
        assert {item["outcome"] for item in objective["comparisons"]} <= {"gain", "no gain shown", "loss"}
    assert {share["stage"] for share in found["arms"]} == {"router", "lookup"}
    assert "router → (lookup up to 2 times | search | go on) → reply" in found["provenance"]["Workflow"]
    page = (folder / "report.html").read_text()
    for words in ("VineLM&#39;s plan: ", "What follows router", "simulated", "Estimated frontiers"):
        assert words in page
    assert str(folder) not in page


def test_the_commands_read_what_it_wrote(demo, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    folder, _ = demo
    store, trie = str(folder / "demo.db"), str(folder / "demo-workflow.vine")
    assert main(["store", "info", store]) == 0
    assert "Steps: router → (lookup up to 2 times | search | go on) → reply" in " ".join(capsys.readouterr().out.split())
    assert main(["report", store, trie, "-o", str(tmp_path), "--quiet"]) == 0
    assert "18 requests have a scored answer" in " ".join(capsys.readouterr().out.split())
    page = (tmp_path / "report.html").read_text()
    assert "Observations by depth and stage" in page
    log = str(tmp_path / "log.jsonl")
    options = ["--maximize", "accuracy", "--requests", "4", "--log", log, "--json", "--quiet"]
    assert main(["verify", store, trie, *options]) in (0, 1)
    found = json.loads(capsys.readouterr().out)
    assert found["served"] == 4
    assert found["contingent_plan"]["steps"][0]["stage"] == "router"
    assert 0.0 <= found["achieved"]["accuracy"] <= 1.0


def test_it_takes_no_dataset(tmp_path, capsys):
    assert main(["demo", "support", "--dataset", "x", "--output-dir", str(tmp_path)]) == 2
    assert "support takes no dataset" in capsys.readouterr().err


@pytest.mark.long
def test_the_controller_page_shows_what_the_demo_prints(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["demo", "support", "--output-dir", str(tmp_path), "--quiet", "--details"]) == 0
    said = capsys.readouterr().out
    page = (Path(__file__).parents[2] / "docs" / "controller.md").read_text()
    tree = page[page.index("  router: sim") :].split("...")[0]
    assert tree in said
    for figure in ("Profiled 1,111 cells", "60.8 %", "57.0 %", "44.3 %"):
        assert figure in said
        assert figure.removeprefix("Profiled ") in page
