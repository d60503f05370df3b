"""Synchronous calls run in the caller's thread and end with their deadline, whatever the server does, and leave nothing behind.

No duration is asserted but as a generous bound: each of these servers would go on for ever.
"""

import asyncio
import gc
import os
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import SimpleNamespace

import pytest
from kit.optional import needs
from kit.wire.client import ONCE, PROMPT, fails
from kit.wire.providers import PROVIDERS, SECRETS
from langchain_core.messages import HumanMessage

from vinelm.backends.remote.deadlines import Deadline, bound_waits

needs("langchain_openai", "langchain_anthropic")
pytestmark = pytest.mark.usefixtures("credentials")
LATE_S = 0.3
WAYS = ["invoke", "stream"]


@pytest.fixture(params=["openai", "anthropic"])
def provider(request):
    return PROVIDERS[request.param]


@pytest.fixture
def client(provider, transport, kept):
    return lambda **how: kept(provider.client(transport, **how))


async def begun(provider, out, asked):
    kind = "text/event-stream" if provider.words.is_stream(asked) else "application/json"
    await out.chunked(kind)


async def silent(provider, asked, out):
    await asyncio.sleep(3600)


async def silent_after_its_head(provider, asked, out):
    await begun(provider, out, asked)
    await asyncio.sleep(3600)


async def dripping(provider, asked, out):
    await begun(provider, out, asked)
    while True:
        await out.chunk(b" " if not provider.words.is_stream(asked) else b":")
        await asyncio.sleep(0.02)


async def dripping_head(provider, asked, out):
    await out.send(b"HTTP/1.1 200 OK\r\nx-slow: ")
    while True:
        await out.send(b"x")
        await asyncio.sleep(0.02)


async def flooding(provider, asked, out):
    """Each read has data at once, so that no read is ever waited for."""
    await begun(provider, out, asked)
    while True:
        await out.chunk(b" " * 4096 if not provider.words.is_stream(asked) else b": nothing\n\n" * 200)


class Watched:
    """Notes the connections that the other side has closed."""

    def __init__(self, kind, provider):
        self.kind, self.provider, self.left = kind, provider, 0

    async def __call__(self, asked, out):
        eof = asyncio.ensure_future(out.reader.read(1))
        work = asyncio.ensure_future(self.kind(self.provider, asked, out))
        try:
            await asyncio.wait([eof, work], return_when=asyncio.FIRST_COMPLETED)
        finally:
            eof.cancel()
            work.cancel()
            await asyncio.gather(eof, work, return_exceptions=True)
        self.left += 1
        raise ConnectionError

    def has_been_left(self):
        return within(lambda: self.left >= 1)


def within(check, seconds=20.0):
    ends_at = time.monotonic() + seconds
    while not check() and time.monotonic() < ends_at:
        time.sleep(0.01)
    return check()


def threads_of_ours():
    """Others' calls may end meanwhile, so that a test looks for new ones."""
    return {one for one in threading.enumerate() if one.name.startswith("vinelm")}


def connections_of(made):
    """Of the HTTP client of synchronous calls."""
    http = made.backend.inner(made.model)._loops._sync[1].__self__
    return http._transport._pool._inner.connections


@pytest.mark.parametrize("mode", WAYS)
@pytest.mark.parametrize(
    "kind", [silent, silent_after_its_head, dripping, dripping_head, flooding], ids=lambda kind: kind.__name__
)
def test_an_attempt_ends_with_its_deadline_and_leaves_no_thread_and_no_connection(provider, transport, client, kind, mode):
    server = Watched(kind, provider)
    transport.answers(server)
    made = client(settings=ONCE, timeout_s=LATE_S)
    before = threads_of_ours()
    began_s = time.monotonic()
    error, usage = fails(made, mode, SECRETS)
    assert LATE_S <= time.monotonic() - began_s < 20.0
    assert (error.kind, usage.retries, usage.tokens_estimated) == ("timeout", 0, True)
    assert error.cost_usd == pytest.approx(made.backend.upper_bound_usd(made.model, [HumanMessage(PROMPT)]) / 2, rel=0.01)
    assert threads_of_ours() <= before
    assert connections_of(made) == []
    assert server.has_been_left()


@pytest.mark.parametrize("mode", WAYS)
def test_a_call_runs_in_the_callers_thread_and_keeps_its_connection(provider, transport, client, mode):
    transport.answers(provider.words.answering("fo", "ur"))
    made = client(settings={"stream": False})
    before = threads_of_ours()
    for _ in range(5):
        assert made.ask(mode).text == "four"
    assert threads_of_ours() <= before
    assert transport.connections == 1


def test_a_stream_that_is_left_closes_its_connection_at_once(provider, transport, client):
    async def talking(provider, asked, out):
        await provider.words.begin(out)
        while True:
            await provider.words.say(out, "word ")
            await asyncio.sleep(0.02)

    server = Watched(talking, provider)
    transport.answers(server)
    made = client()
    pieces = made.chat().stream(PROMPT)
    while not next(pieces).text:
        pass
    pieces.close()
    assert server.has_been_left()
    assert connections_of(made) == []
    (usage,) = made.usages
    bound = made.backend.upper_bound_usd(made.model, [HumanMessage(PROMPT)]) / 2
    assert usage.cost_usd == pytest.approx(bound, rel=0.01)


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals are sent to a thread")
@pytest.mark.parametrize("mode", WAYS)
def test_an_interruption_leaves_at_once_and_books_the_bound(provider, transport, client, mode):
    assert threading.current_thread() is threading.main_thread()
    server = Watched(dripping, provider)
    transport.answers(server)
    made = client(timeout_s=600.0)

    def interrupt():
        if within(lambda: transport.asked):
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    was = signal.signal(signal.SIGINT, signal.default_int_handler)
    sender = threading.Thread(target=interrupt)
    try:
        sender.start()
        with pytest.raises(KeyboardInterrupt):
            made.ask(mode)
    finally:
        sender.join()
        signal.signal(signal.SIGINT, was)
    (usage,) = made.usages
    bound = made.backend.upper_bound_usd(made.model, [HumanMessage("2 + 2?")]) / 2
    assert usage.cost_usd == pytest.approx(bound, rel=0.01)
    assert server.has_been_left()
    assert connections_of(made) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_makes_connections_of_its_own(provider, transport, client):
    transport.answers(provider.words.answering("four"))
    made = client(settings={"stream": False})
    assert made.ask("invoke").text == "four"  # the connection is kept
    child = os.fork()
    if not child:  # whatever happens, this process ends here
        with suppress(BaseException):
            os._exit(0 if made.ask("invoke").text == "four" else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert made.ask("invoke").text == "four"
    assert transport.connections == 2  # the parent's is still good


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_in_the_midst_of_another_threads_call_breaks_neither(provider, transport, client):
    held = threading.Event()

    async def reply(asked, out):
        while asked.number == 0 and not held.is_set():
            await asyncio.sleep(0.01)
        await provider.words.answering("four")(asked, out)

    transport.answers(reply)
    made = client(settings={"stream": False})
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(made.ask, "invoke")
        assert within(lambda: transport.asked)
        child = os.fork()
        if not child:
            with suppress(BaseException):
                os._exit(0 if made.ask("invoke").text == "four" else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        held.set()
        assert other.result(timeout=30).text == "four"


def test_many_threads_at_once_all_get_their_answers(provider, transport, client):
    async def together(asked, out):
        while transport.peak < 120:  # all of them are under way at the same time
            await asyncio.sleep(0.01)
        await provider.words.answering("four")(asked, out)

    transport.answers(together)
    made = client(settings={"stream": False})
    with ThreadPoolExecutor(120) as pool:
        answers = list(pool.map(lambda _: made.ask("invoke").text, range(120)))
    assert answers == ["four"] * 120
    assert len(made.usages) == 120
    made.close()
    assert within(lambda: transport.in_flight == 0)


def test_a_host_name_that_is_not_found_in_time_costs_nothing(provider, monkeypatch, kept):
    answered = threading.Event()
    real = socket.getaddrinfo

    def slow(host, *how, **more):
        if host == "models.invalid":
            answered.wait(30)
            raise socket.gaierror("nobody knows")
        return real(host, *how, **more)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    made = kept(provider.client(SimpleNamespace(url="http://models.invalid/v1"), settings=ONCE, timeout_s=LATE_S))
    try:
        error, _ = fails(made, "invoke", SECRETS)
        assert (error.kind, error.cost_usd) == ("timeout", 0.0)
    finally:
        answered.set()
    assert within(lambda: all(one.name != "vinelm connection" for one in threads_of_ours()))


def test_a_prompt_of_many_parts_is_sent_whole(provider, transport, client):
    transport.answers(provider.words.answering("four"))
    made = client(settings={"stream": False})
    for size in (10, 70_000, 3_000_000):
        assert made.ask("invoke", "x" * size).text == "four"
    assert [len(asked.body) > size for asked, size in zip(transport.asked, (10, 70_000, 3_000_000), strict=True)] == [True] * 3


def test_a_call_of_before_a_close_ends_and_the_next_one_connects_again(provider, transport, client):
    transport.answers(provider.words.answering("four"))
    made = client(settings={"stream": False})
    assert made.ask("invoke").text == "four"
    made.close()
    assert made.ask("invoke").text == "four"
    assert transport.connections == 2


class TestWaits:
    """What :func:`bound_waits` takes, and what a deadline within a deadline does."""

    @pytest.mark.parametrize("name", ["httpx", "httpx2"])
    def test_clients_of_either_library_are_bound(self, name):
        library = pytest.importorskip(name)
        with library.Client() as http:
            assert bound_waits(http)

    def test_a_proxy_that_is_spoken_to_by_tls_is_not(self, monkeypatch):
        import httpx

        monkeypatch.setenv("HTTPS_PROXY", "https://127.0.0.1:9")
        with httpx.Client() as http:
            assert not bound_waits(http)
        monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
        with httpx.Client() as http:
            assert bound_waits(http)

    def test_a_transport_of_another_make_is_not(self):
        import httpx

        with httpx.Client(transport=httpx.MockTransport(lambda request: httpx.Response(200))) as http:
            assert not bound_waits(http)

    def test_a_step_within_another_ends_no_later_than_it(self):
        outer, inner = Deadline(5.0), Deadline(500.0)
        with outer:
            with inner:
                assert inner.ends_at == outer.ends_at
            late = Deadline(1.0)
            with late:
                assert late.ends_at < outer.ends_at


def test_nothing_of_a_client_is_kept_when_its_backend_is_gone(provider, transport, client):
    transport.answers(provider.words.answering("four"))
    made = provider.client(transport, settings={"stream": False})
    assert made.ask("invoke").text == "four"
    assert len(connections_of(made)) == 1
    http = made.backend.inner(made.model)._loops._sync[1].__self__
    del made
    gc.collect()
    assert http.is_closed
