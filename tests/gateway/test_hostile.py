"""Clients that send nonsense, too much, or too slowly: a clear error in OpenAI's form, and nothing leaks."""

import json
import random
import socket
import time
from contextlib import suppress
from dataclasses import replace

import pytest
from kit.servers.gateways import ASKED, KEY, catalog_of, running

from vinelm import VineLM
from vinelm.backends.remote.provider import CHAT, RESPONSES
from vinelm.gateway import KeyBook
from vinelm.gateway.answer import EventReader
from vinelm.gateway.open_requests import OpenRequests
from vinelm.http_limits import HttpLimits

QUICK = HttpLimits(connections=64, head_bytes=16_384, body_bytes=20_000, head_s=0.5, body_s=0.5, answer_s=5.0)
GOOD = {"model": "big", "messages": ASKED}
RESPONSE = {"model": "big", "input": [{"role": "user", "content": [{"type": "input_text", "text": "2 + 2?"}]}]}


@pytest.fixture(scope="module")
def secret():
    return "prompt-7f3a-secret"


def talk(address, data, *, wait_s=30.0):
    """All that the gateway says to these bytes."""
    with socket.create_connection(address, timeout=wait_s) as client:
        client.sendall(data)
        said = b""
        while piece := client.recv(65_536):
            said += piece
    return said


def post(body, *, path="/v1/chat/completions", headers=()):
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Connection: close", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def checked(said):
    """Status and code of one answer, which has to be an error of OpenAI's form."""
    head, _, body = said.partition(b"\r\n\r\n")
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}, body
    return int(head.split()[1]), error


def nonsense(rng, secret, *, is_responses):
    """One body that is no call."""
    odd = rng.choice([None, 0, -1, 1e308, "", "x", [], {}, [[]], True, secret, {"a": secret}, [secret], [None]])
    name = rng.choice(["model", "messages", "stream", "stream_options", "tools"])
    if is_responses:
        name = name if name != "messages" else rng.choice(["input", "instructions", "text", "reasoning"])
    broken = {
        **(RESPONSE if is_responses else GOOD),
        "secret": secret,
        name: "no model" if name == "model" and odd == secret else odd,
    }
    text = json.dumps(broken).encode()
    how = rng.randrange(7)
    if how == 0:
        return rng.randbytes(rng.randrange(200))
    if how == 1:
        return text[: rng.randrange(len(text))]
    if how == 2:
        return b"[" * rng.randrange(1, 5000)
    if how == 3:
        return text.replace(b'"big"', rng.choice([b"NaN", b"Infinity", b"1" * 5000, b'"\xff"', b"null"]))
    if how == 4:
        return json.dumps({key: broken[key] for key in rng.sample(sorted(broken), rng.randrange(1, len(broken)))}).encode()
    return text


def test_a_thousand_malformed_requests(upstream, secret, caplog):
    """Each is answered by itself, with 4xx and one line, or it is a call after all; then the gateway serves as before."""
    rng = random.Random(7)
    seen = {}
    with running(catalog_of(upstream.url), limits=QUICK) as gateway:
        for _ in range(1000):
            is_responses = rng.random() < 0.5
            body = nonsense(rng, secret, is_responses=is_responses)
            said = talk(gateway.address, post(body, path=f"/v1/{RESPONSES if is_responses else CHAT}"))
            status = int(said.split()[1])
            if status != 200:
                status, error = checked(said)
                assert 400 <= status < 500, said
                assert "\n" not in error["message"]
                assert secret not in error["message"]
            seen[status] = seen.get(status, 0) + 1
            assert KEY.encode() not in said
        assert gateway.ask().choices[0].message.content == "four"
    assert seen[400] > 500
    assert seen[404] > 3
    assert secret not in caplog.text
    assert KEY not in caplog.text


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # the beginning of TLS
        b"POST /v1/chat/completions HTTP/9.9\r\nConnection: close\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nHost: b\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        post(b"{}", headers=["x: " + "y" * 20_000]),
        post(b"{}", headers=[f"x{number}: {'y' * 90}" for number in range(400)]),
    ],
)
def test_what_is_no_http_is_a_4xx(upstream, data):
    with running(catalog_of(upstream.url), limits=QUICK) as gateway:
        said = talk(gateway.address, data)
        if said:
            status, _ = checked(said)
            assert 400 <= status < 500
        assert gateway.ask().choices[0].message.content == "four"
    assert len(upstream.asked) == 1


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        ("/", "GET", 404),
        ("/v1/embeddings", "POST", 404),
        ("/v1/chat/completions", "GET", 405),
        ("/v1/../etc/passwd", "GET", 404),
    ],
)
def test_other_paths_and_methods(gateway, path, method, status):
    said = talk(gateway.address, f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    assert checked(said)[0] == status


@pytest.mark.parametrize("said_length", [True, False])
def test_a_body_that_is_too_large_is_a_413(upstream, said_length):
    body = json.dumps({**GOOD, "x": "y" * 30_000}).encode()
    data = post(body)
    if not said_length:
        head = (
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        )
        data = head + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    with running(catalog_of(upstream.url), limits=QUICK) as gateway:
        assert checked(talk(gateway.address, data))[0] == 413
    assert not upstream.asked


def test_slow_clients_are_cut_off_and_others_are_served_meanwhile(upstream):
    whole = post(json.dumps(GOOD).encode())
    limits = replace(QUICK, head_s=3.0)  # on a busy machine a head may take its time, too
    with running(catalog_of(upstream.url), limits=limits) as gateway:
        slow = []
        for end in (1, 30, len(whole) - 5):
            client = socket.create_connection(gateway.address, timeout=30)
            client.sendall(whole[:end])
            slow.append(client)
        assert gateway.ask().choices[0].message.content == "four"
        said = []
        for client in slow:
            try:
                said.append(client.recv(65_536))
            except ConnectionError:
                said.append(b"")
            client.close()
        assert said[:2] == [b"", b""]
        assert checked(said[2])[0] == 408
    assert len(upstream.asked) == 1


def test_the_head_of_a_second_request_may_not_trickle_either(upstream):
    first = post(json.dumps(GOOD).encode()).replace(b"Connection: close\r\n", b"")
    with (
        running(catalog_of(upstream.url), limits=QUICK) as gateway,
        socket.create_connection(gateway.address, timeout=30) as client,
    ):
        client.sendall(first)
        said = b""
        while b"four" not in said:
            said += client.recv(65_536)
        client.sendall(b"POST /v1")
        with suppress(ConnectionError):
            assert client.recv(65_536) == b""


@pytest.mark.parametrize(
    "headers",
    [
        {"x-vinelm-request": "a b"},
        {"x-vinelm-request": "x" * 201},
        {"x-vinelm-objective": "{"},
        {"x-vinelm-objective": "[]"},
        {"x-vinelm-objective": '{"maximize": "fun"}'},
        {"x-vinelm-objective": '{"maximize": "accuracy", "max_cost_usd": "lots"}'},
        {"x-vinelm-objective": '{"nothing": 1}'},
        {"x-vinelm-step": "x" * 65},
        {"x-vinelm-step": "../../etc"},
    ],
)
def test_headers_of_ours_that_say_nothing_are_refused(gateway, upstream, headers):
    lines = [f"{name}: {value}" for name, value in headers.items()]
    status, error = checked(talk(gateway.address, post(json.dumps(GOOD).encode(), headers=lines)))
    assert status == 400
    assert "x" * 60 not in error["message"]
    assert not upstream.asked


def test_steps_and_requests_that_clients_invent_take_no_memory_without_end(upstream, monkeypatch):
    monkeypatch.setattr("vinelm.gateway.app.MOST_STEPS", 5)
    monkeypatch.setattr("vinelm.gateway.open_requests.MOST", 5)
    with running(catalog_of(upstream.url)) as gateway:
        for number in range(20):
            gateway.ask(headers={"x-vinelm-step": f"s{number}", "x-vinelm-request": f"r{number}"})
        assert len(gateway.gateway._known) == 5
        assert len(gateway.gateway._requests) == 5
        assert len(gateway.gateway.vine.adapter.called) == 6
        assert len(gateway.gateway.vine.adapter.finder.runs) == 5


def test_requests_under_way_do_not_keep_those_that_are_over(upstream, monkeypatch):
    monkeypatch.setattr("vinelm.gateway.open_requests.MOST", 3)
    clock = [0.0]
    requests = OpenRequests(VineLM(catalog_of(upstream.url)), now=lambda: clock[0])
    how = {"is_named": True, "caller": "", "configurable": {}, "objective": None, "asked": None}
    busy = requests.begin_call("busy", **how)
    for number in range(9):
        requests.end_call(requests.begin_call(f"r{number}", **how))
    assert len(requests) == 3
    clock[0] += 601.0
    requests.end_call(requests.begin_call("last", **how))
    assert [name for _, name in requests._named] == ["busy", "last"]
    assert requests.begin_call("busy", **how) is busy


@pytest.mark.parametrize("count", [10**15, 10**400, 1e300, "9999999999"])
@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "n"])
@pytest.mark.parametrize("has_cap", [False, True])
def test_a_count_that_no_server_takes_is_refused(upstream, tmp_path, count, name, has_cap):
    book = KeyBook(tmp_path / "keys.db")
    key = book.add("alice", daily_usd=1.0 if has_cap else None)
    with running(catalog_of(upstream.url), keys=book) as gateway:
        head = [f"Authorization: Bearer {key}"]
        status, error = checked(talk(gateway.address, post(json.dumps({**GOOD, name: count}).encode(), headers=head)))
    assert (status, error["code"], error["param"]) == (400, "integer_above_max_value", name)
    assert not upstream.asked
    book.close()


def test_half_of_a_surrogate_pair_passes(gateway, upstream):
    said = talk(gateway.address, post(json.dumps({**GOOD, "messages": [{"role": "user", "content": "\ud83d"}]}).encode()))
    assert said.startswith(b"HTTP/1.1 200")
    assert upstream.asked[0].json["messages"][0]["content"] == "\ud83d"


def test_a_long_event_in_small_pieces_costs_no_time():
    """Four MiB in 512 bytes each: if each piece had all before it copied and searched again, that were 16 GiB."""
    event = b"data: " + json.dumps({"text": "x" * (4 << 20)}).encode() + b"\r\n\r\n"
    reader, found = EventReader(hides_usage=False), []
    began = time.process_time()
    for begin in range(0, len(event), 511):
        found += reader.feed(event[begin : begin + 511])
    assert time.process_time() - began < 3.0
    assert [data for data, _ in found] == [event]
    assert reader.end() == []


@pytest.mark.parametrize("deep", [300, 600, 900, 960, 990, 1200, 100_000])
def test_a_deep_body_is_a_call_or_a_400(gateway, deep):
    for name, begin, end in ((b"x", b"[", b"]"), (b"options", b'{"options": ', b"}")):
        body = json.dumps(GOOD)[:-1].encode() + b', "%s": ' % name + begin * deep + b"1" + end * deep + b"}"
        said = talk(gateway.address, post(body))
        if not said.startswith(b"HTTP/1.1 200"):
            assert checked(said)[0] == 400
