"""The body of a response: decompressed in small steps, and refused where it is larger than any answer."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vinelm.backends.http.deadline import Deadline
from vinelm.backends.remote.retry import AttemptFailed

ACCEPTED = "gzip, deflate"
"""The encodings that are asked for: the standard library decompresses them step by step."""
MIB = 1 << 20
STEP = 1 << 16
"""Bytes that are decompressed at once."""
MAX_LINES = 1000
"""The most lines of one event: SDKs take time for the square of it."""
_STREAMS = ("text/event-stream", "application/vnd.amazon.eventstream")
_BLANK_LINES = (b"\n\n", b"\r\n\r\n", b"\r\r")


@dataclass(frozen=True)
class BodyLimits:
    """The most bytes of a response, decompressed.

    ``whole``: of one that is not streamed, and of each event of a stream: it is parsed at once. ``stream``: of all events
    together; None where an honest stream repeats the text so far in each event.
    """

    whole: int = 16 * MIB
    stream: int | None = 256 * MIB


class AnswerBody:
    """Decompresses and measures one response. Raises :class:`AttemptFailed` beyond a limit, or when its time is over."""

    def __init__(self, headers: Mapping[str, str], limits: BodyLimits, deadline: Deadline) -> None:
        self._decompressor = _decompressor(headers.get("content-encoding", "").strip().lower())
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        self._is_stream = kind in _STREAMS
        self._limits, self._deadline = limits, deadline
        self._limit = limits.stream if self._is_stream else limits.whole
        self._has_events = kind == "text/event-stream"
        self._total = self._event = self._lines = 0
        self._tail = b""

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Yield what ``data``, the next bytes from the wire, decompress to."""
        for piece in self._decompressed(data):
            self._deadline.left()
            self._total += len(piece)
            if self._limit is not None and self._total > self._limit:
                raise _too_large(self._limit)
            if self._has_events:
                self._measure_event(piece)
            yield piece

    def _decompressed(self, data: bytes) -> Iterator[bytes]:
        if self._decompressor is None:
            yield data
            return
        while data:
            try:
                piece = self._decompressor.decompress(data, STEP)
            except zlib.error:
                if self._total:
                    raise _unreadable() from None
                self._decompressor = _raw_deflate(data)  # what some servers call deflate
                continue
            if piece:
                yield piece
            data = self._decompressor.unconsumed_tail

    def _measure_event(self, piece: bytes) -> None:
        """Measure the event that has not ended yet: events end with a blank line."""
        joined = self._tail + piece
        self._tail = joined[-3:]
        end = max(joined.rfind(blank) for blank in _BLANK_LINES)
        if end >= 0:
            self._event = self._lines = 0
            piece = joined[end:]
        self._event += len(piece)
        self._lines += piece.count(b"\n")
        if self._event > self._limits.whole or self._lines > MAX_LINES:
            raise _too_large(self._limits.whole)


def _decompressor(encoding: str) -> Any:
    """Return the decompressor of a content encoding; None if there is none to undo."""
    if encoding in ("", "identity"):
        return None
    if encoding in ("gzip", "x-gzip", "deflate"):
        return zlib.decompressobj(zlib.MAX_WBITS | 32)  # finds out whether it is gzip or zlib
    raise AttemptFailed("malformed", f"the server compressed its answer, but not as asked ({ACCEPTED})", is_final=True)


def _raw_deflate(data: bytes) -> Any:
    """Return a decompressor of deflate without zlib's header; :class:`AttemptFailed` if ``data`` is not that either."""
    made = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        made.copy().decompress(data, STEP)
    except zlib.error:
        raise _unreadable() from None
    return made


def _unreadable() -> AttemptFailed:
    return AttemptFailed("malformed", "the server's answer cannot be decompressed")


def _too_large(limit: int) -> AttemptFailed:
    return AttemptFailed("malformed", f"the server's answer is larger than {limit // MIB} MiB", is_final=True)
