"""`--dataset` with a workflow of one's own: its requests come from a file of any format."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from vinelm.cli.main import main
from vinelm.traces import ObservationStore

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
COLUMNS = ("--column", "input.question=Frage", "--column", "label.answer=gold", "--column", "id=nr")
CSV = "nr,Frage,gold,Thema\n" + "".join(f"n{i},What is {i} + 1?,{i + 1},sums\n" for i in range(6))


@pytest.fixture
def app(tmp_path, monkeypatch):
    for name in ("my_app.py", "questions.jsonl", "models.toml"):
        shutil.copy(EXAMPLES / name, tmp_path)
    (tmp_path / "mine.csv").write_text(CSV)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    sys.modules.pop("my_app", None)
    yield tmp_path
    sys.modules.pop("my_app", None)


def test_check_profile_and_verify_take_the_same_file(app, capsys):
    assert main(["check", "my_app:workflow", "--dataset", "mine.csv", *COLUMNS]) == 0
    assert "6 requests; the graph gets question" in capsys.readouterr().out
    profile = ["profile", "my_app:workflow", "--models", "models.toml", "--dataset", "mine.csv", *COLUMNS, "--store", "s.db"]
    assert main([*profile, "--limit", "4", "--coverage", "1", "--isolation", "inline", "--json"]) == 0
    with ObservationStore.open(Path("s.db")) as store:
        assert sorted(store.request_ids()) == ["n0", "n1", "n2", "n3"]
        assert {row.request_id for row in store.observations()} == {"n0", "n1", "n2", "n3"}
    assert main(["estimate", "s.db", "-o", "t.vine", "--max-error", "1"]) == 0
    verify = ["verify", "s.db", "t.vine", "--maximize", "accuracy", "--workflow", "my_app:workflow", "--dry-run"]
    capsys.readouterr()
    assert main([*verify, "--dataset", "mine.csv", *COLUMNS, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["requests"] == 2


def test_fresh_processes_read_the_dataset_too(app, capsys):
    profile = ["profile", "my_app:workflow", "--models", "models.toml", "--dataset", "mine.csv", *COLUMNS, "--store", "s.db"]
    assert main([*profile, "--limit", "2", "--budget-calls", "2", "-q"]) == 3
    with ObservationStore.open(Path("s.db")) as store:
        assert 1 <= len(store) <= 2


@pytest.mark.parametrize(
    ("content", "options", "words"),
    [
        (CSV, (), ("mine.csv:2: no 'question'", "--column input.KEY=COLUMN")),
        (CSV, ("--column", "input.question=Frage"), ("mine.csv:2: no 'answer'", "--column label.KEY=COLUMN")),
        (CSV + "n9,broken\n", COLUMNS, ("mine.csv:8: the row has 2 fields and the header 4",)),
        ("\x1b[31m\n\x07\n", (), ("mine.csv:2: no 'question'",)),
        (CSV, ("--column", "input.x"), ("names no column",)),
    ],
)
def test_bad_input_is_one_line(app, capsys, content, options, words):
    (app / "mine.csv").write_text(content)
    for command in (["check"], ["profile", "--models", "models.toml", "--store", "s.db", "--coverage", "1"]):
        assert main([*command, "my_app:workflow", "--dataset", "mine.csv", *options]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert "\x1b" not in said
        for word in words:
            assert word in said
    assert not Path("s.db").exists()


def test_columns_that_have_no_effect(app, capsys):
    assert main(["check", "my_app:workflow", *COLUMNS]) == 2
    assert "--column needs --dataset" in capsys.readouterr().err
    assert main(["check", "nl2sql", "--dataset", "data", *COLUMNS]) == 2
    assert "nl2sql reads its dataset itself" in capsys.readouterr().err
