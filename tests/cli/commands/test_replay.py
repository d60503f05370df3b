"""`vinelm replay`: what it prints of a trace, and what it never prints."""

import json
from dataclasses import replace

import pytest
import simulated_traces

from vinelm.cli.main import main
from vinelm.replay import ReplayResult


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    simulated_traces.write(tmp_path / "trace.jsonl", "langfuse", simulated_traces.made(600))
    return tmp_path


def test_the_tables_fit_into_80_columns_and_say_where_the_money_goes(folder, capsys):
    assert main(["replay", "trace.jsonl", "--dry-run"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert max(map(len, out.splitlines())) <= 80
    assert out.startswith(
        "600 calls of 99 requests: $2.14, 2026-09-01 to 2026-09-29.\nThat is about $2.31 a month (30 days).\n"
    )
    assert "grade_documents            gpt-4o          297     $1.12   48.4 %      100.0 %" in out
    assert "62.0 % of the bill is in calls whose answer is short" in out


def test_one_call_is_not_several(folder, capsys):
    simulated_traces.write(folder / "one.jsonl", "langfuse", simulated_traces.made(1))
    assert main(["replay", "one.jsonl", "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("1 call of 1 request: ")


def test_the_sign_of_life_names_the_first_trace(folder, capsys, monkeypatch):
    from vinelm.cli import waiting

    titles = []
    real = waiting.AtWork
    monkeypatch.setattr(waiting, "AtWork", lambda title, *rest: titles.append(title) or real(title, *rest))
    assert main(["replay", "trace.jsonl", "trace.jsonl", "--dry-run"]) == 0
    assert titles == ["vinelm replay trace.jsonl"]


def test_json_has_the_same_figures(folder, capsys):
    assert main(["replay", "trace.jsonl", "--dry-run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    calls = list(simulated_traces.made(600))
    assert found["calls"] == 600
    assert found["requests"] == len({call.trace for call in calls})
    assert found["cost_usd"] == pytest.approx(sum(call.cost_usd for call in calls))
    assert {step["step"]: step["calls"] for step in found["steps"]}["classify"] == sum(
        call.step == "classify" for call in calls
    )
    assert found["steps"][0]["share"] == pytest.approx(0.484, abs=0.001)


def test_no_text_of_prompts_or_answers_is_printed_but_titles(folder, capsys):
    calls = [call._replace(user="USER SECRET", content="ANSWER SECRET", step="") for call in simulated_traces.made(20)]
    simulated_traces.write(folder / "secret.jsonl", "openai", iter(calls))
    for more in ([], ["--json"]):
        assert main(["replay", "secret.jsonl", "--dry-run", *more]) == 0
        out = capsys.readouterr().out
        assert "SECRET" not in out
        assert "You judge" in out


def test_redact_is_applied_before_titles_are_made(folder, capsys):
    (folder / "own_redaction.py").write_text(
        "from dataclasses import replace\n\ndef clean(call):\n    return replace(call, messages=(), step='')\n"
    )
    assert main(["replay", "trace.jsonl", "--dry-run", "--redact", "own_redaction:clean"]) == 0
    out = capsys.readouterr().out
    assert "(no system prompt)" in out
    assert "classify" not in out
    assert "Summarise" not in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["trace.jsonl"], "--budget-usd is missing: say what asking the models may cost"),
        (["nowhere.jsonl", "--dry-run"], "nowhere.jsonl: cannot read the trace: no such file"),
        (["odd.txt", "--dry-run"], "nothing in it can be read: odd.txt:2: of no known form"),
        (["trace.jsonl", "--dry-run", "--format", "csv"], "unknown format 'csv': it is one of vinelm, otel"),
        (["trace.jsonl", "--dry-run", "--redact", "clean"], "--redact: 'clean' names no function: write module:function"),
        (["trace.jsonl", "--dry-run", "--redact", "json:nothing"], "json:nothing: 'json' has no attribute 'nothing'"),
        (["trace.jsonl", "--dry-run", "--redact", "json:__name__"], "--redact: json:__name__ is a str: name a function"),
    ],
)
def test_what_cannot_be_done_is_one_line(folder, capsys, words, said):
    (folder / "odd.txt").write_text("hello\nworld\n")
    assert main(["replay", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert said in err


def test_what_is_not_known_is_said(folder, capsys):
    calls = list(simulated_traces.made(12))
    hours = [call._replace(at_s=calls[0].at_s + 60 * at) for at, call in enumerate(calls)]
    simulated_traces.write(folder / "hours.jsonl", "otel", iter(hours))
    lines = (folder / "hours.jsonl").read_text().splitlines()
    lines[3] = lines[3].replace("gpt-4o", "nobody-sells-it")
    (folder / "hours.jsonl").write_text("\n".join([*lines, "{broken"]))
    assert main(["replay", "hours.jsonl", "--dry-run"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "a month" not in out.partition("The trace")[0]
    assert "The trace spans 0.2 hours: too short to say what a month costs." in out
    assert "follow from list prices: the trace does not state them." in out
    assert "The dollars of 1 calls are not known, and in no sum: no price is known for nobody-sells-it." in out
    assert "1 line could not be read: hours.jsonl:13: not valid JSON" in out


def test_several_files_and_folders_are_one_trace(folder, capsys):
    (folder / "more").mkdir()
    simulated_traces.write(folder / "more" / "a.csv.gz", "langfuse", simulated_traces.made(50, seed=1))
    simulated_traces.write(folder / "more" / "b.json", "litellm", simulated_traces.made(30, seed=2))
    assert main(["replay", "trace.jsonl", "more", "--dry-run", "--json", "-q"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["calls"], found["files"]) == (680, 3)
    assert found["formats"] == {"langfuse": 650, "litellm": 30}


def test_a_call_is_frozen_so_that_redaction_makes_a_copy():
    from vinelm.replay import LoggedCall

    call = LoggedCall(request="r", call="c")
    assert replace(call, step="a").step == "a"
    assert call.step == ""


def test_lines_that_cannot_be_read_are_named_beside_verdicts_too(folder, capsys, monkeypatch):
    with open("trace.jsonl", "a", encoding="utf-8") as file:
        file.write("{no json\n")

    def replayed(calls, *_, **__):
        list(calls)
        return ReplayResult(steps=(), others={}, spent_usd=0.0, budget_usd=1.0)

    monkeypatch.setattr("vinelm.replay.replay", replayed)
    line = ["replay", "trace.jsonl", "--models", "openai:gpt-5-nano", "--budget-usd", "1", "--quiet"]
    assert main(line) == 0
    assert "1 line could not be read:\n  trace.jsonl:" in capsys.readouterr().out
    assert main([*line, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["broken"] == 1


def test_weights_multiply_the_bill_and_are_said(folder, capsys):
    (folder / "own_rates.py").write_text("def weight(call):\n    return 10 if call.step == 'classify' else 0.5\n")
    bills = {}
    for name, options in {"plain": [], "weighed": ["--weights", "own_rates:weight"], "days": ["--weights", "days"]}.items():
        assert main(["replay", "trace.jsonl", "--dry-run", "--json", *options]) == 0
        bills[name] = {one["step"]: one for one in json.loads(capsys.readouterr().out)["steps"]}
    assert bills["days"] == bills["plain"]
    for step, one in bills["weighed"].items():
        times = 10 if step == "classify" else 0.5
        assert one["cost_usd"] == pytest.approx(times * bills["plain"][step]["cost_usd"])
        assert one["stand_for"] == pytest.approx(times * one["calls"])
        assert one["seconds_p50"] == pytest.approx(bills["plain"][step]["seconds_p50"])
    assert main(["replay", "trace.jsonl", "--dry-run", "--weights", "own_rates:weight"]) == 0
    assert "By their sampling rates they represent" in " ".join(capsys.readouterr().out.split())
    assert main(["replay", "trace.jsonl", "--dry-run", "--weights", "weekly"]) == 2
    assert "--weights: 'weekly' names no function" in capsys.readouterr().err
