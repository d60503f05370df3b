"""Recorded prompts on each provider's wire: tools, structured output and settings as they were recorded."""

import json

import pytest
from kit.optional import needs
from kit.wire.client import KEY
from kit.wire.providers import AMBIENT, PROVIDERS
from kit.wire.server import WireServer

from vinelm.clock import WallClock
from vinelm.errors import UNSUPPORTED_CALL, ConfigError
from vinelm.replay.asking import AsIs
from vinelm.requests.protocols import CallContext

needs("langchain_openai", "langchain_anthropic", "langchain_google_genai")
NAMES = ("openai", "anthropic", "gemini", "langchain")
PROMPT = {
    "messages": [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": [{"type": "text", "text": "Look up 7."}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"id": 7}'}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "nothing"},
    ],
    "tools": [],
    "response_format": None,
    "settings": {"temperature": 0.25, "max_completion_tokens": 33, "stop": "END", "user": "ann", "logprobs": True},
}
LOOK = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look up an id.",
        "parameters": {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]},
    },
}
VERDICT = {
    "type": "json_schema",
    "json_schema": {
        "name": "verdict",
        "schema": {"type": "object", "properties": {"good": {"type": "boolean"}}, "required": ["good"]},
    },
}


@pytest.fixture
def transport(monkeypatch):
    """A server on loopback, and the key that models send it."""
    for name in AMBIENT:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MY_KEY", KEY)
    server = WireServer()
    yield server
    server.stop()


@pytest.fixture
def asked(transport):
    """Ask a provider's model a prompt as it was recorded; the answer and the body that was sent."""

    def ask(name, prompt, reply):
        provider = PROVIDERS[name]
        client = provider.client(transport, settings={"max_retries": 0})
        transport.answers(reply(provider.words))
        call = AsIs.of(prompt, client.model)
        context = CallContext(stage="s", prefix=("m",), clock=WallClock(), on_usage=client.usages.append)
        said = call.said(client.backend.chat_model(client.model.model_copy(update={"max_tokens": call.limit}), context))
        client.close()
        return said, json.dumps(transport.asked[-1].json)

    return ask


@pytest.mark.parametrize("name", NAMES)
def test_tools_and_settings(name, asked):
    said, body = asked(name, PROMPT | {"tools": [LOOK]}, lambda words: words.calling("look", {"id": 8}))
    assert said == {"content": "", "tool_calls": [{"name": "look", "args": {"id": 8}}]}
    assert "Look up an id." in body
    assert "nothing" in body
    assert "0.25" in body
    assert "33" in body
    assert "END" in body
    assert "ann" not in body


@pytest.mark.parametrize("name", NAMES)
def test_a_forced_tool(name, asked):
    choice = {"type": "function", "function": {"name": "look"}}
    prompt = PROMPT | {"tools": [LOOK], "settings": {"tool_choice": choice, "max_tokens": 33}}
    said, body = asked(name, prompt, lambda words: words.calling("look", {"id": 8}))
    free = asked(name, PROMPT | {"tools": [LOOK]}, lambda words: words.calling("look", {"id": 8}))[1]
    assert said["tool_calls"]
    assert body.count('"look"') > free.count('"look"')


@pytest.mark.parametrize("name", NAMES)
def test_structured_output(name, asked):
    def reply(words):
        if name == "anthropic":
            return words.calling("verdict", {"good": True})
        text = '{"good": true}'
        return words.answering({"text": text} if name == "gemini" else text)

    said, body = asked(name, PROMPT | {"response_format": VERDICT}, reply)
    assert json.loads(said["content"]) == {"good": True}
    assert said["tool_calls"] == []
    assert "good" in body


def test_what_a_provider_cannot_be_asked_is_said_before_it_is_sent(transport):
    entry = PROVIDERS["anthropic"].client(transport).model
    with pytest.raises(ConfigError, match="takes no tools beside a response format") as caught:
        AsIs.of(PROMPT | {"tools": [LOOK], "response_format": VERDICT}, entry)
    assert caught.value.code == UNSUPPORTED_CALL
    with pytest.raises(ConfigError, match="the recorded prompt is none") as caught:
        AsIs.of(PROMPT | {"messages": [{"role": "oracle", "content": "secret"}]}, entry)
    assert "secret" not in str(caught.value)
