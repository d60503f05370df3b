"""Chat completions through the gateway, by the openai SDK: what the client gets, and what the provider is sent."""

import asyncio
import json
import urllib.request

import openai
import pytest
from kit.servers.gateways import ASKED, KEY, catalog_of, entries, running
from kit.wire.openai_format import answering, calling, chunk, completion, problem
from pydantic import BaseModel

from vinelm import Catalog

TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}


class Answer(BaseModel):
    number: int


def raw(gateway, body, *, path="/chat/completions", **headers):
    """Status, headers and body of a call, without any SDK."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    asking = urllib.request.Request(gateway.url + path, data=data, headers={"content-type": "application/json", **headers})
    try:
        with urllib.request.urlopen(asking, timeout=30) as reply:
            return reply.status, dict(reply.headers), reply.read()
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), error.read()


def test_a_whole_answer_comes_as_the_provider_has_written_it(gateway, upstream):
    odd = {**completion("four"), "x_new": {"deep": [1, 2]}, "system_fingerprint": "fp"}
    odd["choices"][0]["message"]["x_thought"] = "hm"

    async def reply(asked, out):
        await out.whole(odd, x_request_id="req_7", openai_organization="org-secret")

    upstream.answers(reply)
    status, headers, content = raw(gateway, {"model": "big", "messages": ASKED, "x_unknown": {"a": None}, "temperature": 0.25})
    assert (status, json.loads(content), headers["x-vinelm-model"]) == (200, odd, "big")
    assert headers["x-request-id"] == "req_7"
    assert "openai-organization" not in headers
    [asked] = upstream.asked
    assert asked.json == {"model": "big-1", "messages": ASKED, "x_unknown": {"a": None}, "temperature": 0.25}
    assert asked.headers["authorization"] == f"Bearer {KEY}"


def test_the_callers_own_key_goes_nowhere(gateway, upstream):
    gateway.ask("sk-callers-own-0123456789", headers={"x-other": "sk-callers-own-0123456789"})
    assert "callers-own" not in repr(upstream.asked)


@pytest.mark.parametrize("model", ["big", "big-1", "openai/big-1", "openai:big-1"])
def test_a_model_is_named_as_in_the_catalog_or_as_its_provider_does(gateway, upstream, model):
    assert gateway.ask(model=model).choices[0].message.content == "four"
    assert upstream.asked[0].json["model"] == "big-1"


def test_models_are_listed(gateway):
    with gateway.client() as client:
        assert [model.id for model in client.models.list()] == ["big", "small"]
        assert client.models.retrieve("small").owned_by == "openai"
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve("none")


def test_a_stream_is_the_providers_own_without_the_usage_that_nobody_asked_for(gateway, upstream):
    status, headers, content = raw(gateway, {"model": "big", "messages": ASKED, "stream": True})
    assert (status, headers["content-type"].partition(";")[0]) == (200, "text/event-stream")
    assert b"usage" not in content
    events = [event.removeprefix(b"data: ") for event in content.strip().split(b"\n\n")]
    assert events[-1] == b"[DONE]"
    pieces = [json.loads(event)["choices"][0]["delta"].get("content") for event in events[:-1]]
    assert pieces == ["", "fo", "ur", None]
    assert upstream.asked[0].json["stream_options"] == {"include_usage": True}


def test_a_stream_with_usage_passes_byte_by_byte(gateway, upstream):
    first = b': keep-alive\n\ndata: {"id": "c",  "choices":[{"index":0,"delta":{"content":"4"}}],"usage":null}\r\n\r\n'
    last = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4},"x":1}\n\ndata: [DONE]\n\n'

    async def reply(asked, out):
        await out.chunked()
        for place in range(0, len(first), 7):  # events are cut anywhere
            await out.chunk(first[place : place + 7])
        await out.chunk(last)
        await out.finish()

    upstream.answers(reply)
    options = {"include_usage": True, "include_obfuscation": False}
    status, _, content = raw(gateway, {"model": "big", "messages": ASKED, "stream": True, "stream_options": options})
    assert (status, content) == (200, first + last)
    assert upstream.asked[0].json["stream_options"] == options


def test_pieces_come_as_the_provider_sends_them(gateway, upstream):
    """The second piece is sent only once the client has the first."""
    has_first = asyncio.Event()
    loops = []

    async def reply(asked, out):
        loops.append(asyncio.get_running_loop())
        await out.chunked()
        await out.event(chunk({"content": "fo"}))
        await asyncio.wait_for(has_first.wait(), 30)
        await out.event(chunk({"content": "ur"}, finish_reason="stop"))
        await out.event("[DONE]")
        await out.finish()

    upstream.answers(reply)
    said = []
    with gateway.client() as client:
        for piece in client.chat.completions.create(model="big", messages=ASKED, stream=True):
            said.append(piece.choices[0].delta.content)
            loops[0].call_soon_threadsafe(has_first.set)
    assert said == ["fo", "ur"]


def test_coroutines(gateway):
    async def ask():
        async with gateway.aclient() as client:
            whole = await client.chat.completions.create(model="big", messages=ASKED)
            stream = await client.chat.completions.create(model="big", messages=ASKED, stream=True)
            return whole.choices[0].message.content, [piece.choices[0].delta.content async for piece in stream]

    assert asyncio.run(ask()) == ("four", ["", "fo", "ur", None])


@pytest.mark.parametrize("stream", [False, True])
def test_tools(gateway, upstream, stream):
    upstream.answers(calling("add", {"a": 2}))
    with gateway.client() as client:
        asked = client.chat.completions.create(model="big", messages=ASKED, tools=[TOOL], tool_choice="auto", stream=stream)
        if stream:
            [call] = [call for piece in asked for choice in piece.choices for call in choice.delta.tool_calls or ()]
        else:
            [call] = asked.choices[0].message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("add", {"a": 2})
    assert upstream.asked[0].json["tools"] == [TOOL]


def test_structured_output(gateway, upstream):
    upstream.answers(answering('{"number": 4}'))
    with gateway.client() as client:
        found = client.chat.completions.parse(model="big", messages=ASKED, response_format=Answer)
    assert found.choices[0].message.parsed == Answer(number=4)
    assert upstream.asked[0].json["response_format"]["json_schema"]["name"] == "Answer"


def test_an_answer_that_was_cut_off_is_an_answer(gateway, upstream):
    """By our measure it has failed; the client has to see what the provider has said."""
    upstream.answers(answering("fo", finish_reason="length"))
    whole = gateway.ask()
    assert (whole.choices[0].message.content, whole.choices[0].finish_reason) == ("fo", "length")
    with gateway.client() as client:
        pieces = list(client.chat.completions.create(model="big", messages=ASKED, stream=True))
    assert pieces[-1].choices[0].finish_reason == "length"


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "context_length_exceeded", openai.BadRequestError),
        (404, "model_not_found", openai.NotFoundError),
        (429, "rate_limit_exceeded", openai.RateLimitError),
        (500, "server_error", openai.InternalServerError),
        (503, "overloaded", openai.InternalServerError),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_is_the_providers_own(gateway, upstream, status, code, kind, stream):
    async def reply(asked, out):
        await out.whole(problem(code, "so and so"), status=status, retry_after="7")

    upstream.answers(reply)
    with pytest.raises(kind) as caught:
        gateway.ask(stream=stream)
    assert (caught.value.code, caught.value.body["message"]) == (code, "so and so")
    assert caught.value.response.headers["retry-after"] == "7"
    assert len(upstream.asked) == 1  # clients repeat


@pytest.mark.parametrize("status", [401, 403])
def test_a_provider_that_refuses_the_gateways_key_is_no_fault_of_the_client(gateway, upstream, status):
    async def reply(asked, out):
        await out.whole(problem("invalid_api_key", f"Incorrect API key provided: {KEY}"), status=status)

    upstream.answers(reply)
    with pytest.raises(openai.InternalServerError) as caught:
        gateway.ask()
    assert (caught.value.status_code, caught.value.code) == (502, "upstream_auth")
    assert "sk-" not in str(caught.value)


def test_an_echoed_key_and_the_operators_account_are_not_shown(gateway, upstream):
    async def reply(asked, out):
        told = problem("rate_limit_exceeded", f"limit of org-abcdef123 for {KEY}")
        deep = {"raw": [{"who": "org-abcdef123", KEY: f"Bearer {KEY}"}]}
        await out.whole({"error": {**told["error"], "metadata": deep}, "more": deep}, status=429)

    upstream.answers(reply)
    with pytest.raises(openai.RateLimitError) as caught:
        gateway.ask()
    assert KEY not in caught.value.response.text
    assert "org-abcdef123" not in caught.value.response.text


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"x"', b"<html>no</html>"])
@pytest.mark.parametrize("status", [200, 502])
def test_what_is_no_answer_is_an_error_of_the_gateways(gateway, upstream, body, status):
    async def reply(asked, out):
        await out.whole(body, status=status)

    upstream.answers(reply)
    with pytest.raises(openai.APIStatusError) as caught:
        gateway.ask()
    assert caught.value.status_code in (400, 500, 502)
    assert set(caught.value.body) == {"message", "type", "param", "code"}


def test_a_stream_that_breaks_off_says_so(gateway, upstream):
    async def reply(asked, out):
        await out.chunked()
        await out.event(chunk({"content": "fo"}))
        out.close()

    upstream.answers(reply)
    with gateway.client() as client, pytest.raises(openai.APIError, match="broke"):
        list(client.chat.completions.create(model="big", messages=ASKED, stream=True))


def test_a_server_without_stream_options_is_asked_without(gateway, upstream):
    good = answering("four", usage=None)

    async def reply(asked, out):
        if "stream_options" in asked.json:
            told = problem("unknown_parameter", "Unknown parameter: 'stream_options'.")
            return await out.whole({"error": {**told["error"], "param": "stream_options"}}, status=400)
        return await good(asked, out)

    upstream.answers(reply)
    with gateway.client() as client:
        said = [
            piece.choices[0].delta.content for piece in client.chat.completions.create(model="big", messages=ASKED, stream=True)
        ]
        assert said == ["", "four", None]
        asked = len(upstream.asked)
        list(client.chat.completions.create(model="big", messages=ASKED, stream=True))
    assert len(upstream.asked) == asked + 1  # what a server refuses is remembered


def test_a_setting_that_the_client_sent_is_not_left_out_for_him(gateway, upstream):
    async def reply(asked, out):
        told = problem("unsupported_value", "Unsupported parameter: 'temperature'.")
        await out.whole({"error": {**told["error"], "param": "temperature"}}, status=400)

    upstream.answers(reply)
    with pytest.raises(openai.BadRequestError, match="temperature"):
        gateway.ask(temperature=0.5)
    assert len(upstream.asked) == 1


def test_an_entrys_options_are_a_part_of_the_model(upstream):
    with running(catalog_of(upstream.url, options={"reasoning_effort": "low", "top_k": 3})) as gateway:
        gateway.ask(reasoning_effort="high")
    assert upstream.asked[0].json | {"reasoning_effort": "low", "top_k": 3} == upstream.asked[0].json


def test_a_model_of_another_form_is_translated(upstream):
    """An entry with a setting that only LangChain's package knows goes through that."""
    with running(catalog_of(upstream.url, options={"disable_streaming": False})) as gateway:
        assert gateway.ask().choices[0].message.content == "four"
        with gateway.client() as client:
            options = {"include_usage": True}
            pieces = list(client.chat.completions.create(model="big", messages=ASKED, stream=True, stream_options=options))
        assert "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices) == "four"
        assert pieces[-1].usage.prompt_tokens == 20
    assert upstream.asked[0].headers["user-agent"].startswith(("OpenAI", "AsyncOpenAI"))


@pytest.mark.parametrize("kind", ["truncated", "empty"])
def test_a_translated_stream_that_is_cut_off_says_so(upstream, kind):
    """What the client has is not the provider's own answer then: nobody else would tell him."""
    upstream.answers(answering("fo", finish_reason="length") if kind == "truncated" else answering(""))
    with (
        running(catalog_of(upstream.url, options={"disable_streaming": False})) as gateway,
        gateway.client() as client,
        pytest.raises(openai.APIError, match=kind),
    ):
        list(client.chat.completions.create(model="big", messages=ASKED, stream=True))


def test_a_group_of_replicas_answers(upstream):
    """A replica is chosen by the beginning of the prompt, whatever the parts of its messages are."""
    odd = [{"role": "developer", "content": [{"type": "text", "text": "Count."}, "so", 7]}, {"role": "user", "content": None}]
    replicas = [entries(upstream.url, name, group="pool", model="m", engine=name)[0] for name in "ab"]
    with running(Catalog.from_dict({"model": replicas})) as gateway:
        assert gateway.ask(model="pool").choices[0].message.content == "four"
        assert gateway.ask(model="pool", messages=[*odd, *ASKED]).choices[0].message.content == "four"
    assert [asked.json["model"] for asked in upstream.asked] == ["m", "m"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_hangs_up_ends_the_call_at_the_provider(gateway, upstream, stream):
    seen = []

    async def reply(asked, out):
        if stream:
            await out.chunked()
            await out.event(chunk({"content": "fo"}))
        seen.append("began")
        seen.append(await asyncio.wait_for(out.reader.read(1), 30))

    upstream.answers(reply)

    async def ask():
        async with gateway.aclient() as client:
            call = client.chat.completions.create(model="big", messages=ASKED, stream=stream)
            if stream:
                found = await call
                await anext(found)
                await found.close()
            else:
                task = asyncio.ensure_future(call)
                while not seen:
                    await asyncio.sleep(0.01)
                task.cancel()
        while len(seen) < 2:
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(ask(), 30))
    assert seen == ["began", b""]
