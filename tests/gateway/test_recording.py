"""What passes the gateway is read by ``vinelm replay``."""

import json
import os
import time

import openai
import pytest
from kit.servers.gateways import ASKED, COST, KEY, catalog_of, running
from kit.wire.openai_format import answering, calling, problem

from vinelm.cli.main import main
from vinelm.replay import read_calls

SYSTEM = {"role": "system", "content": "You grade the documents that a search has found. Say yes or no."}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture
def recorded(upstream, tmp_path):
    path = tmp_path / "calls.jsonl"
    with running(catalog_of(upstream.url), record=path) as found:
        yield found, path


def calls_in(path):
    return list(read_calls([path]))


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_is_kept_with_its_prompt_its_answer_and_its_price(recorded, upstream, stream):
    gateway, path = recorded
    with gateway.client() as client:
        answer = client.chat.completions.create(
            model="big", messages=[SYSTEM, *ASKED], temperature=0.5, stream=stream, extra_headers={"x-vinelm-request": "r1"}
        )
        if stream:
            list(answer)
    gateway.stop()
    [call] = calls_in(path)
    assert (call.request, call.step, call.model, call.provider) == ("r1", "", "big-1", "openai")
    assert call.messages == [SYSTEM, *ASKED]
    assert call.answer == {"role": "assistant", "content": "four"}
    assert (call.tokens_in, call.tokens_out, call.cached_tokens) == (20, 7, 8)
    assert call.cost_usd == pytest.approx(COST)
    assert call.settings == {"temperature": 0.5}
    assert call.error is None
    assert call.seconds >= 0.0
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("stream", [False, True])
def test_calls_of_tools_and_schemas_are_kept(recorded, upstream, stream):
    gateway, path = recorded
    upstream.answers(calling("add", {"a": 2}))
    form = {"type": "json_schema", "json_schema": {"name": "Sum", "schema": {"type": "object"}}}
    with gateway.client() as client:
        answer = client.chat.completions.create(model="big", messages=ASKED, tools=[TOOL], response_format=form, stream=stream)
        if stream:
            list(answer)
    gateway.stop()
    [call] = calls_in(path)
    assert [one["function"]["name"] for one in call.tools] == ["add"]
    assert call.response_format == form
    [asked] = call.answer["tool_calls"]
    assert (asked["function"]["name"], json.loads(asked["function"]["arguments"])) == ("add", {"a": 2})


def test_a_conversation_is_kept_whoever_names_it(recorded):
    gateway, path = recorded
    gateway.ask(headers={"x-vinelm-conversation": "chat-3"})
    gateway.ask(metadata={"session_id": "chat-4"})
    gateway.ask()
    gateway.stop()
    assert [call.conversation for call in calls_in(path)] == ["chat-3", "chat-4", ""]


def test_a_named_step_keeps_its_name(recorded):
    gateway, path = recorded
    gateway.ask(headers={"x-vinelm-step": "grade"})
    gateway.ask(model="vinelm/rate")
    gateway.stop()
    assert [(call.step, call.model) for call in calls_in(path)] == [("grade", "big-1"), ("rate", "big-1")]


def test_a_failed_call_is_kept_as_one_without_the_servers_words(recorded, upstream):
    gateway, path = recorded

    async def reply(asked, out):
        await out.whole(problem("overloaded", f"s3cret {KEY}"), status=503)

    upstream.answers(reply)
    with pytest.raises(openai.InternalServerError):
        gateway.ask()
    gateway.stop()
    [call] = calls_in(path)
    assert (call.answer, call.model) == (None, "big-1")
    assert call.error == "big: server: the server answered HTTP 503 (overloaded)"
    assert KEY not in path.read_text()


def test_a_full_disk_loses_lines_and_no_call(recorded, caplog, monkeypatch):
    gateway, path = recorded

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        assert gateway.ask().choices[0].message.content == "four"
        until = time.monotonic() + 30
        while "calls are missing in it" not in caplog.text and time.monotonic() < until:
            time.sleep(0.01)  # the line is written once the client has his answer
    assert gateway.ask().choices[0].message.content == "four"
    gateway.stop()
    assert len(calls_in(path)) == 1
    assert "calls are missing in it" in caplog.text


def test_replay_says_where_the_money_of_the_recorded_calls_goes(recorded, upstream, capsys):
    """End to end: one changed setting, then one command."""
    gateway, path = recorded
    upstream.answers(answering("yes"))
    for number in range(12):
        asked = [SYSTEM, {"role": "user", "content": f"document {number}"}]
        gateway.ask(messages=asked, headers={"x-vinelm-request": f"r{number // 2}"})
    gateway.ask(headers={"x-vinelm-step": "write"})
    gateway.stop()
    assert main(["replay", str(path), "--dry-run", "--json"]) == 0
    bill = json.loads(capsys.readouterr().out)
    steps = {step["step"]: (step["calls"], step["cost_usd"]) for step in bill["steps"]}
    assert steps == {
        "You grade the documents that a search...": (12, pytest.approx(12 * COST)),
        "write": (1, pytest.approx(COST)),
    }
    assert bill["requests"] == 7
