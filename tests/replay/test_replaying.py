"""A replay from recorded calls to a verdict, with labels only where answers differ."""

import dataclasses
import json
import os
import stat

import pytest
from kit.worlds.judges import today
from kit.worlds.replays import TODAY_USD, RuleChat, answered, differs, models, recorded, truth, wrong
from langchain_core.messages import AIMessage

from vinelm.errors import ConfigError, StoreError
from vinelm.replay import replay
from vinelm.replay.kept import opened


def equal(number):
    return truth(number).upper() + "."


def worse(share, salt=0):
    return lambda number: wrong(number) if differs(number, share, salt) else truth(number)


def mixed(number):
    """Differs from today's in about 4 %: as often right where that is wrong as the other way round."""
    if not differs(number, 0.1, 9):
        return wrong(number) if differs(number, 0.022, 4) else truth(number)
    return truth(number) if differs(number, 0.2, 3) else wrong(number)


def finished(calls, path, catalog, *, most=30, **options):
    """The last result of a replay whose questions are answered as they come."""
    for _ in range(most):
        found = replay(calls, path, catalog, **options)
        if not found.waiting:
            return found
        assert answered(path)
    raise AssertionError("it still asks")


def test_a_model_that_answers_the_same_is_proven_without_a_label(tmp_path):
    catalog, path = models(nano=equal), tmp_path / "a.db"
    lines = []
    found = replay(recorded(800), path, catalog, budget_usd=20, on_line=lines.append)
    (step,) = found.steps
    assert (step.advice, step.plan, step.labels, found.waiting) == ("switch", "nano", 0, 0)
    assert step.proven == 0.03
    assert step.saved == pytest.approx(0.9)
    assert step.usd == pytest.approx(800 * TODAY_USD, rel=0.02)
    assert step.sentence.startswith("SWITCH `grade` to nano: saves $7.11 of $7.89 a month; differs in 0.0 % of ")
    assert "0 labels: loses at most 3 points (95 %, at any look)." in step.sentence
    assert "init_chat_model(" in step.paste
    assert "150 recorded prompts go to each of nano" in lines[0]
    assert "at most $20" in lines[0]
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_the_same_line_asks_nothing_again_and_says_the_same(tmp_path):
    chat = RuleChat(rule=equal)
    catalog, path = models(nano=chat), tmp_path / "a.db"
    first = replay(recorded(400), path, catalog, budget_usd=20)
    asked = len(chat.asked)
    assert len({number for number, _ in chat.asked}) == asked
    again = replay(recorded(400), path, catalog, budget_usd=20)
    assert len(chat.asked) == asked
    assert again.to_dict() | {"lines": ()} == first.to_dict() | {"lines": ()}


def test_labels_only_where_answers_differ_prove_a_plan(tmp_path):
    path, calls = tmp_path / "a.db", recorded(2000, today)
    catalog = models(nano=mixed)
    lines = []
    first = replay(calls, path, catalog, budget_usd=20, labels=150, on_line=lines.append)
    (step,) = first.steps
    assert step.advice == "undecided"
    assert step.waiting == 10
    assert "10 questions wait for an answer" in step.sentence
    assert "labels more would settle 3 points" in step.sentence
    assert any("labels in half of all cases" in line for line in lines)
    (step,) = finished(calls, path, catalog, budget_usd=20, labels=150).steps
    assert (step.advice, step.plan) == ("switch", "nano")
    assert 0 < step.labels <= 150
    assert 0.02 < step.differing / step.seen < 0.06
    assert step.proven <= 0.03


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2, 3))])
def test_a_model_that_loses_is_never_proven(seed, tmp_path):
    catalog = models(nano=worse(0.05), mini=worse(0.06, 5))
    found = finished(recorded(1500), tmp_path / "a.db", catalog, budget_usd=20, labels=120, seed=seed)
    (step,) = found.steps
    assert step.advice != "switch" or step.plan not in ("nano", "mini")
    assert step.advice == "switch" or step.labels <= 120


def test_two_that_agree_are_proven_where_neither_alone_is(tmp_path):
    catalog = models(nano=worse(0.07, 1), mini=worse(0.07, 5))
    found = finished(recorded(2000), tmp_path / "a.db", catalog, budget_usd=20, labels=120)
    (step,) = found.steps
    assert (step.advice, step.plan) == ("switch", "nano where mini agrees, else today's model")
    assert step.differing / step.seen < 0.02
    compile(step.paste, "paste", "exec")
    assert "today.invoke(messages)" in step.paste


def test_an_own_check_makes_a_plan(tmp_path):
    def check(messages, answer):
        return answer["content"] == truth(int(messages[-1]["content"].split()[-1]))

    found = replay(recorded(700), tmp_path / "a.db", models(nano=worse(0.4)), budget_usd=20, check=check)
    (step,) = found.steps
    assert (step.advice, step.plan) == ("switch", "nano where the check passes, else today's model")
    assert step.saved == pytest.approx(0.9 - 0.4, abs=0.05)
    compile(step.paste, "paste", "exec")


def test_where_nothing_can_be_proven_no_question_is_asked(tmp_path):
    found = replay(recorded(800), tmp_path / "a.db", models(nano=worse(0.4)), budget_usd=20, labels=50)
    (step,) = found.steps
    assert step.advice == "keep"
    assert found.waiting == 0
    assert "nothing cheaper can be proven within 50 labels, so that no question is asked" in step.sentence
    assert step.forecast[0] > 3 * 50
    with opened(tmp_path / "a.db") as store:
        assert store.rows.questions() == []


def test_a_model_whose_answers_hardly_ever_agree_is_dropped_early(tmp_path):
    chat = RuleChat(rule=worse(1.0))
    found = replay(recorded(900), tmp_path / "a.db", models(nano=chat), budget_usd=20)
    assert found.steps[0].advice == "keep"
    assert len(chat.asked) == 30
    assert found.steps[0].notes[0] == "nano differs in 30 of 30 requests"


def test_a_model_that_fails_is_dropped_with_one_line(tmp_path):
    def fails(number):
        raise ValueError(f"Question {number} is secret")

    found = replay(recorded(400), tmp_path / "a.db", models(nano=fails, mini=equal), budget_usd=20)
    (step,) = found.steps
    assert (step.advice, step.plan) == ("switch", "mini")
    (line,) = step.notes
    assert line.startswith("nano failed on ")
    assert "secret" not in line


def test_a_refused_setting_is_a_failure_and_no_other_answer(tmp_path):
    class NoTools(RuleChat):
        def bind_tools(self, tools, **kwargs):
            raise NotImplementedError

    chat = NoTools(rule=equal)
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
    found = replay(recorded(400, tools=tools), tmp_path / "a.db", models(nano=chat), budget_usd=20)
    (step,) = found.steps
    assert step.advice == "keep"
    assert chat.asked == []
    assert "takes no tools" in step.sentence
    assert found.spent_usd == 0.0


def test_settings_tools_and_formats_are_sent_as_they_were(tmp_path):
    chat = RuleChat(rule=equal)
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
    response = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
    settings = {"temperature": 0.3, "stop": ["\n"], "tool_choice": "required", "user": "ann", "stream": True}
    calls = recorded(60, tools=tools, response_format=response, settings=settings)
    replay(calls, tmp_path / "a.db", models(nano=chat), budget_usd=20)
    for _, options in chat.asked:
        assert options["temperature"] == 0.3
        assert options["stop"] == ["\n"]
        assert options["response_format"] == response
        assert options["tools"] == tools
        assert options["tool_choice"] == "any"
        assert not {"user", "stream"} & set(options)


@pytest.mark.parametrize("budget_usd", [0.0015, *(pytest.param(usd, marks=pytest.mark.long) for usd in (0.02, 0.2)), 0.5])
def test_dollars_stay_within_the_budget_and_more_of_them_go_on(budget_usd, tmp_path):
    chat = RuleChat(rule=equal)
    path, catalog = tmp_path / "a.db", models(nano=chat)
    found = replay(recorded(800), path, catalog, budget_usd=budget_usd, workers=3)
    assert found.spent_usd <= budget_usd
    assert len(chat.asked) * 0.001 <= budget_usd
    assert found.steps[0].advice != "keep"
    more = replay(recorded(800), path, catalog, budget_usd=20)
    assert more.steps[0].advice == "switch"
    assert len({number for number, _ in chat.asked}) == len(chat.asked)


def test_another_trace_other_options_or_other_models_are_refused_in_one_line(tmp_path):
    path, calls = tmp_path / "a.db", recorded(200)
    replay(calls, path, models(nano=equal), budget_usd=20)
    for other, catalog, options in (
        (calls[:-1], models(nano=equal), {}),
        ([*calls[:-1], dataclasses.replace(calls[-1], answer={"content": "x"})], models(nano=equal), {}),
        (calls, models(nano=equal, mini=equal), {}),
        (calls, models(nano=equal), {"seed": 1}),
        (calls, models(nano=equal), {"max_loss": 0.02}),
        (calls, models(nano=equal), {"same": "operator:eq"}),
    ):
        with pytest.raises(ConfigError, match="is the record of something else") as caught:
            replay(other, path, catalog, budget_usd=20, **options)
        assert "\n" not in str(caught.value)
    (tmp_path / "b.db").write_text("no store")
    with pytest.raises(StoreError):
        replay(calls, tmp_path / "b.db", models(nano=equal), budget_usd=20)


def test_the_next_attempt_has_a_smaller_part_of_the_error_and_keeps_what_is_known(tmp_path):
    chat, path, calls = RuleChat(rule=equal), tmp_path / "a.db", recorded(1500)
    catalog = models(nano=chat)
    first = replay(calls, path, catalog, budget_usd=20)
    asked = len(chat.asked)
    second = replay(calls, path, catalog, budget_usd=20, again=True)
    assert (first.attempt, second.attempt) == (1, 2)
    assert second.steps[0].advice == "switch"
    assert second.steps[0].seen > first.steps[0].seen
    assert len(chat.asked) == second.steps[0].seen > asked


def test_steps_with_much_of_the_bill_are_looked_at_and_others_are_named(tmp_path):
    calls = recorded(200) + recorded(200, step="answer", cost_usd=0.02) + recorded(200, step="title", cost_usd=0.0001)
    found = replay(calls, tmp_path / "a.db", models(nano=equal), budget_usd=20)
    assert [step.step for step in found.steps] == ["answer", "grade"]
    assert list(found.others) == ["title"]
    with pytest.raises(ConfigError, match="no step 'nothing'"):
        replay(calls, tmp_path / "a.db", models(nano=equal), budget_usd=20, steps=["nothing"])


def test_of_several_calls_of_a_step_in_a_request_one_is_drawn_and_the_result_says_so(tmp_path):
    calls = [dataclasses.replace(call, request=f"r{n // 2}") for n, call in enumerate(recorded(600))]
    found = replay(calls, tmp_path / "a.db", models(nano=equal), budget_usd=20)
    (step,) = found.steps
    assert "in 300 of 300 requests the step is called several times: one call was drawn" in step.notes
    with opened(tmp_path / "a.db") as store:
        units = list(store.units.values())
        drawn = {unit.call for unit in units}
    assert len({unit.request for unit in units}) == len(units) == 300
    assert {unit.weight for unit in units} == {2}
    assert 100 < len(drawn & {f"c{n}" for n in range(0, 600, 2)}) < 200
    reverse = replay(calls[::-1], tmp_path / "b.db", models(nano=equal), budget_usd=20)
    assert reverse.steps[0].sentence == step.sentence


def test_too_few_requests_are_not_enough_data(tmp_path):
    found = replay(recorded(40), tmp_path / "a.db", models(nano=equal), budget_usd=20)
    (step,) = found.steps
    assert step.sentence == "NOT ENOUGH DATA `grade`: 40 requests can be compared, and 50 are needed."
    calls = recorded(100, cost_usd=None, model="nobody-knows-it")
    found = replay([*calls, *recorded(1)], tmp_path / "b.db", models(nano=equal), budget_usd=20)
    assert "100 of its 101 calls have no known price" in found.steps[0].sentence


def test_todays_model_is_asked_again_and_never_instead_of_itself(tmp_path):
    big = RuleChat(rule=lambda number: wrong(number) if differs(number, 0.2, 7) else truth(number))
    catalog = models(nano=equal, big=big)
    lines = []
    found = replay(recorded(600), tmp_path / "a.db", catalog, budget_usd=20, on_line=lines.append)
    (step,) = found.steps
    different, asked = step.noise
    assert asked == len(big.asked) == 40
    assert 0 < different < 20
    assert f"today's model differs from itself in {100 * different / 40:.1f} % of 40" in step.sentence
    assert "40 to big" in lines[0]


def test_texts_are_in_the_result_only_if_asked_for(tmp_path):
    path, calls, catalog = tmp_path / "a.db", recorded(900, today), models(nano=mixed)
    plain = json.dumps(replay(calls, path, catalog, budget_usd=20).to_dict())
    assert "Question" not in plain
    shown = replay(calls, path, catalog, budget_usd=20, show_text=True).to_dict()
    (first, *_) = shown["steps"][0]["texts"]
    assert "Question" in first["messages"][-1]["content"]
    assert first["today"] != first["other"]


def test_tool_calls_are_compared(tmp_path):
    def said(number):
        call = {"name": "look", "args": {"id": number, "deep": False}, "id": f"x{number}", "type": "tool_call"}
        return AIMessage("thinking", tool_calls=[call])

    def logged(number):
        arguments = f'{{"deep": false, "id": {number}.0}}'
        return {
            "content": None,
            "tool_calls": [{"type": "function", "id": "y", "function": {"name": "look", "arguments": arguments}}],
        }

    found = replay(recorded(500, logged), tmp_path / "a.db", models(nano=said), budget_usd=20)
    (step,) = found.steps
    assert step.advice == "switch"
    assert step.how == "tool calls by name and arguments"


def test_where_the_same_need_not_be_as_good_a_share_is_asked_and_the_verdict_says_so(tmp_path):
    def text(number):
        return f"The question {number} is about {truth(number)}, as far as anybody can tell from what it says here."

    def shorter(number):
        return text(number).replace("as far as", "so far as")

    def alike(one, other):
        return one.split(",")[0] == other.split(",")[0]

    path, calls, catalog = tmp_path / "a.db", recorded(900, text), models(nano=shorter)
    found = replay(calls, path, catalog, budget_usd=20, same=alike)
    (step,) = found.steps
    assert step.audit == 0.2
    assert found.waiting >= 10
    assert step.forecast[0] > 5
    assert "of 20 % of the same answers, too" in step.sentence
    exact = replay(calls, tmp_path / "b.db", catalog, budget_usd=20)
    assert exact.steps[0].audit == 0.0
    assert exact.steps[0].advice == "keep"


def test_arguments_are_checked(tmp_path):
    for wrong_one, message in (
        ({"budget_usd": 0}, "budget_usd is 0"),
        ({"budget_usd": 1, "labels": -1}, "labels is -1"),
        ({"budget_usd": 1, "same": "nowhere"}, "same: 'nowhere' names no function: write module:function"),
        ({"budget_usd": 1, "same": "nowhere:at_all"}, "same: nowhere:at_all: no module 'nowhere'"),
        ({"budget_usd": 1, "check": "json:at_all"}, "check: json:at_all: 'json' has no attribute 'at_all'"),
        ({"budget_usd": 1, "database": "missing.sqlite"}, "there is no such database"),
        ({"budget_usd": 1, "audit": 2}, "audit is 2"),
        ({"budget_usd": 1, "max_loss": 1}, "max_loss is 1"),
    ):
        with pytest.raises(ConfigError, match=message):
            replay(recorded(100), tmp_path / "a.db", models(nano=equal), **wrong_one)
    with pytest.raises(ConfigError, match="no LLM call was found"):
        replay([], tmp_path / "a.db", models(nano=equal), budget_usd=1)


def test_labels_go_first_where_one_saves_most(tmp_path):
    steps = [recorded(400, step=step, cost_usd=usd) for step, usd in (("cheap", 0.01), ("dear", 0.05), ("middle", 0.02))]
    calls = [call for step in steps for call in step]
    path, catalog = tmp_path / "a.db", models(nano=worse(0.04))
    found = replay(calls, path, catalog, budget_usd=20, labels=20)
    by_name = {step.step: step for step in found.steps}
    assert by_name["dear"].waiting
    assert not by_name["cheap"].waiting
    assert "other steps get the 20 labels first" in by_name["cheap"].sentence
    assert by_name["cheap"].advice == "undecided"
    more = replay(calls, path, catalog, budget_usd=20, labels=200)
    assert [bool(step.waiting) for step in more.steps] == [True, True, True]


def test_models_that_cost_nothing_save_all(tmp_path):
    found = replay(recorded(400), tmp_path / "a.db", models(0.0, nano=equal), budget_usd=1)
    assert found.spent_usd == 0.0
    assert found.steps[0].advice == "switch"
    assert found.steps[0].saved == 1.0


def test_a_day_with_most_of_the_calls_is_said(tmp_path):
    calls = recorded(300)
    even = replay(calls, tmp_path / "even.db", models(nano=equal), budget_usd=20).steps[0]
    assert not any("of one day" in line for line in even.notes)
    crowded = [dataclasses.replace(call, started_at=1.7e9 + n) if n % 2 else call for n, call in enumerate(calls)]
    step = replay(crowded, tmp_path / "a.db", models(nano=equal), budget_usd=20).steps[0]
    assert any("of its calls are of one day of" in line and "2023-11-14" in line for line in step.notes)


def test_a_step_without_an_answer_is_not_enough_data(tmp_path):
    calls = recorded(60)
    silent = [dataclasses.replace(call, step="silent", call=f"s{n}", answer=None) for n, call in enumerate(calls)]
    found = replay([*calls, *silent], tmp_path / "a.db", models(nano=equal), budget_usd=20, steps=["silent"])
    assert found.steps[0].advice == "not enough data"
