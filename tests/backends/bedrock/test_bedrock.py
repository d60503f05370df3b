"""The Bedrock backend against a server that speaks the documented wire format, over a real socket, by the unmodified boto3."""

import logging

import pytest
from kit.wire.bedrock_format import (
    answering,
    refusing,
    thought,
    tool_piece,
    tool_start,
    trouble,
    turn,
)
from kit.wire.client import COST, KEY, MODES, ONCE, SHELLS, Client, add, fails
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from vinelm.errors import ConfigError, WorkflowError


@pytest.fixture(autouse=True)
def credentials(monkeypatch, tmp_path):
    for name in ("AWS_PROFILE", "AWS_BEARER_TOKEN_BEDROCK", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIACANARY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))


@pytest.fixture
def client(transport, kept):
    def make(**how):
        how.setdefault("options", {"region": "us-east-1"})
        return kept(Client(transport.url.removesuffix("/v1"), provider="bedrock", **how))

    return make


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_answer_and_usage(transport, client, mode, streams):
    transport.answers(answering("fo", "ur"))
    options = {"region": "us-east-1", "temperature": 0.5, "top_k": 4, "stop": ["\n"]}
    made = client(settings={"stream": streams}, options=options)
    message = made.ask(mode, [SystemMessage("be brief"), HumanMessage("2 + 2?")])
    assert message.text == "four"
    assert message.usage_metadata["input_token_details"] == {"cache_read": 8}
    (usage,) = made.usages
    assert (usage.tokens_in, usage.tokens_out, usage.tokens_cached, usage.tokens_reasoning) == (20, 7, 8, None)
    assert (usage.cost_usd, usage.retries, usage.failure, usage.finish_reason) == (COST, 0, None, "end_turn")
    assert (usage.provider_request_id, usage.provider_latency_s) == ("req_1", 0.25)
    is_streamed = streams or "stream" in mode
    assert (usage.ttft_s is not None) == is_streamed
    (asked,) = transport.asked
    assert asked.path == f"/model/model-1/converse{'-stream' if is_streamed else ''}"
    assert asked.json == {
        "messages": [{"role": "user", "content": [{"text": "2 + 2?"}]}],
        "system": [{"text": "be brief"}],
        "inferenceConfig": {"maxTokens": 1024, "temperature": 0.5, "stopSequences": ["\n"]},
        "additionalModelRequestFields": {"top_k": 4},
    }


def test_messages_on_the_wire(transport, client):
    transport.answers(answering("ok"))
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    call = {"name": "add", "args": {"a": 1}, "id": "c1", "type": "tool_call"}
    client().chat().invoke(
        [
            HumanMessage([{"type": "text", "text": "what is it?"}, picture]),
            AIMessage([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "let me see"}], tool_calls=[call]),
            ToolMessage("2", tool_call_id="c1"),
            HumanMessage("and now?"),
        ]
    )
    first, second, third = transport.asked[0].json["messages"]
    assert first["content"] == [{"text": "what is it?"}, {"image": {"format": "png", "source": {"bytes": "AAAA"}}}]
    assert second["content"] == [{"text": "let me see"}, {"toolUse": {"toolUseId": "c1", "name": "add", "input": {"a": 1}}}]
    assert third["role"] == "user"
    assert third["content"] == [{"toolResult": {"toolUseId": "c1", "content": [{"text": "2"}]}}, {"text": "and now?"}]


@pytest.mark.parametrize("mode", SHELLS)
@pytest.mark.parametrize("streams", [True, False])
def test_tool_calls(transport, client, mode, streams):
    pieces = ["so ", tool_start(1, "add", "c1"), tool_piece(1, '{"a": 1, '), tool_piece(1, '"b": 2}')]
    content = ["so ", {"toolUse": {"toolUseId": "c1", "name": "add", "input": {"a": 1, "b": 2}}}]
    transport.answers(answering(*pieces, content=content, stop="tool_use"))
    made = client(settings={"stream": streams})
    message = made.ask(mode, chat=made.chat().bind_tools([add], tool_choice="any"))
    assert message.text == "so "
    assert message.tool_calls == [{"name": "add", "args": {"a": 1, "b": 2}, "id": "c1", "type": "tool_call"}]
    config = transport.asked[0].json["toolConfig"]
    assert config["toolChoice"] == {"any": {}}
    assert config["tools"][0]["toolSpec"]["inputSchema"]["json"]["required"] == ["a", "b"]


@pytest.mark.parametrize("mode", MODES)
def test_thoughts_unicode_and_a_megabyte(transport, client, mode):
    prompt = "žluťoučký 🦥 \u2028" * 60_000
    transport.answers(answering(thought("hm"), "🦥", "ž"))
    message = client().ask(mode, prompt)
    assert (message.text, message.additional_kwargs["reasoning_content"]) == ("🦥ž", "hm")
    assert transport.asked[0].json["messages"][0]["content"] == [{"text": prompt}]


REFUSALS = [
    ("AccessDeniedException", 403, "auth"),
    ("UnrecognizedClientException", 403, "auth"),
    ("ThrottlingException", 429, "rate_limit"),
    ("ModelNotReadyException", 429, "rate_limit"),
    ("ModelTimeoutException", 408, "timeout"),
    ("InternalServerException", 500, "server"),
    ("ServiceUnavailableException", 503, "server"),
    ("ModelErrorException", 424, "server"),
    ("ValidationException", 400, "malformed"),
    ("ResourceNotFoundException", 404, "malformed"),
]


@pytest.mark.parametrize("mode", ["invoke", "astream"])
@pytest.mark.parametrize(("code", "status", "kind"), REFUSALS)
def test_kinds_of_refusal(transport, client, mode, code, status, kind):
    transport.answers(refusing(code, status))
    error, usage = fails(client(settings=ONCE), mode)
    assert (error.kind, usage.retries) == (kind, 0)
    assert str(error).startswith(f"m: {kind}: Bedrock answered HTTP {status} ({code})")
    assert (usage.cost_usd == 0.0) == (status not in (408, 424, 500, 504))  # which may have been worked on


def test_a_prompt_that_is_too_long(transport, client):
    transport.answers(refusing("ValidationException", 400, message="Input is too long for requested model. s3cret"))
    assert fails(client(), "invoke")[0].kind == "context_length"


@pytest.mark.parametrize("mode", SHELLS)
@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize(
    ("stop", "kind"),
    [
        ("max_tokens", "truncated"),
        ("guardrail_intervened", "content_filter"),
        ("model_context_window_exceeded", "context_length"),
    ],
)
def test_a_bad_answer_is_a_failure_and_costs(transport, client, mode, streams, stop, kind):
    transport.answers(answering("fo", stop=stop))
    error, _ = fails(client(settings={"stream": streams}), mode)
    assert (error.kind, error.cost_usd) == (kind, COST)


def test_an_empty_answer(transport, client):
    transport.answers(answering(thought("hm")))
    assert fails(client(), "invoke")[0].kind == "empty"


@pytest.mark.parametrize(("kind", "expected"), [("throttlingException", "rate_limit"), ("modelStreamErrorException", "server")])
def test_error_inside_a_stream(transport, client, kind, expected):
    transport.answers(answering("fo", trouble(kind)))
    assert fails(client(settings=ONCE), "ainvoke")[0].kind == expected


def test_an_api_key_is_only_sent_over_tls(transport, client, caplog, monkeypatch):
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", KEY)
    caplog.set_level(logging.DEBUG)
    transport.answers(answering("four"))
    error, _ = fails(client(api_key_env="AWS_BEARER_TOKEN_BEDROCK"), "invoke")
    assert (error.kind, transport.asked) == ("auth", [])
    assert "https" in str(error)
    assert KEY not in caplog.text


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"options": {}}, "model 'm': no AWS region: add options"),
        ({"api_key_env": "MY_KEY"}, "api_key_env is MY_KEY: Bedrock's API key is read from AWS_BEARER_TOKEN_BEDROCK"),
        ({"api_key_env": "AWS_BEARER_TOKEN_BEDROCK"}, "environment variable AWS_BEARER_TOKEN_BEDROCK is not set"),
        ({"options": {"region": "x", "maxTokens": 5}}, "option 'maxTokens' is set by VineLM: leave it out"),
    ],
)
def test_bad_settings(client, fields, message):
    with pytest.raises(ConfigError, match=message):
        client(**fields).chat()


def test_bad_calls(transport, client):
    chat = client(max_tokens=10).chat()
    with pytest.raises(ConfigError, match="max_tokens is the entry's, 10"):
        chat.invoke("?", max_tokens=11)
    with pytest.raises(WorkflowError, match="cannot represent") as raised:
        chat.invoke([HumanMessage([{"type": "image_url", "image_url": {"url": "https://s3cret/"}}])])
    assert raised.value.__context__ is None
    assert turn("x")["stopReason"] == "end_turn"


def test_missing_credentials(client, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    error, usage = fails(client(), "invoke")
    assert (error.kind, usage.cost_usd) == ("auth", 0.0)
