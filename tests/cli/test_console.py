"""Tables on any terminal: words and figures stay whole, headings wrap, nothing is dropped."""

import ast
import json
from pathlib import Path

import pytest

from vinelm.cli import console
from vinelm.cli.console import show_table
from vinelm.cli.main import main

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


def test_every_command_prints_through_the_console():
    """Nothing below the command line calls ``print``, ``click.echo`` or ``click.secho`` itself: no escape is forgotten."""
    folder, printing = Path(console.__file__).parent, {"print", "click.echo", "click.secho", "sys.stdout.write"}
    found = []
    for path in sorted(folder.rglob("*.py")):
        if path == Path(console.__file__):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in printing:
                found.append(f"{path.name}:{node.lineno}")
    assert found == []


@pytest.mark.parametrize(
    "args", [["check", "--models"], ["plan", "--maximize", "accuracy"], ["check"], ["store", "info"], ["nothing"]]
)
def test_a_hostile_argument_is_printed_as_an_escape(capsys, args):
    assert main([*args, "a\u202e\x1b[31m\x7f\udcffb"]) == 2
    said = "".join(capsys.readouterr())
    assert said.isascii()
    assert said.replace("\n", "").isprintable()


def test_a_printed_path_is_escaped(capsys):
    console.echo("wrote a\u202e\x1b[2J\udcff.vine")
    assert capsys.readouterr().out == "wrote a\\u202e\\x1b[2J\\udcff.vine\n"


def test_json_is_printable_and_holds_the_same_text(capsys):
    hostile = "a\x1b\u202e\x7f\udcff\x9b"
    console.print_json({"a": hostile, "b": float("nan")})
    said = capsys.readouterr().out
    assert said.isascii()
    assert said.replace("\n", "").isprintable()
    assert json.loads(said) == {"a": hostile, "b": None}


def test_a_table_that_is_watched_is_drawn_anew_until_it_is_interrupted(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    drawn = []

    def make():
        drawn.append(len(drawn))
        if len(drawn) == 3:
            raise KeyboardInterrupt
        return "Fleet", ("engine", "<said"), [(f"round{len(drawn)}", "words " * 12)]

    console.watch_table(make, 0.001)
    out = capsys.readouterr().out
    assert "round2" in out
    assert max(map(len, out.splitlines())) <= 40
