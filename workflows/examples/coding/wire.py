"""How the two processes of the sandbox talk: frames of JSON over a descriptor, and values of built-in types only.

Runs inside the sandbox, so it imports nothing but the standard library. A value is rebuilt from its parts: whatever the other
side writes, what comes back is an object of a built-in type, whose ``==`` and ``repr`` are Python's own.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

MAX_FRAME_BYTES = 1 << 20
MAX_ITEMS = 10_000
"""Items that are taken from an iterator which the code returns."""

_DEPTH = 60
_HEAD = struct.Struct("<I")
_BUILD: dict[str, Callable[[Any], Any]] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset, "iterator": iter}


class NotPlainError(Exception):
    """A value is not built of numbers, texts, bytes, lists, tuples, sets and dicts, or a frame is malformed."""


def send(descriptor: int, frame: dict[str, Any]) -> None:
    """Send one frame; :class:`NotPlainError` if it is too long."""
    try:
        text = json.dumps(frame).encode()
    except (ValueError, RecursionError) as error:  # an int of more than 4,300 digits
        raise NotPlainError(str(error)) from None
    if len(text) > MAX_FRAME_BYTES:
        raise NotPlainError(f"a value of more than {MAX_FRAME_BYTES} bytes")
    data = memoryview(_HEAD.pack(len(text)) + text)
    while data:
        data = data[os.write(descriptor, data) :]


def receive(descriptor: int) -> dict[str, Any] | None:
    """Return the next frame; None if the other side is gone, or says something that is not a frame."""
    head = _exactly(descriptor, _HEAD.size)
    if head is None:
        return None
    (size,) = _HEAD.unpack(head)
    text = _exactly(descriptor, size) if size <= MAX_FRAME_BYTES else None
    return None if text is None else _frame(text)


def frames(data: bytes) -> list[dict[str, Any]]:
    """Return the frames that ``data`` begins with."""
    found = []
    while len(data) >= _HEAD.size:
        (size,) = _HEAD.unpack(data[: _HEAD.size])
        frame = _frame(data[_HEAD.size : _HEAD.size + size])
        if frame is None:
            break
        found.append(frame)
        data = data[_HEAD.size + size :]
    return found


def _frame(text: bytes) -> dict[str, Any] | None:
    try:
        frame = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return frame if isinstance(frame, dict) else None


def _exactly(descriptor: int, size: int) -> bytes | None:
    parts = []
    while size:
        try:
            part = os.read(descriptor, min(size, 65536))
        except ConnectionError:
            return None
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def plain(value: Any, depth: int = _DEPTH) -> Any:
    """Return the value as JSON types. The exact types count: an object of a subclass is not plain."""
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind in (bytes, bytearray):
        return [kind.__name__, value.hex()]
    if kind is complex:
        return ["complex", value.real, value.imag]
    if not depth:
        raise NotPlainError("a value that is nested too deep")
    if kind is dict:
        return ["dict", [[plain(key, depth - 1), plain(inner, depth - 1)] for key, inner in value.items()]]
    if kind in (list, tuple, set, frozenset):
        return [kind.__name__, [plain(inner, depth - 1) for inner in value]]
    if isinstance(value, Iterator):
        return ["iterator", [plain(inner, depth - 1) for inner in islice(value, MAX_ITEMS)]]
    raise NotPlainError(f"an object of type {kind.__name__}: only plain data can be tested")


def value_of(packed: Any) -> Any:
    """Return the value that :func:`plain` packed; :class:`NotPlainError` for anything else."""
    try:
        return _value_of(packed)
    except (ValueError, TypeError, IndexError, KeyError, RecursionError, OverflowError) as error:
        raise NotPlainError(f"a malformed value: {type(error).__name__}") from None


def _value_of(packed: Any) -> Any:
    if not isinstance(packed, list):
        if isinstance(packed, dict):
            raise NotPlainError("a malformed value")
        return packed
    kind, content = packed[0], packed[1]
    if kind == "bytes":
        return bytes.fromhex(content)
    if kind == "bytearray":
        return bytearray.fromhex(content)
    if kind == "complex":
        return complex(float(content), float(packed[2]))
    if kind == "dict":
        return {_value_of(key): _value_of(inner) for key, inner in content}
    return _BUILD[kind]([_value_of(inner) for inner in content])


def update(old: Any, new: Any) -> None:
    """Give a list, set, dict or bytearray the content that it has after a call in the other process."""
    if type(old) is not type(new):
        return
    if isinstance(old, (list, bytearray)):
        old[:] = new
    elif isinstance(old, (dict, set)):
        old.clear()
        old.update(new)
