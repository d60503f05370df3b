"""The OpenAI backend against a server that speaks the documented wire format, over a real socket, by the unmodified SDK."""

import asyncio
import json

import pytest
from kit.wire.client import COST, KEY, MODES, PRICE, Client, add
from kit.wire.openai_format import USAGE, answering, chunks, completion, stream
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from pydantic import BaseModel, Field

from vinelm.errors import ConfigError
from vinelm.requests.protocols import PricesCalls


@pytest.fixture
def client(transport, kept):
    return lambda **how: kept(Client(transport.url, **how))


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_answer_and_usage(transport, client, mode, streams):
    transport.answers(answering("fo", "ur"))
    made = client(settings={"stream": streams}, options={"temperature": 0.5, "top_k": 4})
    message = made.ask(mode)
    assert message.text == "four"
    assert message.response_metadata["finish_reason"] == "stop"
    assert message.usage_metadata == {
        "input_tokens": 20,
        "output_tokens": 7,
        "total_tokens": 27,
        "input_token_details": {"cache_read": 8},
        "output_token_details": {"reasoning": 3},
    }
    (usage,) = made.usages
    assert (usage.tokens_in, usage.tokens_out, usage.tokens_cached, usage.tokens_reasoning) == (20, 7, 8, 3)
    assert (usage.cost_usd, usage.price_id, usage.retries, usage.failure) == (COST, "p", 0, None)
    assert (usage.finish_reason, usage.provider_request_id is not None, usage.provider_latency_s) == ("stop", True, 0.25)
    is_streamed = streams or "stream" in mode
    assert (usage.ttft_s is not None) == is_streamed
    assert not is_streamed or 0 < usage.ttft_s <= usage.latency_s
    (asked,) = transport.asked
    assert asked.path == "/v1/chat/completions"
    assert asked.headers["authorization"] == "Bearer none"
    body = asked.json
    assert body.get("stream_options") == ({"include_usage": True} if is_streamed else None)
    assert {key: body[key] for key in ("model", "max_tokens", "temperature", "top_k", "stream")} == {
        "model": "model-1",
        "max_tokens": 1024,
        "temperature": 0.5,
        "top_k": 4,
        "stream": is_streamed,
    }


def test_tokens_are_streamed_once_and_as_they_come(transport, client):
    seen = []

    async def reply(asked, out):
        await out.chunked()
        for number, event in enumerate(chunks("a", "b", "c")):
            await out.event(event)
            for _ in range(200):  # the second piece is sent when the first was seen
                if len(seen) >= min(number, 3):
                    break
                await asyncio.sleep(0.01)
        await out.event("[DONE]")
        await out.finish()

    transport.answers(reply)
    for piece in client().chat().stream("?"):
        if piece.text:
            seen.append(piece.text)
    assert seen == ["a", "b", "c"]


def test_messages_on_the_wire(transport, client):
    transport.answers(answering("ok"))
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    call = {"name": "add", "args": {"a": 1}, "id": "c1", "type": "tool_call"}
    broken = {"name": "add", "args": "{oops", "id": "c2", "error": None, "type": "invalid_tool_call"}
    client().chat().invoke(
        [
            SystemMessage("be brief"),
            HumanMessage([{"type": "text", "text": "what is it?"}, picture]),
            AIMessage([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "let me see"}], tool_calls=[call]),
            ToolMessage("2", tool_call_id="c1"),
            AIMessage("", tool_calls=[], invalid_tool_calls=[broken]),
            ToolMessage("no JSON", tool_call_id="c2"),
        ],
        stop=["\n"],
    )
    body = transport.asked[0].json
    assert body["stop"] == ["\n"]
    assert [message["role"] for message in body["messages"]] == ["system", "user", "assistant", "tool", "assistant", "tool"]
    assert body["messages"][1]["content"] == [{"type": "text", "text": "what is it?"}, picture]
    assert body["messages"][2]["content"] == "let me see"
    function = body["messages"][2]["tool_calls"][0]["function"]
    assert (function["name"], json.loads(function["arguments"])) == ("add", {"a": 1})
    assert (body["messages"][3]["tool_call_id"], body["messages"][3]["content"]) == ("c1", "2")
    assert body["messages"][4]["tool_calls"] == [
        {"type": "function", "id": "c2", "function": {"name": "add", "arguments": "{oops"}}
    ]


def tool_pieces():
    """Two calls whose arguments arrive in pieces, as in the reference's example of streamed functions."""
    first = {"index": 0, "id": "c1", "type": "function", "function": {"name": "add", "arguments": ""}}
    yield {"tool_calls": [first]}
    yield {"tool_calls": [{"index": 0, "function": {"arguments": '{"a": 1, '}}]}
    yield {"tool_calls": [{"index": 0, "function": {"arguments": '"b": 2}'}}]}
    yield {"tool_calls": [{"index": 1, "id": "c2", "type": "function", "function": {"name": "add", "arguments": "{oops"}}]}


def whole_tools():
    return [
        {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}},
        {"id": "c2", "type": "function", "function": {"name": "add", "arguments": "{oops"}},
    ]


@pytest.mark.parametrize(("streams", "mode"), [(True, "invoke"), (False, "ainvoke")])
def test_tool_calls(transport, client, streams, mode):
    async def reply(asked, out):
        if asked.json["stream"]:
            return await stream(out, *tool_pieces(), finish_reason="tool_calls")
        return await out.whole(completion(None, finish_reason="tool_calls", tool_calls=whole_tools()))

    transport.answers(reply)
    made = client(settings={"stream": streams})
    message = made.ask(mode, chat=made.chat().bind_tools([add], tool_choice="add"))
    assert message.tool_calls == [{"name": "add", "args": {"a": 1, "b": 2}, "id": "c1", "type": "tool_call"}]
    assert [(call["name"], call["args"], call["id"]) for call in message.invalid_tool_calls] == [("add", "{oops", "c2")]
    body = transport.asked[0].json
    assert body["tool_choice"] == {"type": "function", "function": {"name": "add"}}
    assert body["tools"][0]["function"]["parameters"]["required"] == ["a", "b"]
    assert made.usages[0].failure is None


def test_streamed_tool_calls(transport, client):
    transport.answers(answering(*list(tool_pieces())[:3], finish_reason="tool_calls"))
    message = client().ask("stream")
    assert message.tool_calls == [{"name": "add", "args": {"a": 1, "b": 2}, "id": "c1", "type": "tool_call"}]


class Sum(BaseModel):
    """The sum."""

    total: int


class Unit(BaseModel):
    name: str = Field(description="such as metre")


class Measured(BaseModel):
    """What was measured."""

    value: float
    unit: Unit = Field(description="its unit")
    note: str | None = None


def test_structured_output_is_the_providers_own(transport, client):
    """It was sent as a tool call; ``ChatOpenAI`` sends the schema, strictly, as the SDK makes it of a pydantic class."""
    from openai.lib._parsing import type_to_response_format_param

    transport.answers(answering('{"value": 2, "unit": {"name": "metre"}, "note": null}'))
    found = client().chat().with_structured_output(Measured).invoke("How long?")
    assert found == Measured(value=2, unit=Unit(name="metre"))
    body = transport.asked[0].json
    assert body["response_format"] == type_to_response_format_param(Measured)
    assert body["response_format"]["json_schema"]["strict"] is True
    assert not {"tools", "tool_choice"} & set(body)


def test_what_the_api_refuses_in_a_strict_schema_is_left_out(transport, client):
    class Counted(BaseModel):
        n: int = 3

    transport.answers(answering('{"n": 4}'))
    assert client().chat().with_structured_output(Counted).invoke("?") == Counted(n=4)
    schema = transport.asked[0].json["response_format"]["json_schema"]["schema"]
    assert schema["required"] == ["n"]
    assert "default" not in schema["properties"]["n"]


@pytest.mark.parametrize(
    ("asked", "sent"),
    [
        ({"method": "json_mode"}, {"type": "json_object"}),
        ({"method": "function_calling"}, None),
        ({"strict": False}, {"strict": False}),
    ],
)
def test_another_way_of_structured_output_can_be_asked_for(transport, client, asked, sent):
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "Sum", "arguments": '{"total": 4}'}}
    transport.answers(
        answering({"tool_calls": [call]}, finish_reason="tool_calls") if sent is None else answering('{"total": 4}')
    )
    out = client().chat().with_structured_output(Sum, include_raw=True, **asked).invoke("2 + 2?")
    assert (out["parsed"], out["parsing_error"]) == (Sum(total=4), None)
    body = transport.asked[0].json
    if sent is None:
        assert body["tool_choice"] == "required"
    elif "type" in sent:
        assert body["response_format"] == sent
    else:
        assert body["response_format"]["json_schema"]["strict"] is False


def test_a_schema_of_plain_json_is_as_strict_as_it_says(transport, client):
    schema = {"title": "Sum", "type": "object", "properties": {"total": {"type": "integer"}}, "required": ["total"]}
    transport.answers(answering('{"total": 4}'))
    chat = client().chat()
    assert chat.with_structured_output(schema).invoke("?") == {"total": 4}
    assert chat.with_structured_output(schema, strict=True).invoke("?") == {"total": 4}
    assert [asked.json["response_format"]["json_schema"]["strict"] for asked in transport.asked] == [False, True]


def test_an_unknown_method_is_refused_in_one_line(client):
    with pytest.raises(ConfigError, match="no method 'magic': use json_schema, function_calling, json_mode"):
        client().chat().with_structured_output(Sum, method="magic")


def test_no_tools_are_sent_as_none(transport, client):
    """``create_agent`` binds an empty list for an agent without tools; the API refuses one."""
    transport.answers(answering("four"))
    assert client().chat().bind_tools([]).invoke("?").text == "four"
    assert "tools" not in transport.asked[0].json


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
@pytest.mark.parametrize("mode", ["invoke", "stream"])
def test_thoughts_are_kept_apart(transport, client, name, mode):
    transport.answers(answering({name: "two and "}, {name: "two"}, "four"))
    message = client().ask(mode)
    assert message.text == "four"
    assert message.additional_kwargs["reasoning_content"] == "two and two"


@pytest.mark.parametrize("mode", MODES)
def test_without_usage_tokens_are_estimated(transport, client, mode):
    transport.answers(answering("four" * 5, usage=None))
    made = client()
    assert made.ask(mode).usage_metadata is None
    (usage,) = made.usages
    assert usage.tokens_estimated
    assert (usage.tokens_out, usage.tokens_cached) == (5, None)
    assert usage.cost_usd >= PRICE.cost_usd(usage.tokens_in, made.model.max_tokens)  # as much may have been reasoned, unseen


def test_absent_details_are_unknown(transport, client):
    transport.answers(answering("x", usage={"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}))
    made = client()
    made.ask("invoke")
    assert (made.usages[0].tokens_cached, made.usages[0].tokens_reasoning) == (None, None)


def test_connections_are_kept(transport, client):
    transport.answers(answering("x"))
    made = client()
    for _ in range(5):
        made.ask("invoke")
        made.ask("stream")
    assert (len(transport.asked), transport.connections) == (10, 1)


@pytest.mark.parametrize("mode", ["stream", "astream"])
def test_abandoned_stream(transport, client, mode):
    transport.answers(answering("a", "b", "c"))
    made = client()

    async def first():
        async for piece in made.chat().astream("?"):
            return piece.text

    assert (asyncio.run(first()) if mode == "astream" else next(piece.text for piece in made.chat().stream("?"))) == "a"
    (usage,) = made.usages
    assert (usage.finish_reason, usage.failure, usage.tokens_estimated, usage.tokens_out) == (None, None, True, 1)


def test_the_key_named_by_the_entry_is_sent_and_no_other(transport, client, monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_WEBHOOK_SECRET"):
        monkeypatch.setenv(name, "ambient-secret")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    monkeypatch.setenv("MY_KEY", KEY)
    transport.answers(answering("x"))
    client().ask("invoke")
    client(api_key_env="MY_KEY").ask("ainvoke")
    assert [asked.headers["authorization"] for asked in transport.asked] == ["Bearer none", f"Bearer {KEY}"]
    assert not any("ambient-secret" in value for asked in transport.asked for value in asked.headers.values())


def test_upper_bound(transport, client):
    transport.answers(answering("x"))
    made = client()
    assert isinstance(made.backend, PricesCalls)
    prompt = [HumanMessage("é" * 1000)]
    bound = made.backend.upper_bound_usd(made.model, prompt, tools=[{"type": "function", "function": {"name": "f"}}])
    assert bound >= 2 * PRICE.cost_usd(2000, made.model.max_tokens)  # a token for each byte, two attempts
    assert bound > made.backend.upper_bound_usd(made.model, prompt)
    assert made.backend.upper_bound_usd(made.model, prompt, max_tokens=1) < made.backend.upper_bound_usd(made.model, prompt)
    assert USAGE["prompt_tokens"] < 2000
    assert not transport.asked


def test_event_loops_leave_nothing_behind(transport, client):
    transport.answers(answering("x"))
    made = client()
    for _ in range(3):
        made.ask("ainvoke")
        made.ask("astream")
    (clients,) = made.backend.transport.clients.all()
    assert clients.loops == 0
