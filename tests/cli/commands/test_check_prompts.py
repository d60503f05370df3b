"""`vinelm check --prompts`: one table, the same as JSON, and nothing of a prompt in either."""

import json

from vinelm.cli.main import main


def test_the_table_and_the_same_as_json(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "110")
    assert main(["check", "support", "--prompts"]) == 0
    told = capsys.readouterr().out
    assert "Prompts: tokens of a call, on the mean" in told
    assert "Reusable: 0 % of the tokens" in told
    assert "no: below 1,024" in told
    assert "Moving" not in told  # short prompts have nothing to gain
    assert main(["check", "support", "--prompts", "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)["prompts"]
    assert plain.keys() == {"requests", "stages", "reusable", "move"}
    for stage in plain["stages"]:
        assert stage["tokens"].keys() == {"static", "shared", "request", "own"}
        [row] = [line.split() for line in told.splitlines() if line.split()[:1] == [stage["stage"]]]
        assert row[1] == str(stage["calls"])
        assert [float(cell) for cell in row[3:7]] == [round(value) for value in stage["tokens"].values()]


def test_without_it_there_is_no_table_and_it_wants_a_workflow(capsys):
    assert main(["check", "support", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["prompts"] is None
    assert main(["check", "--prompts"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
