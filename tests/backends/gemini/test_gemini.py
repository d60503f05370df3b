"""The Gemini backend against a server that speaks the documented wire format, over a real socket, by the unmodified SDK."""

import asyncio

import pytest
from kit.optional import needs
from kit.wire.client import COST, KEY, MODES, ONCE, PRICE, SHELLS, Client, add, fails
from kit.wire.gemini_format import answering, call, content, is_stream, problem, refusing, spelled, thought
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from vinelm.backends.diagnostics import KnowsContext
from vinelm.errors import CallError, ConfigError, WorkflowError
from vinelm.requests.protocols import PricesCalls

needs("google.genai")


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    for name in ("GOOGLE_API_KEY", "GEMINI_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def client(transport, kept):
    def make(**how):
        url = how.pop("api_base", transport.url.removesuffix("/v1"))
        return kept(Client(url, **{"provider": "gemini", "api_key_env": "MY_KEY", **how}))

    return make


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_answer_and_usage(transport, client, mode, streams):
    transport.answers(answering("fo", "ur"))
    options = {"temperature": 0.5, "top_k": 4, "thinking_config": {"thinking_budget": 9}}
    made = client(settings={"stream": streams}, options=options)
    message = made.ask(mode, [SystemMessage("be brief"), HumanMessage("2 + 2?")], stop=["\n"])
    assert message.text == "four"
    assert message.usage_metadata["output_token_details"] == {"reasoning": 3}
    (usage,) = made.usages
    assert (usage.tokens_in, usage.tokens_out, usage.tokens_cached, usage.tokens_reasoning) == (20, 7, 8, 3)
    assert (usage.cost_usd, usage.retries, usage.failure, usage.finish_reason) == (COST, 0, None, "STOP")
    assert (usage.provider_request_id, usage.tokens_estimated) == ("req_1", False)
    is_streamed = streams or "stream" in mode
    assert (usage.ttft_s is not None) == is_streamed
    (asked,) = transport.asked
    verb = "streamGenerateContent?alt=sse" if is_streamed else "generateContent"
    assert asked.path.partition("/models/")[2] == f"model-1:{verb}"
    assert asked.headers["x-goog-api-key"] == KEY
    assert spelled(asked.json) == {
        "contents": [{"role": "user", "parts": [{"text": "2 + 2?"}]}],
        "systemInstruction": {"role": "user", "parts": [{"text": "be brief"}]},
        "generationConfig": {
            "maxOutputTokens": 1024, "temperature": 0.5, "topK": 4, "stopSequences": ["\n"],
            "thinkingConfig": {"thinkingBudget": 9},
        },
    }  # fmt: skip


CALL = {"name": "add", "args": {"a": 1, "b": 2}, "id": "c1", "type": "tool_call"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("streams", [True, False])
def test_tool_calls(transport, client, mode, streams):
    transport.answers(answering("so ", call("add", {"a": 1, "b": 2}), call("add", {"a": 5})))
    made = client(settings={"stream": streams})
    message = made.ask(mode, chat=made.chat().bind_tools([add], tool_choice="add"))
    assert message.text == "so "
    assert [(one["name"], one["args"]) for one in message.tool_calls] == [("add", {"a": 1, "b": 2}), ("add", {"a": 5})]
    assert len({one["id"] for one in message.tool_calls}) == 2
    body = spelled(transport.asked[0].json)
    assert body["toolConfig"] == {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["add"]}}
    (declared,) = body["tools"][0]["functionDeclarations"]
    assert (declared["name"], declared["parametersJsonSchema"]["required"]) == ("add", ["a", "b"])


def conversation(transport, client, **fields):
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    transport.answers(answering("ok"))
    client(**fields).chat().invoke(
        [
            HumanMessage([{"type": "text", "text": "what is it?"}, picture]),
            AIMessage([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "let me see"}], tool_calls=[CALL]),
            ToolMessage("3", tool_call_id="c1"),
            HumanMessage("and now?"),
        ]
    )
    return spelled(transport.asked[0].json)["contents"]


def test_messages_on_the_wire(transport, client):
    first, second, third = conversation(transport, client, model_id="gemini-2.5-flash")
    assert first["parts"] == [{"text": "what is it?"}, {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}]
    assert second == {
        "role": "model",
        "parts": [{"text": "let me see"}, {"functionCall": {"name": "add", "args": {"a": 1, "b": 2}}}],
    }
    assert third["parts"] == [{"functionResponse": {"name": "add", "response": {"output": "3"}}}, {"text": "and now?"}]


def test_a_call_that_another_model_made_is_marked_so(transport, client):
    part = conversation(transport, client, model_id="gemini-3-pro")[1]["parts"][1]
    assert part["thoughtSignature"] == "skip_thought_signature_validator"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("streams", [True, False])
def test_a_models_own_signature_goes_back_to_it(transport, client, mode, streams):
    transport.answers(answering(call("add", {"a": 1}, thoughtSignature="AAEC"), call("add", {"a": 2})))
    made = client(model_id="gemini-3-pro", settings={"stream": streams})
    said = made.ask(mode, chat=made.chat().bind_tools([add]))
    results = [ToolMessage("3", tool_call_id=one["id"]) for one in said.tool_calls]
    made.ask(mode, [HumanMessage("?"), AIMessage(said.content, tool_calls=said.tool_calls), *results])
    parts = transport.asked[1].json["contents"][1]["parts"]
    assert [part.get("thoughtSignature") for part in parts] == ["AAEC", None]  # Gemini signs the first of parallel calls
    other = client(model_id="gemini-3-flash")
    other.ask(mode, [HumanMessage("?"), AIMessage(said.content, tool_calls=said.tool_calls), *results])
    assert transport.asked[2].json["contents"][1]["parts"][0]["thoughtSignature"] == "skip_thought_signature_validator"


@pytest.mark.parametrize("mode", MODES)
def test_thoughts_unicode_and_a_megabyte(transport, client, mode):
    prompt = "žluťoučký 🦥 \u2028" * 60_000
    transport.answers(answering(thought("hm"), "🦥", "ž\u2028"))
    message = client().ask(mode, prompt)
    assert (message.text, message.additional_kwargs["reasoning_content"]) == ("🦥ž\u2028", "hm")
    assert transport.asked[0].json["contents"][0]["parts"] == [{"text": prompt}]


REFUSALS = [
    (400, "INVALID_ARGUMENT", "s3cret", "malformed"),
    (400, "INVALID_ARGUMENT", "API key not valid. s3cret", "auth"),
    (400, "INVALID_ARGUMENT", "The input token count (9) exceeds the maximum number of tokens. s3cret", "context_length"),
    (403, "PERMISSION_DENIED", "s3cret", "auth"),
    (404, "NOT_FOUND", "s3cret", "malformed"),
    (429, "RESOURCE_EXHAUSTED", "s3cret", "rate_limit"),
    (500, "INTERNAL", "s3cret", "server"),
    (503, "UNAVAILABLE", "s3cret", "server"),
    (504, "DEADLINE_EXCEEDED", "s3cret", "timeout"),
]  # fmt: skip


@pytest.mark.parametrize("mode", SHELLS)
@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: f"{case[0]}-{case[3]}")
def test_kinds_of_refusal(transport, client, mode, streams, case):
    status, name, message, kind = case
    transport.answers(refusing(status, name, message=message))
    error, usage = fails(client(settings={**ONCE, "stream": streams}), mode)
    assert (error.kind, usage.retries) == (kind, 0)
    assert str(error).startswith(f"m: {kind}: Gemini answered HTTP {status} ({name})")
    assert (usage.cost_usd == 0.0) == (status not in (408, 424, 500, 504))  # which may have been worked on


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("how", ["header", "body"])
def test_retries_are_recorded_and_not_timed(transport, client, mode, how):
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.05s"}
    asked = {"retry_after": "0.05"} if how == "header" else {"details": [info]}
    transport.answers(refusing(429, "RESOURCE_EXHAUSTED", times=2, then=answering("four"), **asked))
    made = client()
    assert made.ask(mode).text == "four"
    (usage,) = made.usages
    assert (usage.retries, usage.cost_usd, len(transport.asked)) == (2, COST, 3)
    assert usage.waited_s > 0.09


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize(
    ("finish", "kind"), [("MAX_TOKENS", "truncated"), ("SAFETY", "content_filter"), ("MALFORMED_FUNCTION_CALL", "malformed")]
)
def test_a_bad_answer_is_a_failure_and_costs(transport, client, mode, streams, finish, kind):
    transport.answers(answering("fo", finish=finish))
    error, _ = fails(client(settings={**ONCE, "stream": streams}), mode)
    assert (error.kind, error.cost_usd) == (kind, COST)


@pytest.mark.parametrize("streams", [True, False])
def test_an_empty_answer(transport, client, streams):
    transport.answers(answering(thought("hm")))
    assert fails(client(settings={"stream": streams}), "ainvoke")[0].kind == "empty"


@pytest.mark.parametrize("mode", SHELLS)
@pytest.mark.parametrize("streams", [True, False])
def test_a_prompt_that_is_blocked(transport, client, mode, streams):
    async def reply(asked, out):
        body = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 20}, "responseId": "r"}
        if not is_stream(asked):
            return await out.whole(body)
        await out.chunked()
        await out.event(body)
        return await out.finish()

    transport.answers(reply)
    assert fails(client(settings={"stream": streams}), mode)[0].kind == "content_filter"


def silent(stage):
    async def reply(asked, out):
        if stage == "middle":
            await out.chunked()
            await out.event(content("four", finish=None, usage=None))
        await asyncio.sleep(30)

    return reply


@pytest.mark.parametrize("mode", SHELLS)
def test_an_error_inside_a_stream(transport, client, mode):
    async def reply(asked, out):
        await out.chunked()
        await out.event(content("fo", finish=None))
        await out.event(problem(503, "UNAVAILABLE"))
        await out.finish()

    transport.answers(reply)
    assert fails(client(settings=ONCE), mode)[0].kind == "server"


def test_a_stream_that_is_left_gives_its_connection_back(transport, client):
    transport.answers(silent("middle"))
    made = client(timeout_s=20.0)
    for _ in range(3):
        pieces = made.chat().stream("?")
        assert next(pieces).text == "four"
        pieces.close()
    (client_,) = [one.sync()._api_client._httpx_client for one in made.backend.transport.clients.all()]
    (pool,) = client_._transport._pools.values()
    assert [connection for connection in pool.connections if not connection.is_closed()] == []
    assert [usage.finish_reason for usage in made.usages] == [None] * 3


def test_context_and_upper_bound(transport, client):
    async def reply(asked, out):
        assert asked.path.endswith("/models/model-1")
        await out.whole({"name": "models/model-1", "inputTokenLimit": 1048576, "outputTokenLimit": 65536})

    transport.answers(reply)
    made = client()
    assert isinstance(made.backend, KnowsContext)
    assert made.backend.context_tokens(made.model) == 1048576
    assert isinstance(made.backend, PricesCalls)
    bound = made.backend.upper_bound_usd(made.model, [SystemMessage("é" * 500), HumanMessage("é" * 500)])
    assert bound >= 2 * PRICE.cost_usd(2000, made.model.max_tokens)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"api_key_env": None}, "model 'm': no api_key_env: name the variable of the key"),
        ({"api_key_env": "NOT_SET"}, "model 'm': environment variable NOT_SET is not set: put the API key there"),
        ({"options": {"temprature": 1}}, "model 'm': options are not of google-genai's GenerateContentConfig"),
        ({"options": {"max_output_tokens": 5}}, "option 'max_output_tokens' is set by VineLM: leave it out"),
        ({"api_base": "localhost:80"}, "it must start with http:// or https://"),
        ({"settings": {"limit": 1}}, r"\[backend.gemini\]: unknown key 'limit'"),
    ],
)
def test_bad_settings(client, fields, message):
    with pytest.raises(ConfigError, match=message):
        client(**fields).chat()


def test_bad_calls(transport, client):
    made = client(max_tokens=10)
    with pytest.raises(ConfigError, match="max_tokens is the entry's, 10"):
        made.ask("invoke", max_tokens=11)
    with pytest.raises(WorkflowError, match="cannot represent") as raised:
        made.ask("invoke", [HumanMessage([{"type": "image_url", "image_url": {"url": "https://s3cret/"}}])])
    assert raised.value.__context__ is None
    with pytest.raises(CallError, match="has no such options"):
        made.ask("invoke", temprature=1)
    assert len(made.usages) == 1
