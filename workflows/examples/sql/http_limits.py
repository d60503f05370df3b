"""What one client of the HTTP service may take: connections, bytes and seconds."""

from __future__ import annotations

import io
import socket
import time
from dataclasses import dataclass
from http.client import HTTPException
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Bounds of the service.

    Attributes:
        connections: those open at a time; one more is answered with 503 and closed.
        head_bytes: of the request line and all headers together.
        body_bytes: of the request's body.
        head_s: seconds from the connection to the end of the headers, however the bytes trickle in.
        body_s: seconds from there to the end of the body.
        answer_s: seconds in which the client must take the answer.
    """

    connections: int = 64
    head_bytes: int = 16 * 1024
    body_bytes: int = 64 * 1024
    head_s: float = 10.0
    body_s: float = 20.0
    answer_s: float = 20.0


class BoundedReader(io.RawIOBase):
    """Reads a socket within a number of bytes and until a time; a timeout per read would let a slow client stay for ever."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._bytes_left = 0
        self._ends_at = 0.0

    def allow(self, n_bytes: int, seconds: float) -> None:
        """Allow that many more bytes, and from now on that many seconds for them."""
        self._bytes_left += n_bytes
        self._ends_at = time.monotonic() + seconds

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Read what is there.

        Raises:
            TimeoutError: the time is over.
            HTTPException: the client sent all that it may, and more is wanted.
        """
        view = memoryview(buffer).cast("B")
        if not self._bytes_left:
            raise HTTPException("too long")
        left_s = self._ends_at - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._connection.settimeout(left_s)
        count = self._connection.recv_into(view[: self._bytes_left])
        self._bytes_left -= count
        return count
