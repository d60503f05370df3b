"""A switch to one model becomes a plan file, which a canary serves to a share of the requests."""

import dataclasses
import datetime
from collections import Counter

import pytest
from kit.worlds.replays import RuleChat, models, recorded, truth
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from vinelm import Objective, VineLM
from vinelm.catalog import Catalog, Price
from vinelm.cli.main import main
from vinelm.replay import replay
from vinelm.replay.plan_file import REFERENCE
from vinelm.vinefile import load_trie, save_trie

CHEAP = Objective(minimize="cost", min_accuracy=0.97)


class State(TypedDict, total=False):
    answer: str


def with_today():
    """A cheap model, and today's under its own name."""
    usd = {"nano": 0.001, "big": 0.01}
    chats = {name: RuleChat(rule=truth) for name in usd}
    own = {"input": 0.0, "output": 0.0, "source": "a test", "as_of": datetime.date.today()}
    prices = {name: Price(call=cost, **own) for name, cost in usd.items()}
    return Catalog.from_chat_models(chats, prices=prices)


@pytest.fixture(scope="module")
def switched(tmp_path_factory):
    folder, catalog = tmp_path_factory.mktemp("switched"), with_today()
    return replay(recorded(500), folder / "a.db", catalog, budget_usd=20), catalog


def test_the_file_says_what_was_proven_against_the_recorded_answers(switched, tmp_path):
    (step,) = switched[0].steps
    assert step.advice == "switch"
    save_trie(tmp_path / "grade.vine", step.plan_file)
    found = load_trie(tmp_path / "grade.vine")
    assert found.meta["reference"] == REFERENCE
    assert found.trie.stages == ("grade",)
    assert found.verdict.is_today
    assert found.verdict.models == {"grade": "big"}
    (plan,) = found.verdict.plans
    assert plan.gain_low == pytest.approx(-step.proven)
    assert plan.saved_usd == pytest.approx(0.009)
    assert found.verdict.sentence.startswith("SWITCH")
    assert "plan_file" not in step.to_dict()


def test_a_canary_serves_it_to_a_share_and_today_to_the_others(switched, tmp_path):
    (step,), catalog = switched[0].steps, switched[1]
    save_trie(tmp_path / "grade.vine", step.plan_file)
    vine = VineLM(catalog, trie=tmp_path / "grade.vine", canary=0.3, draw_secret="s" * 32)

    def grade(state: State, model):
        return {"answer": model.invoke("Question 7").content}

    graph = StateGraph(State)
    graph.add_node("grade", vine.stage("grade", grade, default="big"))
    graph.add_edge(START, "grade")
    graph.add_edge("grade", END)
    app = graph.compile()
    before = Counter({name: len(chat.asked) for name, chat in catalog.live.items()})
    for number in range(60):
        app.invoke({}, context=vine.context(CHEAP, request_id=f"r{number}"))
    asked = Counter({name: len(chat.asked) for name, chat in catalog.live.items()}) - before
    assert asked.total() == 60
    assert 5 <= asked["nano"] <= 35
    assert vine.canary.verdict.advice == "switch"


def test_the_command_writes_files_and_says_what_has_none(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    found = replay(recorded(500), tmp_path / "b.db", models(nano=truth), budget_usd=20)
    assert found.steps[0].plan_file is None, "today's model cannot be asked"
    from vinelm.cli.commands.replay import _write_plans

    assert list(_write_plans(found, tmp_path / "plans")) == ["grade has no plan file: the models lack big, which runs today"]
    assert "canary" not in found.steps[0].paste


def test_lines_to_paste_name_the_file(switched, tmp_path):
    from vinelm.cli.commands.replay import _write_plans

    (step,) = switched[0].steps
    (tmp_path / "plans").mkdir()
    assert 'VineLM("models.toml", trie="grade.vine", canary=0.05)' in step.paste
    assert list(_write_plans(switched[0], tmp_path / "plans")) == [f"Wrote {tmp_path / 'plans' / 'grade.vine'}"]
    assert load_trie(tmp_path / "plans" / "grade.vine").trie.stages == ("grade",)
    assert main(["trie", str(tmp_path / "plans" / "grade.vine"), "--json"]) == 0


def test_two_steps_whose_names_differ_in_odd_characters_have_two_files(switched, tmp_path):
    from vinelm.cli.commands.replay import _write_plans

    (step,) = switched[0].steps
    names = ["grade docs", "grade-docs", "grade_docs", "Grade_docs"]
    found = dataclasses.replace(switched[0], steps=[dataclasses.replace(step, step=name) for name in names])
    assert len(list(_write_plans(found, tmp_path))) == 4
    assert len({path.name.lower() for path in tmp_path.iterdir()}) == 4


def test_a_plan_is_known_by_its_kind_whatever_the_model_is_called(switched, tmp_path):
    from vinelm.cli.commands.replay import _write_plans

    (step,) = switched[0].steps
    odd = dataclasses.replace(step, plan="one where it is", plan_file=None)
    (line,) = _write_plans(dataclasses.replace(switched[0], steps=[odd]), tmp_path)
    assert line == f"grade has no plan file: the models lack {step.today}, which runs today"


def test_the_folder_of_plans_is_made_before_anything_is_spent(tmp_path, monkeypatch, capsys):
    (tmp_path / "plans").write_text("a file")
    called = []
    monkeypatch.setattr("vinelm.replay.replaying.replay", lambda *given, **named: called.append(given))
    monkeypatch.setattr("vinelm.replay.replay", lambda *given, **named: called.append(given), raising=False)
    (tmp_path / "t.jsonl").write_text("{}")
    line = ["replay", str(tmp_path / "t.jsonl"), "--models", "openai:gpt-5-nano", "--budget-usd", "1", "--plans"]
    assert main([*line, str(tmp_path / "plans")]) == 2
    assert "cannot be made" in capsys.readouterr().err
    assert not called


@pytest.mark.parametrize("every", [1, 2])
def test_seconds_that_no_trace_tells_are_unknown_and_not_zero(tmp_path, every):
    calls = [
        dataclasses.replace(call, seconds=None) if number % every == 0 else call for number, call in enumerate(recorded(500))
    ]
    (step,) = replay(calls, tmp_path / "a.db", with_today(), budget_usd=20).steps
    verdict, known = step.plan_file.verdict, every > 1
    assert (verdict.latency_s, verdict.plans[0].latency_s is None) == (1.0 if known else None, not known)
    assert step.plan_file.knows_latency is known
