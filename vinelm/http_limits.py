"""Limits on the clients of an HTTP server: connections, bytes and seconds. Uvicorn itself sets no limit in seconds."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

Told = Callable[[int, str], Any]
"""Makes the JSON of a refusal from its status and its text."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits on what a client may send, and on how long it may take.

    Attributes:
        connections: the maximum number of open connections; further connections are answered with 503 and closed.
        head_bytes: the maximum number of bytes of the request line and all headers together.
        body_bytes: the maximum number of bytes of the request's body.
        head_s: the maximum seconds from the connection to the end of the headers, even if bytes arrive slowly.
        body_s: the maximum seconds from the end of the headers to the end of the body.
        answer_s: the maximum seconds that the client may take to receive the answer.
    """

    connections: int = 64
    head_bytes: int = 16 * 1024
    body_bytes: int = 64 * 1024
    head_s: float = 10.0
    body_s: float = 20.0
    answer_s: float = 20.0


def _plain(status: int, text: str) -> Any:
    return {"error": text}


def bounded_protocol(limits: HttpLimits, told: Told = _plain) -> type[H11Protocol]:
    """Return a subclass of uvicorn's protocol class that enforces the limits on connections, headers and seconds. The
    application itself must limit bodies.

    ``told(status, text)`` returns the JSON body of an error answer.
    """

    class Bounded(_BoundedProtocol):
        bounds = limits
        tell = staticmethod(told)

    return Bounded


class _BoundedProtocol(H11Protocol):
    """One connection of a client. Timers close it if the headers arrive too slowly, or if the client reads the answer too
    slowly.
    """

    bounds = HttpLimits()
    tell: Told = staticmethod(_plain)
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request, or refuse the connection if too many are open."""
        super().connection_made(transport)
        if len(self.connections) > self.bounds.connections:
            text = json.dumps(self.tell(503, "too many connections")).encode()
            head = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
            transport.write(head + text + b"\n")
            transport.close()
        else:
            self._end_after(self.bounds.head_s)

    def data_received(self, data: bytes) -> None:
        """Read data. The timer of the headers stops once the headers are complete, and starts for the headers of the
        next request.
        """
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:  # the head of the next request trickles in
            if self._deadline is None and not self.transport.is_closing():
                self._end_after(self.bounds.head_s)
        elif self.flow.write_paused is False:
            self._keep()

    def pause_writing(self) -> None:
        """Start the timer that closes the connection if the client reads its answer too slowly."""
        super().pause_writing()
        self._end_after(self.bounds.answer_s)

    def resume_writing(self) -> None:
        """Stop the timer and continue writing, since the client has read the pending part of its answer."""
        super().resume_writing()
        self._keep()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the connection's timer, and let uvicorn remove the connection."""
        self._keep()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Send a JSON error and close the connection if a request is unreadable, or its headers are too long (status
        431).

        Called by uvicorn while it handles the parser's error.
        """
        error = sys.exc_info()[1]
        status = error.error_status_hint if isinstance(error, h11.RemoteProtocolError) else 400
        text = f"request line and headers are longer than {self.bounds.head_bytes} bytes" if status == 431 else "Bad Request"
        headers = [("Content-Type", "application/json"), ("Connection", "close")]
        for event in (
            h11.Response(status_code=status, headers=headers),
            h11.Data(data=json.dumps(self.tell(status, text)).encode() + b"\n"),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _end_after(self, seconds: float) -> None:
        self._keep()
        self._deadline = self.loop.call_later(seconds, self.transport.abort)

    def _keep(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
