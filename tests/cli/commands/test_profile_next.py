"""What `vinelm profile` says comes next: an estimate where the rows suffice, else what buys enough of them."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from vinelm.cli.main import main

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
PROFILE = ["profile", "my_app:workflow", "--models", "models.toml", "--store", "s.db", "--isolation", "inline", "--quiet"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    for name in ("my_app.py", "questions.jsonl", "models.toml"):
        shutil.copy(EXAMPLES / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_app", raising=False)
    yield tmp_path
    sys.modules.pop("my_app", None)


@pytest.mark.long
def test_the_next_command_is_one_that_works(capsys):
    assert main([*PROFILE, "--coverage", "0.005"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert re.search(
        r"Not enough for `vinelm estimate` yet: .* 15 are asked for\. Next: the same line with --max-error 0\.15", said
    )
    assert main(["estimate", "s.db"]) == 1
    assert "--max-error" in capsys.readouterr().err
    assert main([*PROFILE, "--max-error", "0.15", "--budget-usd", "1"]) == 0
    said = capsys.readouterr().out
    assert "the estimate is certain enough." in said
    assert said.endswith("Next: vinelm estimate s.db\n")
    assert main(["estimate", "s.db"]) == 0


@pytest.mark.long
def test_a_budget_that_is_too_small_is_named(capsys):
    assert main([*PROFILE, "--max-error", "0.05", "--budget-usd", "0.03"]) == 3
    said = " ".join(capsys.readouterr().out.split())
    assert re.search(r"and 5 are asked for\. Next: the same line with a larger budget \(about \$0\.\d+ more\)\.", said)


def test_the_forecast_says_that_the_rows_decide(capsys):
    assert main([*PROFILE, "--max-error", "0.15", "--dry-run"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Needed for 2.0 % coverage" in said
    assert "as soon as the best path's accuracy is known to +/- 15 points, before or after 2.0 %" in said


def test_where_there_are_very_many_paths_the_forecast_is_of_whole_runs_and_stays_within_reason(folder, capsys, monkeypatch):
    text = (folder / "my_app.py").read_text(encoding="utf-8").replace("FIXES = 2 ", "FIXES = 24 ")
    (folder / "my_app.py").write_text(text, encoding="utf-8")
    monkeypatch.setattr("vinelm.api.profiling.recommended_plans", lambda *_: pytest.fail("takes minutes on so many paths"))
    assert main([*PROFILE, "--max-error", "0.15", "--budget-usd", "0.05", "--dry-run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    needs = found["needs"]
    assert needs["coverage"] is None
    assert needs["left_rows"] > 1e6
    assert needs["requests"]["high"] == needs["left_requests"] == 120
    assert needs["rows"]["high"] <= 120 * 25 * 2  # two models on at most 25 invocations
    assert 0 < needs["race_usd"]["middle"] <= needs["cost_usd"]["high"]
    assert main([*PROFILE, "--max-error", "0.15", "--budget-usd", "0.05", "--dry-run"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Needed for all single models on all requests" in said
    assert "There are more than 1,000,000 sequences of models" in said
    assert "> 1,000,000" in said


@pytest.mark.parametrize(
    ("more", "word"),
    [(["--max-error", "15"], "--max-error is 15"), (["--max-error", "0"], "use --max-error")],
)
def test_a_max_error_that_makes_no_sense_is_refused(folder, capsys, more, word):
    assert main([*PROFILE, "--sampler", "exhaustive", *more]) == 2
    assert word in capsys.readouterr().err
    assert not (folder / "s.db").exists()


def test_json_has_what_ended_it(capsys):
    assert main([*PROFILE, "--max-error", "0.3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["stopped_by"] == "certain"
