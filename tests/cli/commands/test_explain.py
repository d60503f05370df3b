import json
from pathlib import Path

import pytest
from kit.tables import random_table

from vinelm.cli.main import main
from vinelm.controller import Planner
from vinelm.objective import Objective
from vinelm.vinefile import save_trie


@pytest.fixture
def annotated(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    annotated = random_table(3, n_requests=60, n_models=3, depth=3).annotate()
    save_trie("t.vine", annotated)
    return annotated


def explained(capsys, *args):
    assert main(["explain", "t.vine", *args]) == 0
    return capsys.readouterr().out


def test_the_moment_is_planned_as_a_session_would(annotated, capsys):
    asked = ["--maximize", "accuracy", "--max-latency-s", "6", "--prefix", "m1, m0", "--elapsed-s", "3", "--load", "east=0.5"]
    said = json.loads(explained(capsys, *asked, "--json"))
    node = annotated.trie.node(("m1", "m0"))
    spent_usd = float(annotated.full_cost_usd[node])
    wanted = Planner(annotated).plan(
        Objective(maximize="accuracy", max_latency_s=6.0), node=node, elapsed_s=3.0, spent_usd=spent_usd, load={"east": 0.5}
    )
    assert said["decision"]["plan"] == list(wanted.path)
    assert (said["prefix"], said["elapsed_s"], said["spent_usd"]) == (["m1", "m0"], 3.0, spent_usd)
    assert said["load"] == {"east": 0.5, "west": 0.0}
    assert said["used"] == {"max_latency_s": 3.0}
    assert [c["next_model"] for c in said["candidates"]] == [None, "m0", "m1", "m2"]
    assert [c["next_model"] for c in said["candidates"] if c["is_chosen"]] == [wanted.next_model]
    assert all(c["is_chosen"] == (c["why"] == "") for c in said["candidates"])


def test_what_was_not_said_is_taken_as_expected(annotated, capsys):
    said = json.loads(explained(capsys, "--minimize", "cost", "--prefix", "m2", "--json"))
    node = annotated.trie.node(("m2",))
    assert said["elapsed_s"] == annotated.path_latency_s[node]
    assert said["spent_usd"] == annotated.full_cost_usd[node]
    assert "(estimated)" in explained(capsys, "--minimize", "cost", "--prefix", "m2")


def test_the_tables_fit_and_say_what_gave_way(annotated, capsys):
    said = explained(
        capsys, "--maximize", "accuracy", "--min-accuracy", "0.99", "--max-latency-s", "9", "--max-cost-usd", "1",
        "--cost-budget", "per_request", "--load", "west=1.5",
    )  # fmt: skip
    assert max(map(len, said.splitlines())) <= 80
    assert "So far: no invocation; " in said
    assert "west +1.5 s" in said
    assert said.count("chosen") >= 1
    assert "relaxed" in said
    assert "no path meets min_accuracy" in " ".join(said.split())


def test_a_wide_terminal_shows_how_each_plan_goes_on(annotated, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    assert "then" in explained(capsys, "--minimize", "latency", "--min-accuracy", "0.5")


def test_the_stochastic_program_is_named(annotated, capsys):
    said = explained(capsys, "--maximize", "accuracy", "--max-latency-s", "6", "--risk", "dp")
    assert "The stochastic program made the choice" in said


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], ("exactly one target",)),
        (["--maximize", "accuracy", "--prefix", "m0,ghost"], ("--prefix", "'ghost'", "m0", "use m0, m1, m2")),
        (["--maximize", "accuracy", "--prefix", "m0,m0,m0,m0"], ("--prefix", "the path ends there")),
        (["--maximize", "accuracy", "--load", "north=1"], ("--load north=1", "east, west")),
        (["--maximize", "accuracy", "--load", "east"], ("--load east", "ENGINE=SECONDS")),
        (["--maximize", "accuracy", "--load", "east=fast"], ("'fast'", "not a number")),
        (["--maximize", "accuracy", "--load", "east=-1"], ("finite number of seconds >= 0",)),
        (["--maximize", "accuracy", "--elapsed-s", "nan"], ("--elapsed-s is nan", "a finite number >= 0")),
        (["--maximize", "accuracy", "--elapsed-s", "3"], ("--elapsed-s has no effect without --max-latency-s",)),
        (["--minimize", "cost", "--objective", "sure.toml"], ("confidence has no effect", "--min-accuracy")),
        (["--maximize", "accuracy", "--objective", "sure.toml"], ("confidence needs standard errors",)),
    ],
)
def test_bad_input_is_one_line(annotated, capsys, args, words):
    Path("sure.toml").write_text("confidence = 0.9\n")
    assert main(["explain", "t.vine", *args]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert said.err.startswith("error: ")
    for word in words:
        assert word in said.err


def test_a_missing_trie_is_one_line(annotated, capsys):
    assert main(["explain", "none.vine", "--maximize", "accuracy"]) == 2
    assert "none.vine" in capsys.readouterr().err
