"""A replay that is killed at every kind of moment ends as an undisturbed one."""

import pytest
from crash_replay import attack


def test_a_few_kills_leave_the_answers_and_dollars_of_an_undisturbed_run(tmp_path):
    assert attack(4, 7, tmp_path) == 4


@pytest.mark.long
def test_fifty_kills(tmp_path):
    assert attack(50, 1, tmp_path) == 50
