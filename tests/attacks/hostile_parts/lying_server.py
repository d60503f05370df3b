"""An HTTP/1.1 server on loopback, in a thread of its own, that answers byte by byte as a lie says."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

HOST = "127.0.0.1"
MOST_S = 20.0
"""No answer goes on for longer, whatever the lie."""


@dataclass(frozen=True)
class Asked:
    """One request."""

    number: int
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def is_streamed(self) -> bool:
        """Whether it asks for a stream, in whichever provider's words."""
        if ":streamGenerateContent" in self.path or self.path.endswith("/converse-stream"):
            return True
        with suppress(ValueError):
            return bool(json.loads(self.body).get("stream"))
        return False


class Out:
    """The answer, as bytes."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def send(self, data: bytes) -> None:
        """Send raw bytes."""
        self._writer.write(data)
        await self._writer.drain()

    async def head(self, status: int = 200, **headers: object) -> None:
        """Send the status line and headers; underscores become hyphens. The connection ends with the answer, and says so."""
        headers = {"connection": "close", **headers}
        lines = [f"HTTP/1.1 {status} X", *(f"{key.replace('_', '-')}: {value}" for key, value in headers.items()), "", ""]
        await self.send("\r\n".join(lines).encode("latin-1"))

    async def chunk(self, data: bytes) -> None:
        """Send one chunk of a chunked body; an empty one ends it."""
        await self.send(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    async def whole(self, data: bytes, status: int = 200, content_type: str = "application/json", **headers: object) -> None:
        """Send a whole response."""
        await self.head(status, content_type=content_type, content_length=len(data), **headers)
        await self.send(data)

    async def repeat(self, data: bytes, pause_s: float = 0.02) -> None:
        """Send the same bytes for ever."""
        while True:
            await self.send(data)
            await asyncio.sleep(pause_s)


Reply = Callable[[Asked, Out], Awaitable[None]]


class LyingServer:
    """``reply`` answers every request. The connection is closed after each answer.

    Attributes:
        requests: number of requests so far.
    """

    def __init__(self) -> None:
        self.reply: Reply | None = None
        self.requests = 0
        self._tasks: set[Any] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        started = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._serve, HOST, 0), self._loop)
        self._server = started.result()
        self.root = f"http://{HOST}:{self._server.sockets[0].getsockname()[1]}"

    def close(self) -> None:
        """Stop the server and its thread."""
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _stop(self) -> None:
        self._server.close()
        while len(asyncio.all_tasks()) > 1:  # one that has not begun must: only it closes its connection
            for task in tuple(self._tasks):
                task.cancel()
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.01)  # aborted transports close in the next rounds of the loop

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._tasks.add(task)
        try:
            async with asyncio.timeout(MOST_S):
                asked = await self._read(reader)
                assert self.reply is not None
                await self.reply(asked, Out(writer))
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError, TimeoutError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort() if writer.transport.get_write_buffer_size() else writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> Asked:
        first = await reader.readline()
        if not first:
            raise ConnectionResetError
        headers = {}
        while line := (await reader.readline()).strip():
            key, _, value = line.decode("latin-1").partition(":")
            headers[key.lower()] = value.strip()
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.requests += 1
        return Asked(self.requests, first.decode().split()[1], headers, body)
