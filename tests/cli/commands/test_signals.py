"""Plans over what requests show, on the command line: `estimate`, `plan`, `explain`, `trie show` and `verify`."""

import contextlib
import io
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import vinelm
from vinelm.cli.main import main

PLAN = ("plan", "t.vine", "--maximize", "accuracy", "--max-cost-usd", "0.002", "--accept-optimism")
VERIFY = ("verify", "s.db", "t.vine", "--maximize", "accuracy", "--dataset", "data", "--requests", "5", "-q")


@pytest.fixture(scope="module")
def made(make_shop, tmp_path_factory):
    """A folder with the bundled workflow, which declares what its answers show, on the first 12 of 24 questions."""
    folder = make_shop(tmp_path_factory.mktemp("signals"))
    profile = ("profile", "nl2sql", "--dataset", "data", "--limit", "12", "--preset", "paper-2", "--store", "s.db", "-q")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main([*profile, "--coverage", "0.5", "--isolation", "inline"]) == 0
    return folder


@pytest.fixture(scope="module")
def said(made):
    """What `vinelm estimate` says."""
    with contextlib.chdir(made), contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(["estimate", "s.db", "-o", "t.vine", "--no-check"]) == 0
    return out.getvalue()


@pytest.fixture
def estimated(made, said, tmp_path, monkeypatch):
    """The same, in a folder of the test's own."""
    monkeypatch.chdir(shutil.copytree(made, tmp_path / "here"))
    return said


def text_of(capsys, *args, code=0):
    assert main(list(args)) == code
    return capsys.readouterr().out


def facts_of(capsys, *args, code=0):
    return json.loads(text_of(capsys, *args, "--json", code=code))


def without_signals():
    vinelm.save_trie("t.vine", replace(vinelm.load_trie("t.vine"), signals=None))


def test_the_estimate_says_what_requests_show(estimated, capsys):
    found = facts_of(capsys, "estimate", "s.db", "-o", "t.vine", "--no-check")
    signals = vinelm.load_trie("t.vine").signals
    assert found["signals"]["histories"] == signals.trie.n_nodes
    assert {"is_passed": True, "signal": "rows"} in found["signals"]["labels"]
    assert found["signals"]["goes_on"] is signals.outcomes.goes_on is True
    assert found["signals"]["answers"] == found["observations"] + found["observations_beyond_stop"]
    assert found["paths_only"] is None
    said = " ".join(estimated.split())
    assert f"Signals: {signals.trie.n_nodes:,} histories of {found['signals']['answers']} answers that show" in said
    assert "passed, rows; going on below a passed check is offered." in said


def test_the_estimate_says_why_there_are_paths_only(estimated, capsys):
    """Under the oracle's stop the right answer is known."""
    found = facts_of(capsys, "estimate", "s.db", "-o", "o.vine", "--no-check", "--stop", "oracle")
    assert found["signals"] is None
    assert found["paths_only"].startswith("under the oracle stop")
    said = text_of(capsys, "estimate", "s.db", "-o", "o.vine", "--no-check", "--stop", "oracle")
    assert f"Signals: {found['paths_only']}." in " ".join(said.split())


def test_the_plan_over_outcomes_stands_before_that_over_paths(estimated, capsys):
    paths, found = facts_of(capsys, *PLAN)["plans"], facts_of(capsys, *PLAN, "--signals")["plans"]
    assert [plan["policy"] for plan in found] == ["VineLM, signals", "VineLM, paths", "best static plan", "best single model"]
    assert found[2:] == paths[1:]
    assert found[1] == {**paths[0], "policy": "VineLM, paths"}
    decision = vinelm.plan("t.vine", maximize="accuracy", max_cost_usd=0.002, signals=True)
    assert found[0]["accuracy"] == decision.accuracy
    assert found[0]["promise"] == json.loads(json.dumps(decision.promise.to_dict()))
    parts = [part["contingent_plan"] for part in found[0].get("mixed_plans", found[:1])]
    assert parts == [plan.plan.to_dict() for _, plan in decision.parts]
    assert decision.metrics.annotated.policy == "signals"


def test_the_plan_is_shown_as_a_tree_within_80_columns(estimated, capsys):
    said = text_of(capsys, *PLAN, "--signals")
    decision = vinelm.plan("t.vine", maximize="accuracy", max_cost_usd=0.002, signals=True)
    assert [line.strip() for line in decision.lines(limit=40)] == [
        line.strip() for line in said.partition("takes each way)\n")[2].partition("\n\n")[0].splitlines()
    ]
    assert "answer 1]: " in said
    assert "Accuracy interval" in said
    assert max(map(len, said.splitlines())) <= 80


def test_a_decision_under_way_is_explained(estimated, capsys):
    explain = ("explain", "t.vine", "--maximize", "accuracy", "--signals")
    trie = vinelm.load_trie("t.vine").signals.trie
    model = trie.models[0]
    arm = next(iter(trie.arms(trie.child(0, model))))
    assert ", " in arm  # as in `repair [failed, error, no answer]`
    found = facts_of(capsys, *explain, "--prefix", model, "--arm", arm)
    assert {option["stage"] for option in found["candidates"]} == {arm}
    said = text_of(capsys, *explain, "--prefix", model, "--arm", arm)
    for word in arm.split():  # brackets are no markup
        assert word in said
    further = facts_of(capsys, *explain, "--prefix", f"{model},{arm}={model}")
    assert further["prefix"] == [model, model]
    assert main([*explain, "--prefix", f"{model},{model}"]) == 2
    assert "name the stage that came next" in capsys.readouterr().err


def test_trie_show_names_what_is_there(estimated, capsys):
    assert facts_of(capsys, "trie", "show", "t.vine")["signals"]["goes_on"] is True
    assert "going on below a passed" in text_of(capsys, "trie", "show", "t.vine")
    without_signals()
    assert facts_of(capsys, "trie", "show", "t.vine")["signals"] is None


@pytest.mark.parametrize("command", [PLAN, ("explain", "t.vine", "--maximize", "accuracy"), VERIFY])
def test_a_trie_without_them_is_one_line(estimated, capsys, command):
    without_signals()
    assert main([*command, "--signals"]) == 2
    said = capsys.readouterr().err
    assert "knows nothing of what requests show" in said
    assert said.count("\n") == 1


def test_what_is_verified_is_what_is_promised(estimated, capsys):
    plans = {flags: vinelm.plan("t.vine", maximize="accuracy", signals=bool(flags)) for flags in ((), ("--signals",))}
    for flags, plan in plans.items():
        found = facts_of(capsys, *VERIFY, *flags, "--dry-run")
        assert found["promised"]["accuracy"] == pytest.approx(plan.promise.accuracy)
        assert found["expected_usd"] == pytest.approx(5 * plan.path_cost_usd)
        assert ("contingent_plan" in found) is bool(flags)
        assert main([*VERIFY, *flags, "--log", f"v{len(flags)}.jsonl", "--json"]) in (0, 1)
        assert json.loads(capsys.readouterr().out)["served"] == 5
    assert main([*VERIFY, "--signals", "--log", "v0.jsonl"]) == 2  # the log of another plan
    assert Path("v1.jsonl").exists()
