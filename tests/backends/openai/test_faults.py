"""What goes wrong on the wire: errors by kind, retries, waiting, and that nothing secret is repeated."""

import asyncio

import pytest
from kit.wire.client import COST, KEY, MODES, ONCE, PROMPT, Client, fails
from kit.wire.openai_format import HEADERS, answering, chunk, chunks, completion, problem, stream
from langchain_core.messages import HumanMessage

from vinelm.errors import ConfigError, WorkflowError

ECHO = "something with s3cret words"


@pytest.fixture
def client(transport, kept):
    return lambda **how: kept(Client(transport.url, **how))


def whole(status, body, **headers):
    async def reply(asked, out):
        await out.whole(body, status, **headers)

    return reply


STATUSES = [
    (400, problem("context_length_exceeded"), "context_length"),
    (400, problem(None, "This model's maximum context length is 8192 tokens, s3cret"), "context_length"),
    (400, problem("content_filter"), "content_filter"),
    (400, problem(None, "flagged by our content management policy s3cret"), "content_filter"),
    (400, problem("unknown_parameter"), "malformed"),
    (401, problem("invalid_api_key"), "auth"),
    (403, problem(None), "auth"),
    (404, problem("model_not_found"), "malformed"),
    (408, problem(None), "timeout"),
    (413, b"s3cret <html>", "context_length"),
    (422, {"detail": "s3cret"}, "malformed"),
    (429, problem("rate_limit_exceeded"), "rate_limit"),
    (500, b"s3cret traceback", "server"),
    (501, b"s3cret", "server"),
    (503, problem("Overloaded s3cret"), "server"),
]


@pytest.fixture
def key(monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)


@pytest.mark.usefixtures("key")
@pytest.mark.parametrize("mode", ["invoke", "astream"])
@pytest.mark.parametrize("case", STATUSES, ids=lambda case: f"{case[0]}-{case[2]}")
def test_kinds_of_refusal(transport, client, case, mode):
    status, body, kind = case
    transport.answers(whole(status, body))
    error, usage = fails(client(settings=ONCE, api_key_env="MY_KEY"), mode)
    assert error.kind == kind
    assert str(error).startswith(f"m: {kind}: the server answered HTTP {status}")
    assert (usage.cost_usd == 0.0) == (status not in (408, 500))  # which may have been worked on
    assert usage.retries == 0


@pytest.mark.parametrize(("status", "attempts"), [(429, 6), (503, 4), (500, 2), (401, 1), (400, 1)])
def test_attempts_by_kind(transport, client, status, attempts):
    transport.answers(whole(status, problem(None)))
    error, usage = fails(client(), "ainvoke")
    assert len(transport.asked) == attempts == usage.retries + 1
    assert (f"after {attempts} attempts" in str(error)) == (attempts > 1)


def test_exhausted_quota_is_final(transport, client):
    transport.answers(whole(429, problem("insufficient_quota")))
    assert "insufficient_quota" in str(fails(client(), "invoke")[0])
    assert len(transport.asked) == 1


def test_a_server_that_asks_for_too_long_a_wait_is_believed(transport, client):
    transport.answers(whole(429, problem(None), retry_after="3600"))
    fails(client(), "invoke")
    assert len(transport.asked) == 1


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "case",
    [
        (["fo"], {"finish_reason": "length"}, "truncated"),
        (["fo"], {"finish_reason": "content_filter"}, "content_filter"),
        ([], {}, "empty"),
        ([" \n"], {}, "empty"),
        ([{"reasoning": "hm"}], {}, "empty"),
        ([{"refusal": "I cannot s3cret"}], {}, "content_filter"),
    ],
)
@pytest.mark.parametrize("streams", [True, False])
def test_a_bad_answer_is_a_failure_and_costs(transport, client, mode, case, streams):
    pieces, how, kind = case
    transport.answers(answering(*pieces, **how))
    error, usage = fails(client(settings={"stream": streams}), mode)
    assert (error.kind, usage.retries, usage.tokens_out) == (kind, 0, 7)
    assert error.cost_usd == COST > 0


def silent_head():
    async def reply(asked, out):
        await asyncio.sleep(30)

    return reply


def dripping():
    """Never silent for long, and never done."""

    async def reply(asked, out):
        await out.chunked()
        while True:
            await out.event(chunk({"content": "s3cret "}))
            await asyncio.sleep(0.02)

    return reply


@pytest.mark.parametrize("mode", MODES)
def test_a_stream_without_end_is_a_timeout(transport, client, mode):
    transport.answers(dripping())
    error, usage = fails(client(settings=ONCE, timeout_s=0.2), mode)
    assert error.kind == "timeout"
    assert usage.tokens_estimated
    assert usage.cost_usd > 0
    assert usage.latency_s > 0.19


def test_a_timeout_is_tried_once_more_and_both_cost(transport, client):
    transport.answers(silent_head())
    _, usage = fails(client(timeout_s=0.1), "invoke")
    assert (len(transport.asked), usage.retries) == (2, 1)
    made = client()
    assert usage.cost_usd == pytest.approx(made.backend.upper_bound_usd(made.model, [HumanMessage(PROMPT)]), rel=0.01)


def test_error_inside_a_stream(transport, client):
    async def reply(asked, out):
        await out.chunked()
        await out.event(chunk({"content": "fo"}))
        await out.event(problem("rate_limit_exceeded"))
        await out.finish()

    transport.answers(reply)
    error, _ = fails(client(settings=ONCE), "ainvoke")
    assert error.kind == "rate_limit"


def broken_once():
    async def reply(asked, out):
        if asked.number:
            return await stream(out, "four")
        await out.chunked()
        await out.event(chunk({"content": "fo"}))
        return out.close()

    return reply


def test_a_broken_stream_is_repeated_while_nobody_has_seen_it(transport, client):
    transport.answers(broken_once())
    made = client()
    assert made.ask("invoke").text == "four"
    (usage,) = made.usages
    assert usage.retries == 1
    bound_usd = made.backend.upper_bound_usd(made.model, [HumanMessage("2 + 2?")]) / 2
    assert usage.cost_usd == pytest.approx(bound_usd + COST, rel=0.01)  # the broken attempt is booked too, at its bound
    transport.answers(broken_once())
    fails(client(), "stream")
    assert len(transport.asked) == 1


def test_nobody_listens(transport, client):
    made = Client("http://127.0.0.1:9/v1", settings=ONCE)
    error, usage = fails(made, "ainvoke")
    assert (error.kind, usage.cost_usd, usage.tokens_in) == ("server", 0.0, None)


def test_missing_key(transport, client, monkeypatch):
    monkeypatch.delenv("MY_KEY", raising=False)
    made = client(api_key_env="MY_KEY")
    message = "^model 'm': environment variable MY_KEY is not set: put the API key there$"
    with pytest.raises(ConfigError, match=message):
        made.chat()
    assert not made.usages


@pytest.mark.parametrize(
    ("fields", "settings", "message"),
    [
        ({"options": {"max_tokens": 5}}, {}, "model 'm': option 'max_tokens': set the entry's max_tokens instead"),
        ({"options": {"n": 2}}, {}, "model 'm': option 'n' is set by VineLM: leave it out"),
        ({"options": {"extra_headers": {}}}, {}, "option 'extra_headers' is set by VineLM"),
        ({"options": {"max_tokens_parameter": "length"}}, {}, "max_tokens_parameter must be one of max_tokens, max_comp"),
        ({"api_base": "localhost:8000"}, {}, "api_base is 'localhost:8000': it must start with http:// or https://"),
        ({"api_base": None}, {}, "model 'm': no api_key_env: name the variable of the key"),
        (
            {},
            {"limit": {}},
            r"\[backend.openai\]: unknown key 'limit': known keys are limits, stream, send_priority",
        ),
        ({}, {"max_retries": -1}, r"\[backend.openai\]: max_retries is -1: it must be a finite number >= 0"),
        ({}, {"limits": {"f": {}}}, r"limits of engine 'f', which no model has: engines are e"),
        ({}, {"limits": {"e": {"rpm": 5}}}, r"limits of engine 'e': unknown key 'rpm': known keys are requests_per_min"),
        ({}, {"limits": {"e": {"concurrency": 0}}}, r"limits of engine 'e': concurrency: Input should be greater"),
    ],
)
def test_bad_settings(fields, settings, message):
    url = fields.pop("api_base", "http://127.0.0.1:9/v1")
    with pytest.raises(ConfigError, match=message):
        Client(url, settings=settings, **fields)


def test_bad_calls(transport, client):
    chat = client(max_tokens=10).chat()
    with pytest.raises(ConfigError, match="the call asks for max_tokens = 11, the catalog allows 10: raise it there"):
        chat.invoke("?", max_tokens=11)
    with pytest.raises(ConfigError, match="option 'n' is set by VineLM"):
        chat.invoke("?", n=2)
    with pytest.raises(WorkflowError, match="cannot represent") as raised:
        chat.invoke([HumanMessage([{"type": "media", "mime_type": "s3cret", "data": "s3cret"}])])
    assert raised.value.__context__ is None
    transport.answers(answering("x"))
    chat.invoke("?", max_tokens=3)
    assert transport.asked[0].json["max_tokens"] == 3


def test_sent_bodies_and_helpers_agree():
    """The helper's stream has every kind of chunk that the reference names; the whole completion says the same."""
    events = list(chunks("a", "b"))
    assert [bool(event["choices"]) for event in events] == [True, True, True, True, False]
    assert events[-1]["usage"] == completion()["usage"]
    assert HEADERS["x_request_id"]
