"""The Anthropic backend against a server that speaks the documented wire format, over a real socket, by the unmodified SDK."""

import datetime

import pytest
from kit.optional import needs
from kit.wire.anthropic_format import USAGE, answering, begin, call, event, problem, refusing, say, thought
from kit.wire.client import COST, KEY, MODES, ONCE, PRICE, SHELLS, Client, add, fails
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from pydantic import BaseModel

from vinelm.backends.diagnostics import KnowsContext
from vinelm.catalog import Price
from vinelm.errors import ConfigError, WorkflowError

needs("anthropic")
WHOLE = [(mode, streams) for mode in MODES for streams in (True, False) if streams or "stream" not in mode]
THINKS = {"thinking": {"type": "enabled", "budget_tokens": 1024}}


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "ANTHROPIC_CUSTOM_HEADERS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def client(transport, kept):
    def make(**how):
        url = how.pop("api_base", transport.url.removesuffix("/v1"))
        return kept(Client(url, **{"provider": "anthropic", "api_key_env": "MY_KEY", **how}))

    return make


@pytest.mark.parametrize(("mode", "streams"), WHOLE)
def test_answer_and_usage(transport, client, mode, streams):
    transport.answers(answering("fo", "ur"))
    made = client(settings={"stream": streams}, options={"temperature": 0.5, "top_k": 4})
    messages = [SystemMessage("be brief"), HumanMessage("2 + 2?"), SystemMessage("be right")]
    message = made.ask(mode, messages, stop=["\n"], max_tokens=50)
    assert message.text == "four"
    assert message.usage_metadata["input_token_details"]["cache_read"] == 8
    (usage,) = made.usages
    assert (usage.tokens_in, usage.tokens_out, usage.tokens_cached, usage.tokens_reasoning) == (20, 7, 8, 3)
    assert (usage.cost_usd, usage.finish_reason, usage.provider_request_id) == (COST, "end_turn", "req_1")
    (asked,) = transport.asked
    assert asked.path == "/v1/messages"
    assert (asked.headers["x-api-key"], asked.headers["anthropic-version"]) == (KEY, "2023-06-01")
    assert "authorization" not in asked.headers
    assert asked.json == {
        "model": "model-1", "max_tokens": 50, "stream": streams or "stream" in mode, "temperature": 0.5, "top_k": 4,
        "stop_sequences": ["\n"], "messages": [{"role": "user", "content": [{"type": "text", "text": "2 + 2?"}]}],
        "system": [{"type": "text", "text": "be brief"}, {"type": "text", "text": "be right"}],
    }  # fmt: skip


@pytest.mark.parametrize(("mode", "streams"), WHOLE)
def test_what_is_written_to_the_prompt_cache_has_its_own_price(transport, client, mode, streams):
    price = Price(input=3, output=15, cached=0.3, cache_write=3.75, cache_write_1h=6, source="t", as_of=datetime.date.today())
    hour = {"ephemeral_5m_input_tokens": 300, "ephemeral_1h_input_tokens": 200}
    written = {**USAGE, "cache_creation_input_tokens": 500, "cache_creation": hour}

    async def reply(asked, out):
        if not asked.json["stream"]:
            return await answering("four", usage=written)(asked, out)
        await begin(out)
        from kit.wire.anthropic_format import start

        await start(out, {**written, "output_tokens": 1})
        await event(out, "content_block_start", index=0, content_block={"type": "text", "text": "four"})
        await event(out, "message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 7})
        return await out.finish()

    transport.answers(reply)
    made = client(settings={"stream": streams}, price=price)
    marked = {"type": "text", "text": "2 + 2?", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    message = made.ask(mode, [HumanMessage([marked])])
    assert message.usage_metadata["input_token_details"] == {"cache_read": 8, "cache_creation": 500}
    (usage,) = made.usages
    assert usage.tokens_in == 520
    assert usage.cost_usd == pytest.approx((12 * 3 + 8 * 0.3 + 300 * 3.75 + 200 * 6 + 7 * 15) / 1e6)
    assert transport.asked[0].json["messages"][0]["content"] == [marked]
    bounds = [made.backend.upper_bound_usd(made.model, [HumanMessage([part])]) for part in (marked, "2 + 2?")]
    assert bounds[0] > 2 * 1024 * 6 / 1e6 > bounds[1] - 2 * 1024 * 15 / 1e6  # the dearest rate only where something is written


@pytest.mark.parametrize(("mode", "streams"), WHOLE)
def test_tool_calls(transport, client, mode, streams):
    transport.answers(answering("so ", call("add", {"a": 1, "b": 2}), call("add", {"a": 5}, "toolu_2"), stop="tool_use"))
    made = client(settings={"stream": streams})
    message = made.ask(mode, chat=made.chat().bind_tools([add], tool_choice="add", parallel_tool_calls=False))
    assert message.text == "so "
    assert [(one["name"], one["args"], one["id"]) for one in message.tool_calls] == [
        ("add", {"a": 1, "b": 2}, "toolu_1"),
        ("add", {"a": 5}, "toolu_2"),
    ]
    body = transport.asked[0].json
    assert body["tool_choice"] == {"type": "tool", "name": "add", "disable_parallel_tool_use": True}
    (declared,) = body["tools"]
    assert (declared["name"], declared["input_schema"]["required"]) == ("add", ["a", "b"])


@pytest.mark.parametrize(
    ("choice", "sent"),
    [("auto", None), ("any", {"type": "any"}), ("required", {"type": "any"}), (True, {"type": "any"}),
     ({"type": "function", "function": {"name": "add"}}, {"type": "tool", "name": "add"}),
     ({"type": "tool", "name": "add"}, {"type": "tool", "name": "add"})],
)  # fmt: skip
def test_tool_choices(transport, client, choice, sent):
    transport.answers(answering(call("add", {"a": 1, "b": 2}), stop="tool_use"))
    made = client()
    made.ask("invoke", chat=made.chat().bind_tools([add], tool_choice=choice))
    assert transport.asked[0].json.get("tool_choice") == sent


def test_no_tools_where_none_may_be_called(transport, client):
    transport.answers(answering("four"))
    made = client()
    made.ask("invoke", chat=made.chat().bind_tools([add], tool_choice="none"))
    assert "tools" not in transport.asked[0].json


class Answer(BaseModel):
    """An answer."""

    number: int


def test_structured_output(transport, client):
    transport.answers(answering(call("Answer", {"number": 4}), stop="tool_use"))
    made = client(options=THINKS, max_tokens=4096)
    assert made.chat().with_structured_output(Answer).invoke("2 + 2?") == Answer(number=4)
    body = transport.asked[0].json
    assert body["tool_choice"]["type"] in ("any", "tool")
    assert "thinking" not in body  # the API refuses thinking where a tool call is forced


@pytest.mark.parametrize(("thinking", "sent"), [({"type": "adaptive"}, {"type": "disabled"}), (None, None)])
def test_a_forced_call_without_a_budget(transport, client, thinking, sent):
    transport.answers(answering(call("Answer", {"number": 4}), stop="tool_use"))
    made = client(options={} if thinking is None else {"thinking": thinking})
    made.chat().with_structured_output(Answer).invoke("2 + 2?")
    assert transport.asked[0].json.get("thinking") == sent


def test_adaptive_thinking_goes_on_after_a_call_of_another_process(transport, client):
    transport.answers(answering("four"))
    asked = {"name": "add", "args": {}, "id": "c1", "type": "tool_call"}
    client(options={"thinking": {"type": "adaptive"}}).ask(
        "invoke", [HumanMessage("?"), AIMessage("", tool_calls=[asked]), ToolMessage("3", tool_call_id="c1")]
    )
    assert transport.asked[0].json["thinking"] == {"type": "adaptive"}


def test_a_json_schema(transport, client):
    transport.answers(answering('{"number": 4}'))
    schema = {"type": "object", "properties": {"number": {"type": "integer"}}}
    client().ask("invoke", response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": schema}})
    assert transport.asked[0].json["output_config"] == {"format": {"type": "json_schema", "schema": schema}}
    with pytest.raises(ConfigError, match="response_format must be a json_schema"):
        client().ask("invoke", response_format={"type": "json_object"})


def test_messages_on_the_wire(transport, client):
    transport.answers(answering("ok"))
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    link = {"type": "image_url", "image_url": {"url": "https://x.example/a.png"}}
    made = {"name": "add", "args": {"a": 1}, "id": "functions.add:0", "type": "tool_call"}
    broken = {"name": "add", "args": "{oops", "id": "c2", "error": None, "type": "invalid_tool_call"}
    client().chat().invoke(
        [
            HumanMessage([{"type": "text", "text": "what?"}, picture, link]),
            AIMessage([{"type": "reasoning", "reasoning": "hm"}, "see"], tool_calls=[made], invalid_tool_calls=[broken]),
            ToolMessage("3", tool_call_id="functions.add:0"),
            ToolMessage("no", tool_call_id="c2", status="error"),
            HumanMessage("and now?"),
        ]
    )
    first, second, third = transport.asked[0].json["messages"]
    assert first["content"] == [
        {"type": "text", "text": "what?"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
        {"type": "image", "source": {"type": "url", "url": "https://x.example/a.png"}},
    ]
    assert second == {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "see"},
            {"type": "tool_use", "id": "functions_add_0", "name": "add", "input": {"a": 1}},
            {"type": "tool_use", "id": "c2", "name": "add", "input": {"invalid_json": "{oops"}},
        ],
    }
    assert third["content"] == [
        {"type": "tool_result", "tool_use_id": "functions_add_0", "content": [{"type": "text", "text": "3"}]},
        {"type": "tool_result", "tool_use_id": "c2", "content": [{"type": "text", "text": "no"}], "is_error": True},
        {"type": "text", "text": "and now?"},
    ]


@pytest.mark.parametrize(("mode", "streams"), WHOLE)
def test_thinking_goes_back_with_its_tool_call_and_only_where_it_is_known(transport, client, mode, streams):
    transport.answers(answering(thought("hm", "sig"), call("add", {"a": 1, "b": 2}), stop="tool_use"))
    made = client(settings={"stream": streams}, options=THINKS, max_tokens=4096)
    said = made.ask(mode, chat=made.chat().bind_tools([add]))
    assert said.additional_kwargs["reasoning_content"] == "hm"
    assert transport.asked[0].json["thinking"] == THINKS["thinking"]
    again = [HumanMessage("?"), AIMessage(said.content, tool_calls=said.tool_calls), ToolMessage("3", tool_call_id="toolu_1")]
    made.ask(mode, again)
    body = transport.asked[1].json
    assert body["messages"][1]["content"][0] == {"type": "thinking", "thinking": "hm", "signature": "sig"}
    assert body["thinking"] == THINKS["thinking"]
    other = client(settings={"stream": streams}, options=THINKS, max_tokens=4096, model_id="model-2")
    other.ask(mode, again)  # the signature is another model's
    body = transport.asked[2].json
    assert [block["type"] for block in body["messages"][1]["content"]] == ["tool_use"]
    assert "thinking" not in body


def test_thinking_needs_room(transport, client):
    with pytest.raises(ConfigError, match="leaves no room in max_tokens = 1024: raise max_tokens"):
        client(options=THINKS)
    transport.answers(answering("four"))
    client(options=THINKS, max_tokens=2048).ask("invoke", max_tokens=128)
    assert "thinking" not in transport.asked[0].json


REFUSALS = [
    (400, "invalid_request_error", "s3cret", "malformed", 1),
    (400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum s3cret", "context_length", 1),
    (400, "invalid_request_error", "Your credit balance is too low s3cret", "rate_limit", 1),
    (401, "authentication_error", "s3cret", "auth", 1),
    (402, "billing_error", "s3cret", "rate_limit", 1),
    (403, "permission_error", "s3cret", "auth", 1),
    (404, "not_found_error", "s3cret", "malformed", 1),
    (413, "request_too_large", "s3cret", "context_length", 1),
    (429, "rate_limit_error", "s3cret", "rate_limit", 6),
    (500, "api_error", "s3cret", "server", 2),  # may have been billed: at most two such attempts
    (529, "overloaded_error", "s3cret", "server", 4),
]


@pytest.mark.parametrize("mode", SHELLS)
@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: f"{case[0]}-{case[3]}")
def test_kinds_of_refusal(transport, client, mode, case):
    status, name, message, kind, attempts = case
    transport.answers(refusing(status, name, message))
    error, usage = fails(client(), mode)
    assert (error.kind, usage.retries, usage.cost_usd > 0) == (kind, attempts - 1, status == 500)
    assert f"{kind}" in str(error)
    assert f"Anthropic answered HTTP {status} ({name})" in str(error)


@pytest.mark.parametrize(("mode", "streams"), WHOLE)
@pytest.mark.parametrize(
    ("stop", "kind"),
    [("max_tokens", "truncated"), ("refusal", "content_filter"), ("model_context_window_exceeded", "context_length")],
)
def test_a_bad_answer_is_a_failure_and_costs(transport, client, mode, streams, stop, kind):
    transport.answers(answering("fo", stop=stop))
    error, _ = fails(client(settings={**ONCE, "stream": streams}), mode)
    assert (error.kind, error.cost_usd) == (kind, COST)


@pytest.mark.parametrize("streams", [True, False])
def test_thinking_alone_is_no_answer(transport, client, streams):
    transport.answers(answering(thought("hm")))
    assert fails(client(settings={"stream": streams}), "ainvoke")[0].kind == "empty"


@pytest.mark.parametrize("mode", SHELLS)
def test_an_error_inside_a_stream(transport, client, mode):
    async def reply(asked, out):
        await begin(out)
        await say(out, "fo")
        await event(out, "error", **{key: value for key, value in problem("overloaded_error").items() if key != "type"})
        await out.finish()

    transport.answers(reply)
    error, usage = fails(client(settings=ONCE), mode)
    assert error.kind == "server"
    assert usage.cost_usd > 0  # it was begun


def test_the_environment_adds_no_credentials(transport, client, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "s3cret-token")
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "X-Mine: s3cret\nX-Other: s3cret")
    transport.answers(answering("four"))
    made = client()
    made.ask("invoke")
    made.ask("ainvoke")
    assert len(transport.asked) == 2
    assert all("s3cret" not in " ".join(asked.headers.values()) for asked in transport.asked)


def test_context_and_betas(transport, client):
    async def reply(asked, out):
        if asked.path.endswith("/models/model-1"):
            return await out.whole({"id": "model-1", "type": "model", "display_name": "M", "max_input_tokens": 200_000})
        return await answering("four")(asked, out)

    transport.answers(reply)
    made = client(options={"betas": ["a-1", "b-2"], "anthropic_version": "2026-10-21"})
    assert isinstance(made.backend, KnowsContext)
    assert made.backend.context_tokens(made.model) == 200_000
    made.ask("invoke")
    assert transport.asked[1].headers["anthropic-beta"] == "a-1,b-2"
    assert transport.asked[1].headers["anthropic-version"] == "2026-10-21"
    assert not {"betas", "anthropic_version"} & set(transport.asked[1].json)


def test_a_link_is_bounded(client):
    made = client()
    link = HumanMessage([{"type": "image_url", "image_url": {"url": "https://x.example/a.png"}}])
    assert made.backend.upper_bound_usd(made.model, [link]) > 2 * 16_000 * PRICE.input / 1e6


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"api_key_env": None}, "model 'm': no api_key_env: name the variable of the key, such as \"ANTHROPIC_API_KEY\""),
        ({"api_key_env": "NOT_SET"}, "model 'm': environment variable NOT_SET is not set: put the API key there"),
        ({"options": {"max_tokens": 5}}, "option 'max_tokens' is set by VineLM: leave it out"),
        ({"options": {"speed": "fast"}}, "option 'speed' is set by VineLM"),
        ({"api_base": "localhost:80"}, "it must start with http:// or https://"),
        ({"settings": {"limit": 1}}, r"\[backend.anthropic\]: unknown key 'limit'"),
    ],
)
def test_bad_settings(client, fields, message):
    with pytest.raises(ConfigError, match=message):
        client(**fields).chat()


def test_bad_calls(transport, client):
    transport.answers(answering("four"))
    made = client(max_tokens=10)
    with pytest.raises(ConfigError, match="max_tokens is the entry's, 10"):
        made.ask("invoke", max_tokens=11)
    with pytest.raises(WorkflowError, match="cannot represent") as raised:
        made.ask("invoke", [HumanMessage([{"type": "input_audio", "input_audio": {"data": "s3cret", "format": "wav"}}])])
    assert raised.value.__context__ is None
    with pytest.raises(ConfigError, match="a tool that runs at Anthropic is billed apart"):
        made.ask("invoke", tools=[{"type": "web_search_20250305", "name": "web_search"}])
    with pytest.raises(ConfigError, match="tool_choice must be"):
        made.ask("invoke", chat=made.chat().bind_tools([add], tool_choice="subtract"))
    assert (transport.asked, made.usages) == ([], [])


def test_without_the_sdk_it_is_one_line(client, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "anthropic", None)
    with pytest.raises(ConfigError, match=r"Anthropic needs anthropic: pip install 'vinelm\[anthropic\]'"):
        client().chat()
