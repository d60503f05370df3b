"""A provider on loopback with the real rules of prompt caches: Anthropic's Messages API and OpenAI's chat completions.

    python scripts/dollars_parts/server.py --scale 20   # prints its URL, ends with the process that started it

A URL's first part names a run, which has caches of its own, the second a model; ``GET /RUN/calls`` returns the run's calls.
Each answer is that of the simulated model that the last part of the prompt names, after its seconds divided by the scale: the
times to live pass as much faster. Seconds do not depend on what is cached, so that a hit never looks faster than it is sold.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from dollars_parts.cache_rules import (
    CHARS_PER_TOKEN,
    AutomaticCache,
    Lookup,
    MarkedCache,
    TooManyMarks,
    blocks_of_messages,
    steps_of,
)
from dollars_parts.workloads import Answers, Load, prompt_told

from vinelm.rows.observation import Usage

ALL_REQUESTS = 1_000_000


@dataclass
class Run:
    """The caches of one run, and its calls as they were answered."""

    marked: MarkedCache = field(default_factory=MarkedCache)
    automatic: AutomaticCache = field(default_factory=AutomaticCache)
    calls: list[dict[str, Any]] = field(default_factory=list)


@functools.cache
def answers_of(workflow: str) -> Answers:
    """The simulated models of a workflow."""
    return Answers(Load(workflow, 1.0, ALL_REQUESTS))


class Provider:
    """What a call finds in the caches, and what it is answered. ``scale`` is how many times faster time passes."""

    def __init__(self, scale: float) -> None:
        self.scale = scale
        self._runs: dict[str, Run] = {}
        self._numbers = itertools.count(1)

    def run(self, name: str) -> Run:
        """The run of this name; a new one the first time."""
        return self._runs.setdefault(name, Run())

    def now_s(self) -> float:
        """Seconds of the provider's own time."""
        return asyncio.get_running_loop().time() * self.scale

    def messages(self, run: Run, model: str, body: Mapping[str, Any]) -> list[tuple[float, bytes]]:
        """The pieces of an answer of the Messages API, each with the seconds before it."""
        blocks = list(blocks_of_messages(body))
        found = run.marked.look(model, blocks, self.now_s())
        text, usage = self._answer(run, found, body, [block.kept_s is not None for block in blocks])
        counts = {
            "input_tokens": found.tokens - found.read - found.written,
            "cache_read_input_tokens": found.read,
            "cache_creation_input_tokens": found.written,
            "cache_creation": {
                "ephemeral_5m_input_tokens": found.written - found.written_long,
                "ephemeral_1h_input_tokens": found.written_long,
            },
            "output_tokens": usage.tokens_out,
        }
        first, rest = _message_pieces(body, text, counts, next(self._numbers))
        return _timed(usage, first, rest, is_streamed=bool(body.get("stream")))

    def completions(self, run: Run, model: str, body: Mapping[str, Any]) -> list[tuple[float, bytes]]:
        """The pieces of a chat completion, each with the seconds before it."""
        prompt = _prompt_text(body)
        tokens = len(prompt) // CHARS_PER_TOKEN
        found = run.automatic.look(model, steps_of(prompt), tokens, self.now_s(), body.get("prompt_cache_key"))
        text, usage = self._answer(run, found, body, [])
        counts = {
            "prompt_tokens": tokens,
            "completion_tokens": usage.tokens_out,
            "total_tokens": tokens + (usage.tokens_out or 0),
            "prompt_tokens_details": {"cached_tokens": found.read},
            "completion_tokens_details": {"reasoning_tokens": usage.tokens_reasoning or 0},
        }
        first, rest = _completion_pieces(body, text, counts, next(self._numbers))
        return _timed(usage, first, rest, is_streamed=bool(body.get("stream")))

    def _answer(self, run: Run, found: Lookup, body: Mapping[str, Any], marks: Sequence[bool]) -> tuple[str, Usage]:
        last = _texts(body["messages"][-1]["content"])[-1]
        workflow, stage, request, prefix = prompt_told(last)
        text, usage = answers_of(workflow).answer(stage, request, prefix, found.tokens * CHARS_PER_TOKEN)
        cache = run.marked if marks else run.automatic
        loop = asyncio.get_running_loop()
        first_s = usage.ttft_s or 0.0
        loop.call_later(first_s / self.scale, lambda: cache.answers_at(found, self.now_s()))
        run.calls.append(
            {
                "request": request,
                "stage": stage,
                "prefix": prefix,
                "began_s": self.now_s(),
                "ended_s": self.now_s() + usage.latency_s,
                "tokens": found.tokens,
                "read": found.read,
                "written": found.written,
                "marks": [at for at, is_marked in enumerate(marks) if is_marked],
                "key": body.get("prompt_cache_key"),
            }
        )
        return text, usage


def _texts(content: str | Sequence[Mapping[str, Any]]) -> list[str]:
    return [content] if isinstance(content, str) else [str(part.get("text", "")) for part in content]


def _prompt_text(body: Mapping[str, Any]) -> str:
    """The prompt as one text; a mark of its roles is left out, as it would be no whole token."""
    tools = json.dumps(body["tools"]) if body.get("tools") else ""
    return tools + "".join(text for message in body["messages"] for text in _texts(message["content"]))


def _timed(usage: Usage, first: bytes, rest: bytes, *, is_streamed: bool) -> list[tuple[float, bytes]]:
    first_s = usage.ttft_s or 0.0
    after_s = max(usage.latency_s - first_s, 0.0)
    return [(first_s, first), (after_s, rest)] if is_streamed else [(first_s + after_s, first + rest)]


def _message_pieces(body: Mapping[str, Any], text: str, counts: Mapping[str, Any], number: int) -> tuple[Any, ...]:
    facts = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": body["model"], "stop_sequence": None}
    if not body.get("stream"):
        whole = {**facts, "content": [{"type": "text", "text": text}], "stop_reason": "end_turn", "usage": counts}
        return b"", json.dumps(whole).encode()
    begun = {**facts, "content": [], "stop_reason": None, "usage": {**counts, "output_tokens": 1}}
    first = [
        {"type": "message_start", "message": begun},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text[:1]}},
    ]
    delta = {"stop_reason": "end_turn", "stop_sequence": None}
    rest = [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text[1:]}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": delta, "usage": {"output_tokens": counts["output_tokens"]}},
        {"type": "message_stop"},
    ]
    return tuple(
        "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in part).encode() for part in (first, rest)
    )


def _completion_pieces(body: Mapping[str, Any], text: str, counts: Mapping[str, Any], number: int) -> tuple[Any, ...]:
    facts = {"id": f"chatcmpl-{number}", "created": 1, "model": body["model"]}
    if not body.get("stream"):
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        return b"", json.dumps({**facts, "object": "chat.completion", "choices": [choice], "usage": counts}).encode()

    def chunk(delta: Mapping[str, Any] | None, finish: str | None = None) -> bytes:
        choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
        usage = counts if delta is None else None
        one = {**facts, "object": "chat.completion.chunk", "choices": choices, "usage": usage}
        return f"data: {json.dumps(one)}\n\n".encode()

    rest = (chunk({"content": text[1:]}), chunk({}, "stop"), chunk(None), b"data: [DONE]\n\n")
    return chunk({"role": "assistant", "content": text[:1]}), b"".join(rest)


def _head(status: str, kind: str, length: int | None) -> bytes:
    size = "transfer-encoding: chunked" if length is None else f"content-length: {length}"
    return f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\n{size}\r\n\r\n".encode()


def _whole(value: Any, status: str = "200 OK") -> bytes:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return _head(status, "application/json", len(data)) + data


async def _answered(provider: Provider, target: str, body: Mapping[str, Any], writer: asyncio.StreamWriter) -> None:
    run_name, _, rest = target.lstrip("/").partition("/")
    run, (model, _, way) = provider.run(run_name), rest.partition("/")
    if not way:
        writer.write(_whole(run.calls))
        return
    try:
        pieces = (provider.messages if way.endswith("messages") else provider.completions)(run, model, body)
    except Exception as error:  # also what is no call of this benchmark: refused for good, not tried again
        kind = "" if isinstance(error, TooManyMarks) else f"{type(error).__name__}: "
        said = {"type": "error", "error": {"type": "invalid_request_error", "message": f"{kind}{error}"}}
        writer.write(_whole(said, "400 Bad Request"))
        return
    is_streamed = bool(body.get("stream"))
    for number, (wait_s, data) in enumerate(pieces):
        await asyncio.sleep(wait_s / provider.scale)
        if not is_streamed:
            writer.write(_whole(data))
            return
        writer.write((b"" if number else _head("200 OK", "text/event-stream", None)) + b"%x\r\n%s\r\n" % (len(data), data))
        await writer.drain()
    writer.write(b"0\r\n\r\n")


async def serve(scale: float) -> None:
    """Answer until the standard input ends; prints the URL."""
    provider = Provider(scale)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while head := await reader.readline():
                length = 0
                while line := (await reader.readline()).strip().lower():
                    length = int(line[15:]) if line.startswith(b"content-length:") else length
                body = json.loads(await reader.readexactly(length) or b"{}")
                await _answered(provider, head.split()[1].decode(), body, writer)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, backlog=512)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await asyncio.to_thread(sys.stdin.read)


@contextmanager
def serving(scale: float) -> Iterator[str]:
    """The URL of a provider in a process of its own."""
    command = [sys.executable, __file__, "--scale", str(scale)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=20.0, help="how many times faster time passes")
    asyncio.run(serve(parser.parse_args().scale))
