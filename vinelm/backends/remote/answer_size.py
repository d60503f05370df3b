"""Limits the size of an answer: an HTTP client reads at most :data:`MOST_BYTES`, and decompresses to at most that size."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import cache
from typing import Any

from vinelm.backends.remote.deadlines import check_time
from vinelm.backends.remote.retry import AttemptFailed

MOST_BYTES = 64 << 20
"""The limit for one answer, decompressed. The events of 128,000 tokens, streamed one by one, have about 45 MiB."""
MOST_COPIED = 4 << 30
"""How many bytes an SDK may copy for one event of a stream, since it copies the event so far with every line and piece: about a
second's work, for an event of 20 MiB or one of 20,000 lines."""


@cache
def library_of(kind: type) -> Any:
    """Return the HTTP library, ``httpx`` or its successor, that defines the class ``kind`` or one of its base classes.

    ``kind`` is the class of a client or of a response.
    """
    homes = [base.__module__.partition(".")[0] for base in kind.__mro__]
    return importlib.import_module(next(home for home in homes if home.startswith("httpx")))


def bound_answers(client: Any, *, is_async: bool) -> None:
    """Limit the answers of an HTTP client (httpx's or its successor's) to :data:`MOST_BYTES`. A larger answer fails as if it
    could not be decoded.

    A compressed answer of some kilobytes can unpack to gigabytes, and the SDKs hold a whole answer in memory.
    """

    async def bound(response: Any) -> None:
        _bound(response)

    client.event_hooks["response"].append(bound if is_async else _bound)


def _bound(response: Any) -> None:
    if hasattr(response, "_get_content_decoder"):  # else the library has changed
        response._decoder = _Bounded(response._get_content_decoder(), response)


class _Bounded:
    """Wraps an HTTP client's decompressor, and raises an error once a response has grown too large.

    Handles decoders that return all bytes at once (httpx) and decoders that return pieces (its successor).
    """

    def __init__(self, inner: Any, response: Any) -> None:
        self._inner, self._response = inner, response
        self._library = library_of(response.__class__)
        self._made = self._event = self._copied = 0
        self._is_stream = "event-stream" in response.headers.get("content-type", "")

    def decode(self, data: bytes) -> Any:
        if len(getattr(self._inner, "children", ())) > 1:
            raise self._refused("is compressed twice")  # a piece of 64 kB may unfold to 64 GB at once
        return self._all_counted(self._inner.decode(data))

    def flush(self) -> Any:
        return self._all_counted(self._inner.flush())

    def _all_counted(self, made: Any) -> Any:
        return self._counted(made) if isinstance(made, bytes) else map(self._counted, made)

    def _counted(self, made: bytes) -> bytes:
        check_time(self._library.ReadTimeout)  # a few bytes from the socket may take minutes to process
        self._made += len(made)
        if self._made > MOST_BYTES:
            raise self._refused(f"is larger than {MOST_BYTES >> 20} MiB")
        if self._is_stream:
            begins = max(made.rfind(b"\n\n"), made.rfind(b"\r\n\r\n"))
            if begins >= 0:
                self._event = self._copied = 0
            begins = max(begins, 0)
            self._event += len(made) - begins
            self._copied += (1 + made.count(b"\n", begins)) * self._event
            if self._copied > MOST_COPIED:
                raise self._refused("has an event that is too large")
        return made

    def _refused(self, why: str) -> Exception:
        error: Exception = self._library.DecodingError(f"the answer {why}", request=self._response.request)
        return error


class BoundedSession:
    """A botocore HTTP session whose answers may have at most :data:`MOST_BYTES` bytes and must arrive before the attempt's
    deadline.

    An answer shorter than its stated length is an error, although botocore accepts it by default. The session decompresses
    nothing.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def send(self, request: Any) -> Any:
        """Send a request as botocore's own session does. Reading the answer raises an error if it is too large or arrives too
        late.
        """
        is_stream, request.stream_output = request.stream_output, True  # so that nothing is read before it is bounded
        answer = self._inner.send(request)
        answer.raw.enforce_content_length = True
        answer.raw = _BoundedBody(answer.raw)
        if not is_stream:
            answer.content  # noqa: B018 - reads it
        return answer


class _BoundedBody:
    """The body of a urllib3 response; reading it raises an error once it is too large or the attempt's deadline has passed."""

    def __init__(self, raw: Any) -> None:
        self._raw, self._read = raw, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    def stream(self, *how: Any, **more: Any) -> Iterator[bytes]:
        for piece in self._raw.stream(*how, **more):
            check_time(TimeoutError)
            yield self._counted(piece)

    def read(self, amt: int | None = None) -> bytes:
        return b"".join(self.stream()) if amt is None else self._counted(self._raw.read(amt))

    def _counted(self, piece: bytes) -> bytes:
        self._read += len(piece)
        if self._read > MOST_BYTES:
            raise AttemptFailed("server", f"the answer is larger than {MOST_BYTES >> 20} MiB")
        return piece
