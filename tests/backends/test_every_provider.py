"""The contract of a metered call: what every provider's package, and a chat model of the application's own, has to keep.

Over a real socket and the unmodified packages. Each fault is tried on a whole and on a streamed call, with and without an event
loop; a synchronous call of a chat model that has an asynchronous client is made on a loop, as its asynchronous one is.
"""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

import pytest
from kit.crossed import crossed
from kit.optional import needs
from kit.wire.client import COST, MODES, ONCE, PRICE, PROMPT, add, fails
from kit.wire.providers import PROVIDERS, SECRETS
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage

from vinelm.backends import PROVIDERS as KNOWN
from vinelm.backends.prompt_text import prompt_parts
from vinelm.clock import WallClock
from vinelm.requests.protocols import CallContext, PricesCalls

needs("langchain_openai", "langchain_anthropic", "langchain_aws", "langchain_google_genai")
pytestmark = pytest.mark.usefixtures("credentials")
WAYS = [("invoke", False), ("astream", True)]


def test_none_is_left_out():
    assert set(PROVIDERS) - {"own class"} == set(KNOWN) - {"recorded", "simulated"}


@pytest.fixture(params=PROVIDERS)
def provider(request):
    return PROVIDERS[request.param]


@pytest.fixture
def client(provider, transport, kept):
    return lambda **how: kept(provider.client(transport, **how))


def refusing(words, status, *, times=10**6, then=None, **headers):
    """A refusal ``times`` times, then the other reply."""

    async def reply(asked, out):
        if asked.number >= times:
            return await then(asked, out)
        body, more = words.refusal(status)
        return await out.whole(body, status, **more, **headers)

    return reply


def bound_usd(made, prompt=PROMPT):
    """Of one attempt."""
    return made.backend.upper_bound_usd(made.model, [HumanMessage(prompt)]) / 2


@pytest.mark.parametrize(("mode", "streams"), [(mode, "stream" in mode) for mode in MODES] + [("invoke", True)])
def test_an_answer_and_what_is_recorded_of_it(provider, transport, client, mode, streams):
    transport.answers(provider.words.answering("fo", "ur"))
    made = client(settings={"stream": streams})
    assert made.ask(mode).text == "four"
    (usage,) = made.usages
    assert (usage.tokens_in, usage.tokens_out, usage.tokens_cached) == (20, 7, 8)
    assert (usage.cost_usd, usage.price_id, usage.retries, usage.failure) == (COST, "p", 0, None)
    assert usage.tokens_estimated is False
    assert usage.finish_reason
    assert (usage.ttft_s is not None) == streams
    assert not streams or 0 < usage.ttft_s <= usage.latency_s
    (asked,) = transport.asked
    assert provider.sent in " ".join(asked.headers.values())


def test_the_prompt_of_a_call_is_told_once(provider, transport, client):
    transport.answers(provider.words.answering("fo", "ur"))
    made, told = client(), []
    call = CallContext(
        stage="s", prefix=("m",), clock=WallClock(), on_usage=made.usages.append, on_prompt=lambda *what: told.append(what)
    )
    made.ask("invoke", PROMPT, made.backend.chat_model(made.model, call))
    assert [prompt_parts(*what) for what in told] == [[f"human\n{PROMPT}"]]


@pytest.mark.parametrize(("mode", "stage"), [("invoke", "head"), ("stream", "middle"), ("astream", "middle")])
def test_timeouts(provider, transport, client, mode, stage):
    async def reply(asked, out):
        if stage == "middle":
            await provider.words.begin(out)
            await provider.words.say(out, "four")
        await asyncio.sleep(30)

    transport.answers(reply)
    error, usage = fails(client(settings=ONCE, timeout_s=0.3), mode, SECRETS)
    assert error.kind == "timeout"
    assert usage.cost_usd > 0  # what may be billed is not booked as free
    assert usage.latency_s > 0.29


@pytest.mark.parametrize(("mode", "status"), [("ainvoke", 429), ("stream", 503)])
def test_retries_are_recorded_and_not_timed(provider, transport, client, mode, status):
    transport.answers(refusing(provider.words, status, times=2, then=provider.words.answering("four"), retry_after="0.03"))
    made = client()
    assert made.ask(mode).text == "four"
    (usage,) = made.usages
    assert (usage.retries, usage.failure, usage.cost_usd, len(transport.asked)) == (2, None, COST, 3)
    assert usage.waited_s >= 0.06 - 1e-3  # the server's Retry-After is a lower bound
    assert usage.ttft_s is None or usage.ttft_s <= usage.latency_s


@pytest.mark.parametrize(("mode", "streams"), WAYS)
def test_refusals_are_free_and_the_packages_do_not_repeat_them(provider, transport, client, mode, streams):
    made = client(settings={"stream": streams})
    for status, kind, attempts in ((401, "auth", 1), (429, "rate_limit", 6), (503, "server", 4)):
        made.usages.clear()
        transport.answers(refusing(provider.words, status))
        error, usage = fails(made, mode, SECRETS)
        assert (error.kind, error.cost_usd, usage.retries, len(transport.asked)) == (kind, 0.0, attempts - 1, attempts)


@pytest.mark.parametrize(("mode", "streams"), WAYS)
def test_an_error_behind_which_somebody_may_have_charged_is_booked_at_the_bound(provider, transport, client, mode, streams):
    made = client(settings={"stream": streams})
    for status in (500, 502, 504):
        made.usages.clear()
        transport.answers(refusing(provider.words, status))
        error, usage = fails(made, mode, SECRETS)
        assert error.cost_usd == pytest.approx(2 * bound_usd(made), rel=0.01)
        assert (len(transport.asked), usage.retries, usage.tokens_estimated) == (2, 1, True)


def broken(words, how):
    async def reply(asked, out):
        if how == "at once":
            return out.close()
        if how == "page":
            return await out.whole(b"<html>s3cret</html>", content_type="text/html")
        if words.is_stream(asked):
            await words.begin(out)
            await (words.say_odd(out) if how == "shape" else words.say_half(out) if how == "json" else words.say(out, "four"))
            return out.close() if how == "middle" else await out.finish()
        if how in ("shape", "json"):
            return await out.whole(words.ODD if how == "shape" else words.HALF)
        promised = {"content_length": 1000} if how == "middle" else {"connection": "close"}
        await out.head(content_type="application/json", **promised)
        await out.send(words.HALF)
        return out.close()

    return reply


@pytest.mark.parametrize(("how", "mode", "streams"), crossed(["at once", "middle", "politely", "json", "shape", "page"], WAYS))
def test_a_broken_answer_fails_and_is_booked_at_its_bound(provider, transport, client, how, mode, streams):
    made = client(settings={**ONCE, "stream": streams})
    if provider.name == "own class":  # whether a chat model gives finish reasons shows in its first answer
        transport.answers(provider.words.answering("four"))
        made.ask(mode)
        made.usages.clear()
    transport.answers(broken(provider.words, how))
    error, _ = fails(made, mode, SECRETS)
    # The packages look away from some of these, and find no end then: a server's failure, or a malformed answer.
    kinds = ("server",) if how == "at once" else ("server", "malformed", "unknown")
    assert error.kind in kinds
    assert error.cost_usd == pytest.approx(bound_usd(made), rel=0.01)  # the server had the request


def test_many_threads_and_many_tasks(provider, transport, client):
    many = 20

    async def reply(asked, out):
        while transport.peak < many:
            await asyncio.sleep(0.005)
        await provider.words.answering(provider.words.prompt_of(asked))(asked, out)

    async def together(made):
        return await asyncio.gather(*(made.aask("astream" if n % 2 else "ainvoke", f"n{n}") for n in range(many)))

    transport.answers(reply)
    made = client()
    with ThreadPoolExecutor(many) as pool:
        texts = list(pool.map(lambda n: made.ask("invoke", f"n{n}").text, range(many)))
    assert texts == [f"n{n}" for n in range(many)]
    transport.answers(reply)
    assert [message.text for message in asyncio.run(together(made))] == texts
    assert len(made.usages) == 2 * many


def test_one_event_loop_after_the_other(provider, transport, client):
    """A package's own client belongs to the first loop that used it: "Event loop is closed" in the second."""
    transport.answers(provider.words.answering("four"))
    made = client()
    for mode in ("ainvoke", "astream", "ainvoke", "invoke", "astream"):  # each asynchronous one has a loop of its own
        assert made.ask(mode).text == "four"
    assert [usage.failure for usage in made.usages] == [None] * 5


@pytest.mark.parametrize(("mode", "streams"), [("invoke", False), ("astream", True)])
def test_unicode_and_a_megabyte(provider, transport, client, mode, streams):
    prompt = "žluťoučký 🦥 \u2028" * 60_000
    transport.answers(provider.words.answering("🦥", "ž\u2028"))
    assert client(settings={"stream": streams}).ask(mode, prompt).text == "🦥ž\u2028"
    assert len(transport.asked[0].body) > 1_000_000
    assert provider.words.prompt_of(transport.asked[0]) == prompt


@pytest.mark.parametrize("mode", ["invoke", "astream"])
def test_keys_and_prompts_are_in_no_log(provider, transport, client, caplog, mode):
    caplog.set_level(logging.DEBUG)
    transport.answers(refusing(provider.words, 500, times=1, then=provider.words.answering("four")))
    made = client()
    chat = made.chat()
    made.ask(mode, PROMPT, chat=chat)
    assert provider.sent in " ".join(transport.asked[-1].headers.values())
    shown = [repr(chat), str(chat), repr(made.usages), repr(made.backend), repr(vars(made.backend))]
    if provider.name not in ("langchain", "own class"):  # whose log belongs to its package
        shown.append(caplog.text)
    for secret in (*SECRETS, PROMPT):
        assert all(secret not in text for text in shown)


def test_a_cancelled_call_costs_its_bound_and_frees_its_slot(provider, transport, client):
    async def reply(asked, out):
        await asyncio.sleep(30)

    async def cancelled(made):
        task = asyncio.create_task(made.aask("ainvoke", "?"))
        while not transport.asked:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    transport.answers(reply)
    made = client(settings={"limits": {"e": {"concurrency": 1}}})
    asyncio.run(cancelled(made))
    (usage,) = made.usages
    assert (usage.failure, usage.finish_reason, usage.tokens_estimated) == (None, None, True)
    assert usage.cost_usd == pytest.approx(bound_usd(made, "?"), rel=0.01)  # the server may go on
    transport.answers(provider.words.answering("x"))
    assert made.ask("invoke").text == "x"  # the slot is free again


@pytest.mark.parametrize("mode", ["stream", "astream"])
def test_an_abandoned_stream_costs_its_bound_and_frees_its_slot(provider, transport, client, mode):
    async def reply(asked, out):
        await provider.words.begin(out)
        await provider.words.say(out, "four")
        await asyncio.sleep(30)

    async def first(chat):
        pieces = chat.astream(PROMPT)
        async for piece in pieces:
            if piece.text:
                break
        await pieces.aclose()

    transport.answers(reply)
    made = client(settings={"limits": {"e": {"concurrency": 1}}})
    if mode == "stream":
        pieces = made.chat().stream(PROMPT)
        assert next(piece for piece in pieces if piece.text).text == "four"
        pieces.close()
    else:
        asyncio.run(first(made.chat()))
    (usage,) = made.usages
    assert (usage.failure, usage.tokens_estimated) == (None, True)
    assert usage.cost_usd == pytest.approx(bound_usd(made), rel=0.01)
    transport.answers(provider.words.answering("x"))
    assert made.ask("invoke").text == "x"


def test_upper_bound(provider, client):
    made = client()
    assert isinstance(made.backend, PricesCalls)
    bound = made.backend.upper_bound_usd(made.model, [SystemMessage("é" * 500), HumanMessage("é" * 500)])
    assert bound >= 2 * PRICE.cost_usd(2000, made.model.max_tokens)  # a token for each byte, two attempts


# -- tools, schemas, settings and conversations: what the package makes of them, made by this one


@pytest.fixture(params=[name for name in PROVIDERS if name != "own class"])
def packaged(request):
    return PROVIDERS[request.param]


@pytest.mark.parametrize("mode", ["invoke", "astream"])
def test_a_tool_is_called_and_its_result_goes_back(packaged, transport, kept, mode):
    made = kept(packaged.client(transport))
    chat = made.chat().bind_tools([add])
    transport.answers(packaged.words.calling("add", {"a": 2, "b": 3}))
    message = made.ask(mode, "2 + 3?", chat)
    (call,) = message.tool_calls
    assert (call["name"], call["args"]) == ("add", {"a": 2, "b": 3})
    transport.answers(packaged.words.answering("5"))
    turns = [HumanMessage("2 + 3?"), message, ToolMessage('{"sum": 5}', tool_call_id=call["id"], name="add")]
    assert made.ask(mode, turns, chat).text == "5"
    assert packaged.words.result_of(transport.asked[-1]) == '{"sum": 5}'
    assert [usage.cost_usd for usage in made.usages] == [COST, COST]


def test_a_tool_call_is_told_as_soon_as_its_arguments_are_whole(packaged, transport, kept):
    made, told = kept(packaged.client(transport)), []
    call = CallContext(
        stage="s", prefix=("m",), clock=WallClock(), on_usage=made.usages.append, on_tool_call=lambda *what: told.append(what)
    )
    chat = made.backend.chat_model(made.model, call).bind_tools([add])
    transport.answers(packaged.words.calling("add", {"a": 2, "b": 3}))
    made.ask("invoke", "2 + 3?", chat)
    assert told[0] == ("add", {"a": 2, "b": 3})


SCHEMA = {
    "title": "Sum",
    "description": "A sum.",
    "type": "object",
    "properties": {"value": {"type": "integer"}},
    "required": ["value"],
}


@pytest.mark.parametrize("raw", [False, True])
def test_a_schema_is_asked_for_as_a_tool(packaged, transport, kept, raw):
    made = kept(packaged.client(transport))
    chat = made.chat().with_structured_output(SCHEMA, method="function_calling", include_raw=raw)
    transport.answers(packaged.words.calling("Sum", {"value": 5}))
    found = chat.invoke("2 + 3?")
    found = found["parsed"] if raw else found
    found = found[0]["args"] if isinstance(found, list) else found
    assert found == {"value": 5}
    assert len(made.usages) == 1


def test_a_setting_that_the_model_refuses_is_left_out_and_remembered(transport, kept):
    async def reply(asked, out):
        if "temperature" in asked.json:
            problem = {
                "message": "Unsupported value: 'temperature' does not support 0.5 here.",
                "param": "temperature",
            }
            return await out.whole({"error": {**problem, "type": "invalid_request_error", "code": "unsupported_value"}}, 400)
        return await PROVIDERS["openai"].words.answering("four")(asked, out)

    made = kept(PROVIDERS["openai"].client(transport, options={"temperature": 0.5}))
    transport.answers(reply)
    assert [made.ask(mode).text for mode in ("invoke", "ainvoke")] == ["four", "four"]
    assert [("temperature" in asked.json) for asked in transport.asked] == [True, False, False]
    assert [(usage.cost_usd, usage.failure) for usage in made.usages] == [(COST, None)] * 2


def test_a_setting_that_is_not_one_of_an_application_for_all_its_models_is_a_failure(transport, kept):
    async def reply(asked, out):
        await out.whole({"error": {"message": "Unknown parameter: 'messages'.", "param": "messages", "code": None}}, 400)

    made = kept(PROVIDERS["openai"].client(transport))
    transport.answers(reply)
    error, usage = fails(made, "invoke")
    assert (error.kind, error.cost_usd, usage.retries) == ("malformed", 0.0, 0)
