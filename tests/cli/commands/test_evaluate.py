"""`vinelm evaluate` as a user types it: the verdict first, one line for bad input, serving within a budget."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import vinelm
from vinelm.cli.main import main
from vinelm.traces import check_store

SERVE = ("evaluate", "s.db", "--maximize", "accuracy", "--dataset", "data", "-q", "--serve", "4")


@pytest.fixture(scope="module")
def profiled_shop(tmp_path_factory, make_shop):
    """Every path of the bundled workflow on 20 of 24 questions: the fewest that can be judged."""
    folder = make_shop(tmp_path_factory.mktemp("shop"))
    profile = ("profile", "nl2sql", "--dataset", str(folder / "data"), "--limit", "20", "--preset", "paper-2", "-q")
    assert main([*profile, "--store", str(folder / "s.db"), "--coverage", "0.9", "--isolation", "inline"]) == 0
    return folder


@pytest.fixture
def profiled(profiled_shop, tmp_path, monkeypatch):
    """A copy of it as the working folder."""
    shutil.copytree(profiled_shop, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")


def test_the_verdict_comes_first_and_nothing_is_called(profiled, capsys):
    capsys.readouterr()
    assert main(["evaluate", "s.db", "-q"]) == 0
    said = capsys.readouterr().out
    assert said.split(":")[0].split()[0].strip(",") in ("SWITCH", "KEEP", "UNDECIDED", "NOT")
    assert "Nothing was called" in said
    assert "Paired gains" in said
    assert max(map(len, said.splitlines())) <= 80
    assert not Path("s.evaluate.db").exists()


@pytest.mark.long
def test_the_report_says_the_same_of_the_same_store(profiled, capsys):
    assert main(["estimate", "s.db", "-o", "t.vine", "--no-check", "-q"]) == 0
    capsys.readouterr()
    assert main(["evaluate", "s.db", "t.vine", "--json", "-q"]) == 0
    evaluated = json.loads(capsys.readouterr().out)
    assert main(["report", "s.db", "t.vine", "-o", "out", "--json", "-q"]) == 0
    assert json.loads(capsys.readouterr().out)["headline"] == evaluated["sentence"]
    assert main(["report", "s.db", "t.vine", "-o", "out", "--in-use", "sim-sonnet", "--json", "-q"]) == 0
    against = vinelm.evaluate("s.db", "t.vine", in_use="sim-sonnet")
    assert json.loads(capsys.readouterr().out)["headline"] == against.verdict.sentence


def test_json_holds_the_sentence_and_the_figures(profiled, capsys):
    capsys.readouterr()
    assert main(["evaluate", "s.db", "--maximize", "accuracy", "--max-cost-usd", "0.01", "--json", "-q"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"]["advice"] in ("switch", "keep", "undecided", "not enough data")
    assert found["objectives"] == [{"maximize": "accuracy", "max_cost_usd": 0.01}]
    assert {one["policy"] for one in found["policies"]} >= {"paths", "static", "single"}
    assert found["sentence"]


def test_held_out_requests_are_served_and_an_interrupted_run_goes_on(profiled, capsys):
    capsys.readouterr()
    assert main([*SERVE, "--budget-usd", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["is_served"]
    assert found["requests"] == 4
    entries = check_store(Path("s.evaluate.db")).ledger_entries
    assert main([*SERVE, "--budget-usd", "1", "--json"]) == 0  # everything is there already
    again = json.loads(capsys.readouterr().out)
    assert check_store(Path("s.evaluate.db")).ledger_entries == entries
    assert again["policies"] == found["policies"]


def test_a_budget_that_ends_serving_exits_with_3(profiled, capsys):
    capsys.readouterr()
    assert main([*SERVE, "--budget-usd", "1e-9"]) == 3
    assert "budget" in capsys.readouterr().err


def test_bad_input_is_one_line(profiled, capsys):
    for arguments, words in (
        (["evaluate", "missing.db"], "missing.db"),
        (["evaluate", "s.db", "--serve", "4"], "--maximize accuracy"),
        (["evaluate", "s.db", "--max-cost-usd", "1"], "exactly one target"),
        (["evaluate", "s.db", "--budget-usd", "1"], "--serve"),
    ):
        capsys.readouterr()
        assert main([*arguments, "-q"]) == 2
        error = capsys.readouterr().err
        assert words in error
        assert error.count("\n") == 1


def test_hostile_names_are_escaped(profiled, capsys):
    """A model name that clears the screen, as a store of unknown origin may hold it."""
    evil = "sim\x1b[2J\u202eevil"
    with closing(sqlite3.connect("s.db")) as store, store:
        (name,) = store.execute("SELECT model FROM observations LIMIT 1").fetchone()
        quoted = json.dumps(evil)[1:-1]
        for table, columns in (("observations", ("prefix", "model")), ("meta", ("value",)), ("identities", ("value",))):
            for column in columns:
                new = evil if column == "model" else quoted
                store.execute(f"UPDATE {table} SET {column} = replace({column}, ?, ?)", (name, new))
    capsys.readouterr()
    assert main(["evaluate", "s.db", "-q"]) == 0
    said = capsys.readouterr()
    assert "\\x1b" in said.out
    assert "\x1b" not in said.out + said.err
    assert "\u202e" not in said.out + said.err
