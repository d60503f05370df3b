"""A server of the chat completions API on loopback, for benchmarks: answers after a fixed time, streamed or whole.

    python scripts/local_openai.py --latency-s 0.2   # prints its URL, ends with the process that started it

The answer is "right" or "wrong", decided by a digest of model and prompt, so that every run gives the same rows.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

USAGE = {"prompt_tokens": 20, "completion_tokens": 2, "total_tokens": 22}
RIGHT_SHARE = 0.3


def text_of(body: dict[str, Any]) -> str:
    messages = [{"role": one["role"], "content": one["content"], **one} for one in body["messages"]]
    digest = hashlib.sha256(json.dumps([body["model"], messages]).encode()).digest()
    return "right" if digest[0] < 256 * RIGHT_SHARE else "wrong"


def whole(text: str) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    plain = {"id": "c-1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": USAGE}
    data = json.dumps(plain).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(data), data)


def streamed(text: str) -> bytes:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    plain = {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    choices: list[list[dict[str, Any]]] = [
        [{"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}],
        [{"index": 0, "delta": {}, "finish_reason": "stop"}],
        [],
    ]
    events = [json.dumps({**plain, "choices": choice, "usage": None if choice else USAGE}) for choice in choices]
    chunks = [f"data: {event}\n\n".encode() for event in (*events, "[DONE]")]
    return head + b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in (*chunks, b""))


class Record:
    """A file with one JSON line when a call begins and one when its answer was sent: by the clock that all processes share."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, what: str, body: dict[str, Any]) -> None:
        """Add a line."""
        told = {"what": what, "at": time.monotonic(), "model": body["model"], "prompt": body["messages"][-1]["content"]}
        os.write(self._file, (json.dumps(told) + "\n").encode())  # one write: a killed server leaves whole lines


async def serve(latency_s: float, port: int = 0, record: Record | None = None) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while await reader.readline():
                length = 0
                while line := (await reader.readline()).strip().lower():
                    length = int(line[15:]) if line.startswith(b"content-length:") else length
                body = json.loads(await reader.readexactly(length) or b"{}")
                if record is not None:
                    record.write("began", body)
                await asyncio.sleep(latency_s)
                writer.write((streamed if body.get("stream") else whole)(text_of(body)))
                await writer.drain()
                if record is not None:
                    record.write("answered", body)
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", port, backlog=512)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await asyncio.to_thread(sys.stdin.read)  # until the process that started this one is gone


@contextmanager
def local_openai(latency_s: float, *, record: str | None = None) -> Iterator[str]:
    """The URL of a server in a process of its own; it records calls in a file, if one is given."""
    command = [sys.executable, __file__, "--latency-s", str(latency_s), *([] if record is None else ["--record", record])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--latency-s", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--port", type=int, default=0, help="0: a free one")
    parser.add_argument("--record", help="file to which each call is appended when it begins and when it is answered")
    options = parser.parse_args()
    asyncio.run(serve(options.latency_s, options.port, Record(options.record) if options.record else None))
