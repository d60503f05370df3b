"""Time per call of VineLM's own provider code, and of LangChain's integrations behind the same accounting.

    pip install langchain-openai langchain-anthropic langchain-aws langchain-google-genai
    python scripts/bench_wire.py --calls 300 --results results/wire.json

A server on loopback answers at once, from a process of its own. The ways of asking take turns call by call in one process,
each with new backends at default settings and a new chat model per call: `vinelm` is the provider itself, `langchain` is
`provider = "langchain"`. `http` is such an exchange over a bare HTTP client: the rest is what client code costs. Prompts are
one short message. Integrations that are not installed are left out.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import gc
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from hostile_parts.wires import MODEL, WIRES, Wire
from result_files import add_results_option, provenance, write_results

from vinelm import Catalog, Model, Price
from vinelm.backends import create_backends
from vinelm.backends.http.clients import http_client, library_of_openai
from vinelm.clock import WallClock
from vinelm.requests.protocols import CallContext

PRICE = Price(input=1.0, output=10.0, source="bench", as_of=datetime.date(2026, 1, 1))
PROMPT = "2 + 2?"
WARM = 20
KEYS = dict.fromkeys(("VINELM_HOSTILE_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY"), "not-a-key")
AWS = {
    "AWS_ACCESS_KEY_ID": "bench",
    "AWS_SECRET_ACCESS_KEY": "bench",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


class AnthropicWire(Wire):
    """The Messages API."""

    def whole(self, text: str = "four", usage: Any = None, finish: bool = True) -> bytes:
        """Return a whole answer."""
        return json.dumps(self._message([{"type": "text", "text": text}], "end_turn")).encode()

    def piece(self, text: str) -> bytes:
        """Return the events up to the end of the text."""
        block = {"index": 0, "content_block": {"type": "text", "text": ""}}
        return b"".join(
            (
                self._named("message_start", {"message": self._message([], None)}),
                self._named("content_block_start", block),
                self._named("content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": text}}),
                self._named("content_block_stop", {"index": 0}),
            )
        )

    def end(self, usage: Any = None) -> bytes:
        """Return the events that end an answer."""
        delta = {"delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": dict(self.usage)}
        return self._named("message_delta", delta) + self._named("message_stop", {})

    def _message(self, content: list[Any], stop: str | None) -> dict[str, Any]:
        facts = {"id": "c1", "type": "message", "role": "assistant", "model": MODEL, "stop_sequence": None}
        return {**facts, "content": content, "stop_reason": stop, "usage": dict(self.usage)}

    def _named(self, kind: str, fields: Mapping[str, Any]) -> bytes:
        return f"event: {kind}\n".encode() + self.event({"type": kind, **fields})


def wires() -> dict[str, Wire]:
    """The wire formats that LangChain has an integration for."""
    key = {"api_key_env": "VINELM_HOSTILE_KEY"}
    known = {wire.name: wire for wire in WIRES}
    claude = AnthropicWire("anthropic", {"input_tokens": 20, "output_tokens": 7}, key)
    return {"openai": known["openai"], "anthropic": claude, "gemini": known["gemini"], "bedrock": known["bedrock"]}


INTEGRATIONS = {
    "openai": ("langchain_openai", "openai"),
    "anthropic": ("langchain_anthropic", "anthropic"),
    "gemini": ("langchain_google_genai", "google_genai"),
    "bedrock": ("langchain_aws", "bedrock_converse"),
}
"""The package of each provider, and LangChain's name of the provider."""


def _is_streamed(target: str, body: bytes) -> bool:
    return b'"stream": true' in body or b'"stream":true' in body or "stream" in target.lower()


async def serve(wire: Wire) -> None:
    """Answer every request until the standard input ends; prints the URL."""
    whole, stream = wire.whole(), wire.piece("four") + wire.end()
    if wire.stream_type == "text/event-stream" and wire.name == "openai":
        stream += b"data: [DONE]\n\n"

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while head := await reader.readline():
                length = 0
                while line := (await reader.readline()).strip().lower():
                    length = int(line[15:]) if line.startswith(b"content-length:") else length
                body = await reader.readexactly(length)
                kind, data = ("application/json", whole)
                if _is_streamed(head.decode(), body):
                    kind, data = wire.stream_type, stream
                writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(data)}\r\n\r\n".encode() + data)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, backlog=64)
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


def catalog_of(name: str, url: str, *, is_langchain: bool, streams: bool) -> Catalog:
    """A catalog with one model on the server."""
    wire = wires()[name]
    provider, model_id, fields = name, MODEL, dict(wire.fields)
    if is_langchain:
        provider, model_id, fields = "langchain", f"{INTEGRATIONS[name][1]}:{MODEL}", {}
        if name == "bedrock":
            fields = {"options": {"provider": "anthropic", "region_name": "us-east-1", "disable_streaming": False}}
    common: dict[str, Any] = {"name": "m", "engine": "e", "price": PRICE, "price_id": "p", "api_base": url + wire.path}
    model = Model(**{**common, **fields, "provider": provider, "model_id": model_id})
    return Catalog([model], {provider: {"stream": streams}})


def asking(catalog: Catalog) -> Callable[[], None]:
    """One call as an invocation makes it: a new chat model of the backend."""
    model, (backend,) = catalog["m"], create_backends(catalog).values()

    def ask() -> None:
        call = CallContext(stage="s", prefix=("m",), clock=WallClock(), on_usage=lambda usage: None)
        assert backend.chat_model(model, call).invoke(PROMPT).text == "four"

    return ask


def bare(url: str, *, streams: bool) -> Callable[[], None]:
    """The same exchange without an SDK."""
    client = http_client(library_of_openai())

    def ask() -> None:
        client.post(
            url + "/v1/chat/completions", json={"messages": [{"role": "user", "content": PROMPT}], "stream": streams}
        ).read()

    return ask


def ways(name: str, url: str, *, streams: bool) -> dict[str, Callable[[], None]]:
    """The ways to ask that are installed."""
    found = {"http": bare(url, streams=streams)}
    for way, is_langchain in (("vinelm", False), ("langchain", True)):
        if not is_langchain or importlib.util.find_spec(INTEGRATIONS[name][0]):
            found[way] = asking(catalog_of(name, url, is_langchain=is_langchain, streams=streams))
    return found


def timed(asks: Mapping[str, Callable[[], None]], calls: int) -> dict[str, dict[str, float]]:
    """Median and 99th percentile of each way's microseconds per call, and the median of its CPU time; the ways take turns."""
    taken: dict[str, list[float]] = {way: [] for way in asks}
    worked: dict[str, list[float]] = {way: [] for way in asks}
    order = list(asks)
    for number in range(WARM + calls):
        for way in order:
            started, begun = time.perf_counter(), time.process_time()
            asks[way]()
            if number >= WARM:
                worked[way].append((time.process_time() - begun) * 1e6)
                taken[way].append((time.perf_counter() - started) * 1e6)
        order = order[1:] + order[:1]
        if number % 50 == 0:
            gc.collect()
    return {
        way: {
            "median_us": round(statistics.median(some)),
            "p99_us": round(sorted(some)[int(0.99 * (len(some) - 1))]),
            "cpu_median_us": round(statistics.median(worked[way])),
        }
        for way, some in taken.items()
    }


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--provider", nargs="+", choices=list(INTEGRATIONS), default=list(INTEGRATIONS))
    parser.add_argument("--calls", type=int, default=300, help="calls of each way")
    add_results_option(parser)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    made = provenance(asked)
    if asked.serve:
        asyncio.run(serve(wires()[asked.serve]))
        return
    os.environ.update({**KEYS, **AWS})
    found: dict[str, dict[str, Any]] = {}
    for name in asked.provider:
        with serving(name) as url:
            found[name] = {mode: timed(ways(name, url, streams=mode == "stream"), asked.calls) for mode in ("stream", "whole")}
        for mode, by_way in found[name].items():
            figures = ", ".join(
                f"{way} {it['median_us']:,} / {it['p99_us']:,} / {it['cpu_median_us']:,}" for way, it in by_way.items()
            )
            print(f"{name:10} {mode:7} µs per call, median / p99 / CPU median: {figures}")
    if asked.results:
        write_results(asked.results, made, {"calls": asked.calls, "us_per_call": found})


if __name__ == "__main__":
    main()
