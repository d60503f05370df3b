"""The command: what it prints, its page and its exit codes."""

import json
from pathlib import Path

import pytest

from vinelm.cli.main import main

LINE = ["batch", "my_app.py:workflow", "--trie", "t.vine", "--maximize", "accuracy", "-o", "a.jsonl", "--budget-usd"]


def test_the_whole_way(app, capsys):
    assert main([*LINE, "1", "--dry-run"]) == 0
    assert "60 requests (0 equal to others)" in capsys.readouterr().out
    assert main([*LINE, "1", "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["is_complete"] is False
    assert sum(one["share"] for one in told["forecast"]["shares"]) == pytest.approx(1.0)
    assert main([*LINE, "1", "--report", "page.html", "--deadline", "2h", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["by_status"] == {"ok": 60, "failed": 0, "unanswered": 0}
    assert told["deadline_s"] == 7200.0
    page = Path("page.html").read_text()
    assert "60 of 60 requests answered" in page
    assert "simulated models" in page
    assert len(Path("a.jsonl").read_text().splitlines()) == 60


def test_a_budget_that_leaves_some_unanswered_is_exit_code_3(app, capsys):
    assert main([*LINE, "0.05", "--finish", "good"]) == 3
    told = capsys.readouterr()
    assert "are unanswered (budget): raise --budget-usd and run the same line" in told.err
    assert "unanswered" in Path("a.jsonl").read_text()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["1", "--deadline", "soon"], "write hours, minutes or seconds"),
        (["0.0000001"], "--budget-usd and --deadline bound it"),
        (["1", "--max-cost-usd", "0.1"], "budget"),
        (["1", "--dataset", "none.jsonl"], "none.jsonl"),
        (["1", "--report", "a.jsonl"], "which holds the answers"),
        (["1", "--report", "a.db"], "which holds the answers"),
        (["1", "--report", "t.vine"], "exists, and is no HTML page"),
        (["1", "--report", "questions.jsonl"], "exists, and is no HTML page"),
        (["1", "--engine", "slurm"], "use this-machine, ray://HOST:PORT, ray://auto or ray://local"),
        (
            ["1", "--ship"],
            "ship has no effect without an engine ray://...: name one, or leave ship out (--ship needs --engine ray://...)",
        ),
    ],
)
def test_bad_input_is_one_line(app, capsys, more, said):
    assert main([*LINE, *more]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1
    assert not Path("a.db").exists()
