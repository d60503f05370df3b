"""Short runs of the attacks of `tests/attacks/hostile.py`; the script itself runs them at length."""

import os

import pytest
from hostile_parts import command_line, tools_ahead, tries, unfinished


def test_no_wrong_trie_file_gets_through():
    found = tries.run(print, files=60, seed=3)
    assert found["through"] == []
    assert found["refused"] > 20


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the attacks run in forks")
def test_no_random_command_line_gets_through():
    found = command_line.run(print, cases=25, seed=4)
    assert found["through"] == []
    assert set(found["exits"]) <= {"0", "1", "2", "3"}


def test_nobodys_tool_runs_ahead_for_somebody_else():
    found = tools_ahead.run(lambda *told: None, services=12)
    assert found["through"] == []
    assert found["counts"]["ready"] > 0


@pytest.mark.long
def test_no_history_of_unfinished_stages_gets_through():
    found = unfinished.run(print, histories=15)
    assert found["through"] == []
    assert found["calls_paid"] > 150
