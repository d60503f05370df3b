"""A bare HTTP/1.1 server on loopback, in a thread of its own, that answers as a test says, faults included.

Backlog 512, and asyncio turns Nagle off on every connection: fifty clients at once do not wait for the server's own doing.
"""

import asyncio
import gc
import json
import threading
import warnings
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class CallOptions:
    """One request. ``number`` counts them from 0."""

    number: int
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.body)


class Out:
    """How a test answers."""

    def __init__(self, writer, reader=None):
        self.writer, self.reader = writer, reader
        self.is_closed = False

    async def head(self, status=200, **headers):
        lines = [f"HTTP/1.1 {status} X", *(f"{key.replace('_', '-')}: {value}" for key, value in headers.items()), "", ""]
        await self.send("\r\n".join(lines).encode())

    async def whole(self, body, status=200, content_type="application/json", **headers):
        data = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
        await self.head(status, content_type=content_type, content_length=len(data), **headers)
        await self.send(data)

    async def chunked(self, content_type="text/event-stream", **headers):
        await self.head(content_type=content_type, transfer_encoding="chunked", **headers)

    async def chunk(self, data):
        await self.send(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    async def event(self, data):
        """One server-sent event."""
        text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
        await self.chunk(f"data: {text}\n\n".encode())

    async def finish(self):
        await self.chunk(b"")

    async def send(self, data):
        self.writer.write(data)
        await self.writer.drain()

    def close(self):
        """Drop the connection, whatever was promised."""
        self.is_closed = True
        self.writer.close()


class WireServer:
    """``server.reply`` is a coroutine function (asked, out); ``server.asked`` keeps what came, ``peak`` how many at once."""

    def __init__(self):
        self.reply = None
        self.asked: list[CallOptions] = []
        self.connections = self.in_flight = self.peak = 0
        self._loop = asyncio.new_event_loop()
        self._tasks = {}
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=512), self._loop
        ).result()
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    def answers(self, reply):
        """A test's answer; forgets what came before."""
        self.reply = reply
        self.asked.clear()
        self.peak = self.connections = 0
        return self

    def stop(self):
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _stop(self):
        self._server.close()
        tasks = dict(self._tasks)
        for task, writer in tasks.items():
            task.cancel()
            writer.transport.abort()  # close() would wait for a client that reads no more, and the loop ends
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # the sockets are closed in the next step of the loop

    async def _serve(self, reader, writer):
        self._tasks[asyncio.current_task()] = writer
        self.connections += 1
        try:
            while (asked := await self._read(reader)) is not None:
                self.in_flight += 1
                self.peak = max(self.peak, self.in_flight)
                out = Out(writer, reader)
                try:
                    await self.reply(asked, out)
                finally:
                    self.in_flight -= 1
                if out.is_closed:
                    return
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.pop(asyncio.current_task(), None)
            writer.close()

    async def _read(self, reader):
        head = await reader.readline()
        if not head:
            return None
        headers = {}
        while line := (await reader.readline()).strip():
            key, _, value = line.decode().partition(":")
            headers[key.lower()] = value.strip()
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        asked = CallOptions(len(self.asked), head.decode().split()[1], headers, body)
        self.asked.append(asked)
        return asked


def end_connections() -> None:
    """Let connections of dropped clients end here, and not in whatever test runs when they are collected."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
