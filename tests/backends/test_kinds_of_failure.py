"""What each provider's words are, by kind: refusals, ends that are failures, errors in place of an answer."""

import asyncio

import pytest
from kit.crossed import crossed
from kit.optional import needs
from kit.wire import anthropic_format, bedrock_format, gemini_format, openai_format
from kit.wire.client import COST, ONCE, PROMPT, fails
from kit.wire.providers import PROVIDERS, SECRETS
from langchain_core.messages import HumanMessage

needs("langchain_openai", "langchain_anthropic", "langchain_aws", "langchain_google_genai")
pytestmark = pytest.mark.usefixtures("credentials")
WAYS = [("invoke", False), ("astream", True)]
NAMES = ("openai", "anthropic", "bedrock", "gemini")


@pytest.fixture
def client(transport, kept):
    return lambda name, **how: kept(PROVIDERS[name].client(transport, **how))


def whole(status, body, **headers):
    async def reply(asked, out):
        await out.whole(body, status, **headers)

    return reply


def openai(code, message="something with s3cret words"):
    return openai_format.problem(code, message), {}


def anthropic(code, message="s3cret"):
    return anthropic_format.problem(code, message), {}


def bedrock(code, message="s3cret words"):
    return {"message": message}, {"x_amzn_ErrorType": code}


def gemini(status, name, message="s3cret"):
    return gemini_format.problem(status, name, message), {}


def page(text="s3cret <html>"):
    return text.encode(), {}


REFUSALS = [
    ("openai", 400, openai("context_length_exceeded"), "context_length"),
    ("openai", 400, openai(None, "This model's maximum context length is 8192 tokens, s3cret"), "context_length"),
    ("openai", 400, openai("content_filter"), "content_filter"),
    ("openai", 400, openai(None, "flagged by our content management policy s3cret"), "content_filter"),
    ("openai", 400, openai("unknown_parameter"), "malformed"),
    ("openai", 401, openai("invalid_api_key"), "auth"),
    ("openai", 403, openai(None), "auth"),
    ("openai", 404, openai("model_not_found"), "malformed"),
    ("openai", 408, openai(None), "timeout"),
    ("openai", 413, page(), "context_length"),
    ("openai", 422, ({"detail": "s3cret"}, {}), "malformed"),
    ("openai", 429, openai("rate_limit_exceeded"), "rate_limit"),
    ("openai", 500, page("s3cret traceback"), "server"),
    ("openai", 501, page(), "server"),
    ("openai", 503, openai("Overloaded s3cret"), "server"),
    ("anthropic", 400, anthropic("invalid_request_error"), "malformed"),
    ("anthropic", 400, anthropic("invalid_request_error", "prompt is too long: 9 tokens > 8 maximum s3cret"), "context_length"),
    ("anthropic", 400, anthropic("invalid_request_error", "Your credit balance is too low s3cret"), "rate_limit"),
    ("anthropic", 401, anthropic("authentication_error"), "auth"),
    ("anthropic", 402, anthropic("billing_error"), "rate_limit"),
    ("anthropic", 403, anthropic("permission_error"), "auth"),
    ("anthropic", 404, anthropic("not_found_error"), "malformed"),
    ("anthropic", 413, anthropic("request_too_large"), "context_length"),
    ("anthropic", 429, anthropic("rate_limit_error"), "rate_limit"),
    ("anthropic", 500, anthropic("api_error"), "server"),
    ("anthropic", 529, anthropic("overloaded_error"), "server"),
    ("bedrock", 403, bedrock("AccessDeniedException"), "auth"),
    ("bedrock", 403, bedrock("UnrecognizedClientException"), "auth"),
    ("bedrock", 429, bedrock("ThrottlingException"), "rate_limit"),
    ("bedrock", 429, bedrock("ModelNotReadyException"), "server"),
    ("bedrock", 408, bedrock("ModelTimeoutException"), "timeout"),
    ("bedrock", 500, bedrock("InternalServerException"), "server"),
    ("bedrock", 503, bedrock("ServiceUnavailableException"), "server"),
    ("bedrock", 424, bedrock("ModelErrorException"), "server"),
    ("bedrock", 400, bedrock("ValidationException"), "malformed"),
    ("bedrock", 400, bedrock("ValidationException", "Input is too long for requested model. s3cret"), "context_length"),
    ("bedrock", 404, bedrock("ResourceNotFoundException"), "malformed"),
    ("gemini", 400, gemini(400, "INVALID_ARGUMENT"), "malformed"),
    ("gemini", 400, gemini(400, "INVALID_ARGUMENT", "API key not valid. s3cret"), "auth"),
    ("gemini", 400, gemini(400, "INVALID_ARGUMENT", "The input token count (9) exceeds the maximum number of tokens. s3cret"),
     "context_length"),
    ("gemini", 403, gemini(403, "PERMISSION_DENIED"), "auth"),
    ("gemini", 404, gemini(404, "NOT_FOUND"), "malformed"),
    ("gemini", 429, gemini(429, "RESOURCE_EXHAUSTED"), "rate_limit"),
    ("gemini", 500, gemini(500, "INTERNAL"), "server"),
    ("gemini", 503, gemini(503, "UNAVAILABLE"), "server"),
    ("gemini", 504, gemini(504, "DEADLINE_EXCEEDED"), "timeout"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "status", "reply", "kind", "mode", "streams"), crossed(REFUSALS, WAYS))
def test_kinds_of_refusal(transport, client, name, status, reply, kind, mode, streams):
    body, headers = reply
    transport.answers(whole(status, body, **headers))
    error, usage = fails(client(name, settings={**ONCE, "stream": streams}), mode, SECRETS)
    assert error.kind == kind
    assert str(error).startswith(f"m: {kind}: the server answered HTTP {status}")
    assert (usage.cost_usd == 0.0) == (status not in (408, 424, 500, 504))  # which may have been worked on
    assert usage.retries == 0


ENDS = [
    ("openai", {"finish_reason": "length"}, "truncated"),
    ("openai", {"finish_reason": "content_filter"}, "content_filter"),
    ("openai", {"finish_reason": "error"}, "server"),
    ("anthropic", {"stop": "max_tokens"}, "truncated"),
    ("anthropic", {"stop": "refusal"}, "content_filter"),
    ("anthropic", {"stop": "model_context_window_exceeded"}, "context_length"),
    ("bedrock", {"stop": "max_tokens"}, "truncated"),
    ("bedrock", {"stop": "guardrail_intervened"}, "content_filter"),
    ("bedrock", {"stop": "model_context_window_exceeded"}, "context_length"),
    ("gemini", {"finish": "MAX_TOKENS"}, "truncated"),
    ("gemini", {"finish": "SAFETY"}, "content_filter"),
    ("gemini", {"finish": "MALFORMED_FUNCTION_CALL"}, "malformed"),
]


@pytest.mark.parametrize(("name", "how", "kind", "mode", "streams"), crossed(ENDS, WAYS))
def test_half_an_answer_is_a_failure_and_costs_what_it_states(transport, client, name, how, kind, mode, streams):
    transport.answers(PROVIDERS[name].words.answering("fo", **how))
    error, _ = fails(client(name, settings={**ONCE, "stream": streams}), mode, SECRETS)
    assert (error.kind, error.cost_usd) == (kind, COST)


@pytest.mark.parametrize(("mode", "streams"), WAYS)
@pytest.mark.parametrize(
    ("name", "pieces", "kind"),
    [
        ("openai", [], "empty"),
        ("openai", [" \n"], "empty"),
        ("openai", [{"reasoning": "hm"}], "empty"),
        ("openai", [{"refusal": "I cannot s3cret"}], "content_filter"),
        ("anthropic", [anthropic_format.thought("hm")], "empty"),
        ("bedrock", [bedrock_format.thought("hm")], "empty"),
        ("gemini", [gemini_format.thought("hm")], "empty"),
    ],
)
def test_an_answer_without_text_or_call_is_none(transport, client, mode, streams, name, pieces, kind):
    words, more = PROVIDERS[name].words, {}
    if words is bedrock_format:
        more = {"content": [{"reasoningContent": {"reasoningText": {"text": "hm"}}}]}
    transport.answers(words.answering(*pieces, **more))
    error, _ = fails(client(name, settings={"stream": streams}), mode, SECRETS)
    assert error.kind == kind


async def openai_in_its_stream(out):
    await out.event(openai_format.problem("rate_limit_exceeded"))


async def anthropic_in_its_stream(out):
    problem = anthropic_format.problem("overloaded_error")
    await anthropic_format.event(out, "error", **{key: value for key, value in problem.items() if key != "type"})


async def bedrock_in_its_stream(out):
    await out.chunk(bedrock_format.trouble("throttlingException"))


async def gemini_in_its_stream(out):
    await out.event(gemini_format.problem(503, "UNAVAILABLE"))


IN_A_STREAM = [
    ("openai", openai_in_its_stream, ("rate_limit",)),
    ("anthropic", anthropic_in_its_stream, ("server",)),
    ("bedrock", bedrock_in_its_stream, ("rate_limit", "server")),
    ("gemini", gemini_in_its_stream, ("server",)),
]


@pytest.mark.parametrize("mode", ["stream", "astream"])
@pytest.mark.parametrize(("name", "trouble", "kinds"), IN_A_STREAM, ids=NAMES)
def test_an_error_inside_a_stream_that_was_begun_costs_the_bound(transport, client, mode, name, trouble, kinds):
    words = PROVIDERS[name].words

    async def reply(asked, out):
        await words.begin(out)
        await words.say(out, "fo")
        await trouble(out)
        await out.finish()

    transport.answers(reply)
    made = client(name, settings=ONCE)
    error, usage = fails(made, mode, SECRETS)
    assert error.kind in kinds
    assert usage.cost_usd == pytest.approx(made.backend.upper_bound_usd(made.model, [HumanMessage(PROMPT)]) / 2, rel=0.01)


@pytest.mark.parametrize(("mode", "streams"), WAYS)
def test_a_prompt_that_gemini_blocks(transport, client, mode, streams):
    async def reply(asked, out):
        body = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 20}, "responseId": "r"}
        if not gemini_format.is_stream(asked):
            return await out.whole(body)
        await out.chunked()
        await out.event(body)
        return await out.finish()

    transport.answers(reply)
    error, _ = fails(client("gemini", settings={**ONCE, "stream": streams}), mode, SECRETS)
    assert error.kind in ("content_filter", "server")


# -- attempts


@pytest.mark.parametrize(("status", "attempts"), [(429, 6), (503, 4), (500, 2), (401, 1), (400, 1)])
def test_attempts_by_kind(transport, client, status, attempts):
    transport.answers(whole(status, openai_format.problem(None)))
    error, usage = fails(client("openai"), "ainvoke")
    assert len(transport.asked) == attempts == usage.retries + 1
    assert (f"after {attempts} attempts" in str(error)) == (attempts > 1)


def test_exhausted_quota_is_final(transport, client):
    transport.answers(whole(429, openai_format.problem("insufficient_quota")))
    assert "insufficient_quota" in str(fails(client("openai"), "invoke")[0])
    assert len(transport.asked) == 1


def test_a_server_that_asks_for_too_long_a_wait_is_believed(transport, client):
    transport.answers(whole(429, openai_format.problem(None), retry_after="3600"))
    fails(client("openai"), "invoke")
    assert len(transport.asked) == 1


def test_google_asks_for_a_wait_in_the_body(transport, client):
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.05s"}
    then = gemini_format.answering("four")
    transport.answers(gemini_format.refusing(429, "RESOURCE_EXHAUSTED", times=2, then=then, details=[info]))
    made = client("gemini")
    assert made.ask("invoke").text == "four"
    (usage,) = made.usages
    assert (usage.retries, usage.cost_usd) == (2, COST)
    assert usage.waited_s > 0.09


def test_a_timeout_is_tried_once_more_and_both_cost(transport, client):
    async def silent(asked, out):
        await asyncio.sleep(30)

    transport.answers(silent)
    made = client("openai", timeout_s=0.3)
    _, usage = fails(made, "invoke")
    assert usage.retries == 1
    assert usage.cost_usd == pytest.approx(made.backend.upper_bound_usd(made.model, [HumanMessage(PROMPT)]), rel=0.01)


def broken_once():
    async def reply(asked, out):
        if asked.number:
            return await openai_format.stream(out, "four")
        await out.chunked()
        await out.event(openai_format.chunk({"content": "fo"}))
        return out.close()

    return reply


def test_a_broken_stream_is_repeated_while_nobody_has_seen_it(transport, client):
    transport.answers(broken_once())
    made = client("openai")
    assert made.ask("invoke").text == "four"
    (usage,) = made.usages
    assert usage.retries == 1
    bound_usd = made.backend.upper_bound_usd(made.model, [HumanMessage("2 + 2?")]) / 2
    assert usage.cost_usd == pytest.approx(bound_usd + COST, rel=0.01)  # the broken attempt is booked too, at its bound
    transport.answers(broken_once())
    fails(client("openai"), "stream")
    assert len(transport.asked) == 1


def test_no_credentials_are_a_failure_that_costs_nothing(transport, client, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    transport.asked.clear()
    error, usage = fails(client("bedrock"), "invoke")
    assert (error.kind, usage.cost_usd, transport.asked) == ("auth", 0.0, [])
