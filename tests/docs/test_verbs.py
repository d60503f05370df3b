"""The example in the docstring of each public verb runs as it stands, on the app of docs/examples."""

import doctest
import sys
from pathlib import Path

import pytest

import vinelm

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
VERBS = ("profile", "estimate", "plan", "evaluate", "verify", "report")  # in this order: each reads what the one before wrote


@pytest.mark.long
def test_the_examples_of_the_verbs_run_one_after_the_other(tmp_path, monkeypatch):
    for name in ("my_app.py", "questions.jsonl", "models.toml"):
        (tmp_path / name).write_bytes((EXAMPLES / name).read_bytes())
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_app", raising=False)
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
    for verb in VERBS:
        (example,) = finder.find(getattr(vinelm, verb), verb)
        assert example.examples, verb
        assert runner.run(example).failed == 0, verb
    assert (tmp_path / "report" / "report.html").is_file()
    monkeypatch.delitem(sys.modules, "my_app")
