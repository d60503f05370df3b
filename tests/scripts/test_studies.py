"""The frame of the studies: what is parsed, printed and written, and that an interrupted study goes on where it ended."""

import json
from functools import partial

import pytest
from studies import each, study, table

from vinelm.errors import ConfigError

OPTIONS = {"--runs": (3, "runs"), "--loads": ((1.0, 2.0), "loads"), "--most": (int, "at most"), "--quick": (False, "fewer")}


def measured(options):
    options.say("as it goes")
    if options.runs < 1:
        raise ConfigError("--runs: at least 1")
    return {"runs": options.runs, "loads": list(options.loads), "most": options.most, "quick": options.quick}


def run(*words, **more):
    return study("What it is.", OPTIONS, measured, lambda found: [f"{found['runs']} runs"], words=words, **more)


def test_lines_or_one_json_object(capsys):
    assert run("--runs", "4") == 0
    assert capsys.readouterr().out == "as it goes\n4 runs\n"
    assert run("--loads", "3", "4", "--most", "7", "--quick", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"runs": 3, "loads": [3.0, 4.0], "most": 7, "quick": True}


def test_bad_input_is_one_line_and_what_fails_ends_with_1(capsys):
    assert run("--runs", "0") == 2
    assert capsys.readouterr().err == "error: --runs: at least 1\n"
    assert run(fails=lambda found: found["runs"] == 3) == 1


def test_recorded_data_is_asked_for(monkeypatch, tmp_path, capsys):
    monkeypatch.delenv("VINELM_DATA", raising=False)
    assert run(data="recorded answers") == 2
    assert capsys.readouterr().err == "error: say where the recorded data is: --data DIR or VINELM_DATA=DIR\n"
    assert run(data="recorded answers", needs_data=False) == 0
    monkeypatch.setenv("VINELM_DATA", str(tmp_path))
    assert run(data="recorded answers") == 0


def test_results_are_what_the_pages_quote_and_say_what_made_them(tmp_path):
    file = tmp_path / "found.json"
    assert run("--results", str(file), page=lambda found: {"quoted": 1.23456789 + found["runs"]}) == 0
    found = json.loads(file.read_text())
    assert found["quoted"] == 4.2346
    assert {"command", "commit", "date"} < found.keys()


@pytest.mark.parametrize("jobs", [1, 2])
def test_cells_are_measured_in_their_order(jobs):
    assert list(each(abs, range(-5, 0), jobs=jobs)) == [5, 4, 3, 2, 1]


def test_a_study_that_ended_early_measures_only_the_rest(tmp_path):
    seen, kept = [], tmp_path / "cells.jsonl"

    def square(cell):
        if cell == 2 and len(seen) == 2:
            raise KeyboardInterrupt
        seen.append(cell)
        return {"cell": cell, "square": cell**2}

    with pytest.raises(KeyboardInterrupt):
        list(each(square, range(4), kept=kept))
    seen.append("again")
    found = list(each(square, range(4), kept=kept))
    assert [one["square"] for one in found] == [0, 1, 4, 9]
    assert seen == [0, 1, "again", 2, 3]


def test_a_study_does_not_take_the_figures_of_other_cells(tmp_path):
    kept = tmp_path / "cells.jsonl"
    for cells in ([(1, "a"), (1, "b")], [(2, "a"), (1, "b"), (2, "b")]):
        found = list(each(list, cells, kept=kept))
        assert found == [list(cell) for cell in cells]
    assert list(each(partial(int, base=10), ["11"], kept=kept)) == [11]
    assert list(each(partial(int, base=2), ["11"], kept=kept)) == [3]


def test_rows_stand_under_their_heads():
    rows = [{"name": "a", "share": 0.5}, {"name": "longer", "share": 0.125}]
    assert list(table(rows, {"name": "{name}", "share": "{share:.1%}"})) == ["name    share", "a       50.0%", "longer  12.5%"]
