"""No silence: a command that says nothing shows that it is at work, and makes way for all that is printed."""

import pytest

from vinelm.cli import waiting
from vinelm.cli.console import echo, progress, say, show_table
from vinelm.cli.waiting import FIRST_LOG_S, SILENT_S, AtWork


class Clock:
    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


def test_a_terminal_shows_it_before_the_first_second_is_over(clock):
    drawn = []
    one = AtWork("vinelm estimate a.db", drawn.append, drawn.append, clock=clock)
    one.tick()
    assert drawn == []
    clock.now_s += SILENT_S
    one.tick()
    assert SILENT_S < 1.0
    assert "vinelm estimate a.db: 0 s" in drawn[-1]
    clock.now_s += 7
    one.tick()
    assert "vinelm estimate a.db: 8 s" in drawn[-1]


def test_it_makes_way_and_comes_back_after_a_silence(clock):
    drawn = []
    one = AtWork("x", drawn.append, drawn.append, clock=clock)
    clock.now_s += 1
    one.tick()
    one.make_way()
    assert drawn[-1] == ""
    shown = len(drawn)
    one.tick()
    one.make_way()  # nothing is there to be taken away
    assert len(drawn) == shown
    clock.now_s += SILENT_S
    one.tick()
    assert len(drawn) == shown + 1


def test_it_stays_away_while_somebody_else_draws(clock):
    drawn = []
    one = AtWork("x", drawn.append, drawn.append, clock=clock)
    one.hold(1)
    one.hold(1)
    one.hold(-1)
    clock.now_s += 60
    one.tick()
    assert drawn == []
    one.hold(-1)
    clock.now_s += 1
    one.tick()
    assert len(drawn) == 1


def test_a_log_has_a_line_after_half_a_minute_and_then_ever_fewer(clock):
    lines = []
    one = AtWork("vinelm report", None, lines.append, clock=clock)
    for _ in range(300):
        clock.now_s += 1
        one.tick()
    assert FIRST_LOG_S == 30.0
    assert lines == [f"vinelm report: at work for {s} s" for s in (30, 90, 210)]


def test_a_step_counts_its_own_seconds_and_no_log_is_silent_for_more_than_two_minutes(clock):
    lines = []
    one = AtWork("vinelm try", None, lines.append, clock=clock)
    clock.now_s += 1000
    one.rename("estimating")
    one.make_way()  # the step was said
    for _ in range(600):
        clock.now_s += 1
        one.tick()
    assert lines == [f"estimating: at work for {s} s" for s in (30, 90, 210, 330, 450, 570)]


@pytest.mark.parametrize(
    "prints", [lambda: echo("x"), lambda: say("x"), lambda: show_table("x", ("a",), [("b",)]), lambda: echo("x", err=True)]
)
def test_all_that_prints_has_it_make_way(monkeypatch, capsys, prints):
    told = []
    monkeypatch.setattr(AtWork, "make_way", lambda self: told.append(self))  # noqa: PLW0108 # a builtin is no method
    with waiting.at_work("x"):
        prints()
        assert len(told) == 1
    assert "x" in "".join(capsys.readouterr())


def test_a_bar_has_it_stay_away_from_its_first_step_on(monkeypatch, capsys):
    told = []
    monkeypatch.setattr(AtWork, "hold", lambda self, change: told.append(change))
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    with waiting.at_work("x"):
        with progress(quiet=False) as advance:
            assert told == []  # until then nothing else is on the screen
            advance(1, 2, "profile")
            assert told == [1]
        assert told == [1, -1]


def test_nothing_is_left_behind_a_command(capsys):
    with pytest.raises(KeyboardInterrupt), waiting.at_work("x"):
        raise KeyboardInterrupt
    assert waiting._CURRENT == []
