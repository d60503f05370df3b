"""Servers that lie: impossible usage, nonsense, half answers. Every provider, over a real socket."""

import json
from contextlib import suppress

import pytest
from kit.crossed import crossed
from kit.optional import needs
from kit.wire import anthropic_format, bedrock_format, gemini_format, openai_format
from kit.wire.client import COST, MODES, ONCE, PROMPT, fails
from kit.wire.providers import PROVIDERS, SECRETS
from langchain_core.messages import HumanMessage

from vinelm.errors import CallError

needs("langchain_openai", "langchain_anthropic", "langchain_aws", "langchain_google_genai")
pytestmark = pytest.mark.usefixtures("credentials")
WAYS = [("invoke", False), ("ainvoke", True)]


@pytest.fixture(params=PROVIDERS)
def provider(request):
    return PROVIDERS[request.param]


@pytest.fixture
def client(provider, transport, kept):
    return lambda **how: kept(provider.client(transport, **how))


def bound_usd(made, prompt=PROMPT):
    """Of one attempt."""
    return made.backend.upper_bound_usd(made.model, [HumanMessage(prompt)]) / 2


def is_bound(usd, made):
    return usd == pytest.approx(bound_usd(made), rel=0.01)


IMPOSSIBLE = [-1, -(10**9), 10**9, 10**18, 10**400, 0]
ODD = [7.5, 1e300, "7", True, None, [7], {"n": 7}, [], "x" * 10_000]
"""What an SDK may refuse with the whole answer, hand on as it comes, or mend: 7.5 becomes 7, and true 1."""
NAMES = {
    openai_format: ("prompt_tokens", "completion_tokens"),
    bedrock_format: ("inputTokens", "outputTokens"),
    anthropic_format: ("input_tokens", "output_tokens"),
    gemini_format: ("promptTokenCount", "candidatesTokenCount"),
}


def with_usage(provider, which, value):
    """A server whose answer is in order but for one count."""
    words = provider.words
    usage = {**words.USAGE, NAMES[words][which]: value}
    usage = {name: count for name, count in usage.items() if not name.lower().startswith("total") or words is bedrock_format}
    if words is gemini_format and which:
        usage["thoughtsTokenCount"] = 0
    return words.answering("four", usage=usage)


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("which", [0, 1], ids=["in", "out"])
def test_impossible_usage_is_missing_usage(provider, transport, client, which, streams):
    made = client(settings={**ONCE, "stream": streams})
    for value in IMPOSSIBLE:
        if provider.name in ("bedrock", "anthropic") and which == 0 and value in (0, -1):
            continue  # which counts apart what came from a cache, and the packages add that
        if provider.name == "bedrock" and value == 0:
            continue  # its total says how many there were
        transport.answers(with_usage(provider, which, value))
        assert made.ask("invoke", PROMPT).text == "four", value
        usage = made.usages.pop()
        assert usage.tokens_estimated
        assert is_bound(usage.cost_usd, made), value
        assert 0 < usage.tokens_in < 100


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("which", [0, 1], ids=["in", "out"])
def test_odd_usage_is_missing_or_mended(provider, transport, client, which, streams):
    made = client(settings={**ONCE, "stream": streams})
    for value in ODD:
        transport.answers(with_usage(provider, which, value))
        with suppress(CallError):
            assert made.ask("invoke", PROMPT).text == "four"
        usage = made.usages.pop()
        assert 0 < usage.cost_usd <= 1.01 * bound_usd(made)
        assert is_bound(usage.cost_usd, made) == usage.tokens_estimated, value


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # of the SDK's own objects
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("value", [7.25, "many", [7], {"n": {"n": 1}}, float("nan"), float("inf")], ids=str)
def test_streamed_usage_that_langchain_cannot_add_up_is_a_malformed_answer(transport, kept, mode, value):
    async def reply(asked, out):
        await openai_format.begin(out)
        *pieces, end = openai_format.chunks("four", usage=None)
        counts = dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), value)
        for piece in (*pieces, end | {"usage": counts}):
            await out.event(piece)
        await out.finish()

    transport.answers(reply)
    made = kept(PROVIDERS["openai"].client(transport, settings={**ONCE, "stream": True}))
    error, usage = fails(made, mode, SECRETS)
    assert (error.kind, usage.tokens_estimated) == ("malformed", True)
    assert is_bound(error.cost_usd, made)


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # of the SDK's own objects
@pytest.mark.parametrize("mode", MODES)
def test_pieces_that_contradict_each_other_are_a_malformed_answer(transport, kept, mode):
    async def reply(asked, out):
        await openai_format.begin(out)
        first, *rest = openai_format.chunks("four")
        for logprobs in ({"content": []}, "none", 7):
            await out.event(first | {"choices": [first["choices"][0] | {"logprobs": logprobs}]})
        for piece in rest:
            await out.event(piece)
        await out.finish()

    transport.answers(reply)
    made = kept(PROVIDERS["openai"].client(transport, settings={**ONCE, "stream": True}))
    error, _ = fails(made, mode, SECRETS)
    assert error.kind == "malformed"
    assert is_bound(error.cost_usd, made)


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # of the SDK's own objects
@pytest.mark.parametrize("mode", MODES)
def test_a_number_where_a_thought_belongs_is_a_malformed_answer(transport, kept, mode):
    async def reply(asked, out):
        await anthropic_format.begin(out)
        await anthropic_format.start(out)
        for thought in ("hm", 7):
            delta = {"type": "thinking_delta", "thinking": thought}
            await anthropic_format.event(out, "content_block_delta", index=0, delta=delta)
        await anthropic_format.event(
            out, "message_delta", delta={"stop_reason": "end_turn"}, usage={"input_tokens": 20, "output_tokens": 7}
        )
        await out.finish()

    transport.answers(reply)
    fields = {"options": {"thinking": {"type": "enabled", "budget_tokens": 1024}}, "max_tokens": 2048}
    made = kept(PROVIDERS["anthropic"].client(transport, settings={**ONCE, "stream": True}, **fields))
    error, _ = fails(made, mode, SECRETS)
    assert error.kind == "malformed"
    assert is_bound(error.cost_usd, made)


@pytest.mark.parametrize("mode", MODES)
def test_usage_before_the_end_of_a_broken_stream_is_not_the_bill(transport, kept, mode):
    """The counts so far are those of a part; nobody knows what the rest cost."""

    async def reply(asked, out):
        await openai_format.begin(out)
        await out.event(openai_format.chunk({"content": "four"}) | {"usage": openai_format.USAGE})
        out.close()

    transport.answers(reply)
    made = kept(PROVIDERS["openai"].client(transport, settings=ONCE))
    error, usage = fails(made, mode, SECRETS)
    assert (error.kind, usage.tokens_estimated) == ("server", True)
    assert is_bound(error.cost_usd, made)


def test_a_body_that_is_cut_is_bought_twice_at_most_and_both_count(provider, transport, client):
    async def reply(asked, out):
        await out.head(content_type="application/json", content_length=1000)
        await out.send(provider.words.HALF)
        out.close()

    transport.answers(reply)
    made = client(settings={"stream": False})
    error, usage = fails(made, "invoke", SECRETS)
    assert (len(transport.asked), usage.retries) == (2, 1)
    assert error.cost_usd == pytest.approx(2 * bound_usd(made), rel=0.01)


@pytest.mark.parametrize("mode", ["invoke", "ainvoke"])
def test_a_body_that_is_shorter_than_promised_is_cut_off_even_if_it_parses(provider, transport, client, mode):
    async def reply(asked, out):
        head = out.head

        async def promising_more(*args, content_length, **headers):
            await head(*args, content_length=content_length + 100, **headers)

        out.head = promising_more
        await provider.words.answering("four")(asked, out)
        out.close()

    transport.answers(reply)
    made = client(settings={**ONCE, "stream": False})
    error, usage = fails(made, mode, SECRETS)
    assert (error.kind, usage.tokens_estimated) == ("server", True)
    assert is_bound(error.cost_usd, made)


@pytest.mark.parametrize(("status", "mode"), crossed([301, 302, 303, 307, 308], ["invoke", "ainvoke", "astream"]))
def test_a_redirect_is_refused_and_free(transport, kept, status, mode):
    for name in ("openai", "anthropic", "gemini", "vertex", "bedrock"):

        async def reply(asked, out):
            await out.whole(b"", status, location="/again")

        transport.answers(reply)
        error, _ = fails(kept(PROVIDERS[name].client(transport)), mode, SECRETS)
        assert (error.kind, error.cost_usd, len(transport.asked)) == ("malformed", 0.0, 1), name


def test_nobody_listens_and_nothing_is_booked(provider, kept):
    where = type("Nowhere", (), {"url": "http://127.0.0.1:9/v1"})
    for mode in ("invoke", "ainvoke"):
        made = kept(provider.client(where, settings={"max_retries": 1}))
        error, usage = fails(made, mode, SECRETS)
        assert (error.kind, error.cost_usd, usage.retries) == ("server", 0.0, 1)


DEEP = b'{"a":' * 100_000


@pytest.mark.parametrize(("mode", "streams"), WAYS)
def test_deep_json_is_a_failure_of_that_call(provider, transport, client, mode, streams):
    async def reply(asked, out):
        if provider.words.is_stream(asked) and provider.name == "bedrock":
            await provider.words.begin(out)
            return await out.chunk(raw_frame(DEEP))
        if provider.words.is_stream(asked) and provider.name == "anthropic":
            await provider.words.begin(out)
            return await out.chunk(b"event: content_block_delta\ndata: " + DEEP + b"\n\n")
        if provider.words.is_stream(asked):
            await provider.words.begin(out)
            return await out.event(DEEP.decode())
        return await out.whole(DEEP)

    transport.answers(reply)
    made = client(settings={**ONCE, "stream": streams})
    error, _ = fails(made, mode, SECRETS)
    assert error.kind in ("malformed", "server")
    assert is_bound(error.cost_usd, made)


def raw_frame(payload):
    """An event of Bedrock's stream whose JSON is ``payload``."""
    frame, dumps = bedrock_format.frame, json.dumps
    bedrock_format.json.dumps = lambda *_, **__: payload.decode()
    try:
        return frame({}, event_type="contentBlockDelta", content_type="application/json", message_type="event")
    finally:
        bedrock_format.json.dumps = dumps


@pytest.mark.parametrize("mode", ["invoke", "ainvoke"])
@pytest.mark.parametrize("arguments", ["[" * 100_000, "1" * 5_000, '{"n": ' + "1" * 5_000 + "}", '"\\ud800"', "nul"])
def test_arguments_of_a_tool_that_cannot_be_parsed(transport, kept, mode, arguments):
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    transport.answers(openai_format.answering({"tool_calls": [call]}, finish_reason="tool_calls"))
    made = kept(PROVIDERS["openai"].client(transport))
    message = made.ask(mode)
    assert (message.tool_calls, message.invalid_tool_calls[0]["name"]) == ([], "f")
    json.dumps(message.invalid_tool_calls).encode()
    is_possible = len(arguments) < 200  # the server counts five tokens
    assert (made.usages[0].cost_usd == COST) is is_possible
    assert made.usages[0].tokens_estimated is not is_possible


@pytest.mark.parametrize("mode", ["invoke", "ainvoke", "stream"])
def test_text_that_no_file_can_keep(transport, kept, mode):
    async def reply(asked, out):
        await openai_format.begin(out)
        for piece in ('"a\\ud83e\\udda5"', '"\\ud800b\\u0000"'):
            await out.event('{"id": "1", "choices": [{"index": 0, "delta": {"content": ' + piece + "}}]}")
        for event in list(openai_format.chunks())[1:]:
            await out.event(json.dumps(event | {"id": "\ud800", "model": "\x00"}))
        await out.finish()

    transport.answers(reply)
    made = kept(PROVIDERS["openai"].client(transport))
    assert made.ask(mode).text.encode("utf-8", "replace") == "a🦥?b\x00".encode()  # as the package gives it
    assert "\ud800" not in (made.usages[0].provider_request_id or "")


@pytest.mark.parametrize("mode", MODES)
def test_half_of_a_surrogate_pair_in_a_prompt_is_not_sent_and_not_billed(transport, kept, mode):
    """As an agent's next turn has it, after such an answer; the packages of some providers send it as an escape."""
    transport.answers(openai_format.answering("four"))
    made = kept(PROVIDERS["openai"].client(transport))
    with pytest.raises(CallError, match="half of a surrogate pair") as raised:
        made.ask(mode, "a\ud800b")
    assert (raised.value.kind, raised.value.cost_usd, len(transport.asked)) == ("malformed", 0.0, 0)
