"""Who may call, what each may spend, and that nobody sees anything of another."""

import asyncio
import http.client
import json
import os
import signal
import subprocess
import sys
import time

import openai
import pytest
from kit.servers.gateways import ASKED, COST, KEY, KEY_ENV, catalog_of, entries, running
from kit.wire.openai_format import answering, chunk, problem

from vinelm.errors import ConfigError
from vinelm.gateway import KeyBook
from vinelm.gateway.server import serve
from vinelm.replay import read_calls


@pytest.fixture
def book(tmp_path):
    made = KeyBook(tmp_path / "keys.db")
    yield made
    made.close()


@pytest.fixture
def guarded(upstream, book):
    with running(catalog_of(upstream.url, max_tokens=100), keys=book) as found:
        yield found


def spent(book, name):
    """Dollars spent and reserved, once no call is under way: the end of a stream is seen before it is settled."""
    until = time.monotonic() + 30
    while True:
        [day] = [day for day in book.today() if day.key.name == name]
        if not day.reserved_usd or time.monotonic() > until:
            return day.spent_usd, day.reserved_usd
        time.sleep(0.005)


def held(book, name):
    """The same at this moment."""
    [day] = [day for day in book.today() if day.key.name == name]
    return day.spent_usd, day.reserved_usd


def test_without_a_key_nothing_is_served(guarded, book, upstream):
    key = book.add("alice")
    for given in ("", "x", "sk-vinelm-none", key[:-1], f"{key} {key}"):
        with pytest.raises(openai.AuthenticationError, match="a key of this gateway"):
            guarded.ask(given or "none")
    with guarded.client("wrong") as client, pytest.raises(openai.AuthenticationError):
        client.models.list()
    assert not upstream.asked
    assert guarded.ask(key).choices[0].message.content == "four"


def test_a_revoked_key_is_refused_at_once(guarded, book, upstream):
    key = book.add("alice")
    guarded.ask(key)
    book.revoke("alice")
    with pytest.raises(openai.AuthenticationError):
        guarded.ask(key)
    assert len(upstream.asked) == 1


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_costs_what_its_usage_says(guarded, book, stream):
    key = book.add("alice", daily_usd=1.0)
    with guarded.client(key) as client:
        answer = client.chat.completions.create(model="big", messages=ASKED, stream=stream)
        if stream:
            list(answer)
    assert spent(book, "alice") == (pytest.approx(COST), 0.0)


def test_under_a_cap_an_answer_has_a_limit(guarded, book, upstream):
    """Else its bound would be no bound. The client's own limit is kept; without caps nothing is added."""
    key = book.add("alice", daily_usd=1.0)
    guarded.ask(key)
    guarded.ask(key, max_completion_tokens=7)
    assert [asked.json.get("max_tokens") for asked in upstream.asked] == [100, 7]
    assert all("max_completion_tokens" not in asked.json for asked in upstream.asked)


@pytest.mark.parametrize(
    "more",
    [{"max_tokens": 0}, {"max_tokens": -1}, {"max_tokens": "9"}, {"n": 0}, {"n": 1.5}, {"n": "2"}, {"service_tier": "priority"},
     {"models": ["dear"]}, {"web_search_options": {}}, {"plugins": [{"id": "web"}]}, {"tools": [{"type": "web_search"}]},
     {"tools": [{"google_search": {}}]}],
)  # fmt: skip
def test_under_a_cap_what_cannot_be_bounded_is_refused(guarded, book, upstream, more):
    key = book.add("alice", daily_usd=1.0)
    with pytest.raises(openai.BadRequestError):
        guarded.ask(key, extra_body=more)
    assert not upstream.asked
    assert spent(book, "alice") == (0.0, 0.0)


def test_under_a_cap_a_translated_call_may_not_search_either(book, upstream):
    key = book.add("alice", daily_usd=1.0)
    with (
        running(catalog_of(upstream.url, max_tokens=100, options={"disable_streaming": False}), keys=book) as gateway,
        pytest.raises(openai.BadRequestError, match="web_search_options"),
    ):
        gateway.ask(key, extra_body={"web_search_options": {}})
    assert not upstream.asked


@pytest.mark.parametrize("options", [{}, {"disable_streaming": False}])
@pytest.mark.parametrize("stream", [False, True])
def test_without_a_cap_a_call_passes_as_it_is_and_is_counted(book, upstream, options, stream):
    key = book.add("alice")
    more = {} if options else {"n": 200, "max_tokens": 10**9, "max_completion_tokens": None, "plugins": [{"id": "web"}]}
    with running(catalog_of(upstream.url, max_tokens=100, options=options), keys=book) as gateway:
        with gateway.client(key) as client:
            answer = client.chat.completions.create(model="big", messages=ASKED, stream=stream, extra_body=more)
            if stream:
                list(answer)
        gateway.stop()
    if not options:
        own = {"stream": stream, **({"stream_options": {"include_usage": True}} if stream else {})}
        assert upstream.asked[0].json == {"model": "big-1", "messages": ASKED, **more, **own}
    assert spent(book, "alice") == (pytest.approx(COST), 0.0)
    assert book.today()[0].calls == 1


def test_a_cap_is_never_passed_whatever_is_asked_at_once(guarded, book, upstream):
    """40 calls at once, each of which may cost 0.0021: four fit, and are answered once the others are refused."""
    key = book.add("alice", daily_usd=0.01)
    refused = []

    async def reply(asked, out):
        until = time.monotonic() + 60
        while len(refused) < 36 and time.monotonic() < until:
            await asyncio.sleep(0.01)
        await answering("four")(asked, out)

    upstream.answers(reply)

    async def one(client):
        try:
            await client.chat.completions.create(model="big", messages=ASKED)
        except openai.APIStatusError as error:
            refused.append(error)
            return error.status_code, error.code
        return 200, None

    async def all_of_them():
        async with guarded.aclient(key) as client:
            return await asyncio.gather(*(one(client) for _ in range(40)))

    said = asyncio.run(all_of_them())
    assert {one: said.count(one) for one in said} == {(200, None): 4, (402, "budget_exceeded"): 36}
    assert len(upstream.asked) == 4
    assert spent(book, "alice") == (pytest.approx(4 * COST), 0.0)


@pytest.mark.parametrize("fault", ["no usage", "broken", "hung up", "lies"])
def test_what_is_not_known_is_spent_at_its_bound(guarded, book, upstream, fault):
    key = book.add("alice", daily_usd=1.0)
    waiting = []

    async def reply(asked, out):
        await out.chunked()
        await out.event(chunk({"content": "four"}))
        if fault == "hung up":
            waiting.append(1)
            await asyncio.wait_for(out.reader.read(1), 30)
        if fault == "broken":
            return out.close()
        usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0} if fault == "lies" else None
        await out.event(chunk({}, finish_reason="stop", usage=usage))
        await out.event("[DONE]")
        await out.finish()

    upstream.answers(reply)
    with guarded.client(key) as client:
        stream = client.chat.completions.create(model="big", messages=ASKED, stream=True)
        if fault == "hung up":
            next(iter(stream))
            stream.close()
        elif fault == "broken":
            with pytest.raises(openai.APIError):
                list(stream)
        else:
            list(stream)
    done, reserved = spent(book, "alice")
    assert reserved == 0.0
    assert done > 100 * 10.0 / 1e6  # all that it could have written
    assert done < 0.0035


def test_a_refused_call_costs_nothing(guarded, book, upstream):
    key = book.add("alice", daily_usd=1.0)

    async def reply(asked, out):
        await out.whole(problem("rate_limit_exceeded"), status=429)

    upstream.answers(reply)
    with pytest.raises(openai.RateLimitError):
        guarded.ask(key)
    assert spent(book, "alice") == (0.0, 0.0)


def test_a_rate_is_an_error_that_says_when(guarded, book, upstream):
    key = book.add("alice", calls_per_min=1)
    guarded.ask(key)
    with pytest.raises(openai.RateLimitError) as caught:
        guarded.ask(key)
    assert 1 <= int(caught.value.response.headers["retry-after"]) <= 60
    assert len(upstream.asked) == 1


def test_a_full_disk_refuses_calls_under_a_cap_in_one_line(guarded, book, upstream):
    key, headers = book.add("alice", daily_usd=1.0), {"x-vinelm-request": "order-7"}
    guarded.ask(key, headers=headers)
    book._connection.execute(
        "CREATE TEMP TRIGGER full BEFORE UPDATE ON main.gateway_days BEGIN SELECT RAISE(FAIL, 'disk is full'); END"
    )
    with pytest.raises(openai.APIStatusError, match="file of keys cannot be written") as caught:
        guarded.ask(key, headers=headers)
    assert (caught.value.status_code, caught.value.code) == (402, "budget_exceeded")
    assert len(upstream.asked) == 1
    book._connection.execute("DROP TRIGGER full")
    assert guarded.ask(key, headers=headers).choices[0].message.content == "four"  # the request goes on


def test_two_tenants_never_see_each_other(guarded, book, upstream):
    """The same name of a request is another request for each tenant, and for each key; so is what it is planned for."""
    keys = {name: book.add(name, tenant=tenant) for name, tenant in (("a", "acme"), ("b", "bert"), ("c", "acme"))}
    hers, his = {"maximize": "accuracy"}, {"minimize": "cost"}
    for name, objective in (("a", hers), ("b", his), ("c", his)):
        guarded.ask(keys[name], headers={"x-vinelm-request": "order-7", "x-vinelm-objective": json.dumps(objective)})
    requests = guarded.gateway._requests._named
    assert len(requests) == 3
    told = [found.context.configurable for found in requests.values()]
    assert [one["tenant"] for one in told] == ["acme", "bert", "acme"]
    with pytest.raises(openai.BadRequestError, match="differs from that of the request's first call"):
        guarded.ask(keys["a"], headers={"x-vinelm-request": "order-7", "x-vinelm-objective": json.dumps(his)})


def test_answers_of_many_callers_at_once_are_never_mixed(guarded, book, upstream):
    keys = [book.add(f"k{number}", tenant=f"t{number % 3}") for number in range(6)]

    async def reply(asked, out):
        await asyncio.sleep(0.001 * (asked.number % 7))
        await answering(asked.json["messages"][0]["content"])(asked, out)

    upstream.answers(reply)

    async def one(number):
        async with guarded.aclient(keys[number % 6]) as client:
            asked = [{"role": "user", "content": f"secret-{number}"}]
            headers = {"x-vinelm-request": f"r{number % 4}"}
            if number % 2:
                whole = await client.chat.completions.create(model="big", messages=asked, extra_headers=headers)
                return whole.choices[0].message.content
            stream = await client.chat.completions.create(model="big", messages=asked, stream=True, extra_headers=headers)
            return "".join([piece.choices[0].delta.content or "" async for piece in stream])

    async def all_of_them():
        return await asyncio.gather(*(one(number) for number in range(60)))

    assert asyncio.run(all_of_them()) == [f"secret-{number}" for number in range(60)]


@pytest.mark.parametrize("headers", [{"Origin": "https://evil.example"}, {"Host": "evil.example"}])
def test_without_keys_no_web_page_is_served(gateway, upstream, headers):
    connection = http.client.HTTPConnection(*gateway.address, timeout=30)
    connection.request("POST", "/v1/chat/completions", json.dumps({"model": "big", "messages": ASKED}), headers)
    reply = connection.getresponse()
    assert (reply.status, json.loads(reply.read())["error"]["code"]) == (403, "forbidden")
    connection.close()
    assert not upstream.asked


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_beyond_this_machine_keys_are_needed(gateway, host):
    with pytest.raises(ConfigError, match="vinelm keys add"):
        serve(gateway.gateway, host, 0, on_listening=lambda url: None)


def test_a_missing_key_of_a_provider_is_said_at_the_start(upstream, monkeypatch):
    monkeypatch.delenv(KEY_ENV)
    with pytest.raises(ConfigError, match=f"{KEY_ENV} is not set"), running(catalog_of(upstream.url)):
        pass


def test_a_killed_gateways_calls_are_spent_at_their_bound(tmp_path, upstream):
    """Killed in the midst of a stream; the next gateway on the same file goes on with what is left."""
    book = KeyBook(tmp_path / "keys.db")
    key = book.add("alice", daily_usd=0.01)
    models = tmp_path / "models.toml"
    entry = entries(upstream.url, "big", max_tokens=100)[0] | {"price": None}
    price = '{ input = 1.0, output = 10.0, source = "a test", as_of = 2026-01-01 }'
    lines = [f"{name} = {json.dumps(value)}" for name, value in entry.items() if value is not None]
    models.write_text("\n".join(["[[model]]", *lines, f"price = {price}"]))

    async def reply(asked, out):
        await out.chunked()
        await out.event(chunk({"content": "fo"}))
        await asyncio.sleep(60)

    upstream.answers(reply)
    command = [
        sys.executable,
        "-m",
        "vinelm.cli.main",
        "gateway",
        "--models",
        str(models),
        "--port",
        "0",
        "--keys",
        str(book.path),
    ]
    environment = {**os.environ, KEY_ENV: KEY, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [*command, "--no-record"], stdout=subprocess.PIPE, text=True, env=environment, cwd=tmp_path
    ) as process:
        line = process.stdout.readline()
        url = next(word for word in line.split() if word.startswith("http"))
        with openai.OpenAI(base_url=url, api_key=key, max_retries=0) as client:
            next(iter(client.chat.completions.create(model="big", messages=ASKED, stream=True)))
            process.send_signal(signal.SIGKILL)
            process.wait()
    done, reserved = held(book, "alice")
    assert done == 0.0
    assert 100 * 10.0 / 1e6 < reserved < 0.0035
    upstream.answers(answering("four"))
    with running(catalog_of(upstream.url, max_tokens=100), keys=book) as gateway:
        gateway.ask(key)
        assert held(book, "alice") == (pytest.approx(COST), reserved)
        codes = []
        for _ in range(3):
            try:
                gateway.ask(key, max_completion_tokens=700)
            except openai.APIStatusError as error:
                codes.append(error.code)
        assert set(codes) <= {"budget_exceeded"}
    assert held(book, "alice")[0] + reserved <= 0.01
    book.close()


def test_requests_of_two_tenants_are_two_in_the_record(upstream, book, tmp_path):
    keys = [book.add(name) for name in ("acme", "bert")]
    with running(catalog_of(upstream.url), keys=book, record=tmp_path / "calls.jsonl") as gateway:
        for key in keys:
            gateway.ask(key, headers={"x-vinelm-request": "order-7", "x-vinelm-conversation": "chat-3"})
    calls = list(read_calls([tmp_path / "calls.jsonl"]))
    assert len({call.request for call in calls}) == len({call.conversation for call in calls}) == 2
