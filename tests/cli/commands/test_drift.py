"""`vinelm drift`: what it names, what it proposes, and what it refuses."""

import json

import pytest
from kit.stores import made_store

from vinelm.api import estimate
from vinelm.cli.main import main
from vinelm.traces import ObservationStore
from vinelm.vinefile import load_trie, save_trie

ACCURACY = {"small": 0.5, "large": 0.8}
COST_USD = {"small": 0.001, "large": 0.01}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A trie, rows that were served as it says, and rows that cost three times as much, or fail."""
    path = tmp_path_factory.mktemp("drift")
    save_trie(path / "app.vine", estimate(made_store(path / "profile.db", ACCURACY, COST_USD), check=False))
    made_store(path / "same.db", ACCURACY, COST_USD, requests=150, seed=1)
    made_store(path / "dear.db", ACCURACY, {name: 3 * usd for name, usd in COST_USD.items()}, requests=100, seed=1)
    made_store(path / "worse.db", dict.fromkeys(ACCURACY, 0.1), COST_USD, requests=150, seed=1)
    return path


@pytest.fixture
def folder(made, monkeypatch):
    monkeypatch.chdir(made)
    monkeypatch.setenv("COLUMNS", "100")
    return made


def test_nothing_moved_exits_0(folder, capsys):
    assert main(["drift", "app.vine", "--traces", "same.db"]) == 0
    text = capsys.readouterr().out
    assert "Nothing moved." in text
    assert "at most 0.05" in text


def test_dollars_that_moved_are_put_right_for_nothing(folder, capsys):
    assert main(["drift", "app.vine", "--traces", "dear.db"]) == 1
    text = capsys.readouterr().out
    assert "answer: dollars" in text
    assert "vinelm estimate app.vine --update dear.db" in text
    assert main(["drift", "app.vine", "--traces", "dear.db", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert {one["quantity"] for one in found["moved"]} == {"dollars"}
    assert all(one["seen"] > 1.5 * one["annotated"] for one in found["moved"])
    assert found["remedy"]["price_usd"] == 0


def test_stops_that_moved_need_a_profile_with_its_price(folder, capsys):
    assert main(["drift", "app.vine", "--traces", "worse.db", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert "stop" in {one["quantity"] for one in found["moved"]}
    assert found["remedy"]["command"].startswith("vinelm profile made --store runs/made-again.db --coverage ")
    assert found["remedy"]["price_usd"] > 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["drift", "app.vine", "--traces", "no.db"], "no.db: no such store"),
        (["drift", "no.vine", "--traces", "same.db"], "no such trie file"),
        (
            ["drift", "app.vine", "--traces", "same.db", "--alpha", "2"],
            "--alpha is 2: it must be a fraction in [0, 1] (did you mean 0.02?)",
        ),
        (["drift", "app.vine"], "--traces"),
    ],
)
def test_bad_input_is_one_line(folder, capsys, arguments, said):
    assert main(arguments) == 2
    error = capsys.readouterr().err.strip()
    assert said in error
    assert "\n" not in error


def test_another_workflow_is_refused(folder, capsys):
    import dataclasses

    with ObservationStore.open("same.db") as store:
        other = dataclasses.replace(store.identity, workflow="other")
    ObservationStore.create("other.db", other).close()
    assert main(["drift", "app.vine", "--traces", "other.db"]) == 2
    assert "estimated for the workflow 'made', the store holds 'other'" in capsys.readouterr().err


def test_an_empty_store_says_so(folder, capsys):
    with ObservationStore.open("same.db") as store:
        identity = store.identity
    ObservationStore.create("empty.db", identity).close()
    assert main(["drift", "app.vine", "--traces", "empty.db"]) == 0
    assert "0 rows of 0 nodes compared" in capsys.readouterr().out


def test_a_trie_that_stops_by_the_oracle_is_refused(folder, capsys):
    save_trie("oracle.vine", estimate("profile.db", check=False, stop="oracle"))
    assert main(["drift", "oracle.vine", "--traces", "same.db"]) == 2
    assert "it stops by the oracle" in capsys.readouterr().err


def test_the_proposed_update_puts_the_trie_right(folder, tmp_path, capsys):
    import shutil

    shutil.copy("app.vine", tmp_path / "app.vine")
    line = ["estimate", str(tmp_path / "app.vine"), "--update", "dear.db"]
    assert main(line) == 0
    assert "wrote" in capsys.readouterr().out
    old, new = load_trie("app.vine"), load_trie(tmp_path / "app.vine")
    assert new.cost_usd[1] > 2 * old.cost_usd[1]
    assert main([*line, "--stop", "workflow"]) == 2
