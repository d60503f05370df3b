"""Tables on any terminal: words and figures stay whole, headings wrap, nothing is dropped."""

import pytest

from vinelm.cli import console
from vinelm.cli.console import show_table

COLUMNS = ("depth", "<stage of the graph", "paths", "lowest accuracy", "<why")
ROWS = [
    ("1", "generate", "8", "$0.0000155", "less accurate by 0.0099"),
    ("  12", "sim-deepseek-v3 > sim-gpt-oss-120b", "1,512", "84.3 %", "chosen"),
]


@pytest.mark.parametrize("width", [1, 20, 40, 60, 79, 80, 200])
def test_words_and_figures_stay_whole(capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    show_table("Title", COLUMNS, ROWS)
    out = capsys.readouterr().out
    for text in (*COLUMNS, *(cell for row in ROWS for cell in row)):
        for word in text.removeprefix("<").split():
            assert word in out
    for figure in ("$0.0000155", "84.3 %", "1,512"):
        assert figure in out
    assert "…" not in out


@pytest.mark.parametrize("width", [70, 90])
def test_a_table_fits_where_words_and_figures_do(capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    show_table("Title", COLUMNS, ROWS)
    assert max(map(len, capsys.readouterr().out.splitlines())) <= width


def test_headings_stay_on_one_line_where_there_is_room(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    show_table("Title", COLUMNS, ROWS)
    assert "lowest accuracy" in capsys.readouterr().out


def test_no_rows_is_a_heading(capsys):
    show_table("Title", COLUMNS, [])
    assert "lowest accuracy" in capsys.readouterr().out


def test_what_moves_or_reorders_text_is_shown_as_an_escape(capsys):
    hostile = "a\x1b[2Jb\u202ec\x9bd\u200be\rf"
    escaped = "a\\x1b[2Jb\\u202ec\\x9bd\\u200be\\rf"
    console.show_table(hostile, ["name"], [[hostile]], caption=hostile)
    console.say(hostile)
    assert capsys.readouterr().out.count(escaped) == 4
    assert console.visible("ä\n\töß漢") == "ä\n\töß漢"


def test_an_error_moves_nothing(capsys):
    from vinelm.cli.main import main

    assert main(["plan", "no\x1b[2J\u202e.vine", "--minimize", "cost"]) == 2
    error = capsys.readouterr().err
    assert "\x1b" not in error
    assert "\u202e" not in error
    assert "\\x1b[2J\\u202e" in error
