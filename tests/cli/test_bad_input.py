"""Every line of "Bad input" in the issue: one line that says what, where and how to mend it; exit code 2; nothing written."""

import json
import shutil
import sqlite3

import numpy as np
import pytest
from kit.tables import random_table

from vinelm.cli.main import main
from vinelm.traces import ObservationStore
from vinelm.traces.databases.schema import SCHEMA_VERSION
from vinelm.traces.testing import a_row, an_identity
from vinelm.vinefile import save_trie

MODELS = """
[[model]]
name = "sim-a"
provider = "simulated"
model = "gemma-27b"
price = { input = 1.0, output = 2.0, source = "a test", as_of = 2026-01-01 }
"""
GHOST_STAGE = """
from dataclasses import replace
from vinelm.template import Stage, Template
from vinelm.workflows.nl2sql.workflow import nl2sql
def stage(dataset=None):
    return replace(nl2sql(dataset), template=Template((Stage("generate"), Stage("polish"))))
def model(dataset=None):
    return replace(nl2sql(dataset), template=Template((Stage("generate", ("ghost",)),)))
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty working folder with a tiny, valid dataset, a catalog and a module of workflows."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data" / "databases").mkdir(parents=True)
    database = sqlite3.connect(tmp_path / "data" / "databases" / "shop.sqlite")
    with database:
        database.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, price REAL)")
        database.executemany("INSERT INTO item (price) VALUES (?)", [(1.0,), (2.5,)])
    database.close()
    write_questions(tmp_path, question())
    (tmp_path / "models.toml").write_text(MODELS)
    (tmp_path / "ghosts.py").write_text(GHOST_STAGE)
    return tmp_path


def question(number: int = 1, **fields) -> str:
    row = {"question_id": f"q{number}", "db_id": "shop", "question": "How many items?", "gold_sql": "SELECT count(*) FROM item"}
    return json.dumps(row | fields)


def write_questions(folder, *lines: str) -> None:
    (folder / "data" / "questions.jsonl").write_text("\n".join(lines) + "\n")


def files(folder) -> dict[str, bytes]:
    found = [p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    return {str(p.relative_to(folder)): p.read_bytes() for p in found}


def refused(folder, capsys, args, *words: str) -> None:
    """The command line ends with 2 and one line that holds ``words``, and leaves the folder as it was."""
    before = files(folder)
    assert main(args) == 2
    said = capsys.readouterr()
    if "--json" in args:
        assert said.err.startswith(f"error: {json.loads(said.out)['error']['message']}")
    else:
        assert said.out == ""
    assert said.err.count("\n") == 1, said.err
    assert said.err.startswith("error: ")
    assert "unexpected" not in said.err
    for word in words:
        assert word in said.err
    assert files(folder) == before


PROFILE = ["profile", "nl2sql", "--dataset", "data", "--models", "models.toml", "--store", "out.db", "--quiet"]


def test_the_line_that_the_others_break_is_fine(folder, capsys):
    assert main([*PROFILE, "--coverage", "1", "--isolation", "inline"]) == 0
    assert "out.db" in files(folder)


def test_unknown_workflow(folder, capsys):
    refused(folder, capsys, ["profile", "nl3sql", "--store", "out.db"], "unknown workflow 'nl3sql'", "nl2sql")


@pytest.mark.parametrize("command", ["profile", "check"])
def test_unknown_workflow_module(folder, capsys, command):
    refused(folder, capsys, [command, "nowhere_at_all:app"], "nowhere_at_all")


def test_unknown_model_in_a_template(folder, capsys):
    args = ["profile", "ghosts:model", "--dataset", "data", "--models", "models.toml", "--store", "out.db"]
    refused(folder, capsys, args, "'generate'", "'ghost'", "sim-a")


def test_unknown_preset(folder, capsys):
    refused(folder, capsys, ["profile", "nl2sql", "--preset", "nope"], "unknown preset 'nope'", "one-wins")


def test_unknown_simulated_model(folder, capsys):
    (folder / "models.toml").write_text(MODELS.replace("gemma-27b", "gemini"))
    refused(folder, capsys, PROFILE, "sim-a", "gemini")


def test_unknown_stage(folder, capsys):
    args = ["profile", "ghosts:stage", "--dataset", "data", "--models", "models.toml", "--store", "out.db"]
    refused(folder, capsys, args, "polish")


def test_check_says_what_is_fine_and_what_is_not(folder, capsys):
    before = files(folder)
    assert main(["check", "ghosts:stage", "--dataset", "data", "--models", "models.toml"]) == 2
    said = capsys.readouterr()
    assert said.out.startswith("ok    template: generate > polish")
    assert "FAIL  graph:" in said.out
    assert said.err.count("\n") == 1
    assert "polish" in said.err
    assert files(folder) == before


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (MODELS + 'colour = "red"\n', ("models.toml", "unknown key 'colour'", "known keys are")),
        (MODELS + "[modle]\n", ("models.toml", "unknown key 'modle'")),
        (MODELS + "[backend.simulated]\ntemprature = 1\n", ("temprature",)),
        (MODELS.replace("price =", "prise ="), ("no price", "sim-a")),
        (MODELS.replace('"simulated"', '"acme"'), ("acme", "sim-a")),
        ("[[model]\n", ("models.toml", "not valid TOML")),
    ],
)
def test_a_catalog_at_fault(folder, capsys, text, words):
    (folder / "models.toml").write_text(text)
    refused(folder, capsys, PROFILE, *words)


def test_a_catalog_that_is_missing(folder, capsys):
    (folder / "models.toml").unlink()
    refused(folder, capsys, PROFILE, "models.toml", "cannot read the catalog")


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ((question(1), "{not json"), ("questions.jsonl:2", "not valid JSON")),
        ((question(1), "[1]"), ("questions.jsonl:2", "expected a JSON object")),
        ((question(1), question(2).replace("gold_sql", "golden")), ("questions.jsonl:2", "'gold_sql' is missing")),
        ((question(1), question(1)), ("questions.jsonl:2", "'q1' repeats line 1")),
        ((question(1), question(2, question=7)), ("questions.jsonl:2", "'question'")),
        ((question(1), question(2, gold_sql="SELECT nope FROM item")), ("questions.jsonl:2", "gold SQL fails", "nope")),
        ((question(1), question(2, db_id="shoe")), ("questions.jsonl:2", "shoe")),
    ],
)
def test_a_dataset_line_at_fault(folder, capsys, lines, words):
    write_questions(folder, *lines)
    refused(folder, capsys, PROFILE, *words)


def test_a_database_that_is_not_sqlite(folder, capsys):
    (folder / "data" / "databases" / "shop.sqlite").write_text("id,price\n1,1.0\n" * 50)
    refused(folder, capsys, PROFILE, "shop.sqlite", "not a SQLite")


def test_a_dataset_that_is_missing(folder, capsys):
    refused(folder, capsys, ["profile", "nl2sql", "--dataset", "nowhere", "--store", "out.db"], "nowhere")


def make_store(folder, **changes):
    identity = an_identity(**changes)
    with ObservationStore.create(folder / "old.db", identity) as store:
        store.add(a_row())
    return folder / "old.db"


def test_a_store_of_another_workflow(folder, capsys):
    make_store(folder)
    args = ["profile", "nl2sql", "--dataset", "data", "--models", "models.toml", "--store", "old.db"]
    refused(folder, capsys, args, "old.db", "'toy'", "'nl2sql'")


@pytest.mark.parametrize("args", [["estimate", "old.db"], ["profile", "nl2sql", "--store", "old.db"]])
def test_a_store_of_a_newer_version(folder, capsys, args):
    make_store(folder)
    connection = sqlite3.connect(folder / "old.db")
    with connection:
        connection.execute("UPDATE meta SET value = ? WHERE key = 'schema_version'", (str(SCHEMA_VERSION + 1),))
    connection.close()
    if args[0] == "profile":
        args = [*args, "--dataset", "data", "--models", "models.toml"]
    refused(folder, capsys, args, "old.db", "newer VineLM", "upgrade")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["estimate", "none.db"], ("none.db", "no such store", "vinelm profile")),
        (["estimate", "models.toml"], ("models.toml: this is a TOML file, not a store",)),
        (["estimate", "old.db", "--estimator", "magic"], ("unknown estimator 'magic'", "cascade")),
        (["plan", "none.vine", "--maximize", "accuracy"], ("none.vine", "vinelm estimate")),
        (["plan", "models.toml", "--maximize", "accuracy"], ("models.toml", "not a trie file")),
        (["estimate", "old.db", "-o", "old.db"], ("old.db", "would be overwritten")),
        (["estimate", "old.db", "-o", "models.toml"], ("models.toml", "not a trie file")),
        (["export", "old.csv", "-o", "old.csv"], ("old.csv", "would be overwritten")),
        (["report", "old.db", "none.vine", "-o", "out"], ("none.vine", "vinelm estimate")),
        (["report", "none.db", "t.vine", "-o", "out"], ("none.db", "vinelm profile")),
    ],
)
def test_files_that_are_not_there_or_not_theirs(folder, capsys, args, words):
    make_store(folder)
    shutil.copy(folder / "old.db", folder / "old.csv")
    save_trie(folder / "t.vine", random_table(0, n_requests=5, n_models=2, depth=2).annotate())
    refused(folder, capsys, args, *words)


def test_a_demo_that_has_no_folder_to_write_to(folder, capsys, monkeypatch):
    """Refused at once: nothing is profiled."""
    monkeypatch.setattr("vinelm.api.profile", None)
    args = ["demo", "--quiet", "--output-dir", "models.toml"]
    refused(folder, capsys, args, "models.toml", "cannot write to this folder", "choose another folder (with --output-dir)")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model = 3", ("'model' is not a list of tables", "[[model]]")),
        ("[model]\nname = 'a'", ("'model' is not a list of tables", "[[model]]")),
        ("model = ['a']", ("'model' is not a list of tables",)),
        ("backend = 3" + MODELS, ("[backend.NAME]",)),
        ("[backend]\nsimulated = 3" + MODELS, ("[backend.NAME]",)),
        ("", ("at least one model", "[[model]]")),
        ("[[model]]\nprice_id = []", ("no price known",)),
    ],
)
def test_a_catalog_that_is_none(folder, capsys, text, words):
    (folder / "models.toml").write_text(text)
    refused(folder, capsys, PROFILE, "models.toml", *words)


@pytest.mark.parametrize("seconds", ["nan", "-1", "inf", "long"])
def test_a_load_that_is_none(folder, capsys, seconds):
    save_trie(folder / "t.vine", random_table(0, n_requests=5, n_models=2, depth=2).annotate())
    args = ["explain", "t.vine", "--maximize", "accuracy", "--load", f"east={seconds}"]
    refused(folder, capsys, args, f"--load east={seconds}", "seconds")


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        (["--max-cost-usd", "1e-9"], ("--max-cost-usd = 1e-09",)),
        (["--max-latency-s", "1e-6"], ("--max-latency-s = 1e-06",)),
        (["--min-accuracy", "1"], ("--min-accuracy = 1",)),
    ],
)
def test_a_plan_that_no_path_meets(folder, capsys, bounds, words):
    exact = random_table(0, n_requests=20, n_models=2, depth=3).annotate()
    assert np.max(exact.accuracy) < 1
    save_trie(folder / "t.vine", exact)
    refused(folder, capsys, ["plan", "t.vine", "--minimize", "cost", *bounds], *words)
    refused(folder, capsys, ["plan", "t.vine", "--minimize", "cost", *bounds, "--json"], *words)


OBJECTIVE_FILES = {
    "z.toml": "z = 2",
    "late.json": '{"late_weight": 1}',
    "bad.toml": "z 2",
    "list.json": "[1]",
    "odd.toml": 'maximize = "accuracy"\nspeed = 1',
    "whole.toml": 'maximize = "accuracy"\nmax_cost_usd = 1.0',
}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], ("exactly one target: --maximize accuracy",)),
        (["--maximize", "accuracy", "--minimize", "cost"], ("exactly one target",)),
        (["--maximize", "accuracy", "--min-accuracy", "90"], ("--min-accuracy is 90", "[0, 1]")),
        (["--maximize", "accuracy", "--max-cost-usd", "-1"], ("--max-cost-usd is -1",)),
        (["--maximize", "accuracy", "--max-cost-usd", "nan"], ("--max-cost-usd is nan",)),
        (
            ["--maximize", "accuracy", "--objective", "z.toml"],
            ("z has no effect", "--risk mean+sd or --cost-budget per_request"),
        ),
        (
            ["--maximize", "accuracy", "--objective", "late.json"],
            ("late_weight has no effect", "--risk dp and --maximize"),
        ),
        (["--objective", "none.toml"], ("none.toml: cannot be read as TOML",)),
        (["--objective", "bad.toml"], ("bad.toml: cannot be read as TOML", "line 1")),
        (["--objective", "list.json"], ("list.json: holds list: it must be an object",)),
        (["--objective", "odd.toml"], ("no field 'speed'",)),
        (["--max-cost-usd", "1", "--objective", "whole.toml"], ("--max-cost-usd is also a field of whole.toml",)),
        (["--maximize", "speed"], ("speed", "accuracy")),
    ],
)
def test_an_objective_at_fault(folder, capsys, options, words):
    save_trie(folder / "t.vine", random_table(0, n_requests=5, n_models=2, depth=2).annotate())
    for name, text in OBJECTIVE_FILES.items():
        (folder / name).write_text(text)
    refused(folder, capsys, ["plan", "t.vine", *options], *words)


@pytest.mark.parametrize(
    "args",
    [
        ["estimate", "a" * 1000],
        ["plan", "a" * 1000, "--maximize", "accuracy"],
        ["report", "a" * 1000],
        ["reprice", "a" * 1000, "--models", "models.toml"],
        ["export", "a" * 1000, "--output", "rows.csv"],
        ["export", "rows.db", "--output", "a" * 1000],
    ],
)
def test_a_name_that_no_file_can_have(folder, capsys, args):
    assert main(args) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "unexpected" not in err


@pytest.mark.parametrize(("name", "text"), [("deep.json", "[" * 100_000), ("deep.toml", "a = " + "[" * 100_000)])
def test_an_objective_nested_too_deep(folder, capsys, name, text):
    (folder / name).write_text(text)
    assert main(["plan", "x.vine", "--maximize", "accuracy", "--objective", name]) == 2
    assert f"{name}: cannot be read as" in capsys.readouterr().err
