"""What only SGLang has: its cache flush, and what it says of itself. Its chats are OpenAI's."""

import pytest
from kit.optional import needs
from kit.wire.client import Client

from vinelm.backends.diagnostics import KnowsContext

needs("langchain_openai")


@pytest.fixture
def client(transport, kept):
    return lambda **how: kept(Client(how.pop("api_base", transport.url), provider="sglang", **how))


def test_flush_cache(transport, client):
    async def reply(asked, out):
        await out.whole(b"Cache flushed.", 200 if asked.number == 0 else 400, content_type="text/plain")

    transport.answers(reply)
    made = client()
    assert [made.backend.flush_cache(made.model) for _ in range(2)] == [True, False]
    assert {asked.path for asked in transport.asked} == {"/flush_cache"}
    nobody = client(api_base="http://127.0.0.1:9")
    assert nobody.backend.flush_cache(nobody.model) is False


@pytest.mark.parametrize(
    ("info", "tokens"),
    [
        ({"context_length": 8192, "max_req_input_len": 8000}, 8192),
        ({"context_length": None, "max_req_input_len": 4090}, 4090),
        ({}, None),
    ],
)
@pytest.mark.parametrize("has_v1", [True, False])
def test_context(transport, client, info, tokens, has_v1):
    async def reply(asked, out):
        assert asked.path == "/get_server_info"
        await out.whole(info)

    transport.answers(reply)
    made = client(api_base=transport.url if has_v1 else transport.url.removesuffix("/v1"))
    assert isinstance(made.backend, KnowsContext)
    assert made.backend.context_tokens(made.model) == tokens
