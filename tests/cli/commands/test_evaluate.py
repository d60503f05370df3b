"""`vinelm evaluate` as a user types it: the verdict first, one line for bad input, serving within a budget."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

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


@pytest.fixture
def imported(tmp_path, monkeypatch, capsys):
    """Makes a store of 40 requests that one model has answered, all but the first ``wrong`` right."""
    monkeypatch.chdir(tmp_path)

    def make(name, wrong, usd, first=0):
        rows = [f"q{number},m,{int(number - first >= wrong)},{usd},2.0" for number in range(first, first + 40)]
        Path(f"{name}.csv").write_text("\n".join(["request,model,success,cost_usd,latency_s", *rows]), encoding="utf-8")
        columns = [part for field in rows_of_import for part in ("--column", f"{field}={field}")]
        assert main(["store", "import", f"{name}.csv", "-o", f"{name}.db", "--stopped-if", "success", *columns]) == 0
        capsys.readouterr()
        return f"{name}.db"

    rows_of_import = ("request", "model", "success", "cost_usd", "latency_s")
    return make


def test_two_workflows_are_compared_request_by_request(imported, capsys):
    one, other = imported("one", 4, 0.001), imported("other", 12, 0.004)
    assert main(["evaluate", one, "--against", other, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["plans"]
    assert (found["plan"], found["requests"]) == ("m", 40)
    assert [side["accuracy"] for side in found["sides"]] == [0.9, 0.7]
    gain = found["gain"]
    assert gain["accuracy"]["value"] == pytest.approx(0.2)
    low, high = gain["accuracy"]["interval"]
    assert 0.0 < low < 0.2 < high < 0.45
    assert [gain["cost"]["value"], gain["latency"]["value"]] == [pytest.approx(0.003), 0.0]
    assert main(["evaluate", one, "--against", other]) == 0
    said = capsys.readouterr().out
    assert "+20.0 points" in said
    assert "$ -3.00" in said
    assert "paired by their ids alone" in " ".join(said.split())
    assert max(map(len, said.splitlines())) <= 80


def test_what_two_workflows_share_is_all_that_is_compared(imported, capsys):
    one, other = imported("one", 0, 0.001), imported("other", 10, 0.001, first=30)
    assert main(["evaluate", one, "--against", other, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["shared"] == found["plans"][0]["requests"] == 10
    assert [side["accuracy"] for side in found["plans"][0]["sides"]] == [1.0, 0.0]
    few = imported("few", 0, 0.002, first=35)
    assert main(["evaluate", one, "--against", few, "--json"]) == 0
    (plan,) = json.loads(capsys.readouterr().out)["plans"]
    assert (plan["requests"], plan["gain"]["accuracy"]["interval"]) == (5, None)
    assert main(["evaluate", one, "--against", imported("third", 0, 0.001, first=70)]) == 2
    assert "share no request" in capsys.readouterr().err


def test_an_option_without_effect_beside_against_is_refused(imported, capsys):
    one = imported("one", 0, 0.001)
    for more in (["--in-use", "m"], ["--serve", "5"], ["x.vine"], ["--maximize", "accuracy"]):
        assert main(["evaluate", one, "--against", one, *more]) == 2
        assert "has no effect with --against: leave it out" in capsys.readouterr().err
