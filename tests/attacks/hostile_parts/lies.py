"""What a lying server does, by name, and what may be booked for it.

A lie is a coroutine function ``(wire, asked, out)``. ``free``: the server turned the request down, nothing may be booked.
``charged``: nobody can know that it did not charge the most, so the bound of each attempt has to be booked. ``open``: the
answer may be used as it stands, if it costs no more than the bound.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from .lying_server import Asked, Out
from .wires import Wire

Money = Literal["free", "charged", "open"]
Lie = Callable[[Wire, Asked, Out], Awaitable[None]]


@dataclass(frozen=True)
class Kind:
    """One lie. ``only``: for whole answers, or for streams; None for both. ``is_large``: it is about memory.

    ``bill``: by wire, tokens of prompt and answer, and of the prompt those read from a cache and written to it, which have to
    be booked at least.
    """

    name: str
    lie: Lie
    money: Money
    only: Literal["whole", "stream"] | None = None
    is_large: bool = False
    bill: Mapping[str, tuple[int, int, int, int]] = field(default_factory=dict)


KINDS: list[Kind] = []


def kind(money: Money, only: Literal["whole", "stream"] | None = None, *, is_large: bool = False) -> Callable[[Lie], Lie]:
    """Add a lie to :data:`KINDS`."""

    def add(lie: Lie) -> Lie:
        KINDS.append(Kind(lie.__name__, lie, money, only, is_large))
        return lie

    return add


async def begin(wire: Wire, asked: Asked, out: Out, **headers: object) -> None:
    """Send the head of an answer as it was asked for, with a chunked body."""
    content_type = wire.stream_type if asked.is_streamed else "application/json"
    await out.head(content_type=content_type, transfer_encoding="chunked", **headers)


async def answer(wire: Wire, asked: Asked, out: Out, usage: Any = None) -> None:
    """Answer correctly but for the usage."""
    if not asked.is_streamed:
        return await out.whole(wire.whole(usage=usage))
    await begin(wire, asked, out)
    for part in (wire.piece("four"), wire.end(usage), b"" if wire.stream_type.startswith("app") else b"data: [DONE]\n\n"):
        if part and not (part.startswith(b"data: [DONE]") and wire.name in ("gemini", "vertex", "anthropic")):
            await out.chunk(part)
    return await out.chunk(b"")


# -- that never end


@kind("charged")
async def header_bytes(wire: Wire, asked: Asked, out: Out) -> None:
    await out.send(b"HTTP/1.1 200 OK\r\nx-slow: ")
    await out.repeat(b"x")


@kind("charged")
async def silence(wire: Wire, asked: Asked, out: Out) -> None:
    await out.repeat(b"", 0.1)


@kind("charged")
async def informational_for_ever(wire: Wire, asked: Asked, out: Out) -> None:
    await out.repeat(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" * 50, 0.001)


@kind("charged")
async def body_of_blanks(wire: Wire, asked: Asked, out: Out) -> None:
    await begin(wire, asked, out)
    await out.repeat(b"1\r\n \r\n" if not asked.is_streamed else _chunk(wire.idle()))


@kind("charged", "stream")
async def keep_alive_flood(wire: Wire, asked: Asked, out: Out) -> None:
    await begin(wire, asked, out)
    await out.repeat(_chunk(wire.idle() * 500), 0.001)


@kind("charged", "stream")
async def empty_deltas(wire: Wire, asked: Asked, out: Out) -> None:
    await begin(wire, asked, out)
    await out.repeat(_chunk(wire.piece("")))


@kind("charged", "stream")
async def endless_words(wire: Wire, asked: Asked, out: Out) -> None:
    await begin(wire, asked, out)
    await out.repeat(_chunk(wire.piece("x") * 20), 0.005)


@kind("charged", "whole")
async def endless_body(wire: Wire, asked: Asked, out: Out) -> None:
    await begin(wire, asked, out)
    await out.chunk(wire.whole()[:20])
    await out.repeat(_chunk(b"x" * 100), 0.005)


@kind("open", "stream")
async def bytes_after_the_usage(wire: Wire, asked: Asked, out: Out) -> None:
    await begin(wire, asked, out)
    await out.chunk(wire.piece("four") + wire.end())
    await out.repeat(_chunk(wire.idle()))


@kind("charged", "stream")
async def empty_deltas_after_the_end(wire: Wire, asked: Asked, out: Out) -> None:
    await begin(wire, asked, out)
    await out.chunk(wire.piece("four") + wire.finished())
    await out.repeat(_chunk(wire.piece("")))


@kind("charged")
async def slow_gzip(wire: Wire, asked: Asked, out: Out) -> None:
    await begin(wire, asked, out, content_encoding="gzip")
    for byte in gzip.compress(b" " * 10**6, 1) * 20:
        await out.chunk(bytes([byte]))
        await asyncio.sleep(0.02)


@kind("charged")
async def slow_chunk_size(wire: Wire, asked: Asked, out: Out) -> None:
    await begin(wire, asked, out)
    await out.repeat(b"0")


@kind("charged")
async def slow_length(wire: Wire, asked: Asked, out: Out) -> None:
    content_type = wire.stream_type if asked.is_streamed else "application/json"
    await out.head(content_type=content_type, content_length=10**12)
    await out.repeat(b"\n")


# -- that are too large


@kind("charged", is_large=True)
async def gzip_bomb(wire: Wire, asked: Asked, out: Out) -> None:
    content_type = wire.stream_type if asked.is_streamed else "application/json"
    await out.whole(_bomb(b" " * (1 << 20)), content_type=content_type, content_encoding="gzip")


@kind("charged", is_large=True)
async def gzip_bomb_of_lines(wire: Wire, asked: Asked, out: Out) -> None:
    content_type = wire.stream_type if asked.is_streamed else "application/json"
    await out.whole(_bomb(b"data: x\n" * (1 << 17)), content_type=content_type, content_encoding="gzip")


@kind("charged", is_large=True)
async def flood_without_a_line(wire: Wire, asked: Asked, out: Out) -> None:
    await begin(wire, asked, out)
    await out.repeat(_chunk(b"x" * (1 << 20)), 0)


@kind("charged", is_large=True)
async def flood_of_lines(wire: Wire, asked: Asked, out: Out) -> None:
    await begin(wire, asked, out)
    await out.repeat(_chunk(b"data: x\n" * (1 << 13)), 0)


@kind("charged", is_large=True)
async def flood_of_headers(wire: Wire, asked: Asked, out: Out) -> None:
    await out.send(b"HTTP/1.1 200 OK\r\n")
    await out.repeat(b"x-a: " + b"y" * 1000 + b"\r\n", 0)


@kind("charged", is_large=True)
async def tiny_chunks(wire: Wire, asked: Asked, out: Out) -> None:
    await begin(wire, asked, out)
    await out.repeat(b"1\r\n \r\n" * 10_000, 0)


@kind("charged", is_large=True)
async def chunk_of_a_terabyte(wire: Wire, asked: Asked, out: Out) -> None:
    await begin(wire, asked, out)
    await out.send(b"ffffffffff\r\n")
    await out.repeat(b"x" * (1 << 20), 0)


# -- that break off or are nonsense


@kind("charged")
async def reset_before_the_answer(wire: Wire, asked: Asked, out: Out) -> None:
    pass


@kind("charged")
async def cut_after_its_200(wire: Wire, asked: Asked, out: Out) -> None:
    await begin(wire, asked, out)
    await out.chunk(wire.piece("fo") if asked.is_streamed else wire.whole()[:30])


@kind("charged", "whole")
async def shorter_than_promised(wire: Wire, asked: Asked, out: Out) -> None:
    data = wire.whole()
    await out.head(content_type="application/json", content_length=len(data) + 100)
    await out.send(data)


@kind("charged", "whole")
async def longer_than_promised(wire: Wire, asked: Asked, out: Out) -> None:
    data = wire.whole()
    await out.head(content_type="application/json", content_length=len(data) - 5)
    await out.send(data)


@kind("charged")
async def error_with_a_200(wire: Wire, asked: Asked, out: Out) -> None:
    problem = {"error": {"message": "no", "code": "server_error"}}
    if not asked.is_streamed:
        return await out.whole(json.dumps(problem).encode())
    await begin(wire, asked, out)
    await out.chunk(wire.event(problem))
    return await out.chunk(b"")


@kind("charged")
async def page_with_a_200(wire: Wire, asked: Asked, out: Out) -> None:
    await out.whole(b"<html>hello</html>", content_type="text/html")


@kind("charged")
async def nul_bytes(wire: Wire, asked: Asked, out: Out) -> None:
    await _all(wire, asked, out, bytes(1000))


@kind("charged")
async def invalid_utf8(wire: Wire, asked: Asked, out: Out) -> None:
    await _all(wire, asked, out, wire.event(b'{"\xff\xfe": "\xc3\x28"}') if asked.is_streamed else b'{"\xff\xfe": "\xc3\x28"}')


@kind("charged")
async def deep_json(wire: Wire, asked: Asked, out: Out) -> None:
    deep = b'{"a":' * 50_000
    await _all(wire, asked, out, wire.event(deep) if asked.is_streamed else deep)


@kind("charged")
async def wrong_types(wire: Wire, asked: Asked, out: Out) -> None:
    for value in ([], 7):
        odd = json.dumps(dict.fromkeys(("choices", "candidates", "output", "text", "delta", "meta_info"), value)).encode()
    await _all(wire, asked, out, wire.event(odd) if asked.is_streamed else odd)


@kind("charged")
async def list_for_an_answer(wire: Wire, asked: Asked, out: Out) -> None:
    await _all(wire, asked, out, wire.event(b"[[], 1]") if asked.is_streamed else b"[[], 1]")


@kind("charged")
async def empty_body(wire: Wire, asked: Asked, out: Out) -> None:
    await _all(wire, asked, out, b"")


@kind("charged")
async def brotli(wire: Wire, asked: Asked, out: Out) -> None:
    await out.whole(b"\x0b\x02\x80four\x03", content_encoding="br")


@kind("charged")
async def broken_gzip(wire: Wire, asked: Asked, out: Out) -> None:
    content_type = wire.stream_type if asked.is_streamed else "application/json"
    await out.whole(b"\x1f\x8b\x08\x00nonsense" * 20, content_type=content_type, content_encoding="gzip")


@kind("charged")
async def no_http(wire: Wire, asked: Asked, out: Out) -> None:
    await out.send(b"SSH-2.0-OpenSSH_9.6\r\n" * 20)


@kind("open")
async def surrogates(wire: Wire, asked: Asked, out: Out) -> None:
    if not asked.is_streamed:
        return await out.whole(wire.whole("a\ud800b\x00"))
    await begin(wire, asked, out)
    await out.chunk(wire.piece("a\ud800b\x00") + wire.end())
    return await out.chunk(b"")


@kind("open", "stream")
async def usage_twice_and_text_after_it(wire: Wire, asked: Asked, out: Out) -> None:
    await begin(wire, asked, out)
    await out.chunk(wire.piece("four") + wire.end() + wire.end() + wire.piece(" five"))
    await out.chunk(b"")


# -- that refuse, or seem to


def _status(status: int, money: Money, name: str, body: bytes = b'{"error": {"message": "no"}}', **headers: object) -> None:
    async def lie(wire: Wire, asked: Asked, out: Out) -> None:
        await out.whole(body, status, **headers)

    KINDS.append(Kind(name, lie, money))


for _code in (400, 401, 403, 404, 409, 413, 422, 429):
    _status(_code, "free", f"status_{_code}")
for _code in (408, 500, 502, 504, 520, 524, 599):
    _status(_code, "charged", f"status_{_code}_after_charging")
for _code in (301, 302, 303, 307, 308, 300, 304):
    _status(_code, "free", f"redirect_{_code}", b"", location="/again")
for _name, _value in (("negative", "-5"), ("huge", "9" * 30), ("nonsense", "soon"), ("infinite", "inf"), ("nan", "nan")):
    _status(429, "free", f"retry_after_{_name}", retry_after=_value)


# -- about the usage


def _usage(name: str, value: Any) -> None:
    async def lie(wire: Wire, asked: Asked, out: Out) -> None:
        usage = dict.fromkeys(wire.usage, value) if name != "absent" else {}
        await answer(wire, asked, out, usage)

    KINDS.append(Kind(f"usage_{name}", lie, "open" if name == "float" else "charged"))  # 7.25 becomes 7 in boto3


for _name, _value in (
    ("negative", -1000), ("of_a_billion", 10**9), ("of_401_digits", 10**400), ("float", 7.25), ("text", "many"), ("list", [1]),
    ("nested", {"n": {"n": 1}}), ("nan", float("nan")), ("infinite", float("inf")), ("zero", 0), ("absent", None),
):  # fmt: skip
    _usage(_name, _value)


async def _all(wire: Wire, asked: Asked, out: Out, data: bytes) -> None:
    content_type = wire.stream_type if asked.is_streamed else "application/json"
    await out.whole(data, content_type=content_type)


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


@cache
def _bomb(block: bytes) -> bytes:
    """Return 256 MiB of a block, compressed to a few megabytes or less."""
    made = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join([*(made.compress(block) for _ in range(256)), made.flush()])


# -- that state usage too early, or too little


@kind("charged", "stream")
async def usage_before_the_end(wire: Wire, asked: Asked, out: Out) -> None:
    """A count with the first piece, none with the end: it is of a part of the answer."""
    await begin(wire, asked, out)
    await out.chunk(wire.piece("four", wire.few()))
    for _ in range(50):
        await out.chunk(wire.piece("and more than was counted "))
    await out.chunk(wire.finished())
    await out.chunk(b"")


@kind("charged", "stream")
async def usage_before_more_text(wire: Wire, asked: Asked, out: Out) -> None:
    """The end with its count, and then more text."""
    await begin(wire, asked, out)
    await out.chunk(wire.piece("four"))
    await out.chunk(wire.end(wire.few()))
    await out.chunk(wire.piece("and more than was counted " * 30))
    await out.chunk(b"")


@kind("charged")
async def few_tokens_for_much_text(wire: Wire, asked: Asked, out: Out) -> None:
    """One token for 750 characters."""
    if not asked.is_streamed:
        return await out.whole(wire.whole("x" * 750, wire.few()))
    await begin(wire, asked, out)
    await out.chunk(wire.piece("x" * 750))
    await out.chunk(wire.end(wire.few()))
    return await out.chunk(b"")


@kind("charged", "stream")
async def an_error_in_the_stream(wire: Wire, asked: Asked, out: Out) -> None:
    """HTTP 200, and an error as the first or a later event: the model may have worked."""
    await begin(wire, asked, out)
    if asked.number % 2:
        await out.chunk(wire.piece("four"))
    await out.chunk(wire.error(503 if asked.number % 3 else 429))
    await out.chunk(b"")
