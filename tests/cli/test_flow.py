"""profile → estimate → plan → report, as a user types it; and the demo on a small dataset."""

import contextlib
import html
import io
import json
import re
import shutil
import signal
from dataclasses import replace

import pytest

from vinelm.cli.main import main
from vinelm.demo import run_tour
from vinelm.traces import ObservationStore
from vinelm.vinefile import load_trie

PROFILE = ["profile", "nl2sql", "--dataset", "data", "--preset", "paper-2", "--quiet", "--store", "s.db"]
INLINE = [*PROFILE, "--isolation", "inline"]
"""Buys the same rows (tests/profiler/isolation), without a fork server to start."""


def run(capsys, *args: str, code: int = 0):
    assert main(list(args)) == code
    return capsys.readouterr()


def run_json(capsys, *args: str, code: int = 0):
    return json.loads(run(capsys, *args, "--json", code=code).out)


@pytest.mark.usefixtures("warm_python")
def test_the_four_commands_hand_on_to_each_other(shop, capsys):
    profiled = run_json(capsys, *PROFILE, "--coverage", "0.3")
    assert profiled["is_simulated"] is True
    assert profiled["coverage"] >= 0.3
    assert profiled["stopped_by"] == "coverage"
    assert sum(spend["rows"] for spend in profiled["spend"]["model"].values()) == profiled["executed"]
    assert profiled["exhaustive_usd"] > profiled["spent_usd"]

    estimated = run_json(capsys, "estimate", "s.db", "-o", "t.vine", "--max-error", "0.3")
    assert estimated["paths"] == 14
    assert estimated["observations"] + estimated["observations_beyond_stop"] == profiled["executed"]
    assert sum(depth["observations"] for depth in estimated["depths"]) == estimated["observations"]

    planned = run_json(capsys, "plan", "t.vine", "--maximize", "accuracy", "--accept-optimism")
    best, static, single = planned["plans"]
    assert [p["policy"] for p in planned["plans"]] == ["VineLM", "best static plan", "best single model"]
    assert best["accuracy"] >= static["accuracy"] >= single["accuracy"]
    assert len(set(single["plan"])) == 1
    assert best["accuracy"] == pytest.approx(float(load_trie(shop / "t.vine").accuracy[1:].max()))

    reported = run_json(capsys, "report", "s.db", "t.vine", "-o", "out")
    page = (shop / "out" / "report.html").read_text()
    assert reported["report"] == "out/report.html"
    assert "(simulated models)</title>" in page
    assert str(shop) not in page


def test_a_second_run_goes_on_and_a_third_finds_nothing_to_do(shop, capsys):
    first = run_json(capsys, *INLINE, "--coverage", "0.1")
    second = run_json(capsys, *INLINE, "--coverage", "0.2")
    third = run_json(capsys, *INLINE, "--coverage", "0.2")
    assert second["executed"] > 0
    assert third["executed"] == 0
    with ObservationStore.open(shop / "s.db") as store:
        assert len(store) == first["executed"] + second["executed"]


def test_a_spent_budget_exits_3_and_the_rows_stay(shop, capsys):
    said = run(capsys, *INLINE, "--budget-usd", "0.03", "--coverage", "1", code=3)
    assert "stopped by budget" in said.out
    assert said.err.startswith("stopped: ")
    with ObservationStore.open(shop / "s.db") as store:
        assert len(store) > 0
        assert store.committed_usd() <= 0.03


def test_another_seed_needs_another_store(shop, capsys):
    run(capsys, *INLINE, "--coverage", "0.1")
    said = run(capsys, *INLINE, "--coverage", "0.1", "--seed", "1", code=2)
    assert "s.db" in said.err
    assert "seed" in said.err


def test_tables_fit_80_columns(shop, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = run(capsys, *INLINE, "--coverage", "0.3").out
    text += run(capsys, "estimate", "s.db", "-o", "t.vine", "--max-error", "0.3").out
    bounds = ("--max-cost-usd", "1", "--max-latency-s", "60", "--accept-optimism")
    text += run(capsys, "plan", "t.vine", "--maximize", "accuracy", *bounds).out
    text += run(capsys, "check", "nl2sql", "--dataset", "data").out
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "Slack of max_latency_s" in text


def test_the_simulated_catalog_is_announced(shop, capsys):
    settings = ("--limit", "4", "--coverage", "0.01", "--isolation", "inline", "--store", "s.db")
    said = run(capsys, "profile", "nl2sql", "--dataset", "data", *settings)
    assert said.err.startswith("simulated models (preset paper, 8 models): give models for real ones")
    assert "Simulated models" in said.out


def test_check_passes_a_sound_workflow(shop, capsys):
    found = run_json(capsys, "check", "nl2sql", "--dataset", "data")
    assert found["is_ok"] is True
    assert {"template", "graph", "dry run", "checkpoint"} <= {item["name"] for item in found["items"]}


DEMO = ["demo", "sql", "--limit", "40", "--output-dir", "out", "--quiet"]


@pytest.fixture(scope="module")
def first_demo(tmp_path_factory, make_shop):
    """The folder that a demo ran in, what it printed, and what it found."""
    folder, printed, found = make_shop(tmp_path_factory.mktemp("demo")), io.StringIO(), []

    def keeping(*args, **options):
        found.append(run_tour(*args, **options))
        return found[-1]

    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(folder), contextlib.redirect_stdout(printed):
        patch.setattr("vinelm.demo.run_tour", keeping)
        assert main([*DEMO, "--json"]) == 0
    return folder, json.loads(printed.getvalue()), found[0]


@pytest.fixture
def demo(first_demo, tmp_path, monkeypatch):
    """As if it had just run in the working folder: a copy."""
    folder, printed, _ = first_demo
    shutil.copytree(folder, tmp_path / "demo")
    monkeypatch.chdir(tmp_path / "demo")
    return folder, printed


@pytest.fixture
def again(first_demo, demo, monkeypatch):
    """The demo finds in no time what it found the first time: for what is printed of it."""
    monkeypatch.setattr("vinelm.demo.run_tour", lambda *_, **__: first_demo[2])


def test_the_demo_judges_and_writes_a_page(demo):
    shop, found = demo
    assert found["is_simulated"] is True
    assert {one["policy"] for one in found["policies"]} >= {"paths", "static", "single"}
    assert [one["max_cost_usd"] for one in found["objectives"]] == sorted(one["max_cost_usd"] for one in found["objectives"])
    page = html.unescape((shop / "out" / "report.html").read_text()).replace("\N{NO-BREAK SPACE}", " ")
    assert found["sentence"] in page.split("<main ")[0]
    assert re.search(r"sha256 [0-9a-f]{64}", page)
    assert str(shop) not in page


def test_the_demo_fits_a_screen_and_opens_its_report_where_there_is_a_desktop(again, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or True)
    text = run(capsys, *DEMO, "--open").out
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 22  # and two of what it does, above: 24 with the prompt
    assert text.startswith("Simulated models")
    assert text.index("\nEach budget alone") < text.index("\nReport: out/report.html (opened")
    assert any("over static" in line for line in lines)
    assert [address.endswith("/demo/out/report.html") for address in opened] == [True]


def test_ctrl_c_while_it_profiles_ends_the_demo(shop, capsys, monkeypatch):
    from vinelm import profiler

    whole = profiler.profile

    def interrupted(*given):
        *others, settings = given
        return whole(*others, replace(settings, on_progress=lambda now: signal.raise_signal(signal.SIGINT)))

    monkeypatch.setattr(profiler, "profile", interrupted)
    assert main(["demo", "sql", "--limit", "40", "--quiet"]) == 130
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines()[-1] == "interrupted"
    assert not (shop / "runs" / "demo-sql" / "report.html").exists()
