"""Requests to the providers' servers: what is built once holds for one address and key only."""

import asyncio

import pytest

from vinelm.backends.openai.http_library import http_library
from vinelm.backends.remote.provider import ChatAddress
from vinelm.gateway import wire
from vinelm.gateway.wire import Upstream


@pytest.fixture
def seen():
    return []


@pytest.fixture
def upstream(seen):
    library = http_library()

    def answer(request):
        seen.append(request)
        return library.Response(200, headers={"set-cookie": "turn=1"}, content=b"{}")

    return Upstream(library.AsyncClient(transport=library.MockTransport(answer), timeout=None))


def address(host="one.test", key="a"):
    return ChatAddress(f"https://{host}/v1/chat/completions", {"authorization": f"Bearer {key}"}, {}, "max_tokens")


def post(upstream, *given, content=b'{"n": 1}'):
    asyncio.run(upstream.post(address(*given), content))


def test_each_request_has_its_own_key_address_and_content(upstream, seen):
    for given, content in (
        (("one.test", "a"), b"1"),
        (("one.test", "b"), b"22"),
        (("two.test", "a"), b""),
        (("one.test", "a"), b"4"),
    ):
        post(upstream, *given, content=content)
    assert [(one.url.host, one.headers["authorization"][-1], one.content) for one in seen] == [
        ("one.test", "a", b"1"),
        ("one.test", "b", b"22"),
        ("two.test", "a", b""),
        ("one.test", "a", b"4"),
    ]
    assert [one.headers["host"] for one in seen] == ["one.test", "one.test", "two.test", "one.test"]
    assert [one.headers["content-length"] for one in seen] == ["1", "2", "0", "1"]
    assert {one.headers["content-type"] for one in seen} == {"application/json"}
    asyncio.run(upstream.aclose())


def test_cookies_go_to_the_server_that_has_set_them(upstream, seen):
    for host in ("one.test", "one.test", "two.test"):
        post(upstream, host)
    assert [one.headers.get("cookie") for one in seen] == [None, "turn=1", None]
    asyncio.run(upstream.aclose())


def test_addresses_are_not_remembered_without_limit(upstream, seen, monkeypatch):
    monkeypatch.setattr(wire, "MOST_ADDRESSES", 3)
    for number in range(10):
        post(upstream, "one.test", str(number))
    assert len(upstream._commons) <= 3
    assert [one.headers["authorization"] for one in seen] == [f"Bearer {number}" for number in range(10)]
    asyncio.run(upstream.aclose())
