"""`vinelm verify` as a user types it: the price first, then the verdict; exit codes."""

import contextlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import vinelm
from vinelm.cli.main import main
from vinelm.traces import check_store

VERIFY = ("verify", "s.db", "t.vine", "--maximize", "accuracy", "--dataset", "data", "-q")


@pytest.fixture(scope="module")
def profiled(tmp_path_factory, make_shop):
    """The bundled workflow on the first 12 of 24 questions."""
    profile = ("profile", "nl2sql", "--dataset", "data", "--limit", "12", "--preset", "paper-2", "--store", "s.db", "-q")
    folder = make_shop(tmp_path_factory.mktemp("verify"))
    with contextlib.chdir(folder):
        assert main([*profile, "--coverage", "0.5", "--isolation", "inline"]) == 0
        assert main(["estimate", "s.db", "-o", "t.vine", "--max-error", "1"]) == 0
    return folder


@pytest.fixture
def estimated(profiled, tmp_path, monkeypatch):
    """A copy of it, as the working folder."""
    shutil.copytree(profiled, tmp_path / "shop")
    monkeypatch.chdir(tmp_path / "shop")
    return tmp_path / "shop"


def test_the_price_comes_first_and_costs_nothing(estimated, capsys):
    capsys.readouterr()
    assert main([*VERIFY, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "Would serve" in said
    assert "Nothing was called" in said
    assert not Path("t.verify.db").exists()


def test_promised_and_achieved_are_printed_with_a_verdict(estimated, capsys):
    capsys.readouterr()
    assert main([*VERIFY, "--requests", "10", "--budget-usd", "1", "--json"]) in (0, 1)
    found = json.loads(capsys.readouterr().out)
    assert found["served"] == found["requests"] == 10
    assert found["is_kept"] is (found["accuracy_promise"] != "broken" and found["cost_promise"] != "broken")
    low, high = found["promised"]["prediction"]
    assert (low <= found["achieved"]["accuracy"] <= high) is (found["accuracy_promise"] == "kept")
    assert found["verdict"]["sentence"].startswith(("SWITCH", "KEEP", "UNDECIDED", "NOT ENOUGH DATA"))
    assert check_store(Path("t.verify.db")).ledger_entries == 10
    code = main([*VERIFY, "--requests", "10", "--budget-usd", "1"])  # everything is there already
    said = capsys.readouterr().out
    assert code == (0 if found["is_kept"] else 1)
    assert "10 held-out requests served" in said


def test_a_broken_promise_exits_with_1(estimated, capsys):
    annotated = vinelm.load_trie("t.vine")
    sure = annotated.success * 0.0 + 1.0
    sure[0] = 0.0
    vinelm.save_trie("t.vine", replace(annotated, success=sure, stop_success=annotated.stop, accuracy_se=sure * 1e-6))
    capsys.readouterr()
    assert main([*VERIFY, "--requests", "10"]) == 1
    assert "NOT KEPT" in capsys.readouterr().out


def test_a_budget_that_ends_the_run_exits_with_3(estimated, capsys):
    capsys.readouterr()
    assert main([*VERIFY, "--budget-usd", "1e-9"]) == 3
    assert "raise --budget-usd" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--requests", "1000"), ("were not used", "--requests N")),
        (("--workflow", "nope"), ("unknown workflow", "nope")),
        (("--max-cost-usd", "1e-12"), ("max-cost-usd",)),
        (("--log", "data"), ("data", "Is a directory")),
    ],
)
def test_bad_input_is_one_line(estimated, capsys, options, words):
    capsys.readouterr()
    assert main([*VERIFY, *options]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    for word in words:
        assert word in said
