"""Connections of asynchronous calls are kept and used again, and one that its server has closed meanwhile is not."""

import asyncio

import pytest
from kit.optional import needs
from kit.wire.client import ONCE
from kit.wire.providers import PROVIDERS

from vinelm.backends.remote.idle_connections import _Stream

needs("langchain_openai", "langchain_anthropic", "langchain_google_genai")
pytestmark = pytest.mark.usefixtures("credentials")
NAMES = ("openai", "anthropic", "gemini")


async def asked_twice(made):
    for _ in range(2):
        assert (await made.chat().ainvoke("2 + 2?")).text == "four"
        await asyncio.sleep(0.05)  # in which the end of the connection arrives


@pytest.mark.parametrize("name", NAMES)
def test_a_connection_is_used_again(name, transport, kept):
    transport.answers(PROVIDERS[name].words.answering("four"))
    asyncio.run(asked_twice(kept(PROVIDERS[name].client(transport, settings=ONCE))))
    assert (len(transport.asked), transport.connections) == (2, 1)


@pytest.mark.parametrize("name", NAMES)
def test_a_connection_that_its_server_has_closed_is_not(name, transport, kept, monkeypatch):
    answer, probed = PROVIDERS[name].words.answering("four"), []
    probe = _Stream.get_extra_info

    def noted(stream, info):
        found = probe(stream, info)
        if info == "is_readable":
            probed.append(found)
        return found

    async def reply(asked, out):
        await answer(asked, out)
        out.close()  # without a word of it before

    monkeypatch.setattr(_Stream, "get_extra_info", noted)
    transport.answers(reply)
    made = kept(PROVIDERS[name].client(transport, settings=ONCE))
    asyncio.run(asked_twice(made))
    assert (len(transport.asked), transport.connections) == (2, 2)
    assert [usage.retries for usage in made.usages] == [0, 0]
    assert True in probed
