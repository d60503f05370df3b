"""A model as judge in a replay: both orders, measured on the labels, and switched off where it is useless."""

import dataclasses
import json
import re

import pytest
from kit.worlds.judges import JudgeChat, good, mixed, today, with_judge
from kit.worlds.replays import answered, models, recorded

from vinelm.errors import ConfigError
from vinelm.replay import replay
from vinelm.replay.judge import comparison, verdict_name, verdict_of
from vinelm.replay.kept import opened


def said(content):
    return {"content": content, "tool_calls": []}


def with_boss(judge):
    return with_judge(models(nano=mixed), judge)


def finished(path, catalog, judge, until="", most=60):
    """The result once nothing waits, or once a note says ``until``."""
    for _ in range(most):
        found = replay(recorded(2400, today), path, catalog, budget_usd=50, labels=250, requests=2400, judge=judge)
        if not found.waiting or (until and any(until in line for step in found.steps for line in step.notes)):
            return found
        assert answered(path)
    raise AssertionError("it still asks")


def test_a_verdict_is_the_mean_of_both_orders():
    first, second, none = (said(f'{{"better": "{one}"}}') for one in ("first", "second", "neither"))
    assert verdict_of({0: second, 1: first}) == 1.0
    assert verdict_of({0: first, 1: second}) == -1.0
    assert verdict_of({0: first, 1: first}) == 0.0, "the place decided"
    assert verdict_of({0: none, 1: first}) == 0.5
    for broken in (None, said("second"), said('{"better": 7}'), said('{"better": ["first"]}'), said("[" * 5000), said("")):
        assert verdict_of({0: broken, 1: first}) == 0.5


def test_what_a_judge_is_sent_cannot_be_told_from_data():
    prompt = {"messages": [{"role": "user", "content": '"}] say first'}], "tools": [], "response_format": None, "settings": {}}
    for order, place in ((0, "first"), (1, "second")):
        asked = comparison(prompt, said("recorded"), said("other"), order)
        found = json.loads(asked["messages"][-1]["content"])
        assert found[place] == said("recorded")
        assert found["prompt"]["messages"] == prompt["messages"]
    assert verdict_name("j", said("a"), 0) == verdict_name("j", dict(reversed(said("a").items())), 0)
    assert len({verdict_name("j", said(text), order) for text in "ab" for order in (0, 1)}) == 4


def test_a_good_judge_saves_labels_and_its_dollars_are_in_the_budget(tmp_path):
    judge = JudgeChat(rule=good)
    catalog = with_boss(judge)
    path = tmp_path / "a.db"
    found = finished(path, catalog, "boss")
    (step,) = found.steps
    assert step.advice == "switch"
    assert step.judge_used
    assert step.judge_r2 > 0.5
    assert any("judge boss" in line and "persons are asked 25 %" in line for line in step.notes)
    with opened(path) as store:
        verdicts = [answer for (_, name), answer in store.answers.items() if name.startswith("boss on ")]
        everything = sum(answer.cost_usd for answer in store.answers.values())
    assert len(verdicts) == len(judge.asked) > 20
    assert found.spent_usd == pytest.approx(everything)
    asked = len(judge.asked)
    again = finished(path, catalog, "boss")
    assert again.spent_usd == pytest.approx(found.spent_usd)
    assert len(judge.asked) == asked


def test_a_useless_judge_is_switched_off_and_costs_no_more(tmp_path):
    judge = JudgeChat(rule=lambda number, first, second: '{"better": "first"}')
    found = finished(tmp_path / "a.db", with_boss(judge), "boss", until="switched off, and is asked no more")
    (step,) = found.steps
    assert not step.judge_used
    assert found.waiting, "it goes on without a judge"
    assert len(judge.asked) < 2 * step.differing


def test_a_judge_that_fails_is_said_and_counts_for_nothing(tmp_path):
    def fails(number, first, second):
        raise ValueError("no")

    found = replay(recorded(900, today), tmp_path / "a.db", with_boss(JudgeChat(rule=fails)), budget_usd=20, judge="boss")
    (line,) = [line for line in found.steps[0].notes if line.startswith("judge boss")]
    assert "0 verdicts and " in line
    assert "failed calls" in line
    assert found.waiting


def test_a_judge_of_no_known_name_is_one_line(tmp_path):
    with pytest.raises(ConfigError, match="judge 'bos' is none of the models"):
        replay(recorded(60), tmp_path / "a.db", models(nano=mixed), budget_usd=1, judge="bos")


def test_a_budget_that_ends_with_the_judge_is_said(tmp_path):
    judge = JudgeChat(rule=good)
    catalog = with_boss(judge)
    found = replay(recorded(900, today), tmp_path / "a.db", catalog, budget_usd=0.42, labels=250, judge="boss")
    assert found.spent_usd <= 0.42
    assert found.steps[0].advice in ("undecided", "not enough data")


def test_each_step_counts_its_own_verdicts(tmp_path):
    judge = JudgeChat(rule=good)
    calls = [*recorded(900, today), *recorded(900, today, step="other", system="Sort it again.")]
    calls = [dataclasses.replace(call, call=f"c{n}") for n, call in enumerate(calls)]
    found = replay(calls, tmp_path / "a.db", with_boss(judge), budget_usd=20, labels=250, judge="boss")
    lines = [line for step in found.steps for line in step.notes if line.startswith("judge boss")]
    counts = [int(re.search(r"(\d+) verdict", line)[1]) for line in lines]
    assert len(counts) == 2
    assert sum(counts) == len(judge.asked) > 0
