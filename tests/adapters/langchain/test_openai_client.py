"""``vine.openai_client``: code over the openai SDK runs on the model that VineLM chooses, and the SDK sends nothing."""

import asyncio
import json

import pytest
from kit.apps.chat import ScriptedBackend, chat_control
from kit.wire.client import PRICE
from kit.wire.openai_format import USAGE, chunks, completion, problem
from kit.wire.openai_format import stream as streamed
from langchain_core.messages import AIMessage, ToolMessage

from vinelm import VineChatModel, VineLM
from vinelm.adapters.langchain.openai_client import openai_client
from vinelm.catalog import Catalog, Model

openai = pytest.importorskip("openai")
# A client of an event loop that has ended leaves its connection to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
ASKED = [{"role": "user", "content": "2 + 2?"}]


SEEN = []


def adding(name, messages, options):
    """Calls the tool once, then answers."""
    SEEN[:] = messages
    if "tools" not in options or any(isinstance(message, ToolMessage) for message in messages):
        return AIMessage("4", usage_metadata={"input_tokens": 8, "output_tokens": 3, "total_tokens": 11})
    return AIMessage("", tool_calls=[{"name": "add", "args": {"a": 2}, "id": "c1"}])


@pytest.fixture
def backend():
    return ScriptedBackend(adding)


def client_of(backend, *, is_async=False):
    vine = chat_control(backend)
    chat = VineChatModel(vine=vine, stage="generate")
    return openai_client(vine, lambda _: chat, "generate", is_async=is_async)


def test_a_loop_over_tools(backend):
    create = client_of(backend).chat.completions.create
    first = create(model="gpt-4o", messages=ASKED, tools=[TOOL], temperature=0.5, max_completion_tokens=9).choices[0]
    assert (first.finish_reason, first.message.tool_calls[0].function.arguments) == ("tool_calls", '{"a": 2}')
    told = [*ASKED, first.message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": "c1", "content": "4"}]
    last = create(model="gpt-4o", messages=told, tools=[TOOL])
    assert (last.choices[0].message.content, last.choices[0].finish_reason) == ("4", "stop")
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (8, 3)
    assert [message.type for message in SEEN] == ["human", "ai", "tool"]
    [(name, _, options), _] = backend.log
    assert last.model == name == "m0"
    # The tools are in the form of the chosen model, whose own ``bind_tools`` made it.
    assert (options["temperature"], options["max_tokens"], options["tools"]) == (0.5, 9, [{"function": "add"}])


def test_a_stream_and_a_coroutine(backend):
    *chunks, last = client_of(backend).chat.completions.create(model="x", messages=ASKED, stream=True)
    assert [chunk.choices[0].delta.content for chunk in chunks] == ["4"]
    assert (last.choices[0].finish_reason, last.choices[0].delta.content) == ("stop", None)
    called = client_of(backend, is_async=True).chat.completions.create(model="x", messages=ASKED)
    assert asyncio.run(called).choices[0].message.content == "4"


def test_another_endpoint_is_refused_in_one_line(backend):
    with pytest.raises(openai.BadRequestError, match=r"VineLM serves chat\.completions\.create"):
        client_of(backend).responses.create(model="x", input="?")
    assert backend.log == []


# -- over the wire: what was asked for arrives at the server, and what it answers at the caller ------------------


@pytest.fixture
def client(server, monkeypatch):
    monkeypatch.setenv("MY_KEY", "sk-canary")
    return wired(server).openai_client("write")


def wired(server, provider="openai", **fields):
    how = {"engine": "e", "price": PRICE, "price_id": "p", "timeout_s": 60.0, "api_key_env": "MY_KEY"}
    base = server.url if provider == "openai" else server.url.removesuffix("/v1")
    entry = Model(name="m", provider=provider, model_id="model-1", api_base=base, **{**how, **fields})
    return VineLM(Catalog([entry], {provider: {"backoff_s": 0.001}}))


def saying(*pieces, **how):
    async def reply(asked, out):
        if asked.json.get("stream"):
            return await streamed(out, *pieces, **how)
        return await out.whole(completion("".join(pieces), **how))

    return reply


SCHEMA = {"name": "answer", "schema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}}
PARAMETERS = {
    "temperature": 0.25,
    "top_p": 0.5,
    "seed": 7,
    "presence_penalty": 0.5,
    "frequency_penalty": 0.25,
    "logit_bias": {"5": -100},
    "logprobs": True,
    "top_logprobs": 2,
    "user": "u1",
    "stop": ["END"],
    "max_completion_tokens": 33,
    "reasoning_effort": "low",
    "verbosity": "low",
    "service_tier": "flex",
    "store": True,
    "metadata": {"a": "b"},
    "prompt_cache_key": "k",
    "safety_identifier": "s",
    "prediction": {"type": "content", "content": "four"},
    "modalities": ["text"],
    "web_search_options": {},
    "response_format": {"type": "json_schema", "json_schema": SCHEMA},
}


@pytest.mark.parametrize("name", PARAMETERS)
@pytest.mark.parametrize("is_streamed", [False, True])
def test_every_parameter_is_sent_or_refused_in_one_line(client, server, name, is_streamed):
    server.answers(saying("four"))
    value, refusals = PARAMETERS[name], []
    try:
        answer = client.chat.completions.create(model="x", messages=ASKED, stream=is_streamed, **{name: value})
        if is_streamed:
            list(answer)
    except openai.BadRequestError as error:
        refusals.append(str(error))
    names = ("max_completion_tokens", "max_tokens") if name == "max_completion_tokens" else (name,)
    sent = [one.json[key] for one in server.asked for key in names if key in one.json]
    assert sent == [] if refusals else sent == [value]
    assert all(name in line and "\n" not in line for line in refusals)


def test_a_parameter_that_another_provider_lacks_is_refused_before_it_is_sent(server, monkeypatch):
    monkeypatch.setenv("MY_KEY", "sk-canary")
    create = wired(server, "anthropic").openai_client("write").chat.completions.create
    with pytest.raises(openai.BadRequestError, match=r"has no parameter 'logit_bias' of OpenAI's: leave it out"):
        create(model="x", messages=ASKED, logit_bias={"5": 1})
    assert server.asked == []


def test_tools_and_their_choice_are_sent(client, server):
    server.answers(saying("four"))
    choice = {"type": "function", "function": {"name": "add"}}
    client.chat.completions.create(model="x", messages=ASKED, tools=[TOOL], tool_choice=choice, parallel_tool_calls=False)
    sent = server.asked[-1].json
    assert sent["tools"][0]["function"]["name"] == "add"
    assert (sent["tool_choice"], sent["parallel_tool_calls"]) == (choice, False)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_stream_comes_piece_by_piece_and_states_its_usage(server, monkeypatch, is_async):
    monkeypatch.setenv("MY_KEY", "sk-canary")
    server.answers(saying("f", "ou", "r"))
    client = wired(server).openai_client("write", is_async=is_async)
    how = {"model": "x", "messages": ASKED, "stream": True, "stream_options": {"include_usage": True}}

    async def collected():
        return [chunk async for chunk in await client.chat.completions.create(**how)]

    chunks = asyncio.run(collected()) if is_async else list(client.chat.completions.create(**how))
    said = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices and chunk.choices[0].delta.content]
    assert said == ["f", "ou", "r"]
    *_, end, usage = chunks
    assert end.choices[0].finish_reason == "stop"
    assert usage.choices == []
    _agrees(usage.usage)


@pytest.mark.parametrize("is_streamed", [False, True])
def test_half_of_a_surrogate_pair_is_handed_on(client, server, is_streamed):
    async def reply(asked, out):
        if not asked.json.get("stream"):
            return await out.whole(json.dumps(completion("a\ud800b")).encode())
        await out.chunked()
        for event in chunks("a\ud800b"):
            await out.event(json.dumps(event))
        return await out.finish()

    server.answers(reply)
    found = client.chat.completions.create(model="m", messages=ASKED, stream=is_streamed)
    texts = [one.choices[0].delta.content or "" for one in found] if is_streamed else [found.choices[0].message.content]
    assert "".join(texts) == "a\ud800b"


def test_cached_and_reasoning_tokens_are_stated(client, server):
    server.answers(saying("four"))
    _agrees(client.chat.completions.create(model="x", messages=ASKED).usage)


def _agrees(usage):
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (20, 7, 27)
    assert usage.prompt_tokens_details.cached_tokens == USAGE["prompt_tokens_details"]["cached_tokens"]
    assert usage.completion_tokens_details.reasoning_tokens == USAGE["completion_tokens_details"]["reasoning_tokens"]


def test_several_answers_are_all_handed_out(client, server):
    choices = [completion(text)["choices"][0] | {"index": number} for number, text in enumerate(("one", "two", "three"))]

    async def reply(asked, out):
        assert asked.json["n"] == 3
        await out.whole({**completion(), "choices": choices})

    server.answers(reply)
    found = client.chat.completions.create(model="x", messages=ASKED, n=3).choices
    assert [(one.index, one.message.content) for one in found] == [(0, "one"), (1, "two"), (2, "three")]


def test_a_stream_of_several_answers_is_refused(client, server):
    with pytest.raises(openai.BadRequestError, match="a stream has one answer"):
        client.chat.completions.create(model="x", messages=ASKED, n=3, stream=True)
    assert server.asked == []


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, "AuthenticationError"), (429, "RateLimitError"), (500, "InternalServerError"), (400, "BadRequestError")],
)
def test_failures_are_the_sdks_own_errors(client, server, status, kind):
    async def reply(asked, out):
        await out.whole(problem("some_code"), status)

    server.answers(reply)
    with pytest.raises(getattr(openai, kind)) as raised:
        client.chat.completions.create(model="x", messages=ASKED)
    assert "s3cret" not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_failure_within_a_stream_is_the_sdks_error(client, server):
    async def reply(asked, out):
        await out.whole(problem("some_code"), 401)

    server.answers(reply)
    with pytest.raises(openai.APIError, match="auth"):
        list(client.chat.completions.create(model="x", messages=ASKED, stream=True))
