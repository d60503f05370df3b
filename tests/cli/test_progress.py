"""A profile while it runs: what the line says, how often, and the events."""

import json

import pytest

from vinelm.cli.main import main
from vinelm.cli.progress import RateEstimate, line, live, share
from vinelm.profiler import Progress


def a_progress(**changes) -> Progress:
    fields = {
        "executed": 50,
        "failures": {"timeout": 1, "server": 2},
        "coverage": 0.01,
        "target": 0.02,
        "spent_usd": 0.4,
        "budget_usd": 2.0,
        "committed_usd": 0.5,
        "reserved_usd": 0.1,
        "calls": 60,
        "in_flight": 3,
        "interval": (0.008, 0.013),
    }
    return Progress(**(fields | changes))


def test_the_line_says_coverage_money_speed_failures_and_what_is_left():
    pace = RateEstimate(100.0, share=0.2)
    pace.update(a_progress(), 130.0)
    said = line(a_progress(), pace)
    for part in (
        "50 rows",
        "coverage 1.0 % of 2.0 % (90 %: 0.8 to 1.3)",
        "$0.400 spent + $0.100 reserved of $2.00",
        "2.0 calls/s",
    ):
        assert part in said
    assert "failed: server 2, timeout 1" in said
    assert "0:00:50 left" in said  # from 0.2 to 0.5 in 30 s


def test_nothing_is_said_of_reservations_where_there_are_none():
    said = line(a_progress(reserved_usd=1e-17), RateEstimate(0.0, 0.0))
    assert "$0.500 spent of $2.00" in said
    assert "reserved" not in said


def test_the_nearest_cap_counts():
    assert share(a_progress()) == 0.5
    assert share(a_progress(committed_usd=1.8)) == 0.9
    assert share(a_progress(target=None, budget_usd=None)) == 0.01


def test_while_it_stops_it_says_what_it_waits_for():
    said = line(a_progress(is_draining=True), RateEstimate(0.0, 0.0))
    assert said.startswith("stopping: waiting for 3 running units; Ctrl-C again to abandon them")


def test_events_come_once_a_second_and_the_last_one_always(capsys):
    now = [0.0]
    with live("json", clock=lambda: now[0]) as tell:
        for i in range(25):
            now[0] = i / 10
            tell(a_progress(executed=i))
    events = [json.loads(text) for text in capsys.readouterr().err.splitlines()]
    assert [event["executed"] for event in events] == [10, 20, 24]
    assert {"event", "coverage", "interval", "committed_usd", "calls_per_s", "eta_s", "failures"} <= set(events[0])


def test_quiet_is_quiet(capsys):
    with live("quiet") as tell:
        assert tell is None
    assert capsys.readouterr() == ("", "")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def profiled(capsys, *more, code=0):
    line = ["profile", "nl2sql", "--limit", "4", "--preset", "paper-2", "--json", "--quiet", *more]
    assert main(line) == code
    return json.loads(capsys.readouterr().out or "null")


def test_a_dry_run_writes_nothing_and_prices_what_is_left(folder, capsys):
    before = profiled(capsys, "--dry-run")
    assert not list(folder.iterdir())
    assert before["cost_usd"]["low"] < before["cost_usd"]["high"]
    assert before["pilot_rows"] == 0
    assert before["needs"]["left_usd"] is None
    done = profiled(capsys, "--coverage", "0.3", "--store", "a.db", "--isolation", "inline")
    after = profiled(capsys, "--coverage", "0.9", "--store", "a.db", "--dry-run")
    assert after["pilot_rows"] == done["executed"]
    assert after["needs"]["left_rows"] == before["needs"]["left_rows"] - done["executed"]


def test_a_dry_run_says_whether_the_budget_is_enough(folder, capsys):
    dry = ["profile", "nl2sql", "--limit", "4", "--preset", "paper-2", "--coverage", "0.5", "--dry-run", "--quiet"]
    assert main([*dry, "--budget-usd", "0.0001"]) == 0
    said = capsys.readouterr().out
    assert "Needed for 50.0 % coverage" in said
    assert "The budget is likely to end the run before" in said
    assert main([*dry, "--budget-usd", "100"]) == 0
    assert "What is left of the budget is enough for 50.0 % coverage." in capsys.readouterr().out


def test_settings_without_effect_are_refused(folder, capsys):
    for more, words in (
        (["--isolation", "inline", "--workers", "2"], "inline runs one unit at a time"),
        (
            ["--isolation", "thread", "--unit-timeout-s", "5"],
            'timeout_s has no effect with isolation="thread": use isolation="process", or leave it out (--unit-timeout-s',
        ),
        (["--budget-calls", "-1"], "--budget-calls is -1: it must be a whole number >= 0"),
    ):
        assert main(["profile", "nl2sql", "--limit", "4", "--store", "a.db", *more]) == 2
        assert words in capsys.readouterr().err
    assert profiled(capsys, "--budget-calls", "3", "--store", "b.db", "--isolation", "inline", code=3)["executed"] == 3
