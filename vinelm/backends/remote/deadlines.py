"""Ends every socket wait of a synchronous call, in the caller's own thread, at the attempt's deadline.

The time limits of an SDK apply to each read separately, so a server that sends a byte now and then never times out. Here each
read and write of a socket may take only the time left until the deadline of its thread's attempt. No other thread is needed,
and Ctrl-C interrupts the wait at once. The HTTP library closes the connection after a failed read.
"""

from __future__ import annotations

import importlib
import ipaddress
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from types import ModuleType
from typing import Any

from vinelm.threads import beside

SENT_AT_ONCE = 1 << 16
"""Up to this many bytes of a request are buffered to be sent together."""
END_S = 0.1
"""Seconds to wait for the end of a stream after its last event, as openai's asynchronous streams do."""


class Deadline:
    """The deadline of one attempt, as a context manager around each step of the attempt, in whichever thread the step runs.

    Attributes:
        ends_at: when the attempt has to end, in ``time.monotonic()`` seconds.
        has_struck: whether the deadline has ended a wait.

    Args:
        timeout_s: how long the attempt may take, in seconds.
    """

    __slots__ = ("_outer", "ends_at", "has_struck")

    def __init__(self, timeout_s: float) -> None:
        self.ends_at = time.monotonic() + timeout_s
        self.has_struck = False
        self._outer: Deadline | None = None

    def __enter__(self) -> None:
        outer = self._outer = _HERE.deadline
        if outer is not None:  # a chat model that calls another chat model
            self.ends_at = min(self.ends_at, outer.ends_at)
        _HERE.deadline = self

    def __exit__(self, *raised: object) -> None:
        _HERE.deadline = self._outer


class _Here(threading.local):
    """A thread-local variable: the deadline of the attempt on which the thread is working; None outside of an attempt."""

    deadline: Deadline | None = None


_HERE = _Here()
_TASK_ENDS_AT: ContextVar[float] = ContextVar("the end of the attempt that a coroutine makes", default=float("inf"))


@contextmanager
def task_deadline(ends_at: float) -> Iterator[None]:
    """Set ``ends_at`` as the deadline for the coroutine that runs the block, in ``time.monotonic()`` seconds; see
    :func:`check_time`.
    """
    before = _TASK_ENDS_AT.set(ends_at)
    try:
        yield
    finally:
        _TASK_ENDS_AT.reset(before)


def check_time(late: type[Exception]) -> None:
    """Raise an error of the class ``late`` if the deadline of the current attempt has passed.

    Called between two waits, during work that no other time limit ends.
    """
    deadline = _HERE.deadline
    if time.monotonic() > (_TASK_ENDS_AT.get() if deadline is None else deadline.ends_at):
        _strike()
        raise late("no end in time")


def bound_waits(client: Any) -> bool:
    """Change an HTTP client (of httpx or its successor) so that :class:`Deadline` ends its waits. Return whether this was
    possible.

    If it was not, the client is unchanged. It is impossible for a proxy that is reached by TLS, because the library then reads
    the server's data through a second TLS layer.
    """
    ways = [way for way in (client._transport, *client._mounts.values()) if way is not None]
    for pool in [getattr(way, "_pool", None) for way in ways]:
        if not hasattr(pool, "_network_backend"):  # the library has changed
            return False
        proxy = getattr(pool, "_proxy", None)
        url = getattr(pool, "_proxy_url", None) or (proxy.url if proxy is not None else None)
        if url is not None and url.scheme == b"https":
            return False
    for way in ways:
        way._pool._network_backend = _Network(way._pool._network_backend)
        way._pool = _Pool(way._pool)
    return True


class _Pool:
    """A connection pool that reads a stream to its end if only the end marker is left, so that the connection can be reused.

    openai's synchronous streams stop reading at ``[DONE]``, and the library closes connections that are not read to their end.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def handle_request(self, request: Any) -> Any:
        response = self._inner.handle_request(request)
        response.stream = _Answer(response.stream)
        return response

    def close(self) -> None:
        self._inner.close()

    def __enter__(self) -> _Pool:
        self._inner.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._inner.__exit__(*raised)


class _Answer:
    def __init__(self, inner: Any) -> None:
        self._inner, self._pieces, self._last = inner, iter(inner), b""

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            self._last = piece
            yield piece

    def close(self) -> None:
        if b"[DONE]" in self._last[-32:]:
            with suppress(Exception), Deadline(END_S):  # whatever client reads the stream
                for _ in self._pieces:
                    pass
        self._inner.close()


class _Network:
    """A network backend of httpcore or its successor. The waits of its connections end at the deadline of the attempt."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._errors = importlib.import_module(type(inner).__module__.partition(".")[0])

    def connect_tcp(self, host: str, port: int, timeout: float | None = None, **how: Any) -> _Stream:
        """Open a connection. Names are resolved in a thread, because the operating system's resolver has no time limit."""
        return self._stream(lambda left: self._inner.connect_tcp(host, port, left, **how), timeout, waits=not _is_address(host))

    def connect_unix_socket(self, path: str, timeout: float | None = None, **how: Any) -> _Stream:
        return self._stream(lambda left: self._inner.connect_unix_socket(path, left, **how), timeout, waits=False)

    def sleep(self, seconds: float) -> None:
        self._inner.sleep(seconds)

    def _stream(self, connect: Callable[[float | None], Any], timeout: float | None, *, waits: bool) -> _Stream:
        left = _left(timeout, self._errors.ConnectTimeout)
        try:
            made = _beside(lambda: connect(left), left) if waits and left is not None else connect(left)
        except TimeoutError:
            _strike()
            raise self._errors.ConnectTimeout from None
        except self._errors.ConnectTimeout:
            _strike()
            raise
        return _Stream(made, self._errors)


class _Stream:
    """A network connection of httpcore or its successor, in which each wait ends at the deadline of the attempt."""

    def __init__(self, inner: Any, errors: ModuleType) -> None:
        self._inner, self._errors = inner, errors
        self._unsent = b""
        self._socket: Any = inner.get_extra_info("socket")

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._unsent:
            with suppress(self._errors.WriteError):  # like the library, still read the answer of a server that no longer reads
                self._send(timeout)
        try:
            self._socket.settimeout(_left(timeout, self._errors.ReadTimeout))
            received: bytes = self._socket.recv(max_bytes)
        except TimeoutError:
            _strike()
            raise self._errors.ReadTimeout from None
        except OSError as error:
            raise self._errors.ReadError(str(error)) from error
        return received

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Buffer data, and send the buffer once it is large or an answer is awaited, so that a request's head and body are sent
        together.
        """
        self._unsent = self._unsent + buffer if self._unsent else buffer
        if len(self._unsent) > SENT_AT_ONCE:
            self._send(timeout)

    def _send(self, timeout: float | None) -> None:
        rest, self._unsent = memoryview(self._unsent), b""
        try:
            while rest:
                self._socket.settimeout(_left(timeout, self._errors.WriteTimeout))
                rest = rest[self._socket.send(rest) :]
        except TimeoutError:
            _strike()
            raise self._errors.WriteTimeout from None
        except OSError as error:
            raise self._errors.WriteError(str(error)) from error

    def close(self) -> None:
        with suppress(OSError):  # wakes whatever still waits for it in another thread
            self._socket.shutdown(2)
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> _Stream:
        left = _left(timeout, self._errors.ConnectTimeout)
        try:
            return _Stream(self._inner.start_tls(ssl_context, server_hostname, left), self._errors)
        except self._errors.ConnectTimeout:
            _strike()
            raise

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


def _left(timeout: float | None, late: type[Exception]) -> float | None:
    """Return the seconds that a step may wait: until the deadline, but at most ``timeout``. None means without limit.

    Raises ``late`` if no time is left, even if data has arrived.
    """
    deadline = _HERE.deadline
    if deadline is None or deadline.ends_at == float("inf"):
        return timeout
    left = deadline.ends_at - time.monotonic()
    if left <= 0.0:
        deadline.has_struck = True
        raise late
    return left if timeout is None or left < timeout else timeout


def _strike() -> None:
    """Set ``has_struck`` of this thread's :class:`Deadline` if that deadline has passed; do nothing if a shorter limit of the
    SDK ended the wait.
    """
    deadline = _HERE.deadline
    if deadline is not None and time.monotonic() >= deadline.ends_at:
        deadline.has_struck = True


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _beside(connect: Callable[[], Any], timeout_s: float) -> Any:
    """Call ``connect`` in a thread, wait for the connection and return it.

    Raise ``TimeoutError`` after ``timeout_s`` seconds; the connection is then closed as soon as it is opened.
    """
    made = beside(connect, name="vinelm connection")
    try:
        return made.result(timeout_s)
    except BaseException:
        made.add_done_callback(_closed)
        raise


def _closed(made: Future[Any]) -> None:
    if made.exception() is None:
        made.result().close()
