"""OpenAI's Responses through the gateway, by the openai SDK: bytes as they are, under the caps and plans of all calls."""

import asyncio
import json
import time

import openai
import pytest
from gateway.test_callers import spent
from gateway.test_plans import CHEAP, GOOD, planned
from kit.servers.gateways import ASKED, COST, KEY, catalog_of, running
from kit.wire.openai_format import problem
from kit.wire.responses_format import as_bytes, called, events, responding, response, said
from pydantic import BaseModel

from vinelm.gateway import KeyBook
from vinelm.replay import read_calls

TOOL = {"type": "function", "name": "add", "parameters": {"type": "object", "properties": {}}}


class Answer(BaseModel):
    number: int


@pytest.fixture(autouse=True)
def responds(upstream):
    upstream.answers(responding("four"))


@pytest.fixture
def book(tmp_path):
    made = KeyBook(tmp_path / "keys.db")
    yield made
    made.close()


def ask(gateway, key="any", headers=None, **more):
    with gateway.client(key) as client:
        answer = client.responses.create(**{"model": "big", "input": "2 + 2?", **more}, extra_headers=headers)
        return list(answer) if more.get("stream") else answer


def test_a_whole_answer_comes_as_the_provider_has_written_it(gateway, upstream):
    odd = {**response(said("four")), "x_new": {"deep": [1]}}
    upstream.answers(responding("four", said("four"), x_new={"deep": [1]}))
    with gateway.client() as client:
        answer = client.responses.with_raw_response.create(
            model="big", input="2 + 2?", instructions="Count.", temperature=0.25, extra_body={"x_unknown": {"a": None}}
        )
    assert json.loads(answer.text) == odd
    assert (answer.headers["x-vinelm-model"], answer.headers["x-request-id"]) == ("big", "req_1")
    [asked] = upstream.asked
    sent = {"input": "2 + 2?", "instructions": "Count.", "temperature": 0.25, "x_unknown": {"a": None}}
    assert (asked.path, asked.json) == ("/v1/responses", {"model": "big-1", **sent})
    assert asked.headers["authorization"] == f"Bearer {KEY}"


def test_a_stream_passes_byte_by_byte(gateway, upstream):
    data = b"".join(map(as_bytes, events("four", response(said("four")))))
    with gateway.client() as client:
        with client.responses.with_streaming_response.create(model="big", input="2 + 2?", stream=True) as answer:
            content = b"".join(answer.iter_bytes())
        with client.responses.stream(model="big", input="2 + 2?") as stream:
            assert stream.get_final_response().output_text == "four"
    assert content == data
    assert upstream.asked[0].json == {"model": "big-1", "input": "2 + 2?", "stream": True}


def test_tools_schemas_and_coroutines(gateway, upstream):
    upstream.answers(responding("", called("add", {"a": 2})))
    [call] = ask(gateway, tools=[TOOL]).output
    assert (call.name, json.loads(call.arguments)) == ("add", {"a": 2})
    upstream.answers(responding('{"number": 4}'))
    with gateway.client() as client:
        assert client.responses.parse(model="big", input="?", text_format=Answer).output_parsed == Answer(number=4)

    async def one():
        async with gateway.aclient() as client:
            return [event.type async for event in await client.responses.create(model="big", input="?", stream=True)]

    assert asyncio.run(one())[-1] == "response.completed"


@pytest.mark.parametrize("stream", [False, True])
def test_what_passed_is_recorded_in_the_form_that_replay_reads(upstream, tmp_path, stream):
    path = tmp_path / "calls.jsonl"
    turns = [
        {"role": "user", "content": [{"type": "input_text", "text": "2 + 2?"}]},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        called("add", {"a": 2}),
        {"type": "function_call_output", "call_id": "c1", "output": "4"},
    ]
    form = {"format": {"type": "json_schema", "name": "Sum", "schema": {"type": "object"}}}
    with running(catalog_of(upstream.url), record=path) as gateway:
        headers = {"x-vinelm-request": "r1"}
        ask(gateway, headers=headers, input=turns, instructions="Count.", tools=[TOOL], text=form, stream=stream)
        gateway.stop()
    [call] = read_calls([path])
    assert [one["role"] for one in call.messages] == ["system", "user", "assistant", "tool"]
    assert (call.messages[1]["content"], call.messages[3]["content"]) == ("2 + 2?", "4")
    assert call.messages[2]["tool_calls"][0]["function"]["name"] == call.tools[0]["function"]["name"] == "add"
    assert call.response_format["json_schema"]["name"] == "Sum"
    assert call.answer == {"role": "assistant", "content": "four"}
    assert (call.tokens_in, call.tokens_out, call.cached_tokens) == (20, 7, 8)
    assert call.cost_usd == pytest.approx(COST)


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_was_cut_off_is_an_answer(gateway, upstream, stream):
    upstream.answers(responding("fo", status="incomplete", incomplete_details={"reason": "max_output_tokens"}))
    found = ask(gateway, stream=stream)
    last = found[-1].response if stream else found
    assert (last.status, last.output_text) == ("incomplete", "fo")


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_that_has_failed_is_the_providers_own_without_its_account(gateway, upstream, stream):
    error = {"code": "server_error", "message": f"sorry, org-abcdef123 with {KEY}"}
    upstream.answers(responding("fo", status="failed", error=error, usage=None))
    found = ask(gateway, stream=stream)
    last = found[-1].response if stream else found
    assert (last.status, last.error.code) == ("failed", "server_error")
    assert "abcdef123" not in str(last.error)
    assert KEY not in str(last.error)


def test_an_error_in_the_midst_of_a_stream_is_the_providers_own(gateway, upstream):
    told = {"type": "error", "code": "rate_limit_exceeded", "message": "org-abcdef123", "param": None, "sequence_number": 9}

    async def reply(asked, out):
        await out.chunked()
        for one in [*events("four", response())[:5], told]:
            await out.chunk(as_bytes(one))
        await out.finish()

    upstream.answers(reply)
    found = ask(gateway, stream=True)
    assert (found[-1].type, found[-1].code, found[-1].message) == ("error", "rate_limit_exceeded", "[account]")


@pytest.mark.parametrize("how", ["cut", "ended"])
def test_a_stream_that_breaks_off_says_so(gateway, upstream, how):
    async def reply(asked, out):
        await out.chunked()
        for one in events("four", response())[:5]:
            await out.chunk(as_bytes(one))
        await out.finish() if how == "ended" else out.close()

    upstream.answers(reply)
    with pytest.raises(openai.APIError, match="broke"):
        ask(gateway, stream=True)


@pytest.mark.parametrize("stream", [False, True])
def test_a_cap_holds_for_responses_too(upstream, book, stream):
    key = book.add("alice", daily_usd=0.0021 + COST)
    with running(catalog_of(upstream.url, max_tokens=100), keys=book) as gateway:
        ask(gateway, key, stream=stream)
        assert spent(book, "alice") == (pytest.approx(COST), 0.0)
        ask(gateway, key, stream=stream, max_output_tokens=50)
        assert [asked.json["max_output_tokens"] for asked in upstream.asked] == [100, 50]
        for more, status in (
            ({"tools": [{"type": "web_search"}]}, 400),
            ({"service_tier": "priority"}, 400),
            ({"max_output_tokens": 0}, 400),
            ({"max_output_tokens": 10**15}, 400),
            ({"max_output_tokens": 5000}, 402),
            ({"input": "x" * 3000}, 402),
        ):
            with pytest.raises(openai.APIStatusError) as caught:
                ask(gateway, key, stream=stream, **more)
            assert caught.value.status_code == status
    assert len(upstream.asked) == 2


@pytest.mark.parametrize(
    "more",
    [{"previous_response_id": "resp_1"}, {"conversation": "conv_1"}, {"prompt": {"id": "p"}}, {"background": True},
     {"input": []}, {"input": [{"type": "item_reference", "id": "rs_1"}]}, {"input": ["?"]}, {"input": ""},
     {"instructions": [1]}],
)  # fmt: skip
def test_what_stands_at_the_provider_is_refused(gateway, upstream, more):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(gateway, extra_body=more)
    assert caught.value.param == next(iter(more))
    assert not upstream.asked


def test_other_paths_of_the_form_are_refused(gateway, upstream):
    with gateway.client() as client:
        for call in (client.responses.retrieve, client.responses.delete, client.responses.cancel):
            with pytest.raises(openai.NotFoundError, match="unknown path"):
                call("resp_1")
    assert not upstream.asked


def test_a_model_of_another_form_is_refused(upstream):
    with running(catalog_of(upstream.url, options={"disable_streaming": False})) as gateway:
        with pytest.raises(openai.BadRequestError, match="ask it by /v1/chat/completions"):
            ask(gateway)
        with pytest.raises(openai.BadRequestError, match="ask it by /v1/chat/completions"):
            ask(gateway, stream=True)
    assert not upstream.asked


def test_an_entrys_options_are_a_part_of_the_model(upstream):
    options = {"reasoning_effort": "low", "verbosity": "low", "use_responses_api": True, "top_k": 3}
    with running(catalog_of(upstream.url, options=options)) as gateway:
        ask(gateway, reasoning={"effort": "high"})
    sent = {"reasoning": {"effort": "low"}, "text": {"verbosity": "low"}, "top_k": 3}
    assert upstream.asked[0].json == {"model": "big-1", "input": "2 + 2?", **sent}


@pytest.mark.parametrize(("objective", "model"), [(CHEAP, "small-1"), (GOOD, "big-1")])
def test_the_plan_chooses_the_model_of_a_step(upstream, objective, model):
    catalog = catalog_of(upstream.url, max_tokens=100)
    with running(catalog, trie=planned(catalog), objective=objective) as gateway:
        assert ask(gateway, model="vinelm/draft").output_text == "four"
        ask(gateway, headers={"x-vinelm-step": "draft"}, stream=True)
    assert [asked.json["model"] for asked in upstream.asked] == [model, model]


def test_another_model_answers_after_a_failure_of_the_planned_one(upstream):
    good, catalog = responding("four"), catalog_of(upstream.url, max_tokens=100)

    async def reply(asked, out):
        if asked.json["model"] == "big-1":
            return await out.whole(problem("overloaded", "busy"), status=503)
        return await good(asked, out)

    upstream.answers(reply)
    with running(catalog, trie=planned(catalog), objective=GOOD) as gateway:
        assert ask(gateway, model="vinelm/draft").output_text == "four"
        with pytest.raises(openai.InternalServerError):
            ask(gateway)


def test_pieces_come_as_the_provider_sends_them(gateway, upstream):
    seen = []

    async def reply(asked, out):
        await out.chunked()
        first, *rest = events("four", response(said("four")))
        await out.chunk(as_bytes(first))
        until = time.monotonic() + 30
        while not seen and time.monotonic() < until:
            await asyncio.sleep(0.005)
        for one in rest:
            await out.chunk(as_bytes(one))
        await out.finish()

    upstream.answers(reply)
    began = time.monotonic()
    with gateway.client() as client:
        for event in client.responses.create(model="big", input="2 + 2?", stream=True):
            seen.append(event.type)
    assert time.monotonic() - began < 25
    assert seen[-1] == "response.completed"


def test_the_agents_sdk(gateway):
    agents = pytest.importorskip("agents")
    agents.set_tracing_disabled(True)

    async def run():
        async with gateway.aclient() as client:
            model = agents.OpenAIResponsesModel(model="big", openai_client=client)
            return await agents.Runner.run(agents.Agent(name="a", instructions="Answer.", model=model), "2 + 2?")

    assert asyncio.run(run()).final_output == "four"


def test_langchain(gateway):
    chats = pytest.importorskip("langchain_openai")
    how = {"model": "big", "base_url": gateway.url, "api_key": "none", "max_retries": 0, "use_responses_api": True}
    assert chats.ChatOpenAI(**how).invoke([("system", "Count."), ("user", ASKED[0]["content"])]).text == "four"
