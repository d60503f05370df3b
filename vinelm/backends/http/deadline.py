"""A wall-clock limit for one HTTP request: every connect, handshake, read and write ends with it."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterable
from typing import Any

from vinelm.backends.remote.retry import AttemptFailed

CONNECT_TIMEOUT_S = 15.0
"""The most seconds to connect to one address, and for one TLS handshake."""
NO_LIMIT_S = 600.0
"""Seconds for a request that asks for no limit."""


class Deadline(float):
    """The seconds that a request may take, together with the moment at which they are over.

    It is a float because HTTP libraries hand their timeouts on, unread, to every read and write of the request's connection.
    There :class:`DeadlineStream` finds it and waits only for what is left.
    """

    ends_at: float

    def __new__(cls, seconds: float) -> Deadline:
        """Start a deadline that ends in ``seconds``."""
        made = super().__new__(cls, seconds)
        made.ends_at = time.monotonic() + seconds
        return made

    def left(self, *, is_sent: bool = True) -> float:
        """Return the seconds that are left; :class:`AttemptFailed` (timeout) if there are none.

        ``is_sent``: something of the request may have reached the server.
        """
        left_s = self.ends_at - time.monotonic()
        if left_s <= 0:
            raise AttemptFailed("timeout", f"no end after {float(self):g} s", may_be_billed=is_sent)
        return left_s

    def shorten(self, seconds: float) -> None:
        """End in ``seconds`` at the latest."""
        self.ends_at = min(self.ends_at, time.monotonic() + seconds)


class DeadlineStream:
    """A connection of httpcore, each of whose reads and writes ends at the deadline of the request that it serves."""

    def __init__(self, inner: Any, deadline: Deadline) -> None:
        self._inner = inner
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read what has arrived."""
        data: bytes = self._inner.read(max_bytes, timeout=self._left(timeout))
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send everything. httpcore would wait anew for each part of ``buffer`` that a slow reader takes."""
        sock: socket.socket = self._inner.get_extra_info("socket")
        rest = memoryview(buffer)
        while rest:
            sock.settimeout(self._left(timeout))
            try:
                rest = rest[sock.send(rest) :]
            except TimeoutError:
                # Raises once the deadline is over; until then a slow reader may take its time.
                self._left(timeout)
            except OSError:
                raise AttemptFailed("server", "the connection broke off while the request was sent") from None

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> DeadlineStream:
        """Encrypt the connection."""
        limit_s = min(self._deadline.left(is_sent=False), CONNECT_TIMEOUT_S)
        return DeadlineStream(self._inner.start_tls(ssl_context, server_hostname, limit_s), self._deadline)

    def get_extra_info(self, info: str) -> Any:
        """Return a property of the connection."""
        return self._inner.get_extra_info(info)

    def close(self) -> None:
        """Close the connection."""
        self._inner.close()

    def _left(self, timeout: float | None) -> float:
        if isinstance(timeout, Deadline):  # of the request that uses the connection now
            self._deadline = timeout
        return self._deadline.left()


class DeadlineBackend:
    """Opens connections for httpcore; a ``httpcore.NetworkBackend`` around its own.

    Args:
        inner: httpcore's backend for synchronous connections.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> DeadlineStream:
        """Connect to the first of the host's addresses that answers; each is given what is left of the request's time."""
        deadline = timeout if isinstance(timeout, Deadline) else Deadline(NO_LIMIT_S if timeout is None else timeout)
        for place, address in enumerate(addresses := _addresses(host, port)):
            # Nothing is sent before there is a connection: a failure here costs nothing.
            limit_s = min(deadline.left(is_sent=False), CONNECT_TIMEOUT_S)
            try:
                opened = self._inner.connect_tcp(address, port, limit_s, local_address, socket_options)
            except Exception:
                if place == len(addresses) - 1:
                    raise
            else:
                return DeadlineStream(opened, deadline)
        raise AssertionError("an address at least")

    def connect_unix_socket(self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None) -> Any:
        """Connect to a socket of this machine."""
        return self._inner.connect_unix_socket(path, timeout, socket_options)

    def sleep(self, seconds: float) -> None:
        """Wait between two attempts to connect."""
        self._inner.sleep(seconds)


def _addresses(host: str, port: int) -> list[str]:
    """Return the host's addresses, or the host itself if it has none: connecting to it then says why."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return [host]
    return list(dict.fromkeys(str(info[4][0]) for info in found)) or [host]
