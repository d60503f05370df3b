"""kill -9 of runs and of children: a few of the trials of ``tests/attacks/crash_profile.py`` (which makes hundreds)."""

import random

import crash_profile as crash
import pytest


@pytest.mark.long
def test_killed_runs_end_as_undisturbed_ones(tmp_path, python, monkeypatch):
    monkeypatch.setattr(crash, "start", python.start)
    cap = {"coverage": 0.5}
    calm = tmp_path / "calm.db"
    crash.finish(crash.Trial("inline", 1, cap, "none", "parent", 0), calm)
    undisturbed = crash.content(calm)
    kinds = [
        ("process", 3, "any", "both"),
        ("thread", 4, "commit", "parent"),
        ("thread", 4, "start", "parent"),
        ("inline", 1, "call", "parent"),
    ]
    for number, (isolation, workers, moment, target) in enumerate(kinds):
        trial = crash.Trial(isolation, workers, cap, moment, target, number)
        store = tmp_path / f"{number}.db"
        assert crash.run_and_kill(trial, store, random.Random(number))
        assert crash.open_entries(store) <= workers
        crash.finish(trial, store)
        assert crash.problems(trial, crash.content(store), undisturbed) == []


@pytest.mark.long
def test_what_it_looks_for_would_be_found():
    """A judge that finds nothing must be able to."""
    row = {"failure": None}
    right = {"rows": {("q", "a"): row}, "states": [], "dangling": 0, "committed": 1.0, "over": 0.0, "damage": "ok"}
    trial = crash.Trial("inline", 1, {"budget_usd": 2.0}, "any", "parent", 0)
    assert crash.problems(trial, right, right) == []
    crashed = crash.problems(trial, right | {"rows": {("q", "a"): {"failure": "crash"}}}, right)
    assert "1 units count as crashed" in crashed[0]
    for change, words in (
        ({"damage": "page 3"}, "damaged: page 3"),
        ({"dangling": 2}, "2 reservations dangle"),
        ({"committed": 2.5}, "more than the budget"),
        ({"rows": {}}, "1 rows are missing"),
        ({"rows": {("q", "a"): {"failure": "server"}}}, "or they or their checkpoints differ"),
        ({"states": [("q", "a", "d")]}, "checkpoints differ"),
        ({"rows": {("q", "a"): {"failure": "server"}, ("q", "b"): row}}, "1 too many"),
    ):
        (problem,) = crash.problems(trial, right | change, right)
        assert words in problem
