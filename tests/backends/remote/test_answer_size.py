"""An answer that unfolds to more than its limit ends the attempt: nothing holds it whole, and its bound is booked."""

import asyncio
import gzip
import json
import threading

import pytest
from kit.crossed import crossed
from kit.optional import needs
from kit.wire import openai_format
from kit.wire.client import ONCE, Client, fails
from kit.wire.providers import PROVIDERS, SECRETS

from vinelm.backends.remote import answer_size

needs("langchain_openai", "langchain_anthropic", "langchain_aws", "langchain_google_genai")
pytestmark = pytest.mark.usefixtures("credentials")
LIMIT = 1 << 20
MODES = ("invoke", "stream", "ainvoke", "astream")


@pytest.fixture
def made(transport, kept, monkeypatch):
    monkeypatch.setattr(answer_size, "MOST_BYTES", LIMIT)
    return kept(Client(transport.url, api_key_env="MY_KEY", max_tokens=10, timeout_s=5.0, settings={"max_retries": 0}))


def whole_answer(length):
    return json.dumps(openai_format.completion("x" * length)).encode()


def stream(length):
    return b"".join(b"data: %s\n\n" % json.dumps(piece).encode() for piece in openai_format.chunks("x" * length))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("folds", [0, 1, 2])
def test_a_body_that_unfolds_to_more_than_the_limit_ends_the_attempt_at_its_bound(transport, made, mode, folds):
    async def reply(asked, out):
        is_stream = openai_format.is_stream(asked)
        body = stream(2 * LIMIT) if is_stream else whole_answer(2 * LIMIT)
        for _ in range(folds):
            body = gzip.compress(body)
        encoding = {"content_encoding": ", ".join(["gzip"] * folds)} if folds else {}
        await out.whole(body, content_type="text/event-stream" if is_stream else "application/json", **encoding)

    transport.answers(reply)
    error, _ = fails(made, mode)
    assert error.kind == "server"
    booked = sum(usage.cost_usd for usage in made.usages)
    assert booked == pytest.approx(made.backend.upper_bound_usd(made.model, []) / 2, rel=0.1)  # of one attempt of two


@pytest.mark.parametrize("mode", ["stream", "astream"])
def test_an_event_without_an_end_is_bounded(transport, made, mode, monkeypatch):
    monkeypatch.setattr(answer_size, "MOST_BYTES", 64 * LIMIT)
    monkeypatch.setattr(answer_size, "MOST_COPIED", 20 * LIMIT)
    sent = 0

    async def reply(asked, out):
        nonlocal sent
        await out.head(content_type="text/event-stream")
        for _ in range(32):
            await out.send(b"data: " + b"x" * LIMIT)
            sent += 1

    transport.answers(reply)
    error, _ = fails(made, mode)
    assert error.kind == "server"
    assert sent < 32


@pytest.mark.parametrize("mode", ["stream", "astream"])
def test_a_deadline_ends_work_between_two_waits(transport, kept, monkeypatch, mode):
    """A few bytes of the socket unfold to comments that an SDK reads for a minute; nothing waits meanwhile."""
    made = kept(Client(transport.url, api_key_env="MY_KEY", max_tokens=10, timeout_s=1.0, settings={"max_retries": 0}))
    monkeypatch.setattr(answer_size, "MOST_BYTES", 1 << 40)

    async def reply(asked, out):
        await out.whole(gzip.compress(b":\n\n" * (1 << 24)), content_type="text/event-stream", content_encoding="gzip")

    transport.answers(reply)
    counted, unfolded = answer_size._Bounded._counted, []

    def noted(self, piece):
        unfolded.append(len(piece))
        return counted(self, piece)

    monkeypatch.setattr(answer_size._Bounded, "_counted", noted)
    error, _ = fails(made, mode)
    assert error.kind == "timeout"
    assert 0 < sum(unfolded) < 3 * (1 << 24)  # the time was over before all of it was read


@pytest.mark.parametrize("mode", MODES)
def test_a_compressed_answer_within_the_limit_is_read(transport, made, mode):
    async def reply(asked, out):
        is_stream = openai_format.is_stream(asked)
        body = gzip.compress(stream(1000) if is_stream else whole_answer(1000))
        await out.whole(body, content_type="text/event-stream" if is_stream else "application/json", content_encoding="gzip")

    transport.answers(reply)
    assert made.ask(mode).text == "x" * 1000


@pytest.mark.parametrize(("name", "mode"), crossed(["openai", "anthropic", "gemini", "vertex", "bedrock"], MODES))
def test_an_answer_without_an_end_is_bounded_at_every_provider(transport, kept, monkeypatch, name, mode):
    monkeypatch.setattr(answer_size, "MOST_BYTES", LIMIT)
    words, sent = PROVIDERS[name].words, []

    async def reply(asked, out):
        piece = "x" * (LIMIT // 4)
        if words.is_stream(asked):
            await words.begin(out)
        else:
            await out.head(content_type="application/json")
            await out.send(words.HALF)
        for _ in range(256):
            await (words.say(out, piece) if words.is_stream(asked) else out.send(piece.encode()))
            sent.append(len(piece))

    transport.answers(reply)
    made = kept(PROVIDERS[name].client(transport, max_tokens=10, settings={**ONCE, "stream": False}))
    error, usage = fails(made, mode, SECRETS)
    assert (error.kind, usage.tokens_estimated) == ("server", True)
    assert sum(sent) < 32 * LIMIT  # what waits in the sockets is sent, too
    assert error.cost_usd == pytest.approx(made.backend.upper_bound_usd(made.model, []) / 2, rel=0.1)


@pytest.mark.parametrize("mode", ["invoke", "stream", "ainvoke"])
def test_a_thread_of_bedrocks_ends_with_its_deadline_while_its_answer_goes_on(transport, kept, mode):
    words, ended = PROVIDERS["bedrock"].words, threading.Event()

    async def reply(asked, out):
        try:
            await words.begin(out)
            while True:
                await (words.say(out, "x") if words.is_stream(asked) else out.chunk(b" " * (1 << 17)))
                await asyncio.sleep(0.05)
        finally:
            ended.set()

    transport.answers(reply)
    error, _ = fails(kept(PROVIDERS["bedrock"].client(transport, timeout_s=0.5, settings=ONCE)), mode, SECRETS)
    assert error.kind == "timeout"
    assert ended.wait(20.0)
