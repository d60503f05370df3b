"""``timeout_s`` bounds an attempt by the clock, whatever the server does: every provider, over a real socket.

No duration is asserted: each of these servers would go on for ever, so a call that ends has been ended by the limit.
"""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from kit.optional import needs
from kit.wire import bedrock_format
from kit.wire.client import MODES, ONCE, PROMPT, fails
from kit.wire.providers import PROVIDERS, SECRETS
from langchain_core.messages import HumanMessage

needs("langchain_openai", "langchain_anthropic", "langchain_aws", "langchain_google_genai")
pytestmark = pytest.mark.usefixtures("credentials")
PAUSE_S = 0.02
WAYS = [("invoke", False), ("invoke", True), ("ainvoke", False), ("ainvoke", True)]


async def for_ever(out, data):
    while True:
        await out.send(data)
        await asyncio.sleep(PAUSE_S)


async def kind_of(provider, out, asked, **headers):
    """The head of a response, as it is asked for."""
    if not provider.words.is_stream(asked):
        return await out.chunked("application/json", **headers)
    return await out.chunked(bedrock_format.STREAM if provider.name == "bedrock" else "text/event-stream", **headers)


def idle_of(provider):
    """What keeps a stream open without saying anything. google-genai takes a comment for a broken answer."""
    silent = {"bedrock": bedrock_format.event("ping", {}), "gemini": b"\n\n", "vertex": b"\n\n"}
    return silent.get(provider.name, b": keep-alive\n\n")


def chunk_of(data):
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


async def header_bytes(provider, asked, out):
    await out.send(b"HTTP/1.1 200 OK\r\nx-slow: ")
    await for_ever(out, b"x")


async def informational(provider, asked, out):
    await for_ever(out, b"HTTP/1.1 103 Early Hints\r\n\r\n")


async def keep_alive(provider, asked, out):
    """Comments in a stream; blanks before a whole answer."""
    await kind_of(provider, out, asked)
    if not provider.words.is_stream(asked):
        await for_ever(out, chunk_of(b" "))
    await for_ever(out, chunk_of(idle_of(provider)))


async def endless_text(provider, asked, out):
    if not provider.words.is_stream(asked):
        await kind_of(provider, out, asked)
        await out.chunk(provider.words.HALF)
        await for_ever(out, chunk_of(b"x"))
    await provider.words.begin(out)
    while True:
        await provider.words.say(out, "x")
        await asyncio.sleep(PAUSE_S)


KINDS = (header_bytes, informational, keep_alive, endless_text)
CASES = [
    (name, kind)
    for name in PROVIDERS
    for kind in KINDS
    if (kind is keep_alive or name not in ("azure", "vertex", "sglang")) and (name, kind) != ("bedrock", informational)
]
"""Azure, Vertex and SGLang speak OpenAI's and Gemini's wire format, through the same packages."""
ORDER = list(PROVIDERS)


def is_sampled(name, kind, way):
    """Half of the ways of each case: every provider and every kind is tried in all four ways."""
    mode, streams = way
    return (ORDER.index(name) + KINDS.index(kind) + (mode == "ainvoke") + streams) % 2 == 0


CALLS = [
    pytest.param(name, kind, *way, marks=() if is_sampled(name, kind, way) else pytest.mark.long)
    for name, kind in CASES
    for way in WAYS
]


@pytest.fixture(params=PROVIDERS)
def provider(request):
    return PROVIDERS[request.param]


@pytest.fixture
def client(provider, transport, kept):
    return lambda **how: kept(provider.client(transport, **how))


def in_time(step, *arguments):
    """The result of ``step``, which must come: a guard for the test's own sake."""
    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(step, *arguments).result(timeout=30)
    finally:
        pool.shutdown(wait=False)


class Watched:
    """A server's answer of that kind; ``closed`` counts the connections that the other side closed."""

    def __init__(self, kind, provider):
        self.kind, self.provider, self.closed = kind, provider, 0

    async def __call__(self, asked, out):
        try:
            await self.kind(self.provider, asked, out)
        except ConnectionError:
            self.closed += 1
            raise

    def wait(self, count):
        for _ in range(1000):
            if self.closed >= count:
                return True
            time.sleep(0.01)
        return False


@pytest.mark.parametrize(
    ("provider", "kind", "mode", "streams"), CALLS, ids=lambda part: getattr(part, "__name__", str(part)), indirect=["provider"]
)
def test_a_server_that_trickles_for_ever_is_left(provider, transport, client, kind, mode, streams):
    server = Watched(kind, provider)
    transport.answers(server)
    made = client(settings={**ONCE, "stream": streams}, timeout_s=0.3)
    error, usage = in_time(fails, made, mode, SECRETS)
    assert (error.kind, usage.retries) == ("timeout", 0)
    assert error.cost_usd == pytest.approx(made.backend.upper_bound_usd(made.model, [HumanMessage(PROMPT)]) / 2, rel=0.01)
    assert usage.tokens_estimated
    if provider.name != "bedrock":  # boto3 has no asynchronous client: its thread ends with the next byte that it waits for
        assert server.wait(len(transport.asked))  # the connection is closed, not only forgotten


class Tail:
    """A complete answer, after which the stream does not end."""

    def __init__(self, words, after):
        self.words, self.after = words, after

    async def __call__(self, asked, out):
        finish, out.finish = out.finish, self._finished
        await self.words.answering("four")(asked, out)
        out.finish = finish
        await for_ever(out, self.after)

    async def _finished(self):
        pass


def sampled(*modes):
    """Every provider with these modes, where every other one of them is left to the long tests."""
    pairs = [(at + ORDER.index(name), name, mode) for name in ORDER for at, mode in enumerate(modes)]
    return [pytest.param(name, mode, marks=pytest.mark.long if number % 2 else ()) for number, name, mode in pairs]


@pytest.mark.parametrize(("provider", "mode"), sampled(*MODES), indirect=["provider"])
def test_a_complete_answer_is_used_though_its_stream_does_not_end(provider, transport, client, mode):
    transport.answers(Tail(provider.words, chunk_of(idle_of(provider))))
    made = client(timeout_s=1.0)  # enough for the answer itself on a machine that is busy
    assert in_time(made.ask, mode).text == "four"
    (usage,) = made.usages
    assert (usage.retries, usage.failure, usage.tokens_estimated, len(transport.asked)) == (0, None, False, 1)


@pytest.mark.parametrize(("provider", "mode"), sampled("invoke", "ainvoke"), indirect=["provider"])
def test_a_prompt_that_is_not_read_is_left(provider, transport, client, mode):
    """The server accepts the connection and reads nothing: sending the prompt would block for ever."""
    import socket

    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        where = type("Deaf", (), {"url": f"http://127.0.0.1:{deaf.getsockname()[1]}/v1"})
        made = provider.client(where, settings=ONCE, timeout_s=1.0)  # enough to begin to send it: unsent, it would cost nothing
        with pytest.raises(Exception, match="timeout"):
            in_time(made.ask, mode, "x" * 8_000_000)
        made.close()
    assert made.usages[0].cost_usd > 0
