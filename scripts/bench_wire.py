"""CPU time per call through VineLM's meter, of the bare LangChain object, and of the bare SDK.

    pip install 'vinelm[openai,anthropic]'
    python scripts/bench_wire.py --calls 300 --results results/wire.json

A server on loopback answers at once, from a process of its own. The ways of asking take turns call by call in one process:
`sdk` is the provider's SDK, `langchain` the object of its LangChain package, `vinelm` that object behind the meter, with a new
chat model per call, as an invocation makes it. Prompts are one short message. `--at-once` then makes so many calls at once on
one event loop, of the bare object and through the meter, and counts those that fail or have no end within a minute.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import gc
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import places  # noqa: F401 - first: where the attacks are
from hostile_parts.wires import MODEL, WIRES, Wire
from studies import Options, study

from vinelm import Catalog, Model, Price
from vinelm.backends import create_backends
from vinelm.clock import WallClock
from vinelm.requests.protocols import CallContext

PRICE = Price(input=1.0, output=10.0, source="bench", as_of=datetime.date(2026, 1, 1))
PROMPT = "2 + 2?"
ASKED: Any = [{"role": "user", "content": PROMPT}]
WARM = 20
MAX_TOKENS = 64
HUNG_S = 60.0
"""Seconds after which a call of many at once counts as failed; the SDKs' own limit is 600."""
PROVIDERS = ("openai", "anthropic")
KEYS = dict.fromkeys(("VINELM_HOSTILE_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"), "not-a-key")

Ask = Callable[[], None]
AAsk = Callable[[], Awaitable[None]]


def wire_of(name: str) -> Wire:
    """The wire format of a provider."""
    return next(wire for wire in WIRES if wire.name == name)


async def serve(wire: Wire) -> None:
    """Answer every request until the standard input ends; prints the URL."""
    whole, stream = wire.whole(), wire.piece("four") + wire.end()
    if wire.name == "openai":
        stream += b"data: [DONE]\n\n"

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while await reader.readline():
                length = 0
                while line := (await reader.readline()).strip().lower():
                    length = int(line[15:]) if line.startswith(b"content-length:") else length
                body = await reader.readexactly(length)
                kind, data = ("application/json", whole)
                if b'"stream": true' in body or b'"stream":true' in body:
                    kind, data = wire.stream_type, stream
                writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(data)}\r\n\r\n".encode() + data)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, backlog=2048)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await asyncio.to_thread(sys.stdin.read)


@contextmanager
def serving(name: str) -> Iterator[str]:
    """Yield the URL of a server in a process of its own."""
    command = [sys.executable, __file__, "--serve", name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


def _sdk(name: str, url: str, *, is_async: bool, streams: bool) -> Any:
    """A call of the bare SDK: returns it, or its coroutine."""
    if name == "openai":
        import openai

        kind: Any = openai.AsyncOpenAI if is_async else openai.OpenAI
        create = kind(base_url=url + "/v1", max_retries=0).chat.completions.create
        more = {"stream_options": {"include_usage": True}} if streams else {}
        return lambda: create(model=MODEL, messages=ASKED, max_tokens=MAX_TOKENS, stream=streams, **more)
    import anthropic

    kind = anthropic.AsyncAnthropic if is_async else anthropic.Anthropic
    create = kind(base_url=url, max_retries=0).messages.create
    return lambda: create(model=MODEL, messages=ASKED, max_tokens=MAX_TOKENS, stream=streams)


def _bare(name: str, url: str) -> Any:
    """The object of the LangChain package."""
    if name == "openai":
        from langchain_openai import ChatOpenAI

        return ChatOpenAI(model=MODEL, base_url=url + "/v1", max_retries=0, max_tokens=MAX_TOKENS, stream_usage=True)
    from langchain_anthropic import ChatAnthropic

    return ChatAnthropic(model=MODEL, base_url=url, max_retries=0, max_tokens=MAX_TOKENS)


def _metered(name: str, url: str) -> Callable[[], Any]:
    """What makes the chat model of an invocation."""
    wire = wire_of(name)
    model = Model(
        name="m", provider=name, model_id=MODEL, engine="e", price=PRICE, price_id="p", api_base=url + wire.path,
        max_tokens=MAX_TOKENS, **wire.fields,
    )  # fmt: skip
    (backend,) = create_backends(Catalog([model], {name: {"stream": False}})).values()

    def made() -> Any:
        call = CallContext(stage="s", prefix=("m",), clock=WallClock(), on_usage=lambda usage: None)
        return backend.chat_model(model, call)

    return made


def ways(name: str, url: str, *, streams: bool) -> dict[str, Ask]:
    """The synchronous ways to ask."""
    sdk, bare, made = _sdk(name, url, is_async=False, streams=streams), _bare(name, url), _metered(name, url)

    def ask_sdk() -> None:
        answer = sdk()
        if streams:
            for _ in answer:
                pass

    def ask(chat: Any) -> None:
        said = "".join(chunk.text for chunk in chat.stream(PROMPT)) if streams else chat.invoke(PROMPT).text
        assert said == "four"

    return {"sdk": ask_sdk, "langchain": lambda: ask(bare), "vinelm": lambda: ask(made())}


def async_ways(name: str, url: str) -> dict[str, AAsk]:
    """The asynchronous ways to ask for a whole answer. To be made on the event loop that asks."""
    sdk, bare, made = _sdk(name, url, is_async=True, streams=False), _bare(name, url), _metered(name, url)

    async def ask_sdk() -> None:
        await sdk()

    async def ask(chat: Any) -> None:
        assert (await chat.ainvoke(PROMPT)).text == "four"

    return {"sdk": ask_sdk, "langchain": lambda: ask(bare), "vinelm": lambda: ask(made())}


class Timed:
    """Microseconds of the calls of each way; a block is one call."""

    def __init__(self) -> None:
        self.taken: dict[str, list[float]] = {}
        self.worked: dict[str, list[float]] = {}

    @contextmanager
    def call(self, way: str, number: int) -> Iterator[None]:
        """Time one call; the first :data:`WARM` are not counted."""
        started, begun = time.perf_counter(), time.process_time()
        yield
        if number >= WARM:
            self.worked.setdefault(way, []).append((time.process_time() - begun) * 1e6)
            self.taken.setdefault(way, []).append((time.perf_counter() - started) * 1e6)

    def figures(self) -> dict[str, dict[str, float]]:
        """Median and 99th percentile of each way's microseconds per call, and the median of its CPU time."""
        return {
            way: {
                "median_us": round(statistics.median(some)),
                "p99_us": round(sorted(some)[int(0.99 * (len(some) - 1))]),
                "cpu_median_us": round(statistics.median(self.worked[way])),
            }
            for way, some in self.taken.items()
        }


def turns(names: Mapping[str, object], calls: int) -> Iterator[tuple[int, str]]:
    """Yield the number of each call and its way; the ways take turns."""
    order = list(names)
    for number in range(WARM + calls):
        yield from ((number, way) for way in order)
        order = order[1:] + order[:1]
        if number % 50 == 0:
            gc.collect()


def timed(asks: Mapping[str, Ask], calls: int) -> dict[str, dict[str, float]]:
    """Time so many calls of each way."""
    found = Timed()
    for number, way in turns(asks, calls):
        with found.call(way, number):
            asks[way]()
    return found.figures()


async def atimed(name: str, url: str, calls: int) -> dict[str, dict[str, float]]:
    """Time so many asynchronous calls of each way, one after the other."""
    found, asks = Timed(), async_ways(name, url)
    for number, way in turns(asks, calls):
        with found.call(way, number):
            await asks[way]()
    return found.figures()


async def at_once(name: str, url: str, calls: int) -> dict[str, dict[str, float]]:
    """Make so many calls at once in each way: CPU microseconds per call, and how many failed."""
    found = {}
    for way, ask in async_ways(name, url).items():
        await ask()
        begun = time.process_time()
        tasks = [asyncio.ensure_future(ask()) for _ in range(calls)]
        done, hung = await asyncio.wait(tasks, timeout=HUNG_S)
        spent_us = (time.process_time() - begun) * 1e6 / calls
        for task in hung:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        failed = len(hung) + sum(task.exception() is not None for task in done)
        found[way] = {"cpu_us": round(spent_us), "failed": failed}
    return found


async def asynchronous(name: str, url: str, calls: int, most: Sequence[int]) -> dict[str, Any]:
    """All that is asynchronous, on one event loop: the packages' own clients serve no second one."""
    return {"async": await atimed(name, url, calls), **{f"{some} at once": await at_once(name, url, some) for some in most}}


def main() -> int:
    """Run the benchmark, or serve one of its providers."""
    options = {
        "--provider": (PROVIDERS, "", {"choices": PROVIDERS}),
        "--calls": (300, "calls of each way"),
        "--at-once": ((300, 1000), "calls at once", {"nargs": "*"}),
        "--serve": (None, argparse.SUPPRESS),
    }
    return study(__doc__, options, measured)


def measured(asked: Options) -> dict[str, Any]:
    if asked.serve:
        asyncio.run(serve(wire_of(asked.serve)))
        return {}
    os.environ.update(KEYS)
    found: dict[str, dict[str, Any]] = {}
    for name in asked.provider:
        with serving(name) as url:
            found[name] = {
                "whole": timed(ways(name, url, streams=False), asked.calls),
                "streamed": timed(ways(name, url, streams=True), asked.calls),
                **asyncio.run(asynchronous(name, url, asked.calls, asked.at_once)),
            }
        for mode, by_way in found[name].items():
            cpu = {way: it.get("cpu_median_us", it.get("cpu_us", 0.0)) for way, it in by_way.items()}
            said = ", ".join(f"{way} {us:,.0f}" for way, us in cpu.items())
            failed = [f"{it['failed']} of {name}" for name, it in by_way.items() if it.get("failed")]
            lost = f"; failed: {', '.join(failed)}" if failed else ""
            over = f"x{cpu['vinelm'] / cpu['sdk']:.2f} of the SDK's, x{cpu['vinelm'] / cpu['langchain']:.2f} of LangChain's"
            asked.say(f"{name:10} {mode:13} µs of CPU per call: {said} ({over}){lost}")
    return {"calls": asked.calls, "per_call": found}


if __name__ == "__main__":
    sys.exit(main())
